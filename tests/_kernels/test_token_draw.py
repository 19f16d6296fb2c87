"""The kernel that draws topics on GPUs, interpreted: its draws, and when it is used."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf import devices, preparation
from jaxmf._kernels import token_draw
from jaxmf._kernels.token_draw import TokenInput
from tests import FAST_COMPILE

TOKENS = mf.Tokens(
    {"document": np.arange(300) // 5, "word": np.arange(300) % 7}, {"document": 60, "word": 7}
)


@pytest.mark.parametrize("num_topics", [1, 37, 64])
def test_its_topics_are_those_of_the_plain_form_where_sums_are_exact(num_topics):
    first, second = (token_draw.trial(num_topics, seed) for seed in (0, 1))
    plain = [token_draw.draw_plainly(each) for each in (first, second)]
    alone, both = token_draw._drawn(first, second)
    np.testing.assert_array_equal(alone, plain[0])
    np.testing.assert_array_equal(both, plain)
    assert num_topics == 1 or len(np.unique(alone)) > 1
    assert np.all(first[7][first[3], alone] > 0)


def real_problem(num_words, num_topics, sizes):
    generator = np.random.default_rng(num_words)
    num_tokens, ends = sum(sizes), np.cumsum(sizes)
    whole = [
        generator.permutation(num_tokens),
        ends - sizes,
        ends,
        generator.integers(0, num_words, num_tokens),
        generator.integers(0, num_topics, num_tokens),
    ]
    phi = generator.dirichlet(np.full(num_words, 0.3), num_topics).T
    real = [generator.random(num_tokens), generator.gamma(1.0, size=num_topics), phi]
    return [*(part.astype(np.int32) for part in whole), *(part.astype("float32") for part in real)]


def farthest(problem, drawn):
    """How far a uniform number is at most outside of the topic's share, with its own counts."""
    order, starts, ends, words, topics, uniforms, alpha, phi = problem
    found = 0.0
    for start, end in zip(starts, ends, strict=True):
        now = np.array(topics)
        for token in order[start:end]:
            others = now[[t for t in order[start:end] if t != token]]
            counts = np.bincount(others, minlength=alpha.size)
            weights = (counts + alpha.astype(float)) * phi[words[token]]
            shares = np.cumsum(weights) / weights.sum()
            now[token] = topic = drawn[token]
            below = shares[topic - 1] if topic else 0.0
            found = max(found, below - uniforms[token], uniforms[token] - shares[topic])
    return found


@pytest.mark.parametrize(
    ("num_words", "num_topics", "sizes"),
    [(1, 5, [4, 1]), (9, 1, [3]), (30, 50, [0, 60, 1, 0, 7]), (1, 1, [1])],
)
def test_with_other_sums_a_topic_is_right_to_rounding(num_words, num_topics, sizes):
    problem = real_problem(num_words, num_topics, sizes)
    draw = jax.jit(token_draw.draw, compiler_options=FAST_COMPILE)
    drawn = np.asarray(draw(TokenInput(*map(jnp.asarray, problem))))
    assert farthest(problem, drawn) < 1e-6
    if num_topics > 1:  # the check can fail
        assert farthest(problem, (drawn + 1) % num_topics) > 1e-3
    # documents of others are left alone, as on a mesh
    problem[2] = np.where(np.arange(len(sizes)) == 0, problem[2], problem[1])
    some = np.asarray(draw(TokenInput(*map(jnp.asarray, problem))))
    first = problem[0][: sizes[0]]
    np.testing.assert_array_equal(some[first], drawn[first])
    assert not np.delete(some, first).any()


def test_nothing_is_drawn_of_no_tokens_and_no_documents():
    problem = real_problem(3, 2, [0, 0])
    assert token_draw.draw(TokenInput(*map(jnp.asarray, problem))).shape == (0,)


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend:DeprecationWarning")
def test_it_lowers_for_cuda_to_one_call(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    inputs = TokenInput(*token_draw.trial(37, 0))
    on_h100 = contextlib.nullcontext()
    if jax.__version_info__ >= (0, 12):  # lowers for a device, not for the oldest that there is
        device = jax.sharding.AbstractDevice("NVIDIA H100 80GB HBM3", 132, platform="gpu")
        mesh = jax.sharding.AbstractMesh((), (), abstract_device=device)
        on_h100 = jax.sharding.use_abstract_mesh(mesh)
    with on_h100:
        text = jax.jit(token_draw.draw).trace(inputs).lower(lowering_platforms=("cuda",)).as_text()
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
    "disagrees": (lambda inputs: (inputs.topics + 1) % 3, "topics are not those of the plain form"),
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
        assert token_draw.trouble("gpu", 3) == ""
        token_draw.trouble.cache_clear()
        return value

    jax.jit(traced)(1.0)
    with jax.ensure_compile_time_eval():
        traced(1.0)


def test_which_networks_and_data_it_is_for(a_gpu, monkeypatch):
    monkeypatch.setattr(token_draw, "trouble", lambda platform, num_topics: "")

    def sweep_of(model, data=None, **options):
        return model.device_options(options, platform="gpu", data=data).get("sweep")

    assert sweep_of(mf.LDA(3)) == sweep_of(mf.LDA(3), TOKENS) == "partially_collapsed"
    assert sweep_of(mf.LDA(3), sweep="parallel") is None
    assert sweep_of(mf.HDPLDA()) == "parallel"
    columns = {"document": np.arange(2_000) // 1_500, "word": np.arange(2_000) % 7}
    long = mf.Tokens(columns, {"document": 2, "word": 7})
    assert sweep_of(mf.LDA(3), long) == "parallel"
    with pytest.raises(ValueError, match="as LDA has"):
        mf.HDPLDA().sampler(sweep="partially_collapsed")
    monkeypatch.setattr(jax, "process_count", lambda: 2)  # which might decide otherwise
    assert sweep_of(mf.LDA(3)) == "parallel"


def test_it_is_not_tried_elsewhere_nor_with_more_topics_than_it_holds():
    assert "this is a tpu" in token_draw.trouble("tpu", 3)
    assert "4,096 topics at most" in token_draw.trouble("gpu", 5_000)
