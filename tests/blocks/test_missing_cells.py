"""Rows with missing cells: families of columns, whole steps, and what mixtures say of cells."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxmf as mf
from jaxmf._kernels.tables import Lanes
from jaxmf.data import Tokens
from jaxmf.likelihoods.families.family import Family
from jaxmf.testing import check_means
from tests import FAST_COMPILE
from tests.extension.families import ZeroOrPoisson
from tests.support.network_checks import BASE, GAMMA, check_step, observed, whole_step

GENERATOR = np.random.default_rng(3)
NORMAL = mf.NormalInverseGamma(0.5, 0.3, 2.0, 1.0)
FAMILIES = {
    "normal": mf.IndependentColumns(NORMAL, 3, location=[1.0, 0.0, -2.0], scale=[2.0, 1.0, 0.5]),
    "counts": mf.IndependentColumns(mf.GammaPoisson(1.5, 0.5), 3),
    "categories": mf.IndependentColumns(mf.DirichletMultinomial(4, [0.3, 0.9, 0.5, 1.0]), 3),
    "binary": mf.IndependentColumns(mf.BetaBinary(0.4, 1.2), 3),
    "zero-inflated": mf.IndependentColumns(ZeroOrPoisson(1.5, 0.5), 3),
}
GROUPS = jnp.asarray(GENERATOR.integers(0, 4, 30), jnp.int32)
CELLS = {
    "normal": GENERATOR.normal(size=(30, 3)),
    "counts": GENERATOR.poisson(2.0, (30, 3)).astype(float),
    "categories": GENERATOR.integers(0, 4, (30, 3)).astype(float),
    "binary": GENERATOR.integers(0, 2, (30, 3)).astype(float),
    "zero-inflated": (GENERATOR.poisson(2.0, (30, 3)) * (np.asarray(GROUPS)[:, None] < 2)) * 1.0,
}
IS_MISSING = GENERATOR.random((30, 3)) < 0.3
IS_MISSING[GROUPS == 1, 0] = True  # a column without a cell in a group


def with_missing(name):
    return np.where(IS_MISSING, np.nan, CELLS[name])


@pytest.mark.tiers(slow=["counts"], exhaustive=["binary", "categories", "normal", "zero-inflated"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_missing_cell_is_as_one_that_was_never_there(name):
    """Marginal and predictive densities are those of each column's observed cells alone."""
    family, values = FAMILIES[name], with_missing(name)
    single, hyperparameters = family.family, family.family.start()
    probe = jnp.asarray([CELLS[name][0, 0], np.nan, CELLS[name][2, 2]])
    lanes = Lanes(jnp.zeros((), jnp.int32), 1, 4)

    def of_columns(values, probe):
        statistics = family.statistics(GROUPS, values, 4)
        predicted = family.predictive(family.begin(statistics, {}), lanes, probe)
        return family.log_marginal(statistics, {}), predicted

    found, predicted = jax.jit(of_columns, compiler_options=FAST_COMPILE)(values, probe)
    expected, expected_predicted = np.zeros(4), np.zeros(4)
    for column in range(3):
        seen = ~np.isnan(values[:, column])
        location, scale = (
            np.broadcast_to(unit, 3)[column] for unit in (family.location, family.scale)
        )
        cells = (values[seen, column] - location) / scale
        value = (probe[column] - location) / scale
        if not single.is_log:
            cells, value = cells.astype(int), jnp.asarray(int(np.nan_to_num(value)), jnp.int32)

        def of_one(cells, groups, value):
            alone = single.statistics(groups, cells, 4)
            result = single.predictive(single.begin(alone, hyperparameters), lanes, value)
            return single.log_marginal(alone, hyperparameters), result

        marginal, result = jax.jit(of_one, compiler_options=FAST_COMPILE)(
            jnp.asarray(cells), GROUPS[seen], value
        )
        expected += np.asarray(marginal)
        expected -= np.bincount(np.asarray(GROUPS)[seen], minlength=4) * np.log(scale)
        if not np.isnan(probe[column]):
            logs = result if single.is_log else np.log(result)
            expected_predicted += np.asarray(logs) - np.log(scale)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-4)
    np.testing.assert_allclose(predicted, expected_predicted, rtol=2e-5, atol=1e-4)


@pytest.mark.tiers(slow=["categories", "normal"], exhaustive=["binary", "counts", "zero-inflated"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_row_that_leaves_and_joins_leaves_no_trace(name):
    family, values = FAMILIES[name], jnp.asarray(with_missing(name))
    index = int(np.flatnonzero((np.asarray(GROUPS) == 0) & ~IS_MISSING.all(axis=1))[0])
    kept = np.arange(30) != index
    lanes = Lanes(jnp.zeros((), jnp.int32), 1, 4)

    def densities(values):
        caches = [
            family.begin(family.statistics(groups, rows, 4), {})
            for groups, rows in ((GROUPS, values), (GROUPS[kept], values[kept]))
        ]
        caches.append(family.move(caches[0], GROUPS[index], values[index], -1))
        caches.append(family.move(caches[2], GROUPS[index], values[index], 1))
        return [family.predictive(cache, lanes, values[index]) for cache in caches]

    whole, without, left, joined = jax.jit(densities, compiler_options=FAST_COMPILE)(values)
    np.testing.assert_allclose(left, without, rtol=1e-4)
    np.testing.assert_allclose(joined, whole, rtol=1e-4)
    assert abs(whole[0] - without[0]) > 1e-3


@pytest.mark.parametrize("name", FAMILIES)
def test_numbers_of_all_columns_move_at_once(name):
    """A loop over columns copies their tables at each turn; of categories there is one."""

    def program(num_columns):
        family = mf.IndependentColumns(FAMILIES[name].family, num_columns)
        group = jnp.asarray(1, jnp.int32)

        def step(row):
            cache = family.move(family.begin(family.empty(4), {}), group, row, 1)
            return family.predictive(cache, Lanes(group * 0, 1, 4), row)

        return str(jax.make_jaxpr(step)(jnp.zeros((num_columns,))))

    narrow, wide = program(3), program(3_000)
    assert narrow.count("=") == wide.count("=")
    has_loop = any(word in wide for word in ("while[", "scan[", "scatter["))
    assert has_loop != FAMILIES[name].family.is_log


SOME_GAPS = np.array([[0, np.nan], [0, 0], [np.nan, 0], [0, 0], [0, np.nan], [np.nan, np.nan]])
PATTERN = np.concatenate([SOME_GAPS, [[0.0, 0.0], [np.nan, 0.0]]])
NETWORK = mf.Network(
    group=mf.Block(mf.DirichletProcess(GAMMA)),
    gaps=observed(mf.IndependentColumns(NORMAL, 2, scale=[2.0, 1.0]), "group"),
    times=observed(mf.IndependentColumns(mf.GammaPoisson(2.0, 0.5)), "group"),
)


def based_on(pattern):
    return Tokens(BASE.columns, BASE.sizes, {"gaps": pattern, "times": pattern[:, 1]})


@pytest.mark.tiers(slow=["sequential"], exhaustive=["parallel"])
@pytest.mark.parametrize("sweep", ["sequential", "parallel"])
def test_a_step_leaves_the_joint_distribution_as_it_is(sweep):
    step = whole_step(NETWORK.sampler(sweep=sweep, split_merge=1))
    check_step("missing cells", NETWORK, step, base=based_on(PATTERN))


@pytest.mark.exhaustive
def test_a_table_without_a_cell_gives_the_prior_back():
    step = whole_step(NETWORK.sampler())
    check_step("likelihood off", NETWORK, step, base=based_on(np.full((8, 2), np.nan)))


@pytest.mark.slow
def test_a_missing_cell_that_counts_as_zero_is_caught(monkeypatch):
    cells_of_token = mf.IndependentColumns._cells_of_token

    def as_zero(self, cache, value):
        cells, seen = cells_of_token(self, cache, value)
        return cells, jnp.ones_like(seen)

    monkeypatch.setattr(mf.IndependentColumns, "_cells_of_token", as_zero)
    with pytest.raises(AssertionError, match="FAILED"):
        check_step("as zero", NETWORK, whole_step(NETWORK.sampler()), base=based_on(PATTERN))


# --- mixtures of rows -----------------------------------------------------------------------------

CENTRES = np.array([[14.0, 2.5, 1e5], [43.0, 13.0, 0.0], [55.0, 20.0, 1e5]])
KINDS = GENERATOR.integers(0, 3, 90)
WHOLE = CENTRES[KINDS] + GENERATOR.normal(size=(90, 3)) * [3.0, 1.2, 1e4]
TABLE = np.where(GENERATOR.random(WHOLE.shape) < 0.2, np.nan, WHOLE)
RUN = {"num_warmup": 60, "num_samples": 60, "num_chains": 2, "progress": False, "seed": 0}
COLUMNS = mf.IndependentColumns()


@pytest.fixture(scope="module")
def fitted():
    return mf.sample(mf.DPMixture(family=COLUMNS), TABLE, split_merge=1, **RUN)


@pytest.mark.exhaustive
def test_missing_cells_are_predicted_in_their_groups(fitted):
    prediction = fitted.predict(quantiles=(0.05, 0.95))
    truth = WHOLE[prediction.rows, prediction.columns]
    scale = np.nanstd(TABLE, axis=0)[prediction.columns]
    means = np.nanmean(TABLE, axis=0)[prediction.columns]
    error, of_means = (np.mean(((each - truth) / scale) ** 2) for each in (prediction.mean, means))
    assert error < 0.3 * of_means
    low, high = prediction.quantiles
    assert 0.75 < np.mean((low < truth) & (truth < high)) <= 1
    score = fitted.held_out_log_likelihood(WHOLE)
    assert score.log_likelihood.size == np.isnan(TABLE).sum()
    labels = fitted.groups().labels
    assert len({*zip(KINDS.tolist(), labels.tolist(), strict=True)}) <= 8


@pytest.mark.slow
def test_predictive_distributions_are_those_of_the_group_of_the_row(fitted):
    model, data = fitted.model, fitted.data
    draw = {name: jnp.asarray(each[0, -1]) for name, each in fitted.draws.items()}
    rows, columns = (jnp.asarray(each[:20]) for each in data.missing_cells())
    values = jnp.asarray(WHOLE[rows, columns], jnp.result_type(float))
    family = mf.IndependentColumns.from_data(jnp.asarray(TABLE))
    expected, means = [], []
    location_of, scale_of = np.asarray(family.location), np.asarray(family.scale)
    for row, column, value in zip(*map(np.asarray, (rows, columns, values)), strict=True):
        members = np.asarray(draw["group_of_tokens"]) == int(draw["group_of_tokens"][row])
        cells = TABLE[members, column]
        cells = (cells[~np.isnan(cells)] - location_of[column]) / scale_of[column]
        weight, shape = 0.01 + cells.size, 1.5 + cells.size / 2
        location = cells.sum() / weight
        rate = 0.5 + (np.sum(cells**2) - weight * location**2) / 2
        scale = np.sqrt(rate * (weight + 1) / (weight * shape)) * scale_of[column]
        centre = location * scale_of[column] + location_of[column]
        expected.append(stats.t(2 * shape, centre, scale).logpdf(value))
        means.append(centre)

    def asked(draw):
        density = model.cell_log_density(draw, data, rows, columns, values)
        return density, model.predict_cells(draw, data, rows, columns)[0]

    found, found_means = jax.jit(asked, compiler_options=FAST_COMPILE)(draw)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found_means, means, rtol=2e-3, atol=5)


@pytest.mark.exhaustive
def test_new_rows_may_have_missing_cells(fitted):
    new = np.array([[14.0, np.nan, np.nan], [np.nan, 13.0, 0.0], [np.nan, 20.0, np.nan]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a column of one new row may be without a cell
        assert fitted.predict(new_rows=new[:1]).mean.shape == (2,)
    prediction = fitted.predict(new_rows=mf.Dense(new), quantiles=(0.05, 0.95))
    truth = np.array([2.5, 1e5, 43.0, 55.0, 1e5])
    np.testing.assert_allclose(prediction.mean, truth, rtol=0.15)
    assert np.all((prediction.quantiles[0] < truth) & (truth < prediction.quantiles[1]))
    np.testing.assert_allclose(fitted.transform(mf.Dense(new)).sum(axis=1), 1, rtol=1e-4)


@pytest.mark.exhaustive
def test_runs_are_saved_resumed_and_compared(fitted, tmp_path):
    model = mf.MixtureOfGaussians(3, family=COLUMNS)
    whole = mf.sample(model, TABLE, **RUN)
    mf.sample(model, TABLE, **RUN | {"num_samples": 30}, checkpoint=tmp_path / "run")
    resumed = mf.sample(model, TABLE, **RUN, checkpoint=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(whole.draws["log_joint"], resumed.draws["log_joint"])
    whole.save(tmp_path / "saved")
    loaded = mf.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict().mean, whole.predict().mean)
    table = mf.compare({"three": whole, "as many as needed": fitted})
    assert "three" in str(table)


@pytest.mark.exhaustive
def test_mixtures_of_counts_in_columns(fitted):
    counts = np.where(np.isnan(TABLE), np.nan, GENERATOR.poisson(1 + 4 * KINDS[:, None], (90, 3)))
    model = mf.DPMixture(1.0, family=mf.IndependentColumns(mf.GammaPoisson(1.0, 0.5)))
    post = mf.sample(model, counts, **RUN)
    prediction = post.predict(num_draws=200)
    assert np.all(prediction.draws >= 0)
    assert np.all(prediction.draws % 1 == 0)
    assert np.all(np.isfinite(prediction.sd))


KINDS_OF_COLUMNS = [None, mf.BetaBinary(), None, mf.GammaPoisson(1.0, 0.2)]


@pytest.mark.exhaustive
def test_columns_of_several_kinds_keep_to_their_values():
    columns = [
        WHOLE[:, 1],
        GENERATOR.random(90) < np.array([0.05, 0.5, 0.95])[KINDS],
        WHOLE[:, 0],
        GENERATOR.poisson(np.array([1, 4, 12])[KINDS]),
    ]
    whole = np.stack(columns, axis=1).astype(float)
    table = np.where(GENERATOR.random(whole.shape) < 0.2, np.nan, whole)
    post = mf.sample(mf.DPMixture(family=mf.MixedColumns(KINDS_OF_COLUMNS)), table, **RUN)
    prediction = post.predict(quantiles=(0.05, 0.95), num_draws=300)
    truth = whole[prediction.rows, prediction.columns]
    low, high = prediction.quantiles
    assert np.mean((low <= truth) & (truth <= high)) > 0.8
    assert set(prediction.draws[:, prediction.columns == 1].ravel()) == {0, 1}
    assert np.all(prediction.draws[:, prediction.columns == 3] % 1 == 0)
    groups = post.groups()
    large = groups.counts >= 10
    np.testing.assert_allclose(np.sort(groups.mean[large, 2]), CENTRES[:, 0], rtol=0.15)
    assert np.all(np.isfinite(post.predict(new_rows=table[:4]).mean))


@pytest.mark.exhaustive
def test_categories_have_the_probability_of_each_value():
    """By the counts of the group of the row, a column at a time; columns may have other values."""
    table = np.array([[0.1, 0, 2], [0.0, 0, 2], [9.0, 1, np.nan], [9.1, 1, 0], [9.2, np.nan, 0]])
    columns, rows = ["x", "smokes", "kind"], list("abcde")
    data = mf.Dense(table, row_names=rows, column_names=columns)
    family = mf.MixedColumns([None, mf.BetaBinary(), mf.DirichletMultinomial(3, 1.0)])
    run = {"num_warmup": 5, "num_samples": 4, "num_chains": 1, "progress": False}
    post = mf.sample(mf.MixtureOfGaussians(2, family=family), data, **run)
    found = post.probabilities((["c", "e"], ["kind", "smokes"]))
    assert found.levels.tolist() == [0, 1, 2]
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    assert found[1, 2] == 0
    labels = post.draws["group_of_tokens"].reshape(-1, 5)
    expected = np.zeros((2, 3))
    for groups in labels:
        kinds, smokes = table[groups == groups[2], 2], table[groups == groups[4], 1]
        for level in range(3):
            expected[0, level] += (1 + np.sum(kinds == level)) / (3 + np.sum(kinds >= 0))
            if level < 2:
                expected[1, level] += (1 + np.sum(smokes == level)) / (2 + np.sum(smokes >= 0))
    np.testing.assert_allclose(found, expected / len(labels), rtol=1e-4)
    frame = found.to_pandas()
    assert frame["row"].tolist() == ["c", "e"]
    assert list(frame) == ["row", "column", "0", "1", "2"]
    with pytest.raises(ValueError, match="column 'x' has no finite set of values"):
        post.probabilities((["c"], ["x"]))


MIXED = mf.MixedColumns([NORMAL, mf.DirichletMultinomial(4), mf.GammaPoisson(1.5, 0.5)]).standard()


@pytest.mark.tiers(
    slow=["zero-inflated"], exhaustive=["binary", "categories", "counts", "mixed", "normal"]
)
@pytest.mark.parametrize("name", [*FAMILIES, "mixed"])
def test_single_cells_are_those_of_rows(name):
    """Their densities as of rows without another cell, their draws with the predictive means."""
    family = FAMILIES.get(name, MIXED)
    parts = ("normal", "categories", "counts") if name == "mixed" else (name,) * 3
    values = np.stack([with_missing(part)[:, d] for d, part in enumerate(parts)], axis=1)
    groups, columns = (jnp.asarray(index.ravel()) for index in np.indices((4, 3)))
    cells = jnp.nan_to_num(values[4:8].T.ravel()), jnp.repeat(jnp.arange(3), 4)

    def of_cells(key):
        statistics = family.statistics(GROUPS, values, 4)
        parameters_key, cells_key = jax.random.split(key)
        parameters = family.sample_parameters(parameters_key, statistics, {})
        return family.sample_cells(cells_key, parameters, groups, columns)

    def known():
        statistics = family.statistics(GROUPS, values, 4)
        asked = statistics, {}, cells[1], cells[0]
        in_rows = Family.log_predictive_of_cells(family, *asked)
        return family.log_predictive_of_cells(*asked), in_rows, family.moments(statistics, {})[0]

    found, in_rows, means = jax.jit(known, compiler_options=FAST_COMPILE)()
    np.testing.assert_allclose(found, in_rows, rtol=1e-5, atol=1e-6)
    draw = jax.jit(jax.vmap(of_cells), compiler_options=FAST_COMPILE)
    drawn = draw(jax.random.split(jax.random.key(7), 4000))
    check_means({"cells": drawn}, {"cells": means.ravel()}, title=f"cells of {name}")
    with pytest.raises(AssertionError, match="cells"):  # those of the next column
        check_means({"cells": drawn}, {"cells": jnp.roll(means, 1, axis=1).ravel()})


def test_one_family_is_needed_for_each_column():
    model = mf.DPMixture(family=mf.MixedColumns(KINDS_OF_COLUMNS))
    with pytest.raises(ValueError, match="families: there are 4, and the rows have 3 columns"):
        mf.sample(model, TABLE, **RUN)
    with pytest.raises(ValueError, match=r"data: .* at row 2, column 1 is no value of BetaBinary"):
        mf.sample(model, np.column_stack([TABLE, TABLE[:, 0]]), **RUN)
    with pytest.raises(TypeError, match="NormalInverseWishart is of vectors"):
        mf.MixedColumns([None, mf.NormalInverseWishart()])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"job": -1.0},
            r"-1 at row 'b', column 'job' is no value of Dir.*0 to 2; -1 .* make it NaN",
        ),
        ({"job": 3.0}, "3 at row 'b', column 'job' is no value of DirichletMultinomial"),
        ({"visits": 2.5}, "2.5 at row 'b', column 'visits' is no value of GammaPoisson$"),
        ({"visits": -1.0}, "-1 at row 'b', column 'visits' is no value of GammaPoisson$"),
    ],
)
def test_a_cell_outside_of_its_family_is_named_by_its_ids(change, words):
    family = mf.MixedColumns([mf.GammaPoisson(), mf.DirichletMultinomial(3)])
    row = [change.get("visits", 2.0), change.get("job", np.nan)]
    names = {"row_names": ["a", "b"], "column_names": ["visits", "job"]}
    data = mf.Dense([[1.0, 2.0], row], **names)
    with pytest.raises(ValueError, match=f"^new_rows: {words}"):
        mf.DPMixture(family=family).check_data(data, "new_rows")


def test_what_cannot_be_is_refused_in_words():
    for model in (mf.DPMixture(), mf.MixtureOfGaussians(2)):
        with pytest.raises(
            ValueError, match=r"cells are missing.*family=mf.IndependentColumns\(\)"
        ):
            mf.sample(model, TABLE, **RUN)
    answers = np.array([[1, 5.0], [4, np.nan]])
    for table, is_of_answers in ((answers, True), (answers + 0.5, False), (TABLE, False)):
        with pytest.raises(ValueError, match="cells are missing") as refused:
            mf.DPMixture().check_data(mf.Dense(table), "data")
        assert ("DirichletMultinomial() if the whole" in str(refused.value)) is is_of_answers
    with pytest.raises(ValueError, match=r"IndependentColumns\(NormalInverseGamma\(\.\.\.\)\)"):
        mf.sample(mf.DPMixture(family=NORMAL), TABLE, **RUN)
    with pytest.raises(ValueError, match=r"gaps: 6 values are missing.*token 0.*Independent"):
        mf.sample(
            mf.Network(
                group=mf.Block(mf.Dirichlet(2)),
                gaps=observed(mf.NormalInverseWishart(), "group"),
            ),
            Tokens(BASE.columns, BASE.sizes, {"gaps": PATTERN}),
        )
    with pytest.raises(TypeError, match="NormalInverseWishart is of vectors"):
        mf.IndependentColumns(mf.NormalInverseWishart(2))
    with pytest.raises(TypeError, match="concentration of DirichletMultinomial has a prior"):
        mf.IndependentColumns(mf.DirichletMultinomial(3, GAMMA))
    with pytest.raises(ValueError, match="scale must be a number or one for each"):
        mf.IndependentColumns(NORMAL, 3, scale=[1.0, 2.0])
    with pytest.raises(ValueError, match="of NormalInverseGamma alone"):
        mf.IndependentColumns(mf.GammaPoisson(), scale=2.0)
    with pytest.raises(
        ValueError, match=r"^data: .*column 0 is no value of BetaBinary, which has 0 to 1$"
    ):
        mf.sample(mf.DPMixture(family=mf.IndependentColumns(mf.BetaBinary())), TABLE, **RUN)
