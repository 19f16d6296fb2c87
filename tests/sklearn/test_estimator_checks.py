"""The estimators by scikit-learn's own checks: all of them, without an exception.

What needs no fit is among the default tests. Checks bring shapes of their own, and every new shape
is compiled anew: of those that fit a few are slow tests, the others are run before a release.
`RatingRecommender` is not here: its X are ids, and the checks bring one to ten columns of numbers
(`test_estimators.py` has it). `FactorImputer` is the estimator of the same model for matrices.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn")

from sklearn.utils.estimator_checks import estimator_checks_generator

from jaxmf.sklearn import (
    BiclusterMF,
    FactorImputer,
    MixtureClusterer,
    NoisyOrTransformer,
    SparseBinaryRecommender,
    TopicModel,
)
from tests.support.estimator_checks import is_on_read_only

FEW = {"num_warmup": 2, "num_samples": 2, "random_state": 0}
# Few draws: the checks are about conventions, not about mixing; but clusters must be found.
QUICK = {
    "factors": FactorImputer(n_components=2, **FEW),
    "biclusters": BiclusterMF(2, 2, sweep="whole_rows", **FEW),
    "mixture": MixtureClusterer(num_warmup=20, num_samples=5, random_state=0),
    "noisy-or": NoisyOrTransformer(2, **FEW),
    "sparse binary": SparseBinaryRecommender(2, num_epochs=2, random_state=0),
    "topics": TopicModel(2, **FEW),
}
WITHOUT_A_FIT = {
    "check_array_api_input",
    "check_complex_data",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_empty_data_messages",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_transformers_unfitted",
    "check_valid_tag_types",
}
SLOW = {"check_clustering", "check_transformer_general"}
# To seven digits: programs that are compiled as the tests' are round a row by where it stands.
EXACT = "check_methods_sample_order_invariance"


def cases():
    for name, quick in QUICK.items():
        for estimator, check in estimator_checks_generator(quick, legacy=True):
            check_name = check.func.__name__
            if check_name == EXACT:
                continue
            marks = [] if check_name in WITHOUT_A_FIT else [pytest.mark.exhaustive]
            if check_name in SLOW and not is_on_read_only(check):
                marks = [pytest.mark.slow]
            yield pytest.param(estimator, check, id=f"{name}, {check_name}", marks=marks)


@pytest.mark.tiers(
    exhaustive=[
        "mixture, check_clustering0",
        "noisy-or, check_transformer_general0",
        "sparse binary, check_transformer_general0",
        "topics, check_transformer_general0",
    ]
)
@pytest.mark.parametrize(("estimator", "check"), list(cases()))
def test_conventions_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.exhaustive
def test_the_order_of_rows_does_not_matter_where_programs_are_compiled_as_a_user_has_them():
    program = (
        f"from sklearn.utils.estimator_checks import {EXACT}\n"
        "from tests.sklearn.test_estimator_checks import QUICK\n"
        "for quick in QUICK.values():\n"
        f"    {EXACT}(type(quick).__name__, quick)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
