"""The kernel for GPUs that draws a few tokens as topics come and go, interpreted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf._kernels import token_births
from jaxmf._kernels.token_births import BirthInput, Births
from jaxmf.blocks import in_kernel
from jaxmf.blocks.state import NetworkState
from jaxmf.blocks.subset import sweep_subset
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests._kernels.test_token_draw import lowered_for_h100

DATA = mf.Tokens(
    {"document": [1, 0, 1, 3, 1, 3], "word": [0, 1, 0, 2, 1, 0]}, {"document": 4, "word": 3}
)
CHOSEN = jnp.asarray([4, 1, 3, 0])
NETWORK = mf.Network(
    topic=mf.Block(mf.HDP(0.7, 1.3), by="document"),
    word=mf.Block(mf.DirichletMultinomial(3, [0.4, 0.3, 0.9]), by="topic", observed=True),
).at(DATA)


@pytest.mark.parametrize("num_slots", [1, 2, 37])
def test_its_topics_are_where_uniform_numbers_point(num_slots):
    assert token_births.num_wrong_in_trials(num_slots) == 0


def test_the_check_of_a_device_can_fail():
    inputs = BirthInput(*token_births.trial(5, 0))
    drawn = jax.jit(token_births.draw, compiler_options=FAST_COMPILE)
    after = Births(*map(np.asarray, drawn(BirthInput(*map(jnp.asarray, inputs)))))
    assert token_births.num_wrong(inputs, after) == 0
    assert after.no_room[0]  # topics came until there was no slot
    assert token_births.num_wrong(inputs, after._replace(topics=(after.topics + 1) % 5)) > 50
    assert token_births.num_wrong(inputs, after._replace(topics=after.topics[::-1])) > 20
    for name in ("weights", "rest"):
        changed = after._replace(**{name: getattr(after, name) * 1.01})
        assert token_births.num_wrong(inputs, changed) > 0
    assert token_births.num_wrong(inputs, after._replace(no_room=1 - after.no_room)) == 1


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
def test_it_lowers_for_cuda_to_one_call(monkeypatch):
    text = lowered_for_h100(token_births.draw, BirthInput(*token_births.trial(37, 0)), monkeypatch)
    assert text.count("xla.gpu.triton") == 1
    assert "stablehlo.while" not in text


def differences(num_chains, monkeypatch):
    """Checks four tokens in one program against the sweep of these one after another."""
    slots, labels = {"topic": jnp.arange(4) < 2}, jnp.asarray([0, 1, 1, 0, 1, 0])
    hyperparameters = {
        name: NETWORK.blocks[name].distribution.start(*([4] if name == "topic" else []))
        for name in NETWORK.order
    }
    weights = {"weights": jnp.asarray([0.5, 0.2, 0, 0]), "rest": jnp.float32(0.3)}
    hyperparameters["topic"] |= weights
    state = NetworkState({"topic": labels}, hyperparameters, slots)

    def many(sweep, seed):
        def one(key):
            after, info = sweep(NETWORK, ("topic",), key, state, DATA, CHOSEN)
            topics, tau = after.values["topic"], after.hyperparameters["topic"]
            return {
                "pairs": (topics[:, None] == topics)[jnp.triu_indices(6, 1)] * 1.0,
                "topics": jax.nn.one_hot(topics[CHOSEN], 4),
                "weights": jnp.append(tau["weights"], tau["rest"]),
                "first": tau["weights"][0] * (topics == 0),
                "slots": after.slots["topic"] * 1.0,
                "overflow": info.overflow["topic"] * 1.0,
            }

        keys = jax.random.split(jax.random.key(seed), num_chains)
        return jax.jit(jax.vmap(one), compiler_options=FAST_COMPILE)(keys)

    expected = {name: np.mean(leaf, axis=0) for name, leaf in many(sweep_subset, 0).items()}
    monkeypatch.setattr(in_kernel, "default_platform", lambda: "gpu")
    drawn = many(in_kernel.sweep_few, 1)
    # both are draws: their difference has twice the variance
    centred = {name: (leaf - expected[name]) / 2**0.5 for name, leaf in drawn.items()}
    zeros = {name: np.zeros_like(leaf) for name, leaf in expected.items()}
    check_means(centred, zeros, title="few")


@pytest.mark.slow
def test_it_draws_as_the_sweep_of_one_token_after_another(monkeypatch):
    differences(20_000, monkeypatch)


TWINS = {
    "the token itself counts": lambda i: i._replace(by_word=i.by_word + 0.2),
    "a new topic takes nothing": lambda i: i._replace(taken=i.taken * 0, kept=i.kept * 0 + 1),
    "no topics of documents": lambda i: i._replace(by_document=i.by_document * 0 + 1),
    "the concentration of one word for all": lambda i: i._replace(pseudo=i.pseudo * 0 + 0.9),
}


@pytest.mark.tiers(
    exhaustive=[
        "no topics of documents",
        "the concentration of one word for all",
        "the token itself counts",
    ]
)
@pytest.mark.slow
@pytest.mark.parametrize("fault", TWINS)
def test_a_kernel_with_a_fault_is_caught(fault, monkeypatch):
    kernel = token_births.draw
    monkeypatch.setattr(token_births, "draw", lambda inputs: kernel(TWINS[fault](inputs)))
    with pytest.raises(AssertionError, match="expected"):
        differences(5_000, monkeypatch)
