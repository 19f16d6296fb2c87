"""The estimators by scikit-learn's own checks, and as a user meets them."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from jaxmf.sklearn import LinearGaussianIBPTransformer
from tests.support.estimator_checks import is_on_read_only

# A fixed number of slots and few draws: the checks are about conventions, not about mixing.
QUICK = LinearGaussianIBPTransformer(
    num_features=2, num_warmup=2, num_samples=2, random_state=0, noise_scale=0.5
)

# All of scikit-learn's checks pass, so there are no exceptions to name. Every new shape of data
# is compiled anew: the checks that bring further shapes are left to the slow tests.
FURTHER_SHAPES = {
    "check_fit2d_predict1d",
    "check_fit_score_takes_y",
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_readonly_memmap_input",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_estimators_dtypes",
    "check_dtype_object",
    "check_pipeline_consistency",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_methods_subset_invariance",
    "check_fit2d_1feature",
    "check_dict_unchanged",
    "check_fit_idempotent",
    "check_fit_check_is_fitted",
    "check_n_features_in",
    "check_transformer_data_not_an_array",
}
# Of these, the ones whose likes are among the others: before a release.
FURTHER = {
    "check_fit_score_takes_y",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_f_contiguous_array_estimator",
    "check_dict_unchanged",
    "check_estimators_overwrite_params",
    "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit",
    "check_dtype_object",
    "check_fit_check_is_fitted",
}
# To seven digits: programs that are compiled as the tests' are round a row by where it stands.
EXACT = "check_methods_sample_order_invariance"


def cases():
    for estimator, check in estimator_checks_generator(QUICK, legacy=True):
        name = check.func.__name__
        if name == EXACT:
            continue
        marks = [pytest.mark.slow] if name in FURTHER_SHAPES else []
        marks += [pytest.mark.exhaustive] if name in FURTHER or is_on_read_only(check) else []
        yield pytest.param(estimator, check, id=name, marks=marks)


@pytest.mark.tiers(
    slow=["check_transformer_general0"],
    exhaustive=[
        "check_estimators_dtypes",
        "check_estimators_pickle0",
        "check_fit2d_1feature",
        "check_fit2d_predict1d",
        "check_methods_subset_invariance",
        "check_n_features_in",
        "check_pipeline_consistency",
        "check_transformer_data_not_an_array",
    ],
)
@pytest.mark.parametrize(("estimator", "check"), list(cases()))
def test_conventions_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_the_order_of_rows_does_not_matter_where_programs_are_compiled_as_a_user_has_them():
    program = (
        f"from sklearn.utils.estimator_checks import {EXACT}\n"
        "from tests.sklearn.test_sklearn import QUICK\n"
        f"{EXACT}(type(QUICK).__name__, QUICK)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def images():
    pd = pytest.importorskip("pandas")
    generator = np.random.default_rng(0)
    features = np.kron(np.eye(2), np.ones(4)) * 3
    z = generator.random((40, 2)) < 0.5
    values = z @ features + 0.3 * generator.normal(size=(40, 8))
    # ids of rows and columns, as tables of users have them
    return pd.DataFrame(values, [f"row {n}" for n in range(40)], list("abcdefgh")), z


@pytest.fixture(scope="module")
def fitted(images):
    estimator = LinearGaussianIBPTransformer(
        noise_scale=0.3, feature_scale=2.0, num_warmup=60, num_samples=20, random_state=0
    )
    return estimator.fit(images[0])


def test_features_are_found_and_rows_come_back(images, fitted):
    x, _ = images
    z = fitted.transform(x)
    assert z.shape == (40, fitted.n_components_)
    assert z.dtype == x.to_numpy().dtype
    assert np.sqrt(np.mean((fitted.inverse_transform(z) - x.to_numpy()) ** 2)) < 0.45
    assert -0.2 < fitted.score(x) <= 0
    names = fitted.get_feature_names_out()
    assert names[0] == "lineargaussianibptransformer0"
    assert len(names) == fitted.n_components_
    with pytest.raises(ValueError, match="the estimator has"):
        fitted.inverse_transform(np.ones((3, 99)))


def test_a_score_does_not_see_the_cells_that_it_is_of(images, fitted):
    x, _ = images

    def predict(cells, *, new_rows, num_draws):
        assert len(cells.rows) == round(0.1 * x.size)
        assert np.isnan(new_rows[tuple(cells)]).all()
        assert np.isnan(new_rows).sum() == len(cells.rows)
        return SimpleNamespace(mean=x.to_numpy()[tuple(cells)] + 2.0)

    estimator = copy.copy(fitted)
    estimator.posterior_ = SimpleNamespace(predict=predict)
    assert estimator.score(x) == pytest.approx(-4.0)


def test_fit_transform_clone_and_seed_agree(images, fitted):
    x, _ = images
    np.testing.assert_array_equal(clone(fitted).fit_transform(x), fitted.transform(x))


@pytest.mark.slow
def test_it_stands_in_a_pipeline():
    x = np.random.default_rng(0).normal(size=(30, 3))  # a shape that the checks have too
    pipeline = make_pipeline(StandardScaler(), clone(QUICK))
    assert pipeline.fit_transform(x).shape == (30, 2)
