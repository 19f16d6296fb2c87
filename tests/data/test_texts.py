"""Tokens from texts and from lists of words, and new documents with other words."""

import builtins
import collections

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

import jaxmf as mf

TEXTS = ["green tea and tea", "coffee", "", "tea, Coffee and milk"]
LISTS = [["green", "tea", "and", "tea"], ["coffee"], [], ["tea", "coffee", "and", "milk"]]
NAMES = ["a", "b", "c", "d"]


def table(tokens):
    """The counts of (document, word) by their ids."""
    levels = {
        label: np.arange(size) if label not in tokens.names else tokens.names[label]
        for label, size in tokens.sizes.items()
    }
    documents, words = (levels[c][np.asarray(tokens.columns[c])] for c in ("document", "word"))
    counts = {}
    for document, word in zip(documents, words, strict=True):
        counts[document, word] = counts.get((document, word), 0) + 1
    return counts


def test_texts_and_lists_of_their_words_are_the_same_tokens():
    from_texts = mf.Tokens.from_texts(TEXTS, documents=NAMES)
    from_lists = mf.Tokens.from_lists(LISTS, documents=NAMES)
    expected = {}
    for name, words in zip(NAMES, LISTS, strict=True):
        for word in words:
            expected[name, word] = expected.get((name, word), 0) + 1
    assert table(from_texts) == table(from_lists) == expected
    assert from_texts.sizes == from_lists.sizes == {"document": 4, "word": 5}
    assert all(type(word) is str for word in from_texts.names["word"].tolist())


@pytest.mark.parametrize("make", [mf.Tokens.from_texts, mf.Tokens.from_lists])
def test_a_mapping_and_a_series_bring_the_ids_of_documents(make):
    lines = TEXTS if make == mf.Tokens.from_texts else LISTS
    by_mapping = make(dict(zip(NAMES, lines, strict=True)))
    by_series = make(pd.Series(lines, index=NAMES))
    assert by_mapping.names["document"].tolist() == by_series.names["document"].tolist() == NAMES
    assert "document" not in make(pd.Series(lines)).names
    assert make(iter(lines)).sizes["document"] == 4
    half = pd.Series(lines, index=pd.RangeIndex(0, 8, 2))  # of every second line of a table
    assert make(half).names["document"].tolist() == [0, 2, 4, 6]


def test_a_fitted_vectorizer_is_not_fitted_again_and_an_unfitted_one_is():
    vectorizer = CountVectorizer(stop_words=["and"])
    first = mf.Tokens.from_texts(TEXTS, vectorizer=vectorizer)
    words = dict(vectorizer.vocabulary_)
    assert first.names["word"].tolist() == sorted(words) == ["coffee", "green", "milk", "tea"]
    new = mf.Tokens.from_texts(["water and milk"], vectorizer=vectorizer)
    assert vectorizer.vocabulary_ == words
    assert table(new) == {(0, "milk"): 1}
    with pytest.raises(ValueError, match="texts: have no word of the vocabulary of the fitted"):
        mf.Tokens.from_texts(["water"], vectorizer=vectorizer)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: mf.Tokens.from_texts("one text"), TypeError, "texts: is one text; pass a list"),
        (lambda: mf.Tokens.from_texts(5), TypeError, "texts: is a int, a list"),
        (lambda: mf.Tokens.from_texts([]), ValueError, "texts: is empty"),
        (lambda: mf.Tokens.from_texts(["a b", None]), ValueError, "position 1 is missing"),
        (
            lambda: mf.Tokens.from_texts(pd.DataFrame({"text": TEXTS})),
            TypeError,
            r"texts: is a table; pass one column, such as df\['text'\]",
        ),
        (
            lambda: mf.Tokens.from_lists([["a"], collections.Counter("aaab")]),
            TypeError,
            r"position 1 is a mapping \(Counter\).*counter.elements",
        ),
        (lambda: mf.Tokens.from_texts(LISTS), TypeError, "position 0 is a list.*from_lists"),
        (lambda: mf.Tokens.from_texts(["!", "?"]), ValueError, "texts: empty vocabulary"),
        (
            lambda: mf.Tokens.from_texts(TEXTS, documents=["a", "b"]),
            ValueError,
            "documents: 2 ids for 4 documents",
        ),
        (
            lambda: mf.Tokens.from_texts(TEXTS, vectorizer=TfidfVectorizer()),
            ValueError,
            "vectorizer: TfidfVectorizer returns weights, counts of words are needed",
        ),
        (
            lambda: mf.Tokens.from_texts(TEXTS, vectorizer=CountVectorizer),
            TypeError,
            "vectorizer: .* is none, which has fit_transform",
        ),
        (
            lambda: mf.Tokens.from_texts(TEXTS, vectorizer=str.split),
            TypeError,
            "vectorizer: .* is none, which has fit_transform",
        ),
        (lambda: mf.Tokens.from_lists(TEXTS), TypeError, "document at position 0 is 'green"),
        (
            lambda: mf.Tokens.from_lists([["a"], ["b", None]]),
            ValueError,
            "word at position 1 of the document at position 1 is missing",
        ),
        (lambda: mf.Tokens.from_lists([[["a"]]]), TypeError, "cannot be hashed"),
        (lambda: mf.Tokens.from_lists([[], []]), ValueError, "all lists are empty"),
        (lambda: mf.Tokens.from_counts(TEXTS), TypeError, "Tokens.from_texts"),
    ],
)
def test_bad_texts_are_refused_by_name(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch):
    normal = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return normal(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'jaxmf\[sklearn\]'.*from_lists"):
        mf.Tokens.from_texts(TEXTS)


@pytest.fixture(scope="module")
def drinks():
    """Words of tea and of chess, well told apart."""
    tea, chess = ["tea", "cup", "water", "milk"], ["move", "king", "queen", "board"]
    generator = np.random.default_rng(1)
    lists = [list(generator.choice(tea if i % 2 else chess, 20)) for i in range(12)]
    model = mf.LDA(2, topic_concentration=0.2, word_concentration=0.1)
    run = {"num_warmup": 20, "num_samples": 4, "num_chains": 1, "progress": False}
    return mf.sample(model, mf.Tokens.from_lists(lists), **run)


def test_new_documents_are_matched_by_word_whatever_the_order_of_words(drinks):
    lists = [["king", "move", "queen"], ["water", "tea", "tea", "cup"]]
    one = mf.Tokens.from_lists(lists)
    other = mf.Tokens.from_texts([" ".join(reversed(words)) for words in lists])
    assert one.names["word"].tolist() != other.names["word"].tolist()
    shares = drinks.transform(one)
    np.testing.assert_array_equal(shares, drinks.transform(other))
    assert abs(shares[0, 0] - shares[1, 0]) > 0.5


def test_unknown_words_are_refused_with_the_option_or_left_out_and_counted(drinks):
    new = mf.Tokens.from_lists([["king", "move", "bishop"], ["tea", "cup", "water", "tea"]])
    with pytest.raises(ValueError, match=r"new_documents: the word 'bishop'.*unknown=\"drop\""):
        drinks.document_completion(new)
    score = drinks.document_completion(new, unknown="drop")
    known = mf.Tokens.from_lists([["king", "move"], ["tea", "cup", "water", "tea"]])
    assert score.num_dropped == 1
    assert drinks.document_completion(known).num_dropped == 0
    assert score.log_likelihood.size == 3


def test_a_document_without_a_known_word_is_warned_of(drinks):
    new = mf.Tokens.from_lists([["king", "move"], ["tea", "cup", "tea"], ["sugar"]])
    with pytest.warns(UserWarning, match="new_rows: 1 of 6 tokens .* 1 document had no other"):
        shares = drinks.transform(new, unknown="drop")
    assert shares.shape == (3, 2)
    with pytest.warns(UserWarning, match="3 of 4 tokens are unknown to the data"):
        drinks.transform(mf.Tokens.from_lists([["x", "y", "z", "king"]]), unknown="drop")
