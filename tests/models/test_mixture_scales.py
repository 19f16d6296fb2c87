"""Mixtures of numbers far from one, of constants and duplicates; priors that are not known."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf._kernels import tables
from jaxmf.data import Tokens
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.priors.partitions import log_dirichlet_multinomial

SETTINGS = {"num_warmup": 3, "num_samples": 3, "num_chains": 1, "progress": False}
GENERATOR = np.random.default_rng(0)
NORMAL = GENERATOR.normal(size=(24, 3))
KINDS = {
    "normal": NORMAL,
    "constant": np.ones((24, 3)),
    "zeros": np.zeros((24, 3)),
    "one column constant": NORMAL * [0, 1, 1],
    "integers": np.round(3 * NORMAL),
    "two rows over and over": NORMAL[np.arange(24) % 2],
    "collinear": NORMAL[:, :1] * [1, 2, 3],
    "an outlier": np.vstack([NORMAL[:-1], np.full(3, 1e6)]),
}
UNITS = [(1, 0), (1e-8, 0), (1e8, 0), (1, 1e4), (1e-3, 1e8), (1e4, -1e8)]


@pytest.mark.tiers(
    exhaustive=[
        "given-an outlier",
        "given-collinear",
        "given-constant",
        "given-integers",
        "given-normal",
        "given-one column constant",
        "given-two rows over and over",
        "given-zeros",
        "process-one column constant",
    ]
)
@pytest.mark.filterwarnings("ignore:.*which float32 cannot tell apart")  # near 1e8
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "model",
    [mf.DPMixture(), pytest.param(mf.MixtureOfGaussians(3), marks=pytest.mark.slow)],
    ids=["process", "given"],
)
def test_mixtures_by_default_take_numbers_of_any_size(model, kind):
    for scale, offset in UNITS if kind != "zeros" else UNITS[:1]:
        values = KINDS[kind] * scale + offset
        post = mf.sample(model, values, **SETTINGS)
        for name, draws in post.draws.items():
            assert np.isfinite(draws).all(), (name, scale, offset)
        found = post.predict(([0, 1], [0, 2]))
        assert np.isfinite(found.sd).all()
        middle, reach = np.median(values, axis=0)[[0, 2]], np.ptp(values, axis=0)[[0, 2]]
        assert np.all(np.abs(found.mean - middle) <= reach + 1e-4 * np.abs(middle))


@pytest.mark.tiers(exhaustive=["(2, 3)", "(3, 8)"])
@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (3, 8)], ids=str)
def test_mixtures_take_fewer_rows_than_columns(shape):
    for values in (np.full(shape, 41_000.0), NORMAL.ravel()[: np.prod(shape)].reshape(shape)):
        post = mf.sample(mf.DPMixture(), values, **SETTINGS)
        assert np.isfinite(post.draws["log_joint"]).all()


@pytest.mark.slow
def test_an_income_column_falls_into_its_groups():
    groups = np.arange(150) % 3
    centres = np.array([21_000, 48_000, 95_000])[groups]
    income = np.round(centres + 1_500 * GENERATOR.normal(size=150))
    post = mf.sample(
        mf.DPMixture(), income[:, None], num_warmup=60, num_samples=20, num_chains=1,
        progress=False, keep="assignments",
    )  # fmt: skip
    labels = post.draws["group_of_tokens"][0, -1]
    together = labels[:, None] == labels
    assert np.mean(together == (groups[:, None] == groups)) > 0.97
    assert post.num_groups().mode in (3, 4)


def test_the_default_family_follows_the_units():
    family = mf.NormalInverseWishart.from_data(jnp.asarray(NORMAL, jnp.float32))
    other = mf.NormalInverseWishart.from_data(jnp.asarray(NORMAL, jnp.float32) * 1024)
    np.testing.assert_array_equal(family.location * 1024, other.location)
    np.testing.assert_array_equal(family.scale * 1024**2, other.scale)
    np.testing.assert_allclose(np.diag(family.scale), NORMAL.var(0) / 10 ** (2 / 3), rtol=1e-5)
    constant = mf.NormalInverseWishart.from_data(jnp.full((7, 2), 11_000.1))
    np.testing.assert_allclose(np.diag(constant.scale), 11_000.1**2 / 10, rtol=1e-5)


def test_groups_of_many_rows_at_once_are_those_of_each_row_alone():
    # 300 rows by 64 slots are more than XLA of jaxlib 0.10.2 sums in pairs without wrong results
    values = jnp.asarray(np.random.default_rng(1).normal(size=(300, 3)), jnp.float32)
    family = mf.NormalInverseWishart.from_data(values)
    groups = jnp.arange(300) % 5
    begun = jax.jit(lambda *rows: family.begin(family.statistics(*rows, 64), {}))
    cache = begun(groups, values)
    lanes = tables.Lanes(jnp.zeros((), jnp.int32), 1, 64)
    predictive = jax.jit(lambda rows: jax.vmap(lambda x: family.predictive(cache, lanes, x))(rows))
    together = predictive(values)
    pieces = jnp.concatenate([predictive(values[start : start + 100]) for start in (0, 100, 200)])
    np.testing.assert_allclose(together, pieces, rtol=1e-4, atol=1e-4)


def test_a_family_far_from_its_data_is_refused():
    model = mf.DPMixture(family=mf.NormalInverseWishart(location=0.0, scale=1.0))
    values = np.vstack([NORMAL, NORMAL + 1e10])
    with pytest.raises(ValueError, match=r"data: row 24 lies 1.73e\+10 times .* Leave family out"):
        mf.sample(model, values, **SETTINGS)
    near = mf.NormalInverseWishart(3, location=values.mean(0), scale=np.diag(values.var(0)))
    near.check_distances(values, "data")


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_numbers_whose_squares_leave_the_range_are_refused(size):
    if jax.config.jax_enable_x64:
        size = size**9
    with pytest.raises(ValueError, match=r"at row 0, column 1: squares .* power of ten"):
        mf.sample(mf.DPMixture(), NORMAL * [1, size, 1], **SETTINGS)


def test_more_columns_than_covariances_can_have_are_refused():
    data = np.random.default_rng(0).normal(size=(4, 1_001))
    with pytest.raises(ValueError, match=r"has 1001 columns; .* first 20 principal components"):
        mf.sample(mf.DPMixture(), data, num_warmup=1, num_samples=1)


def test_a_flexible_prior_is_drawn_from_with_x64():
    with jax.enable_x64(True):
        network = mf.Network(group=mf.Block(mf.FlexiblePrior(np.zeros(4))))
        data = Tokens({"all": np.zeros(4, int)}, {"all": 1})
        state, _ = jax.jit(network.simulate)(jax.random.key(0), data)
        assert state.values["group"].shape == (4,)


def test_a_network_is_simulated_with_sizes_from_the_tokens():
    network = mf.Network(
        topic=mf.Block(mf.Dirichlet(2), by="document"),
        word=mf.Block(mf.DirichletMultinomial(), by="topic", observed=True),
    )
    data = Tokens({"document": [0, 0, 1], "word": [0, 4, 2]}, {"document": 2, "word": 5})
    _, drawn = jax.jit(network.simulate)(jax.random.key(0), data)
    assert drawn.sizes["word"] == 5
    assert drawn.columns["word"].max() < 5
    bare = Tokens({"document": [0, 0, 1]}, {"document": 2})
    with pytest.raises(ValueError, match=r"word: how many values .* write DirichletMultinomial"):
        network.simulate(jax.random.key(0), bare)


@partial(jax.tree_util.register_dataclass, data_fields=["concentration"], meta_fields=[])
@dataclass(frozen=True)
class Halves(PartitionPrior):
    """Two groups, such as a user may write them, with a concentration or two."""

    concentration: Any = 1.0

    grows = False
    labels_shared = True

    def num_groups(self, capacity):
        return 2

    def begin(self, counts, hyperparameters, *, with_sizes):
        seating = super().begin(counts, hyperparameters, with_sizes=with_sizes)
        pseudo = jnp.broadcast_to(hyperparameters["concentration"], (2,))
        return seating._replace(pseudo=pseudo, whole=jnp.sum(pseudo))

    def weights(self, seating, batch):
        return tables.row(seating.counts, batch) + seating.pseudo, jnp.ones((), bool)

    def log_prob(self, counts, hyperparameters):
        return jnp.sum(
            log_dirichlet_multinomial(counts, jnp.full(2, hyperparameters["concentration"]))
        )


def halves(concentration):
    words = mf.Block(mf.DirichletMultinomial(), by="group", observed=True)
    return mf.Network(group=mf.Block(Halves(concentration)), word=words)


WORDS = Tokens({"word": np.arange(12) % 5}, {"word": 5})


@pytest.mark.slow
def test_what_a_prior_of_the_user_cannot_do_is_refused_by_name():
    post = mf.sample(halves(1.0), WORDS, **SETTINGS)
    assert np.isfinite(post.draws["log_joint"]).all()
    learned = mf.sample(halves(dist.Gamma(1.0, 1.0)), WORDS, **SETTINGS)
    assert np.ptp(learned.draws["group_concentration"]) > 0
    both = dist.Gamma(1.0, 1.0).expand([2])
    with pytest.raises(
        TypeError, match=r"group: .* needs Halves\.update_hyperparameters, which is not def"
    ):
        mf.sample(halves(both), WORDS, **SETTINGS)
    with pytest.raises(TypeError, match=r"needs Halves\.weight_shapes, .* sweep='sequential'"):
        mf.sample(halves(1.0), WORDS, sweep="parallel", **SETTINGS)


@pytest.mark.slow
def test_the_number_of_groups_has_a_distribution():
    post = mf.sample(mf.DPMixture(), NORMAL, **SETTINGS)
    found = post.num_groups()
    np.testing.assert_allclose(found.mean, post.draws["num_group"].mean())
    assert repr(found).startswith("number of groups: ")
    assert post.num_groups("group").mode == found.mode
    with pytest.raises(ValueError, match=r"no number of features: ask num_groups\(\) for group"):
        post.num_features()
    with pytest.raises(ValueError, match=r"block: 'x' is no block of DPMixture .* 'group'"):
        post.num_groups("x")
    given = mf.sample(mf.MixtureOfGaussians(2), NORMAL, **SETTINGS)
    with pytest.raises(ValueError, match="MixtureOfGaussians has no groups whose number"):
        given.num_groups()
