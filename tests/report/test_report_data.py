"""The parts of the report with the user's data: factors, recommendations, groups, titles."""

import dataclasses
import json
import re

import numpy as np
import pytest
from markupsafe import Markup

import jaxmf as mf
from jaxmf.data.names import titled
from jaxmf.model import HasFactors
from jaxmf.posterior.factors import principal, rotation
from jaxmf.report import render, rows, user_data
from jaxmf.report.parts import Interval, Table, short

GENERATOR = np.random.default_rng(5)
SHORT = {"num_warmup": 6, "num_samples": 8, "num_chains": 1, "progress": False, "seed": 0}
FILMS = {f"f{film}": f"Film <{film}>" for film in range(8)}


def stars():
    """Ratings of 12 users of 8 films, those of even films high with even users."""
    cells = [(user, film) for user in range(12) for film in range(8) if (user + 3 * film) % 5]
    users, films = map(np.array, zip(*cells, strict=True))
    values = 3 + (-1.0) ** (users + films) + 0.1 * GENERATOR.normal(size=users.size)
    names = {"row_names": [f"u{user}" for user in range(12)], "column_names": list(FILMS)}
    return mf.Entries(users, films, values, (12, 8), **names)


@pytest.fixture(scope="module")
def rated():
    return mf.sample(mf.BPMF(2), stars(), **SHORT)


@pytest.fixture(scope="module")
def grouped():
    means = np.repeat([[0.0, 0.0, 4.0], [5.0, 5.0, -4.0]], [12, 6], axis=0)
    data = mf.Dense(
        means + 0.3 * np.random.default_rng(1).normal(size=(18, 3)),
        row_names=[f"r{row}" for row in range(18)],
        column_names=["age", "height", "weight"],
    )
    return mf.sample(mf.DPMixture(), data, **SHORT)


def headings(page):
    return re.findall("<h2>(.*?)</h2>", page)


# --- factors --------------------------------------------------------------------------------------


def test_principal_parts_are_those_of_the_products_whatever_the_vectors_are_turned_by():
    u, v = GENERATOR.normal(size=(7, 3)), GENERATOR.normal(size=(5, 3))
    turn = GENERATOR.normal(size=(3, 3))
    one, two = principal(u, v), principal(u @ turn, v @ np.linalg.inv(turn).T)
    np.testing.assert_allclose(one[0] @ one[1].T, u @ v.T, atol=1e-12)
    for side, other in zip(one, two, strict=True):
        np.testing.assert_allclose(side, other, atol=1e-9)
    singular = np.linalg.svd(u @ v.T, compute_uv=False)[:3]
    np.testing.assert_allclose((one[1] ** 2).sum(axis=0), singular)
    assert all(one[1][np.abs(one[1]).argmax(axis=0), range(3)] > 0)


def test_parts_are_turned_back_to_those_that_they_were():
    fixed = principal(GENERATOR.normal(size=(7, 3)), GENERATOR.normal(size=(5, 3)))
    turn = np.linalg.qr(GENERATOR.normal(size=(3, 3)))[0]
    turned = fixed[0] @ turn, fixed[1] @ turn
    np.testing.assert_allclose(turned[1] @ rotation(turned, fixed), fixed[1], atol=1e-9)


def test_factors_do_not_depend_on_signs_and_order_in_the_draws(rated):
    found = rated.factors()
    assert isinstance(rated.model, HasFactors)
    mixed = {name: np.array(values) for name, values in rated.draws.items()}
    for name in ("u", "v"):
        mixed[name][:, ::2, :, :2] = -mixed[name][:, ::2, :, :2][..., ::-1]
    other = dataclasses.replace(rated, draws=mixed).factors()
    np.testing.assert_allclose(other.columns, found.columns, atol=1e-4)
    np.testing.assert_allclose(other.column_sd, found.column_sd, atol=1e-4)
    np.testing.assert_allclose(other.size_bounds, found.size_bounds, atol=1e-4)
    assert found.sizes[0] >= found.sizes[1]
    assert found.rows.shape == (12, 2)


def test_what_all_rows_share_is_a_level_and_no_factor(rated):
    """A level of columns in the factors, which biases could have as well."""
    found = rated.factors()
    moved = {**rated.draws, "u": np.array(rated.draws["u"])}
    moved["u"][..., :2] += 5
    other = dataclasses.replace(rated, draws=moved).factors()
    np.testing.assert_allclose(other.columns, found.columns, atol=1e-4)
    np.testing.assert_allclose(other.sizes, found.sizes, atol=1e-4)
    without = dataclasses.replace(rated, draws=moved, model=mf.BPMF(2, bias=False)).factors()
    assert without.sizes[0] > 2 * found.sizes[0]


def test_ends_of_a_factor_have_no_column_twice(rated):
    found = rated.factors()
    high, low = found.ends(0, 3)
    values = dict(zip(found.column_names.tolist(), found.columns[:, 0], strict=True))
    assert [values[name] for name in high] == sorted(values.values(), reverse=True)[:3]
    assert [values[name] for name in low] == sorted(values.values())[:3]
    assert not set.intersection(*map(set, found.ends(0, 8)))
    assert len(found.to_pandas()) == 16
    assert found.to_xarray()["columns"].sel(column="f3").shape == (2,)


def test_models_and_draws_without_factors_are_refused(grouped):
    with pytest.raises(ValueError, match="factors: DPMixture does not have factors"):
        grouped.factors()
    assert "factors" not in grouped.plot.available()


# --- the page of ratings --------------------------------------------------------------------------


@pytest.mark.slow
def test_ratings_have_factors_recommendations_and_calibration_in_their_report(rated):
    page = render(rated, titles=FILMS)
    parts = [
        "Factors",
        "Some rows, and the highest of what they lack",
        "Calibration on training cells",
    ]
    assert [title for title in headings(page) if title in parts] == parts
    assert "Film &lt;3&gt;" in page
    assert not re.search(
        r"\bf3\b", re.sub("<(style|script).*?</\\1>|<.*?>", "", page, flags=re.DOTALL)
    )
    best = rated.recommend(["u0"], n=1).column_names[0, 0]
    low, middle, high = rows.intervals(rated, rated.recommend(["u0"], n=1))
    expected = rated.predict((["u0"], [best]))
    assert middle[0, 0] == pytest.approx(expected.mean[0], rel=1e-4)
    assert [low[0, 0], high[0, 0]] == pytest.approx(expected.quantiles[:, 0], rel=1e-4)
    assert 'role="img" aria-label="' in page
    assert "Lines on the right are drawn from" in page
    assert "for three rows: with few entries (the 10 % quantile of their number)" in page
    assert "The grey band and bars have 95 % of such shares" in page


def test_recommendations_have_titles_beside_ids(rated):
    found = rated.recommend(["u0", "u1"], n=20, titles={"f1": "Alien"})
    table = found.table()
    assert list(table)[:4] == ["row", "rank", "column", "title"]
    known = {"f1": "Alien"}
    assert table["title"].tolist() == [known.get(name, name) for name in table["column"]]
    assert (found.columns < 0).any()
    listed = rated.recommend(["u0"], n=2, titles=[f"Film {film}" for film in range(8)])
    assert listed.column_titles[0, 0] == f"Film {listed.columns[0, 0]}"
    assert rated.recommend(["u0"], n=2).column_titles is None


def test_titles_that_are_alike_keep_their_ids_and_wrong_ones_are_refused(rated):
    named = user_data.with_titles(rated, {"f1": "Alien", "f2": "Alien"})
    shown = named.data.column_names.tolist()
    assert shown[:4] == ["f0", "Alien (f1)", "Alien (f2)", "f3"]
    assert rated.data.column_names.tolist() == list(FILMS)
    for titles, says in (
        ({"x": "y"}, "titles: none of its 1 ids, such as 'x', is one of the data, such as 'f0'"),
        (["a"], "titles: are 1, and there are 8 to be named"),
    ):
        with pytest.raises(ValueError, match=says):
            render(rated, titles=titles)
    with pytest.raises(TypeError, match="titles: must be a mapping from ids to titles"):
        render(rated, titles="films.csv")


def test_titles_as_a_series_are_read_by_its_index(rated):
    pd = pytest.importorskip("pandas")
    backwards = pd.Series(FILMS)[::-1]
    assert titled(rated.data.column_names, backwards, 8).tolist() == list(FILMS.values())
    assert titled(None, pd.Series(["a", "b"]), 2).tolist() == ["a", "b"]
    for titles, error, says in (
        (pd.concat([backwards, backwards[:1]]), ValueError, "titles: has an id twice"),
        (pd.DataFrame({"title": FILMS}), TypeError, "titles: is a table; pass one of its columns"),
        (pd.Series(list("abcdefgh")), ValueError, "counts from 0, and 'f0' is an id"),
    ):
        with pytest.raises(error, match=says):
            titled(rated.data.column_names, titles, 8)
    with pytest.raises(ValueError, match="counts from 0, and 1 is an id of the data"):
        titled(np.array([1, 2]), pd.Series(["a", "b"]), 2)  # would be off by one


def test_ends_of_intervals_are_shown_with_enough_digits_and_no_exponents():
    assert [short(value) for value in (117.2, 118.4, 1234.5, -999.7, 3.456, 0.0123)] == (
        ["117", "118", "1234", "-1000", "3.46", "0.0123"]
    )
    assert "118, 90 %: 117 to 1200" in str(Interval((117.2, 118.0, 1200.0), (0.0, 2000.0), "90 %"))


def test_factors_that_are_small_beside_the_largest_are_left_out_and_it_says_so(rated):
    def page(scale):
        draws = {name: np.array(values) for name, values in rated.draws.items()}
        u, v = np.zeros_like(draws["u"]), np.zeros_like(draws["v"])
        u[..., 0, 0], u[..., 1, 1], v[..., 0, 0], v[..., 1, 1] = 1.0, scale, 1.0, 1.0
        return str(user_data.factors(dataclasses.replace(rated, draws=draws | {"u": u, "v": v})))

    assert "Listed are" not in page(0.5)
    says = "Listed are 1 of 2 factors; the others have less than 5% of the largest."
    assert says in page(0.01)


# --- calibration ----------------------------------------------------------------------------------


def test_coverage_is_the_share_inside_central_intervals():
    from jaxmf.plot.calibration import LEVELS, QUANTILES, are_inside, coverage_picture
    from jaxmf.posterior.prediction import Prediction

    draws = GENERATOR.normal(size=(4000, 300)).astype(np.float32)
    cells = np.arange(300)
    quantiles = np.quantile(draws, QUANTILES, axis=0)
    moments = draws.mean(axis=0), draws.std(axis=0)
    prediction = Prediction(cells, cells, *moments, quantiles, QUANTILES, draws)
    values = GENERATOR.normal(size=300)
    shares = are_inside(values, prediction).mean(axis=1)
    np.testing.assert_allclose(shares, LEVELS, atol=0.09)
    too_narrow = are_inside(3 * values, prediction).mean(axis=1)
    assert (too_narrow < np.array(LEVELS) - 0.05)[1:].all()
    figure = coverage_picture(values, prediction, "held-out")
    title = figure.axes[0].get_title(loc="left")
    assert title == f"{100 * shares[LEVELS.index(0.9)]:.0f} % in their 90 % interval"


def test_calibration_says_which_cells_it_is_of(rated):
    label = rated.plot.calibration().axes[0].get_ylabel()
    assert label == "share of training cells inside"
    unseen = rated.data.missing_cells()
    truth = mf.Entries(*unseen, np.full(unseen[0].size, 3.0), rated.data.shape)
    label = rated.plot.calibration(truth).axes[0].get_ylabel()
    assert label == "share of held-out cells inside"
    page = str(user_data.calibration(rated, truth, mf.diagnostics.held_out_error(rated, truth)))
    assert (
        "The grey band and bars have 95 % of such shares if the intervals are right (cells taken "
        "as independent). Bars of the last picture: 90 % predictive intervals."
    ) in page


# --- groups of rows -------------------------------------------------------------------------------


def test_typical_rows_are_the_members_nearest_to_the_mean(grouped):
    found = grouped.groups()
    lists = user_data.typical_rows(grouped, found, n=18)
    assert sorted(row for rows in lists for row in rows) == sorted(grouped.data.row_names)
    values = dict(zip(grouped.data.row_names, grouped.data.to_array(), strict=True))
    first = [np.square((values[row] - found.mean[0]) / found.sd[0]).sum() for row in lists[0]]
    assert first == sorted(first)
    page = render(grouped)
    assert "Groups of rows" in headings(page)
    assert "typical rows" in page


# --- parts of the page ----------------------------------------------------------------------------


def test_cells_of_tables_are_escaped_but_not_those_that_are_html():
    page = str(Table(("a", "b"), [("<x>", Markup("<b>bold</b>"))]))
    assert "&lt;x&gt;" in page
    assert "<td><b>bold</b></td>" in page


def test_the_map_lists_the_words_that_the_posterior_lists():
    lists = [["tea", "cup", "</script>", "milk"] * 4, ["king", "queen", "pawn", "move"] * 4] * 4
    model = mf.LDA(2, topic_concentration=0.1, word_concentration=0.1)
    posterior = mf.sample(model, mf.Tokens.from_lists(lists), **SHORT)
    page = render(posterior)
    text = re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)[1]
    data = json.loads(text)
    topics = posterior.topics(3)
    weight, words = data["relevance"], data["words"]
    for topic in range(len(topics)):
        scores = {
            each["word"]: np.log(phi) - (1 - weight) * np.log(each["count"] / data["numTokens"])
            for each in words
            for index, phi in each["topics"]
            if index == topic
        }
        best = sorted(scores, key=lambda word: -scores[word])[:3]
        np.testing.assert_allclose(
            [scores[word] for word in best], topics.relevant.weights[topic], atol=0.02
        )
    assert data["numTokens"] == 128
    assert "do not depend on the labels of topics" in page
    assert "<th>± 1.645 sd</th>" in page
    assert "Some documents, their topics and likely next words" in headings(page)


# --- features -------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_the_rows_of_a_feature_are_listed_by_id():
    """Causes of questions: which questions, by name, and not only which persons."""
    active = np.random.default_rng(0).random((60, 2)) < 0.4
    acts_on = np.repeat(np.eye(2, dtype=bool), 4, axis=1)
    names = [f"question {row}" for row in range(8)]
    data = mf.Dense((active @ acts_on).T * 1.0, row_names=names)
    model = mf.NoisyOrIBP(alpha=1.0, cause_probability=0.4, efficacy=0.95, leak=0.02)
    page = render(mf.sample(model, data, **SHORT | {"num_warmup": 60}))
    features = page.partition("<h2>Features</h2>")[2].partition("</section>")[0]
    for rows_of_one in (names[:4], names[4:]):
        assert re.search(r"[^<>]*, ".join(rows_of_one), features), features[-900:]


@pytest.mark.exhaustive
def test_the_rows_and_columns_of_a_bicluster_are_listed_by_id():
    """All of eight, where a line of the printed table has room for four."""
    values = np.zeros((24, 18))
    values[:8, :7] = 3.0
    values += 0.2 * np.random.default_rng(0).normal(size=values.shape)
    names = [f"patient {row}" for row in range(24)], [f"gene {column}" for column in range(18)]
    data = mf.Dense(values, row_names=names[0], column_names=names[1])
    prior = mf.BetaBernoulli(1.0, 1.0, 1)
    model = mf.BinaryMF(row_prior=prior, column_prior=prior, offset=0.0)
    page = render(mf.sample(model, data, **SHORT | {"num_warmup": 60}))
    listed = page.partition("<h2>Biclusters</h2>")[2].partition("</section>")[0]
    assert ", ".join(names[0][:8]) in listed
    assert ", ".join(names[1][:7]) in listed
