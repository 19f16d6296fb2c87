"""The same seed gives the same bits, however a run is cut, shown or saved."""

import pytest

from benchmarks.robustness import same_bits

CASE = "lda/sample"


@pytest.mark.slow
def test_chunks_progress_and_checkpoints_change_no_bit():
    found = same_bits.compare(CASE)
    assert found.differences == {"chunks": [], "progress": [], "checkpoint": [], "read back": []}
    assert found.vectorized is not None
    assert found.digest == same_bits.digests([CASE])[CASE]


@pytest.mark.slow
def test_threads_and_processes_change_no_bit():
    one, two = (same_bits.in_a_process((CASE,), threads) for threads in (1, 2))
    assert one == two
    assert list(one) == [CASE]


def test_what_differs_is_counted(monkeypatch):
    # a twin whose draws depend on whether anybody looks at them
    def fit(case, *, chunk_seconds=1e-9, progress=False, **settings):
        return {"draws": b"1" if progress else b"0", "num_steps": b"12"}

    monkeypatch.setattr(same_bits, "fit", fit)
    found = same_bits.compare(CASE)
    assert {name for name, wrong in found.differences.items() if wrong} == {"progress"}
    others = {CASE: "another"}
    rows = {
        row.case.split("/")[-1]: row
        for row in same_bits.rows_of({CASE: found}, others, {CASE: found.digest})
    }
    assert {name: row.ours for name, row in rows.items()} == {
        "cuts": 1,
        "threads": 1,
        "processes": 1,
        "vectorized": 0,
    }
