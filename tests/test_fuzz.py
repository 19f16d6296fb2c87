"""Odd data: an answer that is finite and possible, or an error that says why there is none.

A few of the problems of `benchmarks.robustness.fuzz`, which has 300 a model and more.
"""

import dataclasses
import json
import os
from unittest import mock

import numpy as np
import pytest

import jaxmf as mf
from benchmarks.robustness import fuzz, fuzz_models, fuzz_problem, odd_data
from benchmarks.robustness.fuzz_models import SUBJECTS, Subject
from jaxmf import registry

CHEAP = ("mixture-of-gaussians", "lda", "urp")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CHEAP)
def test_odd_data_are_answered_or_refused_with_a_reason(name):
    found = [fuzz_problem.solve(name, number, smallest=False) for number in range(4)]
    assert all(verdict in ("answered", "refused") for verdict, _ in found), found
    assert any(verdict == "answered" for verdict, _ in found), found


@pytest.mark.tiers(exhaustive=["bi-lda", "mixture-of-gaussians", "urp"])
@pytest.mark.slow
@pytest.mark.parametrize("name", [*CHEAP, "bi-lda"])
def test_more_odd_data_of_cheap_models(name):
    found = [fuzz_problem.solve(name, n, smallest=n % 4 == 3) for n in range(20)]
    assert all(verdict in ("answered", "refused") for verdict, _ in found), found


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="the limit is a signal")
def test_a_problem_without_an_answer_is_ended_counted_and_passed_over(tmp_path):
    file = tmp_path / "lda.jsonl"
    fuzz.run("lda", file, number=2, seconds=120, one_size=True, limit=0.05)
    first = fuzz.read(file)[0]
    assert first["verdict"] == "hang"  # what has to be compiled takes longer
    fuzz.run("lda", file, number=3, seconds=120, one_size=True)
    assert [problem["number"] for problem in fuzz.read(file)] == [0, 1, 2]
    assert fuzz.read(file)[2]["verdict"] == "answered"


@pytest.mark.filterwarnings("ignore")
def test_every_model_of_the_registry_is_tried():
    made = set()
    for subject in SUBJECTS.values():
        data = subject.data(np.random.default_rng(0), False)
        model = subject.model(data)
        entry = registry.entry_of(model)
        assert subject.verb in entry.methods
        made |= {(entry.name, subject.verb)}
    # jaxmf.testing and the command line know no others
    assert made == {(entry.name, verb) for entry in registry.ENTRIES for verb in entry.methods}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SUBJECTS)
def test_data_of_a_size_have_one_shape_so_that_nothing_is_compiled_twice(name):
    for smallest in (False, True):
        shapes = set()
        for number in range(30):
            generator = fuzz_problem.generator_of(name, number)
            data = SUBJECTS[name].data(generator, smallest)
            shapes.add(str([np.shape(leaf) for leaf in _leaves(data)]))
        assert len(shapes) == 1, shapes


def _leaves(data):
    import jax

    return jax.tree.leaves(data)


@pytest.mark.parametrize(
    ("name", "draws", "asked"),
    [
        ("lda", (), ("transform", "completion")),
        ("urp", (), ("predict", "probabilities", "transform")),
        ("bpmf", (), ("predict", "transform")),
        ("sparse-binary", (), ("predict", "scores", "transform")),
        ("binary-mf", ("num_features",), ("num_features", "features", "predict", "transform")),
    ],
)
def test_everything_that_a_model_can_answer_is_asked(name, draws, asked):
    data = SUBJECTS[name].data(np.random.default_rng(0), False)
    assert fuzz_problem.questions(SUBJECTS[name].model(data), draws) == asked


def test_odd_data_go_as_far_as_they_are_to():
    matrices = [odd_data.real_matrix(np.random.default_rng(n), (12, 4)) for n in range(300)]
    sizes = [np.abs(x).max() for x in matrices if x.any()]
    assert min(sizes) < 1e-7
    assert max(sizes) > 1e12
    assert any((x == x[0, 0]).all() for x in matrices)
    assert any((x == 0).all() for x in matrices)
    assert all(np.isfinite(x.astype(np.float32)).all() for x in matrices)
    masked = [odd_data.with_missing(np.random.default_rng(n), x) for n, x in enumerate(matrices)]
    assert {1, 47} <= {int(np.isfinite(x).sum()) for x in masked}
    counts = [odd_data.count_matrix(np.random.default_rng(n), (10, 5)) for n in range(100)]
    assert max(x.max() for x in counts) == 1e6
    assert any((x == 0).all() for x in counts)


# --- what is wrong is seen -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def posterior():
    model, data = registry.get("mixture-of-gaussians").example()
    return mf.sample(model, data, num_warmup=1, num_samples=2, num_chains=1, progress=False)


@pytest.fixture(scope="module")
def subject():
    return SUBJECTS["mixture-of-gaussians"]


@pytest.mark.slow
def test_a_draw_that_is_not_finite_is_seen(posterior, subject):
    assert not list(fuzz_problem.faults_of(posterior, subject))
    draws = dict(posterior.draws)
    draws["log_joint"] = np.full_like(draws["log_joint"], np.nan)
    broken = dataclasses.replace(posterior, draws=draws)
    assert any("log_joint" in fault for fault in fuzz_problem.faults_of(broken, subject))


def test_answers_that_cannot_be_are_seen():
    seen = fuzz_problem
    assert [*seen._moments("a", [0.0], [-1.0])] == ["a.sd is -1.0"]
    assert [*seen._moments("a", [np.inf], [np.nan])] == [
        "a.mean is not finite",
        "a.sd is not finite",
    ]
    assert any("1.2" in fault for fault in seen._probabilities("p", [1.2, -0.2]))
    assert [*seen._probabilities("p", [0.2, 0.2])] == ["p adds up to 0.4"]
    assert not [*seen._probabilities("p", [0.2, 0.8])]


def test_predictions_outside_what_a_cell_may_be_are_seen():
    model, data = registry.get("noisy-or-ibp").example()
    cells = SUBJECTS["noisy-or-ibp"]
    post = mock.Mock(spec=mf.Posterior, model=model, data=data)
    found = mock.Mock(mean=np.array([1.5]), sd=np.array([0.1]), draws=np.array([[0.0], [0.5]]))
    found.quantiles = np.array([[1.0], [0.0]])
    post.predict.return_value = found
    faults = list(fuzz_problem._predict(post, cells))
    assert [fault.split(" is ")[0] for fault in faults[:2]] == [
        "predict.quantiles fall",
        "predict.mean",
    ]
    assert "predict.draws are no whole numbers" in faults


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (mf.engine.NonFiniteError(("noise", 0, 1), None), "non-finite error"),
        (ValueError("raised by the test, not by jaxmf"), "crash"),
        (AttributeError("'int' object has no attribute 'x'"), "crash"),
    ],
)
def test_errors_are_told_apart(error, verdict):
    def fail(data):
        raise error

    with mock.patch.dict(SUBJECTS, broken=Subject(fail, fuzz_models.points)):
        assert fuzz_problem.solve("broken", 0, smallest=False)[0] == verdict


def test_a_refusal_by_jaxmf_is_no_fault():
    with mock.patch.dict(SUBJECTS, wrong=Subject(lambda d: mf.LDA(-1), fuzz_models.documents)):
        verdict, words = fuzz_problem.solve("wrong", 0, smallest=False)
    assert verdict == "refused"
    assert "num_topics" in words


def test_problems_are_counted_by_their_last_line_once_they_came_to_an_end(tmp_path):
    lines = [
        {"number": 0, "verdict": "begun"},
        {"number": 0, "verdict": "answered"},
        {"number": 1, "verdict": "begun"},
        {"number": 1, "verdict": "hang"},
        {"number": 2, "verdict": "begun"},
    ]
    (tmp_path / "lda.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    counts = fuzz.count(tmp_path, ["lda", "urp"])
    assert counts["lda"] == {"answered": 1, "hang": 1}
    assert counts["urp"] == {}
    rows = {row.case: row for row in fuzz.rows_of(counts)}
    assert rows["robustness/fuzz/hang"].ours == 1
    assert "lda 1 of 2" in rows["robustness/fuzz/hang"].note
    assert rows["robustness/fuzz/crash"].ours == 0
    assert rows["robustness/fuzz/models-with-less-than-300"].ours == 2
    wide = fuzz.row_of_x64(counts)
    assert (wide.case, wide.ours, wide.unit) == ("robustness/fuzz/x64", 1, "of 2")
    assert "of each of 2 models 0 to 2" in wide.note
