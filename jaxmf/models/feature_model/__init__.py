"""Binary latent features with the user's own likelihood and features; open `feature_model.py`."""

from jaxmf.models.feature_model.feature_model import FeatureModel as FeatureModel
