"""The command line: what it prints, what it writes, and one line for every mistake."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import jaxmf as mf
from jaxmf import cli, diagnostics, registry
from jaxmf.cli import listing, results
from jaxmf.cli.fitting import next_command
from jaxmf.cli.inputs import hide
from jaxmf.cli.new_rows import read_like
from jaxmf.cli.options import read_ids
from jaxmf.posterior.document_topics import DocumentTopics
from jaxmf.report import read_notes, write_notes

NAME = "linear-gaussian-ibp"
SHORT = ["--chains", "2", "--samples", "6", "--warmup", "4"]


@pytest.fixture(autouse=True)
def no_compilation_cache(monkeypatch):
    monkeypatch.setenv("JAXMF_CACHE", "off")


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "X.npy"
    np.save(path, registry.get(NAME).example()[1].to_array())
    return path


@pytest.fixture(scope="module")
def finished(matrix, tmp_path_factory):
    """A finished run, made by the command line."""
    patch = pytest.MonkeyPatch()
    patch.setenv("JAXMF_CACHE", "off")
    folder = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["fit", NAME, str(matrix), "--out", str(folder), *SHORT]
    arguments += ["--set", "alpha=1.0", "--set", "noise_scale=0.3", "--set", "feature_scale=1.0"]
    assert cli.run(arguments) == 0
    patch.undo()
    return folder


def test_models_lists_what_the_registry_has(capsys):
    assert cli.run(["models"]) == 0
    printed = capsys.readouterr().out
    for entry in registry.ENTRIES:
        assert entry.name in printed
        assert entry.one_line in printed
        for method in entry.methods:
            assert method in printed
    assert "noise_scale" in printed
    assert printed == listing.listing(registry.all_entries()), "run: python -m jaxmf.cli.listing"


def test_fit_writes_what_the_library_reads(finished):
    model, data = registry.get(NAME).example()
    direct = mf.sample(model, data, num_chains=2, num_samples=6, num_warmup=4, progress=False)
    loaded = mf.load(finished)
    np.testing.assert_array_equal(loaded.draws["z"], direct.draws["z"])


def test_a_run_is_not_overwritten_unless_told_and_resumes(finished, matrix, capsys):
    arguments = ["fit", NAME, str(matrix), "--out", str(finished), *SHORT]
    arguments += ["--set", "alpha=1.0", "--set", "noise_scale=0.3", "--set", "feature_scale=1.0"]
    assert cli.run(arguments) == 2
    assert "--resume continues it, --overwrite replaces it" in capsys.readouterr().err
    before = mf.load(finished)
    assert cli.run([*arguments, "--resume"]) == 0
    np.testing.assert_array_equal(mf.load(finished).draws["z"], before.draws["z"])
    more = [*arguments, "--resume", "--samples", "8"]
    assert cli.run(more) == 0
    assert mf.load(finished).draws["z"].shape[1] == 8
    assert cli.run([*arguments, "--overwrite"]) == 0
    np.testing.assert_array_equal(mf.load(finished).draws["z"], before.draws["z"])
    other = [argument.replace("alpha=1.0", "alpha=2.0") for argument in arguments]
    assert cli.run([*other, "--resume"]) == 2
    assert "alpha was 1.0 and is now 2.0" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_annealed_runs_are_made_by_their_flags(matrix, tmp_path, capsys):
    out = tmp_path / "annealed"
    arguments = ["fit", "dp-mixture", str(tmp_path / "rows.npy"), "--out", str(out)]
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(8, 1)))
    arguments += ["--method", "smc", "--particles", "12", "--runs", "2"]
    arguments += ["--set", "chain_length=3", "--set", "concentration=1.0"]
    assert cli.run(arguments) == 0
    printed = capsys.readouterr()
    assert "log evidence" in printed.out  # the alarm, once: in the summary
    assert "log evidence" not in printed.err
    run = mf.load(out).meta.run
    assert (run["num_particles"], run["num_runs"], run["chain_length"]) == (12, 2, 3)
    (out / "checkpoint").mkdir()
    (out / "checkpoint" / "checkpoint.json").write_text("{}")
    assert cli.run([*arguments, "--resume"]) == 2
    assert "--resume: smc keeps no checkpoint" in capsys.readouterr().err
    assert cli.run([*arguments, "--overwrite", "--checkpoint-every", "5"]) == 2
    assert "--checkpoint-every: smc keeps no checkpoint" in capsys.readouterr().err


def test_help_is_what_comes_without_a_command(capsys):
    assert cli.run([]) == 0
    printed = capsys.readouterr().out
    for command in ("models", "fit", "show", "compare", "predict", "report", "demo"):
        assert command in printed


def test_show_prints_summary_and_facts(finished, capsys):
    assert cli.run(["show", str(finished)]) == 0
    printed = capsys.readouterr().out
    assert "R-hat" in printed
    assert "12 rows, 5 columns, 3 cells missing" in printed


def test_show_writes_the_topics_of_documents(finished, tmp_path, capsys, monkeypatch):
    parts, sds = np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([[0.01, 0.02]] * 2)
    found = DocumentTopics(np.array(["a", "b"], object), parts, sds, np.zeros(2))
    run = SimpleNamespace(document_topics=lambda: found)
    monkeypatch.setattr(results, "_load", lambda folder: run)
    path = tmp_path / "topics.csv"
    assert cli.run(["show", str(finished), "--documents", "-o", str(path)]) == 0
    lines = path.read_text().splitlines()
    assert lines[0] == "document,topic 0,topic 1,sd of topic 0,sd of topic 1"
    assert lines[1:] == ["a,0.25,0.75,0.01,0.02", "b,1,0,0.01,0.02"]
    assert "2 documents written to" in capsys.readouterr().out
    assert cli.run(["show", str(finished), "-o", str(path)]) == 2
    assert "--out is the file of --documents" in capsys.readouterr().err


def test_show_writes_the_features_of_new_rows(finished, tmp_path, capsys):
    new = tmp_path / "new.csv"
    new.write_text("1,0,1,0,1\n0,,0,1,0\n")
    assert cli.run(["show", str(finished), "--new-rows", str(new)]) == 0
    lines = list(csv.reader(capsys.readouterr().out.splitlines()))
    rows = np.array([[1, 0, 1, 0, 1], [0, np.nan, 0, 1, 0]], float)
    expected = np.asarray(mf.load(finished).transform(rows))
    assert lines[0] == ["row", *(f"feature {k}" for k in range(expected.shape[1]))]
    np.testing.assert_allclose(np.array(lines[1:], float)[:, 1:], expected, rtol=1e-4)


def test_cells_of_documents_are_refused(finished, tmp_path, capsys, monkeypatch):
    run = SimpleNamespace(model=mf.LDA(2), data=mf.Tokens.from_lists([["tea"]]))
    monkeypatch.setattr(results, "_load", lambda folder, at: run)
    cells = tmp_path / "cells.csv"
    cells.write_text("row,column\n0,tea\n")
    assert cli.run(["predict", str(finished), str(cells)]) == 2
    assert "LDA has no cells to predict; jaxmf show has the topics" in capsys.readouterr().err


def test_runs_are_compared(finished, tmp_path, capsys, monkeypatch):
    other = tmp_path / "other"
    shutil.copytree(finished, other)
    assert cli.run(["compare", str(finished), str(other)]) == 2
    assert "has 12 draws, and loo needs 25 at least" in capsys.readouterr().err
    asked = {}
    said = 'No. Use criterion="loo"'

    def answer(runs, criterion):
        asked.update(runs)
        return SimpleNamespace(criterion=criterion, caption=said)

    monkeypatch.setattr(mf, "compare", answer)
    assert cli.run(["compare", str(finished), str(other), "--criterion", "waic"]) == 0
    printed = capsys.readouterr().out
    assert printed == "namespace(criterion='waic', caption='No. Use --criterion loo')\n"
    assert [*asked] == [str(finished), str(other)]
    assert all(post.meta.run["num_samples"] == 6 for post in asked.values())
    for folders, says in (
        ([finished], "two folders or more"),
        ([finished, finished], "two folders or more, each once"),
        ([finished, "nowhere"], "there is no folder nowhere"),
    ):
        assert cli.run(["compare", *map(str, folders)]) == 2
        assert says in capsys.readouterr().err


def test_runs_are_compared_by_the_cells_that_all_of_them_hold_out(finished, tmp_path, capsys):
    folders = [tmp_path / "matrix", tmp_path / "cells"]
    data = mf.load(finished).data
    truth = np.where(np.isnan(data.to_array()), 1.0, data.to_array())
    rows, columns = np.nonzero(np.isnan(data.to_array()))
    cells = mf.Entries(rows[::-1], columns[::-1], np.ones(3), truth.shape)
    for folder, hidden in zip(folders, (truth, cells), strict=True):
        shutil.copytree(finished, folder)
        write_notes(folder, image_shape=None, truth=hidden)
    compared = ["compare", *map(str, folders)]
    assert cli.run(compared) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("By the cells that all runs hold out")
    assert "3 held-out cells" in printed
    assert cli.run([*compared, "--criterion", "squared_error"]) == 0
    assert "squared error" in capsys.readouterr().out
    assert cli.run([*compared, "--criterion", "loo"]) == 2
    assert "loo needs 25" in capsys.readouterr().err
    write_notes(folders[1], image_shape=None, truth=truth + 1)  # other cells: not the same ones
    assert cli.run(compared) == 2
    assert "loo needs 25" in capsys.readouterr().err
    assert cli.run([*compared, "--criterion", "squared_error"]) == 2
    assert "do not hold out the same cells" in capsys.readouterr().err


def test_predict_writes_a_table(finished, tmp_path, capsys):
    cells = tmp_path / "cells.csv"
    cells.write_text("row,column\n1,0\n4,2\n7,4\n")
    assert cli.run(["predict", str(finished), str(cells)]) == 0
    lines = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert lines[0] == ["row", "column", "mean", "sd", "5%", "95%"]
    assert [line[:2] for line in lines[1:]] == [["1", "0"], ["4", "2"], ["7", "4"]]
    expected = mf.load(finished).predict().mean
    np.testing.assert_allclose([float(line[2]) for line in lines[1:]], expected, rtol=1e-4)
    # with the headings of a file of ratings; and without any
    cells.write_text("user,item,stars\n1,0,5\n4,2,1\n7,4,3\n")
    assert cli.run(["predict", str(finished), str(cells)]) == 0
    assert list(csv.reader(capsys.readouterr().out.splitlines())) == lines
    cells.write_text("1,0\n4,2\n")
    assert cli.run(["predict", str(finished), str(cells)]) == 2
    assert "its first line is ['1', '0'], a cell; write a line of headings" in (
        " ".join(capsys.readouterr().err.split())
    )
    out = tmp_path / "predictions.csv"
    assert cli.run(["predict", str(finished), "-o", str(out), "--quantiles", "0.5"]) == 0
    assert out.read_text().splitlines()[0] == "row,column,mean,sd,50%"


def test_report_is_one_page(finished, tmp_path, capsys):
    page = tmp_path / "report.html"
    assert cli.run(["report", str(finished), "-o", str(page), "--image-shape", "1x5"]) == 0
    assert capsys.readouterr().out.strip() == str(page)
    assert '<svg class="picture"' in page.read_text()


def test_settings_are_split_between_model_and_method():
    entry = registry.get(NAME)
    given = ["alpha=Gamma(1,1)", "num_features=3", "resample_fn=stratified", "proposal=exact"]
    model_values, options = cli.read_settings(entry, "particle_filter", given)
    assert model_values["num_features"] == 3
    assert model_values["alpha"].rate == 1
    assert options["proposal"] == "exact"
    assert options["resample_fn"] == "stratified"  # the verb takes the name


@pytest.mark.exhaustive
def test_a_model_of_functions_is_fitted_with_a_likelihood(tmp_path):
    np.save(tmp_path / "counts.npy", np.random.default_rng(0).poisson(2.0, (12, 3)))
    arguments = ["fit", "feature-model", str(tmp_path / "counts.npy"), "--out"]
    arguments += [str(tmp_path / "run"), *SHORT, "--set", "likelihood=Poisson()"]
    assert cli.run(arguments) == 0
    assert isinstance(mf.load(tmp_path / "run").model.likelihood, mf.Poisson)


def test_models_are_found_by_the_names_of_their_classes():
    for name in ("hdp", "HDPLDA", "hdp-lda", "hdplda", "hdp_lda"):
        assert registry.get(name).name == "hdp"


FIT = ["fit", NAME, "X.npy", "--out", "out"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fit", "nmf", "X.npy", "--out", "out"], "no model 'nmf'; there are: linear-gaussian-ibp"),
        (["fit", "feature-model", "X.npy", "--out", "out"], "state --set 'likelihood=Poisson()'"),
        (["fit", "network", "X.npy", "--out", "out"], "cannot read; use jaxmf.Network"),
        (["fit", NAME, "nowhere.npy", "--out", "out"], "the file does not exist"),
        (["fit", NAME, "X.xls", "--out", "out"], "the extension '.xls' is not known"),
        (["fit", NAME, "bad.csv", "--out", "out"], "column 2"),
        (["fit", NAME, "pickled.npy", "--out", "out"], "cannot read it as plain numbers"),
        (["fit", NAME, "X.npy"], "--out"),
        (["fit", NAME, "X.npy", "--out", "X.npy"], "--out X.npy is a file; name a folder"),
        ([*FIT, "--method", "smc", "--chains", "2"], "--chains belongs to sample; smc takes --par"),
        (["fit", "bpfm", *FIT[2:]], "Is bpmf meant?"),
        ([*FIT, "--set", "noise_scal=1"], "Is noise_scale meant?"),
        ([*FIT, "--method", "smc", "--set", "warmup=1"], "by smc has no setting of that name"),
        ([*FIT, "--method", "variational"], "has no method 'variational'; use jaxmf.sample or"),
        ([*FIT, "--set", "alpa=1"], "no setting of that name; there are alpha, noise_scale"),
        ([*FIT, "--set", "alpha"], "write NAME=VALUE, such as alpha=Gamma(1,1)"),
        ([*FIT, "--set", "alpha=Gama(1,1)"], "'Gama' is not a numpyro distribution"),
        ([*FIT, "--set", "alpha=__import__('os')"], "not a numpyro distribution"),
        ([*FIT, "--set", "alpha=-1"], "alpha must be positive and finite"),
        ([*FIT, "--set", "alpha=nan"], "alpha must be positive and finite"),
        ([*FIT, "--set", "alpha=Normal(0,1)"], "alpha"),
        ([*FIT, "--set", "alpha=1", "--set", "alpha=2"], "--set alpha is given twice"),
        ([*FIT, "--set", "sweep=spiral"], "sweep must be one of"),
        ([*FIT, "--set", "num_features=0"], "num_features must be at least 1"),
        (
            [*FIT, "--method", "particle-filter", "--set", "resample_fn=magic"],
            "resample_fn must be a function, or one of",
        ),
        (
            [*FIT, "--particles", "10"],
            "--particles belongs to particle_filter; sample takes --chai",
        ),
        ([*FIT, "--chains", "many"], "valid integer"),
        ([*FIT, "--chains", "0"], "--chains must be at least 1"),
        ([*FIT, "--image-shape", "3x3"], "--image-shape 3x3 has 9 cells, the data has 5 columns"),
        ([*FIT, "--image-shape", "big"], "write HEIGHTxWIDTH, such as 8x8"),
        ([*FIT, "--hold-out", "1.5"], "--hold-out 1.5: a share between 0 and 1"),
        ([*FIT, "--resume"], "out holds no checkpoint to resume from"),
        (["demo", "--out", "X.npy"], "--out X.npy is a file; name a folder"),
        (["show", "nowhere"], "there is no folder nowhere"),
        (["report", "."], "holds no finished run"),
        (["predict", "."], "holds no finished run"),
        (["predict", "RUN", "nowhere.csv"], "the file does not exist"),
        (["predict", "RUN", "bad.csv"], "write a line of headings above it"),
        (["predict", "RUN", "outside.csv"], "is outside 0..11"),
        (["predict", "RUN", "--quantiles", "2"], "levels lie between 0 and 1"),
        (["report", "RUN", "-o", "."], ". is a folder; name the HTML file to write"),
        (["report", "RUN", "--image-shape", "3x3"], "3 x 3 has 9 cells, rows have 5"),
        (["report", "RUN", "--truth", "small.npy"], "truth has shape (2, 2)"),
        (["frobnicate"], "No such command 'frobnicate'"),
        (["models", "--loud"], "No such option: --loud"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    arguments, says, finished, matrix, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    Path("X.npy").write_bytes(matrix.read_bytes())
    Path("X.xls").write_text("1")
    Path("bad.csv").write_text("1,a\n2,3\n4,b\n")
    Path("outside.csv").write_text("row,column\n99,0\n")
    np.save("pickled.npy", np.array([object()], dtype=object))
    np.save("small.npy", np.eye(2))
    arguments = [str(finished) if argument == "RUN" else argument for argument in arguments]
    assert cli.run(arguments) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert printed.err.startswith("jaxmf: ")
    assert printed.err.count("\n") == 1
    assert "Traceback" not in printed.err
    assert not Path("out").exists()


def test_the_program_starts_and_fails_as_programs_do():
    command = [sys.executable, "-m", "jaxmf"]
    result = subprocess.run([*command, "models"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert NAME in result.stdout
    result = subprocess.run(
        [*command, "show", "nowhere"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("jaxmf: there is no folder nowhere")


def test_a_reader_who_leaves_does_not_end_a_command():
    read, write = os.pipe()
    os.close(read)
    program = (
        "import sys; from jaxmf import cli; cli.run = lambda arguments: ("
        "print('a', flush=True), print('b', flush=True), print('done', file=sys.stderr), 0)[-1]; "
        "cli.main([])"
    )
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (result.returncode, result.stderr) == (0, "done\n")


@pytest.mark.exhaustive
def test_the_demo_ends_with_a_result_that_its_chains_agree_on(tmp_path):
    """Compiled as a user's is: it runs for longer than it compiles."""
    environment = os.environ.copy()
    environment.pop("XLA_FLAGS", None)
    out = tmp_path / "demo"
    command = [sys.executable, "-m", "jaxmf", "demo", "--out", str(out)]
    printed = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    assert "100 generated images" in printed
    assert printed.splitlines()[-1] == f"The report: {out / 'report.html'}"
    posterior = mf.load(out)
    assert posterior.num_features().mode == 4
    r_hat = posterior.summary().values[:, diagnostics.CHAIN_COLUMNS.index("R-hat")]
    assert np.nanmax(r_hat) < 1.05


def test_cells_of_other_data_are_not_hidden_and_the_words_say_what_is():
    _, tokens = registry.get("lda").example()
    with pytest.raises(ValueError, match=r"not of Tokens data; leave documents out of the file"):
        hide(tokens, 0.1, seed=0)
    _, ones = registry.get("sparse-binary").example()
    with pytest.raises(ValueError, match="not of SparseBinary data; use --validation ROWS"):
        hide(ones, 0.1, seed=0)


def test_what_comes_next_is_said_by_what_was_read():
    gaps, full = mf.Entries([0, 1], [0, 1], [1, 2], (2, 2)), mf.Entries.from_array(np.eye(2))
    for data, is_matrix, words in [
        (gaps, True, "predict out -o"),
        (full, True, "report out -o"),
        (full, False, "recommend out"),
    ]:
        assert words in next_command(mf.BPMF(1), data, Path("out"), is_matrix=is_matrix)


@pytest.mark.exhaustive
def test_ratings_are_held_out_and_scored_in_the_report(tmp_path, capsys):
    _, data = registry.get("bpmf").example()
    lines = [
        f"u{row},{column:02d},{value}"
        for row, column, value in zip(
            *map(np.asarray, (data.rows, data.columns, data.values)), strict=True
        )
    ]
    ratings, folder = tmp_path / "ratings.csv", tmp_path / "a run"
    ratings.write_text("user,item,rating\n" + "\n".join(lines) + "\n")
    arguments = ["fit", "bpmf", str(ratings), "--out", str(folder), "--hold-out", "0.2"]
    more = ["--chains", "1", "--samples", "4", "--warmup", "2", "--set", "num_factors=1"]
    assert cli.run([*arguments, *more]) == 0
    printed = capsys.readouterr().out
    assert "held-out error (root mean square over 6 cells)" in printed
    assert f"Next: jaxmf recommend '{folder}'" in printed
    post, truth = mf.load(folder), read_notes(folder)[1]
    assert post.data.num_entries == 24
    assert truth.num_entries == 6
    both = {*zip(*map(np.asarray, (post.data.rows, post.data.columns)), strict=True)}
    assert not both & {*zip(*map(np.asarray, (truth.rows, truth.columns)), strict=True)}
    assert cli.run(["report", str(folder), "-o", str(tmp_path / "r.html")]) == 0
    assert "6 cells were hidden from the model" in (tmp_path / "r.html").read_text()
    # cells by id: 01 is an id of this data, not the position 1
    cells = tmp_path / "cells.csv"
    cells.write_text("row,column\nu3,01\nu9,01\n")
    assert cli.run(["predict", str(folder), str(cells)]) == 2
    assert "no row has the id 'u9'" in capsys.readouterr().err
    for option, count in (("drop", 1), ("prior", 2)):
        assert cli.run(["predict", str(folder), str(cells), "--unknown", option]) == 0
        table = list(csv.reader(capsys.readouterr().out.splitlines()))
        assert [line[:2] for line in table[1:]] == [["u3", "01"], ["u9", "01"]][:count]
    ask = ["recommend", str(folder), "u3", "u9", "-n", "1"]
    assert cli.run(ask) == 2
    assert "no row has the id 'u9'" in capsys.readouterr().err
    for option, rows in (("drop", ["u3"]), ("prior", ["u3", "u9"])):
        assert cli.run([*ask, "--unknown", option]) == 0
        table = list(csv.reader(capsys.readouterr().out.splitlines()))
        assert [line[0] for line in table[1:]] == rows
    new = tmp_path / "new.csv"
    new.write_text("user,item,rating\nann,01,5\nbob,02,1\nann,03,4\n")
    assert cli.run(["recommend", str(folder), "ann", "-n", "2", "--new-rows", str(new)]) == 0
    table = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert [line[0] for line in table[1:]] == ["ann", "ann"]
    assert not {line[2] for line in table[1:]} & {"01", "03"}
    _check_new_cells(folder, new, cells, capsys)
    _check_titles(folder, tmp_path, capsys)
    _check_new_rows(folder, new, capsys)


def _check_new_cells(folder, new, cells, capsys):
    """Predictions of the cells of new rows: those of a file, or all that are missing."""
    ask = ["predict", str(folder), "--new-rows", str(new)]
    assert cli.run(ask) == 0
    table = list(csv.reader(capsys.readouterr().out.splitlines()))
    missing = {(line[0], line[1]) for line in table[1:]}
    assert not missing & {("ann", "01"), ("bob", "02"), ("ann", "03")}
    assert {row for row, _ in missing} == {"ann", "bob"}
    cells.write_text("row,column\nann,02\nbob,01\n")
    assert cli.run([*ask[:2], str(cells), *ask[2:]]) == 0
    named = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert [line[:2] for line in named[1:]] == [["ann", "02"], ["bob", "01"]]
    run = mf.load(folder)
    expected = run.predict((["ann", "bob"], ["02", "01"]), new_rows=mf.data.read_entries(new))
    np.testing.assert_allclose([float(line[2]) for line in named[1:]], expected.mean, rtol=1e-4)
    cells.write_text("row,column\nu3,02\n")
    assert cli.run([*ask[:2], str(cells), *ask[2:]]) == 2
    says = capsys.readouterr().err
    for part in (f"no row has the id 'u3'; the file of --new-rows, {new}, has", "--unknown drop"):
        assert part in says
    cells.write_text("row,column\nann,77\nbob,02\n")
    assert cli.run([*ask[:2], str(cells), *ask[2:]]) == 2
    assert "no column has the id '77'; the run has columns" in capsys.readouterr().err
    assert cli.run([*ask[:2], str(cells), *ask[2:], "--unknown", "drop"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert cli.run([*ask, "--unknown", "prior"]) == 2
    assert "--unknown prior: nothing can be said" in capsys.readouterr().err


def _check_titles(folder, tmp_path, capsys):
    """Titles from a file stand beside the ids of recommendations, and in a report."""
    films = tmp_path / "films.csv"
    columns = mf.load(folder).data.column_names.tolist()
    lines = [f'{name},1999,"Film, {name}"\n' for name in columns]
    films.write_text("id,year,title\n" + "".join(lines))
    assert cli.run(["recommend", str(folder), "u3", "-n", "1", "--titles", str(films)]) == 0
    head, line = csv.reader(capsys.readouterr().out.splitlines())
    assert head[2:4] == ["column", "title"]
    assert line[3] == f"Film, {line[2]}"
    page = tmp_path / "titled.html"
    assert cli.run(["report", str(folder), "-o", str(page), "--titles", str(films)]) == 0
    assert f"Film, {columns[0]}" in page.read_text()
    for text, says in (
        (f"{columns[0]},a\n", "its first line is"),
        ("id,title\n77,a\n", "the run has none of its ids, 77; those of the run are"),
        ("id\n77\n", "two columns are needed, ids and titles"),
    ):
        films.write_text(text)
        capsys.readouterr()
        assert cli.run(["recommend", str(folder), "--titles", str(films)]) == 2
        assert says in " ".join(capsys.readouterr().err.split())


def _check_new_rows(folder, new, capsys):
    """What goes wrong with a file of new rows, and what is said of it."""
    ask = ["recommend", str(folder), "--new-rows", str(new), "-n", "2"]
    new.write_text("user,item,rating\nann,77,5\n")
    for option in ("error", "drop"):
        assert cli.run([*ask, "--unknown", option]) == 2
        assert "the run has none of its ids of columns, 77; those" in capsys.readouterr().err
    new.write_text("user,item,rating\nann,77,5\nann,01,5\n")
    assert cli.run([*ask, "--unknown", "drop"]) == 0
    says = "1 of 2 columns of the new rows are not in the run and are left out: '77'"
    assert says in capsys.readouterr().err
    assert cli.run([*ask, "--unknown", "prior"]) == 2
    assert "--unknown prior: nothing can be said of columns of --new-rows" in (
        capsys.readouterr().err
    )
    new.write_text("u3,01,5\n")  # an id that the run has: a new row all the same
    assert cli.run([*ask, "--form", "triples"]) == 0
    table = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert [line[0] for line in table[1:]] == ["u3", "u3"]
    for option in (["--form", "matrix"], ["--headings"], ["--no-headings"], ["--key", "x"]):
        assert cli.run(["recommend", str(folder), *option]) == 2
        assert f"{option[0]} says how the file of --new-rows is read" in capsys.readouterr().err


def test_ids_of_new_rows_have_the_type_that_the_run_has(tmp_path):
    new = tmp_path / "new.csv"
    texts = mf.Entries([0, 0], [0, 1], [1.0, 2.0], (1, 3), None, ["01", "10", "11"])
    new.write_text("ann,10,5\nann,11,4\n")
    found = read_like(new, SimpleNamespace(data=texts, model=None), {})
    assert found.column_names.tolist() == ["10", "11"]
    assert found.align_columns(texts).column_names.tolist() == ["01", "10", "11"]
    numeric = mf.Entries([0, 0], [0, 1], [1.0, 2.0], (1, 2), None, [10, 11])
    new.write_text("ann,10,5\nann,x,4\n")
    found = read_like(new, SimpleNamespace(data=numeric, model=None), {})
    assert found.column_names.tolist() == [10, "x"]
    assert found.align_columns(numeric, unknown="drop").num_entries == 1


def test_new_rows_are_read_in_the_form_that_is_given(tmp_path):
    new = tmp_path / "new.csv"
    new.write_text("7,9\n9,8\n")
    run = SimpleNamespace(data=mf.SparseBinary.from_baskets([[7, 8], [9]]), model=None)
    assert read_like(new, run, {"form": "baskets"}).num_ones == 4
    assert read_like(new, run, {"form": "pairs", "headings": False}).num_ones == 2


def test_too_few_ratings_to_hide_some_are_refused():
    data = mf.Entries([0, 1], [0, 1], [1.0, 2.0], (2, 2))
    with pytest.raises(ValueError, match=r"--hold-out 0\.1: hides 0 of 2 observed cells; at least"):
        hide(data, 0.1, seed=0)
    with pytest.raises(ValueError, match=r"hides 2 of 2 observed cells"):
        hide(mf.Dense([[0.0, np.nan], [np.nan, 1.0]]), 0.9, seed=0)


def test_the_same_cells_are_hidden_of_a_matrix_and_of_the_list_of_its_cells():
    matrix = np.arange(24.0).reshape(4, 6)
    matrix[1, 2] = np.nan
    rows, columns = np.nonzero(np.isfinite(matrix))
    order = np.random.default_rng(0).permutation(rows.size)
    rows, columns = rows[order], columns[order]
    cells = mf.Entries(rows, columns, matrix[rows, columns], matrix.shape)
    dense, truth = hide(mf.Dense(matrix), 0.25, seed=3)
    kept, hidden = hide(cells, 0.25, seed=3)
    is_hidden = np.isnan(dense.to_array()) & np.isfinite(truth)
    assert is_hidden.sum() == hidden.num_entries == 6
    assert is_hidden[np.asarray(hidden.rows), np.asarray(hidden.columns)].all()
    is_kept = np.isfinite(dense.to_array())
    assert is_kept.sum() == kept.num_entries == 17
    assert is_kept[np.asarray(kept.rows), np.asarray(kept.columns)].all()
    np.testing.assert_array_equal(truth[hidden.rows, hidden.columns], hidden.values)
    _, other = hide(cells, 0.25, seed=4)
    assert not is_hidden[np.asarray(other.rows), np.asarray(other.columns)].all()


def test_the_same_cells_are_hidden_where_a_list_has_its_ids_in_another_order():
    matrix, order = np.arange(24.0).reshape(4, 6), np.random.default_rng(1).permutation(24)
    row_names, column_names = ["10", "9", "b", "a"], [f"c{n}" for n in range(6)]
    named = mf.Dense(matrix, row_names=row_names, column_names=column_names)
    lines = [(row_names[n // 6], column_names[n % 6], matrix.flat[n]) for n in order]
    frame = pd.DataFrame(lines, columns=["row", "column", "value"])
    cells = mf.Entries.from_pandas(frame, row="row", column="column", value="value")
    assert cells.row_names.tolist() != row_names
    dense, truth = hide(named, 0.25, seed=3)
    _, hidden = hide(cells, 0.25, seed=3)
    assert sorted(hidden.values) == sorted(truth[np.isnan(dense.to_array())])


def test_ids_are_read_as_the_data_has_them():
    assert read_ids(["7", "12"], np.array([12, 7])).tolist() == [7, 12]
    assert read_ids(["7", "a"], np.array(["a", "7"], object)).tolist() == ["7", "a"]
    assert read_ids(["7", "0"], None).tolist() == [7, 0]
    with pytest.raises(ValueError, match="the ids of columns are whole numbers"):
        read_ids(["7", "x"], np.array([12, 7]), "column")
