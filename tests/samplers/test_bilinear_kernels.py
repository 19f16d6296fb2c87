"""Joint-distribution tests of the collapsed bilinear sweep: U, V, both; and broken twins."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from jaxmf.data import Dense
from jaxmf.engine import Info
from jaxmf.priors.features import BetaBernoulli, IndianBuffet
from jaxmf.samplers.bilinear import collapsed
from jaxmf.samplers.bilinear import rows as bilinear_rows
from jaxmf.samplers.bilinear.collapsed import collapsed_bilinear_sweep
from jaxmf.testing import check_prior
from tests import FAST_COMPILE, LONG_RUNS
from tests.support.containers import without_cells
from tests.support.joint_checks import check_setup

NUM_ROWS, NUM_COLUMNS, CAPACITY = 4, 3, 9
OBSERVED = jnp.array([[1, 1, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1]], bool)


class State(NamedTuple):
    u: jax.Array
    v: jax.Array
    x: jax.Array


class Setup(NamedTuple):
    """Priors of both sides, scales, and whether cells are missing."""

    row_prior: IndianBuffet | BetaBernoulli = IndianBuffet(0.5, 1.4)
    column_prior: IndianBuffet | BetaBernoulli = BetaBernoulli(1.6, 1.0, 3)
    missing: bool = True
    num_fixed: int = 0
    weight_mean: float = 0.3
    noise_scale: float = 0.6
    capacity: int = CAPACITY

    @property
    def settings(self):
        values = {"noise_scale": self.noise_scale, "weight_scale": 1.0}
        values["weight_mean"] = self.weight_mean
        return {name: jnp.asarray(value) for name, value in values.items()}

    def slots(self, prior):
        return prior.num_features if isinstance(prior, BetaBernoulli) else self.capacity

    def sample_prior(self, key):
        """A state with a complete matrix, of which the data may hide cells."""
        keys = jax.random.split(key, 3)
        u, _ = self.row_prior.sample(keys[0], NUM_ROWS, self.slots(self.row_prior))
        u = jnp.concatenate([jnp.ones((NUM_ROWS, self.num_fixed), bool), u], axis=1)
        v, _ = self.column_prior.sample(keys[1], NUM_COLUMNS, self.slots(self.column_prior))
        return State(u, v, self.draw_x(keys[2], u, v))

    def draw_x(self, key, u, v):
        weights_key, noise_key = jax.random.split(key)
        weights = self.weight_mean + jax.random.normal(weights_key, (u.shape[1], v.shape[1]))
        noise = self.noise_scale * jax.random.normal(noise_key, (NUM_ROWS, NUM_COLUMNS))
        return u.astype(float) @ weights @ v.T.astype(float) + noise

    def simulate(self, key, state):
        if self.missing:
            return Dense(jnp.where(OBSERVED, state.x, 0), OBSERVED)
        return Dense(self.draw_x(key, state.u, state.v))

    def kernel(self, key, state, data, *, rows=True, columns=True, **options):
        u, v, full = state.u, state.v, jnp.asarray(False)
        x, observed = state.x if self.missing else data.values, data.observed
        keys = jax.random.split(key)
        if rows:
            u, x, overflow = collapsed_bilinear_sweep(
                keys[0], u, v, x, observed,
                prior=self.row_prior, num_fixed=self.num_fixed, **self.settings, **options,
            )  # fmt: skip
            full = full | overflow
        if columns:
            v, x, overflow = collapsed_bilinear_sweep(
                keys[1], v, u, x.T, None if observed is None else observed.T,
                prior=self.column_prior, **self.settings, **options,
            )  # fmt: skip
            x, full = x.T, full | overflow
        return State(u, v, x), Info(overflow={"features": full})

    def statistics(self, state, data):
        x = state.x if self.missing else data.values
        u, v = state.u[:, self.num_fixed :].astype(float), state.v.astype(float)
        rows, columns = u @ u.T, v @ v.T
        products, sides = x @ x.T, x.T @ x
        found = {"size": jnp.sum(x**2), "sum": jnp.sum(x)}
        for name, z, shared, product in (("u", u, rows, products), ("v", v, columns, sides)):
            found |= {
                f"features of {name}": jnp.sum(jnp.any(z > 0, axis=0)),
                f"bits of {name}": jnp.sum(z).astype(int),
                f"single bits of {name}": jnp.sum(jnp.sum(z, axis=0) == 1),
                f"shared 0, 1 of {name}": shared[0, 1].astype(int),
                f"shared by all of {name}": jnp.sum(jnp.all(z > 0, axis=0)),
                f"shared times product of {name}": shared[0, 2] * product[0, 2],
                f"bits times size of {name}": jnp.sum(jnp.diagonal(shared * product)),
            }
        found["rows times columns"] = jnp.sum((rows @ x) * (x @ columns))
        if self.missing:
            found["missing cell"] = x[3, 0]
            found["missing times its row"] = x[3, 0] * x[3, 2]
            found["missing times its column"] = x[3, 0] * x[2, 0] * rows[2, 3]
            found["two missing"] = x[3, 0] * x[3, 1]
        return found

    def check(
        self, key, *, num_steps=3, num_replicates=4_096, compiler_options=FAST_COMPILE, **options
    ):
        return check_setup(
            self,
            lambda key, state, data: self.kernel(key, state, data, **options),
            key=jax.random.key(key),
            num_steps=num_steps,
            num_replicates=num_replicates,
            compiler_options=compiler_options,
        )


PROCESSES = Setup(column_prior=IndianBuffet(0.4), num_fixed=1)


@pytest.mark.exhaustive
def test_both_sides_in_turn():
    Setup(num_fixed=1).check(31, num_steps=2)


@pytest.mark.tiers(exhaustive=["columns", "rows", "whole rows"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("setup", "options"),
    [
        (PROCESSES, {"columns": False}),
        (PROCESSES._replace(num_fixed=0), {"rows": False}),
        (PROCESSES._replace(missing=False), {"num_proposals": 3}),
        (
            Setup(row_prior=IndianBuffet(0.3), missing=False, capacity=7),
            {"columns": False, "whole_rows": True},
        ),
    ],
    ids=["rows", "columns", "both, proposals", "whole rows"],
)
def test_sweeps_of_processes(setup, options):
    setup.check(32, **options)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_prior_comes_back_with_the_likelihood_off():
    """No cell is observed: features and cells follow their prior."""
    setup = PROCESSES
    check_prior(
        setup.kernel,
        sample_prior=setup.sample_prior,
        data=without_cells((NUM_ROWS, NUM_COLUMNS)),
        statistics=setup.statistics,
        key=jax.random.key(33),
        compiler_options=FAST_COMPILE,
        num_steps=3,
    )


# --- broken twins: each must be seen -----------------------------------------------------------


def must_fail(setup, key, **options):
    with pytest.raises(AssertionError, match="FAILED") as caught:
        setup.check(key, **options)
    print(caught.value)


@pytest.mark.exhaustive
def test_forgetting_singletons_is_caught(monkeypatch):
    """Features of this row alone dropped before its bits are drawn, their count forgotten."""
    right = collapsed.draw_row

    def twin(*arguments, num_singletons, **options):
        return right(*arguments, num_singletons=jnp.zeros_like(num_singletons), **options)

    monkeypatch.setattr(collapsed, "draw_row", twin)
    setup = Setup(row_prior=IndianBuffet(1.0), missing=False, noise_scale=0.3, capacity=16)
    long = {"num_steps": 20, "num_replicates": 4_096, "compiler_options": LONG_RUNS}
    must_fail(setup, 34, columns=False, **long)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_row_drawn_with_its_imputed_cells_correlated_wrongly_is_caught(monkeypatch):
    """Missing cells drawn given the features alone, the observed cells forgotten."""
    right = bilinear_rows.draw_cells

    def twin(draws, fit, *arguments, **options):
        return right(draws, fit._replace(gap=0 * fit.gap), *arguments, **options)

    monkeypatch.setattr(bilinear_rows, "draw_cells", twin)
    must_fail(Setup(), 35, columns=False)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_prior_mean_forgotten_in_new_features_is_caught(monkeypatch):
    right = bilinear_rows.new_feature_log_weights

    def twin(fit, turned, **options):
        return right(fit, turned._replace(prior_mean=0 * turned.prior_mean), **options)

    monkeypatch.setattr(bilinear_rows, "new_feature_log_weights", twin)
    setup = Setup(missing=False, weight_mean=1.5)
    must_fail(setup, 36, columns=False)
