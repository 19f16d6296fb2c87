"""The same seed gives the same bits, however a run is cut, shown or saved."""

import jax
import numpy as np
import pytest

import jaxmf as mf
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


@pytest.mark.exhaustive
def test_a_run_of_a_model_is_compiled_where_the_caller_has_switched_compiling_off():
    """Shapes of a chunk are found by a trace too, in which loops are unrolled without programs."""
    x = np.random.default_rng(0).normal(size=(6, 4))
    settings = {"num_warmup": 1, "num_samples": 2, "num_chains": 1}
    expected = mf.sample(mf.BPMF(1), x, **settings).draws
    with jax.disable_jit():
        found = mf.sample(mf.BPMF(1), x, **settings).draws
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
