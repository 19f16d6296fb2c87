"""Questions to a posterior: each answer against the same sum written out, and each refusal."""

import copy
import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

import jaxmf as mf
from jaxmf import registry
from jaxmf.data import Dense
from jaxmf.posterior import categories, draw_blocks, named_cells

ENTRY = registry.ENTRIES[0]
SHORT = {"num_warmup": 4, "num_samples": 6, "num_chains": 2, "progress": False}
FILTER = {"num_particles": 30, "progress": False}


@pytest.fixture(scope="module")
def problem():
    return ENTRY.example()


@pytest.fixture(scope="module")
def sampled(problem):
    return mf.sample(*problem, **SHORT)


@pytest.fixture(scope="module")
def filtered(problem):
    return mf.particle_filter(*problem, **FILTER)


@pytest.fixture(scope="module", params=["sampled", "filtered"])
def posterior(request):
    return request.getfixturevalue(request.param)


def conditional(z, draw, values, row, column):
    """Distribution of a replicate of a cell given a draw's Z and the column's observed cells."""
    noise, scale = float(draw["noise_scale"]), float(draw["feature_scale"])
    seen = np.isfinite(values[:, column])
    z = z.astype(float)
    covariance = noise**2 * np.eye(seen.sum()) + scale**2 * z[seen] @ z[seen].T
    cross = scale**2 * z[row] @ z[seen].T
    mean = cross @ np.linalg.solve(covariance, values[seen, column])
    variance = noise**2 + scale**2 * z[row] @ z[row]
    return mean, variance - cross @ np.linalg.solve(covariance, cross)


def conditionals(posterior, cells):
    """Weights (S,), means and variances (S, M) written out draw by draw."""
    draws, weights = posterior.flat_draws()
    values = posterior.data.to_array()
    pairs = [
        [
            conditional(z, {name: x[s] for name, x in draws.items() if x.ndim == 1}, values, i, j)
            for i, j in zip(*cells, strict=True)
        ]
        for s, z in enumerate(draws["z"])
    ]
    return weights, *np.moveaxis(np.array(pairs), -1, 0)


def test_predictions_are_mixtures_over_draws(posterior):
    cells = posterior.data.missing_cells()
    weights, means, variances = conditionals(posterior, cells)
    predicted = posterior.predict()
    np.testing.assert_array_equal(predicted.rows, cells[0])
    np.testing.assert_array_equal(predicted.columns, cells[1])
    mean = weights @ means
    variance = weights @ variances + weights @ (means - mean) ** 2
    np.testing.assert_allclose(predicted.mean, mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(predicted.sd, np.sqrt(variance), rtol=1e-3)


def test_quantiles_are_those_of_the_mixture(posterior):
    cells = (np.array([0, 1, 7]), np.array([1, 0, 4]))
    weights, means, variances = conditionals(posterior, cells)
    predicted = posterior.predict(cells, quantiles=(0.1, 0.5, 0.9), num_draws=4000)
    assert predicted.quantiles.shape == (3, 3)
    assert predicted.draws.shape == (4000, 3)
    below = np.array(
        [
            [
                weights @ stats.norm.cdf(value, means[:, m], np.sqrt(variances[:, m]))
                for m, value in enumerate(line)
            ]
            for line in predicted.quantiles
        ]
    )
    # Five standard errors of a quantile's level over 4000 draws.
    np.testing.assert_allclose(below, np.array([[0.1], [0.5], [0.9]]) * np.ones(3), atol=0.04)


def test_blocks_of_draws_do_not_matter(sampled, monkeypatch):
    whole = sampled.predict(seed=3)
    monkeypatch.setattr(draw_blocks, "BLOCK_SIZE", 5000)
    parts = sampled.predict(seed=3)
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(parts.draws, whole.draws, rtol=1e-4, atol=1e-5)


def test_cells_are_read_in_three_forms(sampled):
    rows, columns = np.array([2, 5]), np.array([4, 0])
    mask = np.zeros((12, 5), dtype=bool)
    mask[rows, columns] = True
    expected = sampled.predict((rows, columns)).mean
    np.testing.assert_array_equal(sampled.predict(np.stack([rows, columns], 1)).mean, expected)
    np.testing.assert_array_equal(sampled.predict(mask).mean, expected)


def test_new_rows_are_predicted_from_what_is_seen_of_them(sampled):
    values = np.nan_to_num(sampled.data.to_array())
    values[1, 0] = np.nan
    missing = sampled.predict(new_rows=values[:3])
    assert (missing.rows.tolist(), missing.columns.tolist()) == ([1], [0])
    chosen = sampled.predict(([0], [4]), new_rows=values[:3])
    assert (chosen.rows.tolist(), chosen.columns.tolist()) == ([0], [4])
    assert missing.sd[0] > 0.3


def test_held_out_likelihood_is_the_log_of_the_mean_density(posterior):
    cells = posterior.data.missing_cells()
    weights, means, variances = conditionals(posterior, cells)
    values = np.array([0.3, -0.5, 1.0])
    density = weights @ stats.norm.pdf(values, means, np.sqrt(variances))
    score = posterior.held_out_log_likelihood(values, cells)
    np.testing.assert_allclose(score.log_likelihood, np.log(density), rtol=1e-3)
    assert score.mean == pytest.approx(np.log(density).mean(), rel=1e-3)
    full = np.zeros((12, 5))
    full[cells] = values
    assert posterior.held_out_log_likelihood(full).mean == pytest.approx(score.mean)


def test_cooccurrence_is_the_mean_of_zz(posterior):
    draws, weights = posterior.flat_draws()
    z = draws["z"].astype(float)
    expected = np.einsum("s,snk,smk->nm", weights, z, z)
    np.testing.assert_allclose(posterior.cooccurrence(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(posterior.cooccurrence([3, 1])[0, 1], expected[3, 1], rtol=1e-4)


def test_the_always_on_feature_is_no_feature(sampled):
    z = sampled.draws["z"].copy()
    z[..., 0] = True
    model = dataclasses.replace(sampled.model, bias=True)
    posterior = dataclasses.replace(sampled, model=model, draws=sampled.draws | {"z": z})
    shared = np.einsum("csnk,csmk->nm", z[..., 1:].astype(float), z[..., 1:]) / 12
    np.testing.assert_allclose(posterior.cooccurrence(), shared, rtol=1e-4, atol=1e-6)


def test_number_of_features(posterior):
    distribution = posterior.num_features()
    _, weights = posterior.flat_draws()
    flat, _ = posterior.flat_draws()
    assert distribution.probabilities.sum() == pytest.approx(1)
    assert distribution.mean == pytest.approx(weights @ flat["num_features"])
    assert distribution.mode in distribution.values


def test_features_are_of_the_reference_draw(sampled):
    features = sampled.features()
    chain, draw = features.chain, features.draw
    assert sampled.draws["log_joint"][chain, draw] == sampled.draws["log_joint"].max()
    assert features.mean.shape == (sampled.draws["num_features"][chain, draw], 5)
    assert np.all(np.diff(features.counts) <= 0)
    assert "highest log joint" in repr(features)


def test_transform_finds_the_features_of_new_rows(problem, sampled):
    values = np.nan_to_num(problem[1].to_array())
    values[1, 0] = np.nan  # the shape and pattern of other tests: nothing new to compile
    probabilities = sampled.transform(values[:3])
    features = sampled.features()
    assert probabilities.shape == (3, len(features.counts))
    # an answer with ids that may be used as the array
    assert probabilities.to_pandas().shape == probabilities.shape
    assert list(probabilities.table())[:2] == ["row", "feature 0"]
    np.testing.assert_array_equal((1 - probabilities).round(2), 1 - probabilities.values.round(2))
    np.testing.assert_array_equal(copy.deepcopy(probabilities), probabilities)
    assert probabilities.to_xarray()["probability"].dims == ("row", "feature")
    with pytest.raises(AttributeError, match="no_such"):
        probabilities.no_such  # noqa: B018
    # All settings of the reference draw's features, weighed one by one, new features left out.
    draw = sampled.reference_draw()
    z = draw["z"].astype(float)[:, features.slots]
    scales = float(draw["noise_scale"]), float(draw["feature_scale"])
    expected = new_row_probabilities(z, sampled.data.to_array(), values[0], *scales)
    np.testing.assert_allclose(probabilities[0], expected, atol=0.03)


def new_row_probabilities(z, observed, x, noise, scale):
    """P(z_k = 1) of one more row, alpha = 1, its new features summed out up to 8."""
    settings = (np.arange(2 ** z.shape[1])[:, None] >> np.arange(z.shape[1]) & 1).astype(float)
    share = z.sum(axis=0) / (len(z) + 1)
    log_weights = np.log(np.where(settings > 0, share, 1 - share)).sum(axis=1)
    log_weights = np.repeat(log_weights[:, None], 8, axis=1)
    num_new = np.arange(8)
    log_weights += stats.poisson.logpmf(num_new, 1 / (len(z) + 1))
    for column in range(observed.shape[1]):
        seen = np.isfinite(observed[:, column])
        covariance = noise**2 * np.eye(seen.sum()) + scale**2 * z[seen] @ z[seen].T
        for index, setting in enumerate(settings):
            cross = scale**2 * z[seen] @ setting
            mean = cross @ np.linalg.solve(covariance, observed[seen, column])
            variance = noise**2 + scale**2 * setting @ setting
            variance = variance - cross @ np.linalg.solve(covariance, cross)
            deviations = np.sqrt(variance + num_new * scale**2)
            log_weights[index] += stats.norm.logpdf(x[column], mean, deviations)
    weights = np.exp(log_weights - log_weights.max()).sum(axis=1)
    return weights @ settings / weights.sum()


def test_ids_are_understood_and_given_back(problem):
    pd = pytest.importorskip("pandas")
    model, data = problem
    frame = pd.DataFrame(data.to_array(), index=[f"r{i}" for i in range(12)], columns=list("abcde"))
    posterior = mf.sample(model, frame, **SHORT)
    table = posterior.predict().to_pandas()
    assert table["row"].tolist() == ["r1", "r4", "r7"]
    assert table["column"].tolist() == ["a", "c", "e"]
    by_id = posterior.predict((["r2"], ["b"])).mean
    np.testing.assert_array_equal(by_id, posterior.predict(mf.Positions([2], [1])).mean)
    with pytest.raises(ValueError, match="no column has the id 'z'"):
        posterior.predict((["r2"], ["z"]))
    np.testing.assert_array_equal(
        posterior.cooccurrence(["r3", "r1"]), posterior.cooccurrence(mf.Positions([3, 1]))
    )


def test_summaries(sampled, filtered, tmp_path):
    table = sampled.summary()
    assert table.names[:2] == ["log_joint", "num_features"]
    assert "alpha" not in table.names  # fixed
    assert "R-hat" in table.columns
    weighted = filtered.summary()
    assert "R-hat" not in weighted.columns
    assert "log evidence" in weighted.caption
    assert "Posterior of LinearGaussianIBP on 12 x 5 data, by sample" in repr(sampled)
    took = f"{sampled.meta.wall_seconds:.1f} s"  # printed, in the page's tile and in its table
    page = sampled.report(tmp_path / "page.html").read_text()
    assert f"in {took} with compilation" in repr(sampled)
    assert page.count(f"{took} with compilation") == 1
    assert "wall time with compilation, on " in page
    assert "<table" in sampled._repr_html_()


# --- going on ------------------------------------------------------------------------------------


def equal_draws(left, right):
    return left.draws.keys() == right.draws.keys() and all(
        np.array_equal(left.draws[name], right.draws[name]) for name in left.draws
    )


def test_more_draws_are_those_of_one_run(problem, sampled):
    first = mf.sample(*problem, **SHORT | {"num_samples": 2})
    assert equal_draws(first.extend(num_samples=4, progress=False), sampled)
    assert first.num_draws == 2


@pytest.mark.tiers(slow=["two-runs"], exhaustive=["rejuvenated"])
@pytest.mark.parametrize(
    "options",
    [
        {"num_runs": 2},
        pytest.param({"rejuvenate_every": 5}, marks=pytest.mark.slow),
    ],
    ids=["two-runs", "rejuvenated"],
)
def test_more_rows_are_those_of_one_run(problem, options):
    model, data = problem
    values = data.to_array()
    whole = mf.particle_filter(model, values, **FILTER, **options)
    posterior = mf.particle_filter(model, values[:5], **FILTER, **options)
    for part in (values[5:6], values[6:]):
        posterior = posterior.extend(part, progress=False)
    assert equal_draws(posterior, whole)
    np.testing.assert_array_equal(posterior.log_weights, whole.log_weights)
    assert posterior.log_evidence == whole.log_evidence
    for name in whole.trace:
        np.testing.assert_array_equal(posterior.trace[name], whole.trace[name])


def test_a_loaded_filter_goes_on(problem, filtered, tmp_path):
    model, data = problem
    values = data.to_array()
    mf.particle_filter(model, values[:7], **FILTER).save(tmp_path / "run")
    posterior = mf.load(tmp_path / "run").extend(values[7:], progress=False)
    assert equal_draws(posterior, filtered)
    assert posterior.log_evidence == filtered.log_evidence


# --- saving --------------------------------------------------------------------------------------


def test_a_posterior_comes_back_as_it_was(posterior, tmp_path):
    folder = posterior.save(tmp_path / "run")
    again = mf.load(folder)
    assert equal_draws(again, posterior)
    assert again.meta == posterior.meta
    assert again.model == posterior.model
    assert again.data.fingerprint() == posterior.data.fingerprint()
    assert repr(again) == repr(posterior)
    np.testing.assert_array_equal(again.predict().mean, posterior.predict().mean)
    if posterior.is_weighted:
        np.testing.assert_array_equal(again.log_weights, posterior.log_weights)
        assert again.log_evidence == posterior.log_evidence


def test_priors_and_ids_come_back(sampled, tmp_path):
    import numpyro.distributions as dist

    model = mf.LinearGaussianIBP(alpha=dist.Gamma(1.0, 1.0), noise_scale=dist.HalfNormal(0.5))
    data = Dense(sampled.data.to_array(), row_names=range(10, 130, 10), column_names=list("abcde"))
    posterior = dataclasses.replace(sampled, model=model, data=data)
    again = mf.load(posterior.save(tmp_path / "run"))
    assert again.facts() == posterior.facts()
    assert again.model.alpha.rate == 1.0
    np.testing.assert_array_equal(again.data.column_names, data.column_names)
    # Whole numbers are ids here, not positions.
    predicted = again.predict(([20], ["c"]))
    assert (predicted.rows.tolist(), predicted.columns.tolist()) == ([1], [2])
    assert (predicted.row_names.tolist(), predicted.column_names.tolist()) == ([20], ["c"])


def test_saving_again_replaces_and_leaves_nothing_behind(sampled, filtered, tmp_path):
    folder = sampled.save(tmp_path / "run")
    filtered.save(folder)
    assert equal_draws(mf.load(folder), filtered)
    records = json.loads((folder / "posterior.json").read_text())["files"].values()
    named = {record["file"] for record in records}
    assert {file.name for file in folder.iterdir()} == {"posterior.json", *named}


def test_saved_without_its_data(sampled, tmp_path):
    folder = sampled.save(tmp_path / "run", data=False)
    with pytest.raises(ValueError, match=r"saved without its data; give it: load\(folder, data=X"):
        mf.load(folder)
    with pytest.raises(ValueError, match="its fingerprint differs"):
        mf.load(folder, data=np.eye(5))
    assert equal_draws(mf.load(folder, data=sampled.data.to_array()), sampled)


def damage(folder, file, content):
    target = folder / file
    target.write_bytes(content)


def test_bad_folders_are_said(sampled, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        mf.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no finished run"):
        mf.load(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file; name a folder"):
        sampled.save(tmp_path / "file")
    folder = sampled.save(tmp_path / "run")
    manifest = folder / "posterior.json"
    whole = manifest.read_text()
    manifest.write_text(whole[:100])
    with pytest.raises(ValueError, match=r"posterior\.json cannot be read as a manifest"):
        mf.load(folder)
    manifest.write_text(whole.replace('"format": 2', '"format": 99'))
    with pytest.raises(ValueError, match="has format 99"):
        mf.load(folder)
    manifest.write_text(whole)
    draws = folder / json.loads(whole)["files"]["draws"]["file"]
    content = draws.read_bytes()
    draws.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="it is damaged, or belongs to another run"):
        mf.load(folder)
    draws.unlink()
    with pytest.raises(FileNotFoundError, match="is missing; the saved run is incomplete"):
        mf.load(folder)


def test_pickled_objects_are_never_read(sampled, tmp_path):
    folder = sampled.save(tmp_path / "run")
    file = folder / json.loads((folder / "posterior.json").read_text())["files"]["draws"]["file"]
    np.savez(file, z=np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="damaged"):
        mf.load(folder)


def test_arviz_takes_it(posterior):
    pytest.importorskip("arviz_base")
    data = posterior.to_arviz()
    assert data.posterior["z"].dims == ("chain", "draw", "row", "feature")
    assert data.posterior["num_features"].shape[0] == (1 if posterior.is_weighted else 2)
    np.testing.assert_array_equal(data.observed_data["x"], posterior.data.to_array())
    assert data.posterior.attrs["method"] == posterior.meta.method
    mean = float(data.posterior["num_features"].mean())
    assert abs(mean - posterior.num_features().mean) < 0.1
    assert "concentration" not in data.posterior  # a number, of which there is no R-hat
    assert float(data.constant_data["concentration"]) == 1.0


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda p: p.log_evidence, "from sample has no log evidence; jaxmf.particle_filter"),
        (lambda p: p.log_weights, "equally weighted and have no log_weights"),
        (lambda p: p.extend(np.eye(5)), "sample cannot take more rows, jaxmf.particle_filter can"),
        (lambda p: p.extend(), r"say how many more draws, extend\(num_samples=500\)"),
        (lambda p: p.predict(([0], [7])), r"columns: 7 at position 0 is outside 0..4"),
        (lambda p: p.predict(([0, 1], [7])), "2 rows but 1 columns"),
        (lambda p: p.predict([[0, 1, 2]]), r"give \(rows, columns\), an array of shape \(M, 2\)"),
        (lambda p: p.predict(([], [])), "there are none"),
        (lambda p: p.predict(np.zeros((3, 3), bool)), "boolean matrix of shape"),
        (lambda p: p.predict((["a"], [0])), "the data has no ids of rows"),
        (lambda p: p.predict(quantiles=(0.5, 5)), "quantiles must lie between 0 and 1"),
        (lambda p: p.predict(new_rows=np.eye(4)), "new_rows has 4 columns, the data has 5"),
        (lambda p: p.transform(np.eye(4)), "new_rows has 4 columns, the data has 5"),
        (lambda p: p.held_out_log_likelihood(np.eye(4)), "give the whole matrix"),
        (lambda p: p.cooccurrence(["a"]), "rows"),
        (lambda p: p.plot.features(image_shape=(3, 3)), "3 x 3 has 9 cells, rows have 5"),
        (lambda p: p.plot.trace(["beta"]), "there is no trace of 'beta'"),
    ],
)
def test_questions_without_an_answer_are_said(sampled, ask, says):
    with pytest.raises((ValueError, TypeError), match=says):
        ask(sampled)


def test_complete_data_has_nothing_to_predict(sampled):
    complete = dataclasses.replace(sampled, data=Dense(np.ones((12, 5))))
    with pytest.raises(ValueError, match="no missing cells to predict; name some"):
        complete.predict()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"data": np.eye(5)}, "no option 'data'; it continues the run as it was started"),
        ({"num_chains": 3}, "no option 'num_chains'; it continues"),
        ({"progres": False}, r"no option 'progres'.* Is progress meant\?$"),
        ({"loudly": True}, "no option 'loudly'. It takes new_rows, num_samples, chain_method"),
    ],
)
def test_what_a_continued_run_does_not_take_is_named(sampled, settings, says):
    with pytest.raises(TypeError, match=says):
        sampled.extend(num_samples=2, **settings)


def test_models_without_times_have_no_time_to_ask_for(sampled):
    with pytest.raises(ValueError, match=r"LinearGaussianIBP has no times; leave at\(\) out"):
        sampled.at(2.0)


def test_a_filter_goes_on_with_rows_only(filtered):
    with pytest.raises(ValueError, match="a filter continues with more rows"):
        filtered.extend(num_samples=5)
    with pytest.raises(ValueError, match="new_rows has 4 columns"):
        filtered.extend(np.eye(4))


def test_rows_of_a_reconstruction_are_named_or_counted_as_in_predictions(sampled):
    whole = sampled.reconstruction()
    np.testing.assert_allclose(sampled.reconstruction([2, 0]), whole[[2, 0]], rtol=1e-5)
    named = dataclasses.replace(
        sampled, data=Dense(sampled.data.to_array(), row_names=[f"r{i}" for i in range(12)])
    )
    np.testing.assert_allclose(named.reconstruction(["r2", "r0"]), whole[[2, 0]], rtol=1e-5)
    pairs = [name for name in named.quantities() if name.startswith("shared")]
    assert pairs == ["shared[r0, r4]", "shared[r4, r8]", "shared[r0, r8]"]
    assert "shared[4, 8]" in sampled.quantities()
    with pytest.raises(ValueError, match=r"rows: 12 at position 1 is outside 0\.\.11"):
        sampled.reconstruction([0, 12])


def test_questions_about_cells_that_a_posterior_cannot_answer(sampled):
    model, data = registry.get("dcm").example()
    words = dataclasses.replace(sampled, model=model, data=data)
    with pytest.raises(ValueError, match="DirichletCompoundMultinomial has no cells"):
        words.held_out_log_likelihood([1.0], ([0], [0]))
    model, data = registry.get("bpmf").example()
    scalars = {"log_joint": sampled.draws["log_joint"]}
    bare = dataclasses.replace(sampled, model=model, data=data, draws=scalars)
    for question in (
        lambda: bare.held_out_log_likelihood([3.0], ([0], [0])),
        lambda: bare.transform(data),
        lambda: bare.reconstruction([0]),
    ):
        with pytest.raises(ValueError, match="keep_factors=False"):
            question()


def test_values_kept_in_32_bits_are_known_on_both_sides():
    levels, distributions = np.array([0.1, 0.2, 0.3, 0.7]), np.array([[0.4, 0.3, 0.2, 0.1]] * 5)
    observed = np.array([*levels.astype(np.float32), 0.25], float)
    assert (observed[:4] > levels).any()
    assert (observed[:4] < levels).any()
    found = categories.log_density(distributions, levels, observed)
    np.testing.assert_allclose(found, [*np.log([0.4, 0.3, 0.2, 0.1]), -np.inf])


def test_numbers_of_entries_and_titles(sampled):
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        sampled.top_entries("word", 0)
    with pytest.raises(ValueError, match="num_draws must be at least 1, got 0"):
        sampled.document_completion(None, num_draws=0)
    model, data = registry.get("bpmf").example()
    groups = {"row_groups": np.zeros((1, 1, 8), int)}
    grouped = dataclasses.replace(sampled, model=model, data=data, draws=groups)
    shown = grouped.top_entries("row", 2, titles=list("abcdefgh"))
    assert set(shown.entries.ravel()) <= set("abcdefgh")
    with pytest.raises(ValueError, match="titles: are 3, and there are 8 to be named"):
        grouped.top_entries("row", 2, titles=list("abc"))


def test_cells_by_ids_that_are_tuples(sampled):
    ids = [("ward", index) for index in range(12)]
    named = dataclasses.replace(sampled, data=Dense(sampled.data.to_array(), row_names=ids))
    for given in (([ids[3], ids[1]], [0, 2]), [[ids[3], ids[1]], np.array([0, 2])]):
        rows, columns = named_cells.read_cells(given, named.data)
        np.testing.assert_array_equal((rows, columns), [[3, 1], [0, 2]])
    np.testing.assert_array_equal(named_cells.read_rows([ids[5]], named.data), [5])
    # pairs of positions are cells as before
    np.testing.assert_array_equal(
        named_cells.read_cells([[3, 0], [1, 2], [4, 4]], sampled.data)[0], [3, 1, 4]
    )
