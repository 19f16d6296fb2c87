"""Probabilities of groups of sets of tokens: labels that differ from draw to draw do not matter."""

import dataclasses

import numpy as np
import pytest

import jaxmf as mf

RUN = {"num_warmup": 20, "num_samples": 8, "num_chains": 1, "progress": False, "seed": 0}
PERSONS = np.repeat([f"{i:02d}" for i in range(6)], 4)
ANSWERS = np.array(["yes"] * 12 + ["no"] * 12)
TOKENS = mf.Tokens.from_columns(
    {"region": np.where(np.arange(24) < 8, "north", "south"), "person": PERSONS, "answer": ANSWERS}
)


def network(prior, **sets):
    return mf.Network(
        kind=mf.Block(prior, **sets),
        answer=mf.Block(mf.DirichletMultinomial(concentration=0.1), by="kind", observed=True),
    )


@pytest.fixture(scope="module")
def fitted():
    model = network(mf.Dirichlet(3), by="region", per=("region", "person"))
    return mf.sample(model, TOKENS, **RUN)


def with_labels(posterior, labels):
    """The posterior with these groups (S, persons) in its draws, the first with the best joint."""
    labels = np.repeat(labels, 4, axis=1)[None]
    joint = -np.arange(labels.shape[1], dtype=float)[None]
    draws = {"kind_of_tokens": labels, "log_joint": joint}
    return dataclasses.replace(posterior, draws=draws, run=None)


def test_probabilities_are_over_draws_whatever_their_labels(fitted):
    """Three draws, the second with other labels, the third with one person in another group."""
    labels = np.array([[0, 0, 0, 1, 1, 1], [2, 2, 2, 0, 0, 0], [1, 1, 1, 1, 0, 0]])
    found = with_labels(fitted, labels).group_probabilities()
    assert found.groups.tolist() == [0, 1, 2]
    expected = [[1, 0, 0]] * 3 + [[1 / 3, 2 / 3, 0]] + [[0, 1, 0]] * 2
    np.testing.assert_allclose(found.probabilities, expected)
    np.testing.assert_allclose(found.similarity[:2], [(2 + 0.75**0.5) / 3, (2 + 6**0.5 / 3) / 3])
    assert not found.unmatched.any()
    assert found.most_probable.tolist() == [0] * 3 + [1] * 3
    frame = found.to_pandas()
    assert frame.index.names == ["region", "person"]
    assert frame.columns.name == "kind"
    np.testing.assert_allclose(frame.loc[("south", "03")], [1 / 3, 2 / 3, 0])
    table = found.table()
    assert list(table) == ["region", "person", "kind", "probability"]
    assert table["person"][:4].tolist() == ["00"] * 3 + ["01"]
    assert found.to_xarray()["probabilities"].sel(group=1).values[3] == pytest.approx(2 / 3)
    assert "0: 33%" in repr(found)


def test_a_group_that_the_reference_draw_lacks_is_unmatched(fitted):
    model = network(mf.DirichletProcess(1.0), per="person")
    posterior = dataclasses.replace(fitted, model=model)
    labels = np.array([[5, 5, 5, 5, 2, 2], [1, 1, 1, 3, 0, 0]])
    found = with_labels(posterior, labels).group_probabilities("kind")
    assert found.groups.tolist() == [5, 2]
    np.testing.assert_allclose(found.unmatched, [0, 0, 0, 0.5, 0, 0])
    np.testing.assert_allclose(found.probabilities.sum(axis=1) + found.unmatched, 1)


def test_classes_of_persons_are_found_without_a_word_about_what_to_keep(fitted):
    found = fitted.group_probabilities()
    assert found.probabilities.shape == (6, 3)
    first, last = found.most_probable[:3], found.most_probable[3:]
    assert set(first).isdisjoint(last)


@pytest.mark.slow
def test_rows_of_a_mixture_have_probabilities_of_their_groups():
    x = np.array([[0.0], [0.1], [9.0], [9.1], [9.2]])
    data = mf.Dense(x, row_names=list("abcde"))
    post = mf.sample(mf.MixtureOfGaussians(2), data, **RUN)
    found = post.group_probabilities()
    assert list(found.ids) == ["row"]
    assert found.to_pandas().index.tolist() == list("abcde")
    assert found.most_probable.tolist() == post.groups().labels.tolist() == [1, 1, 0, 0, 0]
    exchanged = {
        name: 1 - values if name == "group_of_tokens" else values[:, :, ::-1]
        for name, values in post.draws.items()
        if name != "log_joint"
    }
    other = dataclasses.replace(post, draws=dict(post.draws) | exchanged, run=None)
    found = other.group_probabilities()
    assert found.groups.tolist() == [0, 1]
    assert found.most_probable.tolist() == other.groups().labels.tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("column", ["group", "set", "similarity", "probability"])
def test_columns_may_have_the_names_of_parts_of_the_answer(fitted, column):
    whole = fitted.group_probabilities()
    found = dataclasses.replace(whole, ids={column: whole.ids["person"]})
    dataset, persons = found.to_xarray(), [f"{i:02d}" for i in range(6)]
    assert dataset["group"].values.tolist() == whole.groups.tolist()
    np.testing.assert_array_equal(dataset["similarity"], whole.similarity)
    name = column if column in ("set", "probability") else f"{column} (id)"
    assert dataset[name].values.tolist() == persons
    table = found.table()
    name = "probability (id)" if column == "probability" else column
    assert table[name][::3].tolist() == persons
    np.testing.assert_array_equal(table["probability"], whole.probabilities.ravel())


def test_what_has_no_probabilities_of_groups_is_said(fitted):
    with pytest.raises(
        ValueError, match=r"'answer' is no latent block of the model; it has 'kind'"
    ):
        fitted.group_probabilities("answer")
    draws = {"log_joint": fitted.draws["log_joint"]}
    with pytest.raises(ValueError, match='keep="assignments"'):
        dataclasses.replace(fitted, draws=draws).group_probabilities()
    alone = mf.Network(
        kind=mf.Block(mf.DirichletProcess(), by="region"),
        answer=mf.Block(
            mf.DirichletMultinomial(concentration=0.1), by=("region", "kind"), observed=True
        ),
    )
    with pytest.raises(ValueError, match="for each region alone"):
        dataclasses.replace(fitted, model=alone).group_probabilities()


def test_refusals_of_a_network_name_the_question_that_it_answers(fitted):
    questions = (
        fitted.groups,
        fitted.predict,
        lambda: fitted.transform(TOKENS),
        lambda: fitted.top_entries("person"),
    )
    for question in questions:
        with pytest.raises(ValueError, match="group_probabilities"):
            question()
