"""The kernel that draws topics on GPUs, interpreted: its draws, and when it is used."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf import devices, preparation
from jaxmf._kernels import token_births, token_draw
from jaxmf._kernels.token_draw import TokenInput
from tests import FAST_COMPILE

TOKENS = mf.Tokens(
    {"document": np.arange(300) // 5, "word": np.arange(300) % 7}, {"document": 60, "word": 7}
)


@pytest.mark.parametrize(("num_above", "num_topics"), [(1, 1), (1, 37), (1, 64), (5, 7)])
def test_its_topics_are_where_uniform_numbers_point(num_above, num_topics):
    first, second = (token_draw.trial(num_above, num_topics, seed) for seed in (0, 1))
    alone, both = token_draw.drawn_of(first, second)
    np.testing.assert_array_equal(alone, both[0])
    for problem, drawn in ((first, alone), (second, both[1])):
        assert token_draw.num_wrong(problem, drawn) == 0
        if num_topics > 1:  # the check can fail
            assert token_draw.num_wrong(problem, (drawn + 1) % (num_above * num_topics)) > 100
            inside = np.r_[problem[0][3:4], problem[0][4:154]]
            swapped = drawn.copy()
            swapped[inside] = drawn[inside[::-1]]
            assert token_draw.num_wrong(problem, swapped) > 20


@pytest.mark.parametrize(
    ("change", "topic"),
    [
        ({}, 2),  # the uniform number is in the last quarter of three equal topics
        ({"phi": [[1.0, 1, 0]]}, 1),
        ({"limits": [0.0, 0, 1]}, 1),  # it may not go there,
        ({"limits": [0.0, 0, 1], "topics": [2]}, 2),  # but stay there
        ({"marks": [-1.0]}, 0),  # it holds the topic where it is
        ({"alpha": [98.0, 1, 1]}, 0),
    ],
)
def test_one_token_by_hand(change, topic):
    problem = {
        "order": [0],
        "starts": [0],
        "ends": [1],
        "words": [0],
        "topics": [0],
        "uniforms": [0.9],
        "marks": [0.5],
        "limits": [0.0, 0, 0],
        "above": [1.0],
        "alpha": [1.0, 1, 1],
        "phi": [[1.0, 1, 1]],
    } | change
    drawn = token_draw.draw(TokenInput(**{name: jnp.asarray(v) for name, v in problem.items()}))
    assert drawn.tolist() == [topic]


@pytest.mark.parametrize(
    ("num_above", "num_topics", "sizes"),
    [(1, 5, [4, 1]), (3, 9, [0, 60, 1, 0, 7])],
)
def test_documents_of_others_are_left_alone_as_on_a_mesh(num_above, num_topics, sizes):
    problem = token_draw.trial(num_above, num_topics, 3)
    ends = np.cumsum(sizes).astype("int32")
    problem[1], problem[2] = ends - np.asarray(sizes, "int32"), ends
    draw = jax.jit(token_draw.draw, compiler_options=FAST_COMPILE)
    drawn = np.asarray(draw(TokenInput(*map(jnp.asarray, problem))))
    assert token_draw.num_wrong(problem, drawn) == 0
    second = problem[0][problem[1][1] : problem[2][1]]
    problem[2] = np.where(np.arange(len(sizes)) == 1, problem[2], problem[1])
    some = np.asarray(draw(TokenInput(*map(jnp.asarray, problem))))
    np.testing.assert_array_equal(some[second], drawn[second])
    assert not np.delete(some, second).any()


def test_nothing_is_drawn_of_no_tokens_and_no_documents():
    problem = [part[:0] for part in token_draw.trial(1, 2, 0)[:8]] + token_draw.trial(1, 2, 0)[8:]
    assert token_draw.draw(TokenInput(*map(jnp.asarray, problem))).shape == (0,)


def lowered_for_h100(kernel, inputs, monkeypatch):
    """The program of a kernel, lowered on a machine without a GPU."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    on_h100 = contextlib.nullcontext()
    if jax.__version_info__ >= (0, 12):  # lowers for a device, not for the oldest that there is
        device = jax.sharding.AbstractDevice("NVIDIA H100 80GB HBM3", 132, platform="gpu")
        mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
        on_h100 = jax.sharding.use_abstract_mesh(mesh)
    with on_h100:
        return jax.jit(kernel).trace(inputs).lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
@pytest.mark.parametrize("num_above", [1, 3])
def test_it_lowers_for_cuda_to_one_call(num_above, monkeypatch):
    inputs = TokenInput(*token_draw.trial(num_above, 37, 0))
    text = lowered_for_h100(token_draw.draw, inputs, monkeypatch)
    assert text.count("xla.gpu.triton") == 1
    assert "stablehlo.while" not in text


@pytest.fixture
def a_gpu(monkeypatch):
    """Data that seem to lie on a GPU; what is made on it is made on the CPU."""
    local_devices = jax.local_devices
    monkeypatch.setattr(devices, "platform_of", lambda data, mesh=None: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda *args, **named: local_devices())
    monkeypatch.setattr(preparation, "_device_name", lambda data, mesh: "a GPU")
    forget = token_draw.trouble.cache_clear
    forget()
    yield
    forget()


def fails(inputs):
    raise NotImplementedError("no such instruction\nin many lines")


KERNELS = {
    "right": (token_draw.draw, ""),
    "disagrees": (
        lambda inputs: (inputs.topics + 1) % 3,
        "topics are not where their uniform numbers point",
    ),
    "fails": (fails, "it failed: NotImplementedError: no such instruction"),
}


@pytest.mark.parametrize("kind", ["right", "disagrees", "fails"])
def test_a_run_uses_a_kernel_that_is_right_and_says_why_it_does_not(kind, a_gpu, monkeypatch):
    kernel, why = KERNELS[kind]
    monkeypatch.setattr(token_draw, "draw", kernel)
    settings = {"num_warmup": 0, "num_samples": 1, "num_chains": 1, "progress": False}
    post = mf.sample(mf.LDA(3), TOKENS, **settings)
    assert post.meta.options["sweep"] == ("parallel" if why else "partially_collapsed")
    assert why in " ".join(post.meta.notes)
    assert len(post.meta.notes) == bool(why)
    if not why:
        return
    assert why in post.summary().caption
    # where the user names a sweep nothing is tried, but the one that needs the kernel is refused
    assert not mf.LDA(3).device_notes({"sweep": "parallel"}, post.meta.options, platform="gpu")
    with pytest.raises(ValueError, match="needs a kernel here") as refused:
        mf.sample(mf.LDA(3), TOKENS, sweep="partially_collapsed", **settings)
    assert why in str(refused.value)


def test_a_kernel_is_tried_within_whatever_the_caller_is(a_gpu):
    def traced(value):
        assert token_draw.trouble("gpu", 1, 3) == ""
        token_draw.trouble.cache_clear()
        return value

    jax.jit(traced)(1.0)
    with jax.ensure_compile_time_eval():
        traced(1.0)


def test_which_networks_and_data_it_is_for(a_gpu, monkeypatch):
    for kernel in (token_births, token_draw):
        monkeypatch.setattr(kernel, "trouble", lambda platform, *sizes: "")

    def sweep_of(model, data=None, **options):
        return model.device_options(options, platform="gpu", data=data).get("sweep")

    assert sweep_of(mf.LDA(3)) == sweep_of(mf.LDA(3), TOKENS) == "partially_collapsed"
    assert sweep_of(mf.LDA(3), sweep="parallel") is None
    assert sweep_of(mf.HDPLDA()) == sweep_of(mf.PAM((2, 3))) == "partially_collapsed"
    assert sweep_of(mf.HDPLDA(), TOKENS) == "sequential"  # of few tokens
    with monkeypatch.context() as patched:
        patched.setattr(token_births, "trouble", lambda platform, size: "x" * (size > 64))
        assert sweep_of(mf.HDPLDA()) == "parallel"
        assert sweep_of(mf.LDA(3)) == "partially_collapsed"
    assert sweep_of(mf.PAM((2, 3, 4))) != "partially_collapsed"
    columns = {"document": np.arange(2_000) // 1_500, "word": np.arange(2_000) % 7}
    long = mf.Tokens(columns, {"document": 2, "word": 7})
    assert sweep_of(mf.LDA(3), long) == "parallel"
    with pytest.raises(ValueError, match="as LDA, HDPLDA and PAM of two levels"):
        mf.DPMixture().sampler(sweep="partially_collapsed")
    monkeypatch.setattr(jax, "process_count", lambda: 2)  # which might decide otherwise
    assert sweep_of(mf.LDA(3)) == "parallel"


def test_it_is_not_tried_elsewhere_nor_with_more_topics_than_it_holds():
    assert "this is a tpu" in token_draw.trouble("tpu", 1, 3)
    assert "4,096 topics at most" in token_draw.trouble("gpu", 50, 100)
