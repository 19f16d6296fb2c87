"""Topics of many documents: no table of documents times topics, and the same answers."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import jaxmf as mf
from jaxmf import devices
from jaxmf._kernels import tables
from jaxmf.blocks import batches, chain, counts, starting, tile_layout
from jaxmf.samplers.restaurants import count_tables_at_once, count_tables_of_sorted
from tests.support.jaxprs import all_shapes

GAMMA = dist.Gamma(1.0, 1.0)
MODELS = {
    "lda": mf.LDA(4, topic_concentration=[0.2, 0.5, 0.1, 1.0]),
    "hdp": mf.HDPLDA(),
    "pam": mf.PAM((2, 3), word_concentration=0.1),
}
NUM_DOCUMENTS, NUM_TOPICS = 10**6, 1_000


def tokens(num_documents=9, num_words=12, size=120, seed=0):
    """Of documents in no order; the last one is empty."""
    rng = np.random.default_rng(seed)
    columns = {
        "document": rng.integers(0, num_documents - 1, size),
        "word": rng.integers(0, num_words, size),
    }
    return mf.Tokens(columns, {"document": num_documents, "word": num_words})


@pytest.fixture(
    scope="module",
    params=["lda", *(pytest.param(n, marks=pytest.mark.slow) for n in ("hdp", "pam"))],
)
def both(request):
    """The same chain, its draws with tables and without."""
    settings = {"num_warmup": 3, "num_samples": 4, "num_chains": 1, "progress": False}
    model, data = MODELS[request.param], tokens()
    with_tables = mf.sample(model, data, **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counts, "MOST_CELLS", 0)
        compact = mf.sample(model, data, keep="compact", **settings)
    return with_tables, compact


@pytest.mark.tiers(exhaustive=["hdp", "pam"])
def test_draws_without_tables_are_the_same(both):
    with_tables, compact = both
    assert not any(name.endswith("_counts") for name in compact.draws)
    for name in ("word_cells", "word_totals"):
        np.testing.assert_array_equal(with_tables.draws[name], compact.draws[name])
    np.testing.assert_allclose(
        with_tables.draws["log_joint"], compact.draws["log_joint"], rtol=1e-5
    )
    assert np.ptp(with_tables.draws["log_joint"]) > 0.1


def check_same(answers):
    """Those of draws with tables and without."""
    for name, expected in answers[0].items():
        np.testing.assert_allclose(answers[1][name], expected, rtol=2e-5, atol=1e-7, err_msg=name)


@pytest.mark.tiers(exhaustive=["pam"])
def test_documents_have_the_same_topics(both):
    answers = []
    for post in both:
        found, some = post.document_topics(), post.document_topics([7, 2])
        np.testing.assert_allclose(some.mean, found.mean[[7, 2]], rtol=1e-6)
        np.testing.assert_allclose(some.sd, found.sd[[7, 2]], rtol=1e-6)
        words = post.recommend(mf.Positions([5, 0]), n=3, include_known=True).scores
        answers.append(
            {
                "topics": post.topics().shares,
                "documents": found.mean,
                "sd": found.sd,
                "similar": post.similar_documents(3).similarity,
                "over": post.topics_over(np.arange(9) % 3).mean,
                "next words": words.probability,
            }
        )
    check_same(answers)


@pytest.mark.exhaustive
def test_new_documents_have_the_same_topics(both):
    answers, new = [], tokens(4, 12, 20, seed=1)
    for post in both:
        completion = post.document_completion(new, num_draws=2)
        answers.append({"new": post.transform(new), "completion": completion.log_likelihood})
    check_same(answers)


@pytest.mark.tiers(exhaustive=["pam"])
def test_tokens_left_out_have_the_same_probabilities(both):
    if len(both[0].model.network().indicators) > 1:
        pytest.skip("tokens of paths are not left out one by one")
    with_tables, compact = (post.log_likelihood().values for post in both)
    np.testing.assert_allclose(with_tables, compact, rtol=1e-5)


def of_many_documents(model, platform, **options):
    """Plan, state and data of a chain with a million documents, few of which have tokens."""
    data = tokens(NUM_DOCUMENTS, 50, 300)
    found = model.device_options(options, platform=platform, data=data)
    network, data = model.over(data)
    plan = chain.plan(network, joint=model.joint, **{"capacity": None, **found, **options})
    shapes = jax.eval_shape(starting.init, plan, model, jax.random.key(0), data)
    return plan, shapes, data


def largest(fn, *args):
    """Cells of the largest array in a program, and in those within it."""
    return max(map(math.prod, all_shapes(jax.make_jaxpr(fn)(*args).jaxpr)))


@pytest.mark.parametrize(
    ("name", "platform"), [("lda", "cpu"), ("hdp", "cpu"), ("pam", "cpu"), ("lda", "gpu")]
)
def test_no_program_has_a_table_of_documents_and_topics(name, platform, monkeypatch):
    if platform != "cpu":
        for module in (batches, tables, tile_layout):
            monkeypatch.setattr(module, "default_platform", lambda: platform)
    model = {
        "lda": mf.LDA(NUM_TOPICS, topic_concentration=GAMMA, word_concentration=GAMMA),
        "hdp": mf.HDPLDA(),
        "pam": mf.PAM((4, NUM_TOPICS), GAMMA),
    }[name]
    options = {"capacity": NUM_TOPICS} if name == "hdp" else {}
    plan, state, data = of_many_documents(model, platform, **options)
    sweep = "sparse" if platform == "cpu" else "parallel"
    assert (plan.sweep, plan.keep) == (sweep, "compact")
    key, most = jax.random.key(0), 8 * NUM_DOCUMENTS
    if platform != "cpu":  # a block of documents
        most = 2 * devices.block_size("token cells")

    def init(key):
        return starting.init(plan, model, key, data)

    def step(key, state):
        return chain.step(plan, model, key, state, data, jnp.ones(()))

    def recorded():  # a new function, which is traced anew
        return lambda key, state: chain.record(plan, model, key, state, data)

    assert largest(init, key) <= most
    assert largest(step, key, state) <= most
    assert largest(recorded(), key, state) <= most
    monkeypatch.setattr(counts, "MOST_CELLS", 2**62)
    assert largest(recorded(), key, state) >= NUM_DOCUMENTS * NUM_TOPICS


def test_counts_of_tables_do_not_need_the_table_of_counts():
    random = np.random.default_rng(0)
    documents, topics = (jnp.asarray(random.integers(0, n, 500), jnp.int32) for n in (30, 7))
    table = jnp.zeros((30, 7), jnp.int32).at[documents, topics].add(1)
    key, pseudo = jax.random.key(1), jnp.asarray(random.gamma(1, size=7))
    found = count_tables_of_sorted(key, documents, topics, pseudo)
    np.testing.assert_array_equal(found, count_tables_at_once(key, table, pseudo, num_items=500))
    # Broken twin: in the order in which they stand.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.lax, "sort", lambda items, num_keys: items)
        assert np.any(found != count_tables_of_sorted(key, documents, topics, pseudo))
