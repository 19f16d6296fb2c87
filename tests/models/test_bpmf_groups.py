"""Groups of the vectors of BPMF: exact posteriors of tiny problems, and clusters that are there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from jaxmf.data import Features
from jaxmf.likelihoods.families.multivariate_normal import NormalParameters
from jaxmf.models.bpmf import groups
from jaxmf.samplers.factors.link import Link, update_link_of_groups
from jaxmf.testing import check_means, enumerate_partitions
from tests.support.network_oracles import log_of_franchise, log_of_restaurant, log_of_vectors

VECTORS = np.array([[-1.3], [-0.9], [0.2], [1.0], [1.4]])
JOBS = ["a", "a", "b", "b", ""]
NUM_CHAINS, NUM_WARMUP, NUM_SWEEPS = 1_024, 10, 20
PRIOR = mf.NormalInverseWishart(1, location=0.1, weight=0.5, degrees=4.0, scale=0.8)


def model_of(mixture, jobs):
    """One factor a row and nothing else; rows have classes where there are jobs."""
    known = {}
    if jobs is not None:
        known["row_features"] = Features.from_columns({"job": jobs}, missing="zero")
        known["row_classes"] = "job"
    return mf.BPMF(1, bias=False, row_prior=PRIOR, mixture=(mixture, None), **known)


def pairs(labels):
    """(..., 10) bool, which of the five vectors share a group."""
    first, second = np.triu_indices(len(VECTORS), 1)
    return labels[..., first] == labels[..., second]


def exact(log_partition):
    """Probabilities of pairs and the mean number of groups given the vectors, by enumeration."""
    partitions = enumerate_partitions(len(VECTORS))
    logs = [
        log_partition(labels)
        + sum(log_of_vectors(VECTORS[labels == group], PRIOR) for group in set(labels.tolist()))
        for labels in partitions
    ]
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    return {"pairs": weights @ pairs(partitions), "groups": weights @ (1 + partitions.max(axis=1))}


def averages(model):
    """The same by independent chains of the kernel."""
    vectors = jnp.asarray(VECTORS, jnp.result_type(float))
    first, second = np.triu_indices(len(VECTORS), 1)

    def chain(key):
        side = model.simulate_state(key, len(VECTORS), 2, capacity=5).row_side

        def sweep(side, index):
            step_key = jax.random.fold_in(key, index)
            labels, mixture, _ = groups.update(model, step_key, side, vectors, split_merge=1)
            together = labels[first] == labels[second]
            num_groups = jnp.sum(jnp.zeros((5,), bool).at[labels].set(True))
            return side._replace(groups=labels, mixture=mixture), (together, num_groups)

        _, kept = jax.lax.scan(sweep, side, 1 + jnp.arange(NUM_WARMUP + NUM_SWEEPS))
        return jax.tree.map(lambda x: jnp.mean(x[NUM_WARMUP:], axis=0), kept)

    together, num_groups = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), NUM_CHAINS))
    return {"pairs": np.asarray(together), "groups": np.asarray(num_groups)}


def of_classes(classes, concentration, base):
    return lambda labels: log_of_franchise(classes, labels.tolist(), concentration, base)


@pytest.mark.slow
def test_groups_shared_by_classes_have_their_exact_posterior(monkeypatch):
    """With an HDP; a row without a class forms a class."""
    model = model_of(mf.HDP(0.8, 0.7), JOBS)
    expected = exact(of_classes([0, 0, 1, 1, 2], 0.8, 0.7))
    check_means(averages(model), expected, title="HDP", max_standard_error=0.02)
    # broken twin: all rows are taken for one class
    right = groups.class_of_rows
    monkeypatch.setattr(groups, "class_of_rows", lambda *given: (0 * right(*given)[0], 3))
    with pytest.raises(AssertionError):
        check_means(averages(model), expected, title="classes forgotten")


@pytest.mark.exhaustive
def test_groups_of_a_process_have_their_exact_posterior():
    """With splits and merges among the moves."""
    expected = exact(lambda labels: log_of_restaurant(labels.tolist(), 0.9))
    found = averages(model_of(mf.DirichletProcess(0.9), None))
    check_means(found, expected, title="DP", max_standard_error=0.02)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_one_class_close_to_the_shared_weights_is_a_dirichlet_process():
    """An HDP whose one class has a large concentration, against the exact posterior of the DP."""
    expected = exact(lambda labels: log_of_restaurant(labels.tolist(), 0.9))
    found = averages(model_of(mf.HDP(20_000.0, 0.9), ["a"] * 5))
    check_means(found, expected, title="HDP as DP", max_standard_error=0.02)
    # broken twin: with a small concentration it is none
    with pytest.raises(AssertionError):
        check_means(averages(model_of(mf.HDP(0.5, 0.9), ["a"] * 5)), expected, title="HDP")


LABELS = np.array([0, 1, 0, 1, 1, 0, 1])
LAMBDA = 0.7


def link_problem():
    """Vectors of two groups whose covariances differ, and features that say something of them."""
    generator = np.random.default_rng(2)
    features = generator.normal(size=(7, 2))
    factors = np.array([[[0.3, 0.0], [0.5, 0.4]], [[1.5, 0.0], [-0.8, 0.6]]])
    means = np.array([[0.0, 1.0], [-1.0, 0.5]])
    return features, means, factors, generator.normal(size=(7, 2)) + features


def exact_link():
    """E[B] and E[B^2], of all entries of B jointly."""
    features, means, factors, vectors = link_problem()
    inverses = np.linalg.inv(factors @ factors.swapaxes(1, 2))
    precision, side = LAMBDA * np.eye(4), np.zeros(4)
    for x, u, group in zip(features, vectors, LABELS, strict=True):
        precision += np.kron(np.outer(x, x), inverses[group])
        side += np.kron(x, inverses[group] @ (u - means[group]))
    covariance = np.linalg.inv(precision)
    mean = (covariance @ side).reshape(2, 2)
    return {"mean": mean, "square": mean**2 + np.diag(covariance).reshape(2, 2)}


def drawn_link(labels, sparse):
    features, means, factors, vectors = link_problem()
    dtype = jnp.result_type(float)
    known = Features.from_columns({"x": features[:, 0], "y": features[:, 1]}, standardise=False)
    if sparse:
        table = {"x": features[:, 0], "y": features[:, 1]}
        known = Features.from_columns(table, standardise=False, sparse=True)
    moments = NormalParameters(jnp.asarray(means, dtype), jnp.asarray(factors, dtype))
    settings = {"features": known, "moments": moments, "groups": jnp.asarray(labels)}

    def chain(key):
        start = Link(jnp.zeros((2, 2), dtype), jnp.full((len(known.parts),), LAMBDA, dtype))

        def sweep(link, index):
            link = update_link_of_groups(
                jax.random.fold_in(key, index),
                link,
                vectors=jnp.asarray(vectors, dtype),
                precision_prior=LAMBDA,
                **settings,
            )
            return link, link.weights

        _, weights = jax.lax.scan(sweep, start, jnp.arange(60))
        return jnp.mean(weights[20:], axis=0), jnp.mean(weights[20:] ** 2, axis=0)

    mean, square = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), 1_024))
    return {"mean": mean, "square": square}


@pytest.mark.parametrize("sparse", [False, True])
def test_the_link_of_groups_has_its_exact_distribution(sparse):
    check_means(drawn_link(LABELS, sparse), exact_link(), title="link", max_standard_error=0.02)


def test_a_link_that_takes_all_vectors_for_one_group_is_caught():
    """Broken twin."""
    with pytest.raises(AssertionError):
        check_means(drawn_link(0 * LABELS, False), exact_link())


# --- clusters that are there ---------------------------------------------------------------------

RUN = {"num_warmup": 40, "num_samples": 20, "num_chains": 2, "progress": False}


def clustered(seed=0, num_rows=120, num_columns=40, width=3):
    """Three clear clusters of rows, in other shares in either class; a third of the cells."""
    generator = np.random.default_rng(seed)
    truth = np.arange(num_rows) % 3
    centres = 2 * np.linalg.qr(generator.normal(size=(width, width)))[0][:3]
    u = centres[truth] + 0.4 * generator.normal(size=(num_rows, width))
    means = u @ generator.normal(size=(width, num_columns))
    values = means + 0.5 * generator.normal(size=means.shape)
    rows, columns = np.nonzero(generator.random(means.shape) < 0.4)
    ids = [f"u{i}" for i in range(num_rows)]
    data = mf.Entries(rows, columns, values[rows, columns], means.shape, ids)
    # clerks are mostly of clusters 0 and 1, poets of cluster 2
    jobs = np.where(generator.random(num_rows) < 0.9, truth == 2, truth != 2)
    people = Features.from_columns({"job": np.where(jobs, "poet", "clerk")}, ids=ids)
    return truth, means, data, people


def agreement(truth, labels):
    """Share of pairs of rows that both partitions put together, or both apart."""
    alike = truth[:, None] == truth
    return np.mean(alike == (labels[:, None] == labels))


@pytest.mark.slow
def test_a_chain_starts_from_several_groups_where_there_are_no_splits():
    _, _, data, people = clustered()
    model = mf.BPMF(2, people, row_classes="job", mixture=(mf.HDP(), mf.DirichletProcess()))
    model = model.matched(data)

    def start(split_merge):
        sampler = model.sampler(split_merge=split_merge)
        state = jax.jit(sampler.init)(jax.random.key(0), data)
        return state.row_side, state.column_side

    for split_merge, at_least in ((0, (7, 7)), (1, (7, 1))):
        sides = start(split_merge)
        for side, size, least in zip(sides, (120, 40), at_least, strict=True):
            sizes = np.bincount(np.asarray(side.groups), minlength=32)
            assert sizes.sum() == size
            np.testing.assert_array_equal(sizes > 0, side.mixture.slots["group"])
            assert least <= (sizes > 0).sum() <= (1 if least == 1 else 10)
    hyperparameters = sides[0].mixture.hyperparameters["group"]
    assert float(hyperparameters["weights"].sum() + hyperparameters["rest"]) == pytest.approx(1)


@pytest.mark.tiers(exhaustive=["0"])
@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_clear_clusters_are_found_from_the_default_start(seed):
    truth, _, data, _ = clustered(seed)
    model = mf.BPMF(3, mixture=(mf.DirichletProcess(), None), bias=False)
    post = mf.sample(model, data, seed=seed, **RUN)
    for chain in post.draws["row_groups"]:
        assert np.mean([agreement(truth, labels) for labels in chain[::5]]) > 0.97
    assert np.abs(post.draws["num_row_groups"] - 3).mean() < 1
    assert post.num_groups("row_groups").mode == 3
    with pytest.raises(ValueError, match="ask preferences"):
        post.groups()
    # broken twin: without splits and merges it would be this
    assert agreement(truth, np.zeros_like(truth)) < 0.4


@pytest.fixture(scope="module")
def classed():
    truth, means, data, people = clustered()
    model = mf.BPMF(3, people, row_classes="job", mixture=(mf.HDP(), None), bias=False)
    return truth, means, people, mf.sample(model, data, seed=0, **RUN | {"num_chains": 1})


@pytest.mark.exhaustive
def test_classes_have_weights_of_their_own(classed, tmp_path):
    truth, _, _, post = classed
    assert post.model.row_features is None
    labels = post.reference_draw()["row_groups"]
    assert agreement(truth, labels) > 0.97
    table = post.group_weights("row")
    assert table.classes == ("clerk", "poet", None)
    sums = table.weights.sum(axis=1)
    assert ((sums > 0.7) & (sums <= 1.0001)).all()
    poets = labels[np.flatnonzero(truth == 2)[0]]
    index = table.groups.tolist().index(poets)
    assert table.weights[1, index] > 0.6 > 0.4 > table.weights[0, index]
    assert "clerk" in repr(table)
    assert len(table.to_pandas()) == 3 * table.groups.size
    post.save(tmp_path / "run")
    again = mf.load(tmp_path / "run")
    np.testing.assert_array_equal(again.group_weights("row").weights, table.weights)
    assert again.extend(num_samples=2).num_draws == 22


@pytest.mark.slow
def test_a_new_row_is_predicted_with_the_weights_of_its_class(classed):
    truth, means, people, post = classed
    by_cluster = np.array([means[truth == group].mean(axis=0) for group in range(3)])
    new = people.encode({"job": ["poet", "clerk"]}, ids=["x", "y"])
    found = post.predict(row_features=new).to_array((2, means.shape[1]))
    expected = by_cluster[2], by_cluster[:2].mean(axis=0)
    for predicted, mean, other in zip(found, expected, expected[::-1], strict=True):
        assert np.mean((predicted - mean) ** 2) < 0.5 * np.mean((predicted - other) ** 2)
    unknown = post.predict(new_rows=mf.Entries([0], [0], [0.0], (1, means.shape[1])))
    assert np.isfinite(unknown.mean).all()
    with pytest.raises(ValueError, match="no column 'job'"):
        post.predict(row_features=Features(np.ones((1, 2))))


def test_classes_are_a_column_of_the_features_and_none_besides():
    people = Features.from_columns(
        {"age": [20, 30, 40], "job": ["a", "b", "a"]}, ids=["x", "y", "z"]
    )
    model = mf.BPMF(1, people, row_classes="job", mixture=(mf.HDP(), None))
    assert model.row_features.labels == ("age",)
    assert model.row_classes.labels == ("job=a", "job=b")
    assert model.column_width() == 3
    turned = model.transpose()
    assert turned.column_classes is model.row_classes
    assert turned.row_classes is None
    data = mf.Entries([0, 1, 2], [0, 1, 0], [1.0, 2.0, 3.0], (3, 2), ["z", "y", "x"])
    assert model.matched(data).row_classes.levels().tolist() == [0, 1, 0]
    sparse = Features.from_columns({"job": ["b", "", "a"]}, missing="zero", sparse=True)
    assert sparse.levels().tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mixture": mf.HDP()}, "row_classes"),
        ({"mixture": (mf.HDP(), None), "row_classes": "sex"}, "no column 'sex'"),
        ({"mixture": (mf.HDP(), None), "row_classes": "age"}, "categorical"),
        ({"mixture": mf.DirichletProcess(), "row_classes": "job"}, "HDP"),
        ({"row_classes": "job"}, "HDP"),
        ({"mixture": (None, mf.HDP()), "column_classes": "job"}, "column_features"),
    ],
)
def test_classes_that_cannot_be_are_refused_in_words(settings, words):
    people = Features.from_columns({"age": [20, 30], "job": ["a", "b"]})
    with pytest.raises(ValueError, match=words):
        mf.BPMF(1, people, **settings)
    with pytest.raises(TypeError, match="heading"):
        mf.BPMF(1, people, row_classes=3, mixture=mf.HDP())
