"""Counts and offsets above 2^31: in 64 bits on the host, refused before memory is taken."""

import json
import types

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import jaxmf as mf
from jaxmf.data import process_cells

MANY = 2**31 + 5
LINES = np.broadcast_to(np.int32(0), (MANY,))  # takes no memory
COUNTS = np.array([[2**31 - 1, 2], [0, 4]], np.int32)  # whose sum is negative in 32 bits


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mf.Tokens({"word": LINES}, {"word": 1}), f"'word': {MANY} lines"),
        (lambda: mf.Tokens.from_counts(COUNTS), f"counts: {MANY} tokens"),
        (lambda: mf.Entries(LINES, LINES, LINES, (3, 3)), f"rows: {MANY} lines"),
        (lambda: mf.SparseBinary(LINES, LINES, (3, 3)), f"rows: {MANY} lines"),
        (lambda: mf.Dense(np.broadcast_to(np.float32(1), (2**16, 2**16))), "4294967296 cells"),
    ],
    ids=["tokens", "counts", "entries", "ones", "dense"],
)
def test_more_than_int32_can_index_is_refused_before_it_is_copied(make, words):
    with pytest.raises(ValueError, match=f"{words} are more than int32 can index"):
        make()


def test_sums_over_processes_have_64_bits(monkeypatch):
    passed = [[2**31 - 1, 1], [2**31 - 1, 2]]
    monkeypatch.setattr(process_cells, "gather_texts", lambda text: [json.dumps(p) for p in passed])
    found = process_cells.sums(passed[0])
    assert found.dtype == np.int64
    assert found.tolist() == [2**32 - 2, 3]


def test_tokens_of_all_processes_together_are_refused(monkeypatch):
    part = types.SimpleNamespace(num_cells=MANY)
    merged = types.SimpleNamespace(part=part, shape=(1, 1))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(process_cells, "merge", lambda *arguments, **named: merged)
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    with pytest.raises(ValueError, match="the 2,147,483,653 tokens of all processes are more"):
        mf.Tokens.from_process_rows([["a"]], mesh=mesh)
