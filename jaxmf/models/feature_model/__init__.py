"""Binary latent features with a likelihood and features of the user's own; open `model.py`."""

from jaxmf.models.feature_model.model import FeatureModel as FeatureModel
