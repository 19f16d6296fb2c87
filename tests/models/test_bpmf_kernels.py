"""Joint-distribution tests of the kernels of BPMF, and broken twins."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from jaxmf import Dirichlet, DirichletProcess, Ordinal, Probit
from jaxmf.models.bpmf import chain, updates
from jaxmf.samplers.factors import coefficients, scales, shifts
from jaxmf.samplers.factors import link as link_kernels
from jaxmf.testing import check_kernel
from tests.support.bpmf_setups import (
    FAST_COMPILE,
    Setup,
    classed,
    everything,
    linked,
    parts,
    plain,
    separate,
    whole_step,
)

CASES = {
    "everything": everything,
    "parts": parts,
    "separate": separate,
    "mixture": lambda: plain(mixture=(DirichletProcess(1.5), Dirichlet(2, 0.7))),
    "classes": classed,
    "linked groups": linked,
    "probit": lambda: plain(likelihood=Probit(), offset=None),
    "ordinal": lambda: plain(likelihood=Ordinal((1, 2, 4), threshold_scale=1.5), offset=None),
}


def check(model, name, kernel=None, **options):
    setup = Setup(model)
    return check_kernel(
        whole_step(model) if kernel is None else kernel,
        sample_prior=setup.sample_prior,
        simulate=setup.simulate,
        statistics=setup.statistics,
        key=jax.random.key(4),
        title=name,
        compiler_options=FAST_COMPILE,
        **options,
    )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_step_without_features_leaves_the_joint_distribution_alone():
    check(plain(), "plain", num_replicates=2_048)


@pytest.mark.tiers(exhaustive=["classes", "linked groups", "mixture", "parts", "separate"])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("everything", marks=pytest.mark.slow),
        pytest.param("parts", marks=pytest.mark.slow),
        pytest.param("separate", marks=pytest.mark.slow),
        pytest.param("ordinal", marks=pytest.mark.exhaustive),
        pytest.param("mixture", marks=pytest.mark.slow),
        pytest.param("classes", marks=pytest.mark.slow),
        pytest.param("linked groups", marks=pytest.mark.slow),
        pytest.param("probit", marks=pytest.mark.exhaustive),
    ],
)
def test_the_step_leaves_the_joint_distribution_alone(name):
    check(CASES[name](), name)


@pytest.mark.exhaustive
def test_a_link_that_its_covariance_does_not_know_is_caught(monkeypatch):
    """Broken twin: the covariance drawn as if it had nothing to do with the link."""
    monkeypatch.setattr(link_kernels, "with_link", lambda statistics, *others: statistics)
    monkeypatch.setattr("jaxmf.models.bpmf.updates.with_link", link_kernels.with_link)
    with pytest.raises(AssertionError):
        check(everything(), "link forgotten")


@pytest.mark.exhaustive
def test_groups_of_vectors_that_still_have_their_link_are_caught(monkeypatch):
    """Broken twin: groups of the vectors themselves, not of what features leave of them."""
    right = updates.groups.update

    def wrong(model, key, side, values, **given):
        return right(model, key, side, values + updates.linked(model, side), **given)

    monkeypatch.setattr(updates.groups, "update", wrong)
    with pytest.raises(AssertionError):
        check(linked(), "link left in", num_steps=10)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_parts_that_have_each_others_precision_are_caught(monkeypatch):
    """Broken twin: the precision of a part drawn given the weights of the other."""
    right = link_kernels.update_rate

    def wrong(*arguments, power, total):
        return right(*arguments, power=power, total=total[::-1])

    monkeypatch.setattr(link_kernels, "update_rate", wrong)
    with pytest.raises(AssertionError):
        check(parts(), "precisions mixed up")


@pytest.mark.exhaustive
def test_coefficients_whose_mean_is_counted_twice_are_caught(monkeypatch):
    """Broken twin: the mean of all rows drawn as if its prior knew nothing of it."""
    right = coefficients.update

    def wrong(*arguments, values, **given):
        now = right(*arguments, values=values, **given)
        return now._replace(mean=jnp.mean(values, axis=0))

    monkeypatch.setattr(coefficients, "update", wrong)
    with pytest.raises(AssertionError):
        check(separate(), "mean without its prior")


@pytest.mark.exhaustive
def test_a_move_that_forgets_the_prior_of_the_columns_covariance_is_caught(monkeypatch):
    """Broken twin, of the shift of factors against biases."""
    right = shifts.shift_level

    def wrong(*arguments, column_prior, **given):
        without = replace(column_prior, scale=0.01 * column_prior.scale)
        return right(*arguments, column_prior=without, **given)

    monkeypatch.setattr(shifts, "shift_level", wrong)
    with pytest.raises(AssertionError):
        check(plain(), "scale forgotten", num_replicates=2_048)


@pytest.mark.exhaustive
def test_a_scale_of_coefficients_without_its_jacobian_is_caught(monkeypatch):
    """Broken twin: the precision's share of the determinant left out."""
    right = scales.log_density_of_part

    def wrong(log_scale, *arguments, **given):
        return right(log_scale, *arguments, **given) + 2 * log_scale

    monkeypatch.setattr(scales, "log_density_of_part", wrong)
    with pytest.raises(AssertionError):
        check(separate(), "no Jacobian")


@pytest.mark.exhaustive
def test_a_scale_of_all_factors_without_the_prior_of_their_covariance_is_caught(monkeypatch):
    """Broken twin: its degrees of freedom left out, as if the scale were in cells alone."""
    right = scales.log_density_of_factors

    def wrong(log_scale, row_terms, *, num_factors, **seen):
        degrees = num_factors * row_terms.degrees
        return right(log_scale, row_terms, num_factors=num_factors, **seen) + degrees * log_scale

    monkeypatch.setattr(scales, "log_density_of_factors", wrong)
    with pytest.raises(AssertionError):
        check(plain(), "no degrees", num_replicates=2_048)


@pytest.mark.slow
def test_a_variance_taken_for_a_precision_is_caught(monkeypatch):
    """Broken twin, of the vectors' prior."""
    right = chain.update_row_vectors

    def wrong(*arguments, precision, **given):
        return right(*arguments, precision=1 / precision, **given)

    monkeypatch.setattr(chain, "update_row_vectors", wrong)
    with pytest.raises(AssertionError):
        check(plain(), "variance for precision", num_replicates=2_048)
