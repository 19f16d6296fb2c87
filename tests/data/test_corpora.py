"""Corpora and ratings from files."""

import numpy as np
import pytest
from scipy import sparse

from jaxmf import cli
from jaxmf.data import Tokens, read_entries, read_tokens

COUNTS = np.array([[2, 0, 1], [0, 3, 0]])


def write(path, text):
    path.write_text(text)
    return path


def counts_of(tokens):
    found = np.zeros((tokens.sizes["document"], tokens.sizes["word"]), int)
    where = tuple(np.asarray(tokens.columns[name]) for name in ("document", "word"))
    np.add.at(found, where, 1)
    return found


def test_counts_in_every_form(tmp_path):
    matrix = sparse.csr_array(COUNTS)
    sparse.save_npz(tmp_path / "saved.npz", sparse.csr_matrix(COUNTS))
    np.savez(
        tmp_path / "rows.npz",
        indptr=matrix.indptr,
        indices=matrix.indices,
        data=matrix.data,
        shape=np.array(matrix.shape),
    )
    np.save(tmp_path / "counts.npy", COUNTS)
    write(tmp_path / "counts.csv", "2,0,1\n0,3,0\n")
    for name in ("saved.npz", "rows.npz", "counts.npy", "counts.csv"):
        np.testing.assert_array_equal(counts_of(read_tokens(tmp_path / name)), COUNTS, name)


def test_words(tmp_path):
    path = tmp_path / "counts.npy"
    np.save(path, COUNTS)
    words = write(tmp_path / "words.txt", "yes\nno\nmaybe\n")
    assert read_tokens(path, vocabulary=words).names["word"].tolist() == ["yes", "no", "maybe"]
    short = write(tmp_path / "short.txt", "yes\nno\n")
    with pytest.raises(ValueError, match="2 words, the counts have 3 columns"):
        read_tokens(path, vocabulary=short)


def test_tokens_by_their_headings(tmp_path):
    path = write(tmp_path / "t.csv", "word,year,author\nyes,1999,ann\nno,2000,bo\nyes,1999,bo\n")
    found = read_tokens(path, columns=("author", "year", "word"))
    assert found.sizes == {"author": 2, "year": 2, "word": 2}
    assert found.names["year"].tolist() == [1999, 2000]
    with pytest.raises(ValueError, match="first line with the columns user, day"):
        read_tokens(path, columns=("user", "day"))
    real = write(tmp_path / "r.csv", "user,x\nann,1.5\nbo,oops\n")
    with pytest.raises(ValueError, match="'oops' of line 2"):
        read_tokens(real, columns=("user",), real=("x",))


def test_ratings(tmp_path):
    expected = {("ann", "tea"): 5.0, ("bo", "tea"): 3.0, ("ann", "mate"): 1.0}
    body = "ann,tea,5\nbo,tea,3\nann,mate,1\n"
    for text in (body, "user,item,rating\n" + body, "u,i,r,t\n" + body.replace("\n", ",99\n")):
        found = read_entries(write(tmp_path / "r.csv", text))
        cells = {
            (found.row_names[row], found.column_names[column]): float(value)
            for row, column, value in zip(found.rows, found.columns, found.values, strict=True)
        }
        assert cells == expected
    found = read_entries(write(tmp_path / "m.csv", "5,,1\n,3,\n"), form="matrix")
    assert found.num_entries == 3
    with pytest.raises(ValueError, match="'x' of line 2"):
        read_entries(write(tmp_path / "b.csv", "1,1,2\n1,2,x\n"))
    with pytest.raises(ValueError, match="form must be triples or matrix"):
        read_entries(tmp_path / "m.csv", form="pairs")


def words_of(tokens):
    """The words of each document, sorted."""
    words = [str(word) for word in tokens.names["word"].tolist()]
    return [sorted(np.repeat(words, line).tolist()) for line in counts_of(tokens)]


@pytest.mark.parametrize("form", [None, "baskets"])
@pytest.mark.parametrize("items", [["tea", "green tea", "jam"], ["7", "8", "9"]])
def test_baskets_are_documents_of_items(tmp_path, form, items):
    baskets = [items[:2], items, items[1:], items[2:]] * 3
    path = write(tmp_path / "a.csv", "".join(",".join(line) + "\n" for line in baskets))
    noted = {}
    found = read_tokens(path, form=form, noted=noted)
    assert words_of(found) == [sorted(basket) for basket in baskets]
    assert noted["form"] == "baskets"


def test_pairs_are_words_of_documents_and_repeats_count(tmp_path):
    lines = [f"{1000 + k % 4},{70 + k % 3}\n" for k in range(24)]
    path = write(tmp_path / "a.csv", "".join(lines))
    with pytest.raises(ValueError, match=r"two columns of whole numbers\. Say form='pairs' if"):
        read_tokens(path)
    for options in ({"form": "pairs"}, {"use_columns": ["1", "2"]}):
        found = read_tokens(path, **options)
        assert found.num_tokens == 24
        assert counts_of(found).tolist() == [[2, 2, 2]] * 4
    path = write(tmp_path / "b.csv", "".join(f"{k % 3},{k % 2}\n" for k in range(12)))
    assert read_tokens(path, form="matrix").sizes == {"document": 12, "word": 2}
    path = write(tmp_path / "c.csv", "who;what\nann;cup\nann;cup\nbo;tea\n")
    assert words_of(read_tokens(path)) == [["cup", "cup"], ["tea"]]
    turned = read_tokens(path, form="pairs", use_columns=["what", "who"])
    assert words_of(turned) == [["ann", "ann"], ["bo"]]
    path = write(tmp_path / "d.csv", "word,word\na,cup\na,tea\n")
    with pytest.raises(ValueError, match="'word' stands twice in its first line"):
        read_tokens(path)
    with pytest.raises(ValueError, match="form belongs to documents and words"):
        read_tokens(path, form="pairs", columns=["user", "item", "rating"])


@pytest.mark.exhaustive
def test_command_line(tmp_path, capsys):
    np.save(tmp_path / "counts.npy", np.random.default_rng(0).poisson(1.0, (6, 5)))
    write(tmp_path / "words.txt", "a\nb\nc\nd\ne\n")
    out = tmp_path / "run"
    given = ["--chains", "1", "--warmup", "2", "--samples", "2", "--no-progress"]
    arguments = ["fit", "hdp", str(tmp_path / "counts.npy"), "--out", str(out)]
    assert cli.run([*arguments, "--vocab", str(tmp_path / "words.txt"), *given]) == 0
    assert cli.run(["report", str(out), "-o", str(tmp_path / "r.html")]) == 0
    assert cli.run(["show", str(out)]) == 0
    assert "tokens" in capsys.readouterr().out
    lines = [f"u{i},m{j},{1 + (i + j) % 5}" for i in range(6) for j in range(4) if (i, j) != (2, 3)]
    ratings = write(tmp_path / "ratings.csv", "user,item,rating\n" + "\n".join(lines) + "\n")
    cells = write(tmp_path / "cells.csv", "row,column\nu2,m3\n")
    out = str(tmp_path / "rated")
    sizes = ["--set", "num_user_groups=2", "--set", "num_item_groups=2"]
    assert cli.run(["fit", "bi-lda", str(ratings), "--out", out, *sizes, *given]) == 0
    assert cli.run(["predict", out, str(cells)]) == 0
    assert "u2,m3" in capsys.readouterr().out
    assert cli.run(["recommend", out, "u2", "u0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "row,rank,column,mean,sd"
    assert len(lines) == 2
    assert lines[1].startswith("u2,1,m3,")
    assert cli.run(["recommend", out, "nobody"]) == 2
    assert "nobody" in capsys.readouterr().err
    assert cli.run(["fit", "bi-lda", str(ratings), "--out", out, "--overwrite", *given]) == 2
    wrong = ["fit", "lda", str(ratings), "--out", str(tmp_path / "x"), "--form", "pairs"]
    assert cli.run([*wrong, "--set", "num_topics=2"]) == 2
    assert "pairs have two cells a line" in capsys.readouterr().err


def test_files_of_a_folder_that_are_not_in_utf_8_are_named_in_one_warning(tmp_path):
    for name, encoding in {"a": "cp1252", "b": "utf-8", "c": "cp1252", "d": "utf-8-sig"}.items():
        (tmp_path / f"{name}.txt").write_bytes("Käse und\nBrühe".encode(encoding))
    expected = r"2 of 4 texts are not in UTF-8 and are .*: of a\.txt line 1 is 'Käse und'"
    with pytest.warns(UserWarning, match=expected) as heard:
        found = read_tokens(tmp_path)
    assert len(heard) == 1
    assert sorted(found.names["word"]) == ["brühe", "käse", "und"]
    assert found.num_tokens == 12


def test_what_is_no_text_of_a_folder_is_counted(tmp_path):
    write(tmp_path / "a.txt", "tea and milk")
    write(tmp_path / ".hidden", "x")
    assert read_tokens(tmp_path).num_tokens == 3
    write(tmp_path / "b.md", "tea")
    with pytest.warns(UserWarning, match=r"1 of what the folder holds is no \.txt file and does"):
        read_tokens(tmp_path)
    (tmp_path / "1999").mkdir()
    with pytest.warns(UserWarning, match=r"2 of what the folder holds are no \.txt files and do"):
        assert read_tokens(tmp_path).num_tokens == 3


def test_an_empty_file_of_a_folder_is_a_document_without_words(tmp_path):
    for name, text in (("a", "tea and milk"), ("b", ""), ("c", "  \n"), ("d", "milk")):
        write(tmp_path / f"{name}.txt", text)
    with pytest.warns(UserWarning, match="2 empty texts are documents without words, of 4"):
        tokens = read_tokens(tmp_path)
    assert counts_of(tokens).sum(axis=1).tolist() == [3, 0, 0, 1]


def test_documents_without_a_word_stay(tmp_path):
    """Among others: lines whose word is empty, and counts of 0."""
    path = tmp_path / "words.csv"
    path.write_text("document,word\nd1,tea\nd1,milk\nd2,\nd3,tea\n")
    with pytest.warns(UserWarning, match="'word' is empty in 1 of 4 lines, which say no word"):
        found = read_tokens(path)
    assert found.names["document"].tolist() == ["d1", "d2", "d3"]
    assert found.columns["document"].tolist() == [0, 0, 2]
    path.write_text("doc,term,count\n1,tea,2\n2,tea,0\n3,milk,1\n")
    found = read_tokens(path)
    assert found.names["document"].tolist() == [1, 2, 3]
    assert found.columns["document"].tolist() == [0, 0, 2]
    path.write_text("doc,term,count\na,tea,2\nb,,\n")
    with pytest.warns(UserWarning, match="'term' is empty in 1 of 2 lines"):
        assert read_tokens(path).names["document"].tolist() == ["a", "b"]
    path.write_text("doc,term,count\na,tea,\nb,,\n")
    with pytest.raises(ValueError, match="column 'count' is empty in line 2"):
        read_tokens(path)
    path.write_text("document,word\nd1,\nd2,\n")
    with pytest.raises(ValueError, match="column 'word' is empty in all lines"):
        read_tokens(path)
    lists = Tokens.from_lists({"d1": ["tea"], "d2": []})
    assert lists.names["document"].tolist() == ["d1", "d2"]
