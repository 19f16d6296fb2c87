"""Rows of the noisy-OR model over the axis "data" of a mesh: eight virtual devices, in processes.

The same draws on 1, 2 and 8 devices, what a device holds, and what passes between devices.
"""

import pytest

import jaxmf as mf
from tests.support.eight_devices import run_on_eight_devices

CELLS = """
import sys
import numpy as np
import jaxmf as mf
from tests.support.eight_devices import (
    compiled_chunk, exchanged, leave_out_the_last_device, num_bytes, over
)

random = np.random.default_rng(0)

def cells(num_rows, num_columns, missing):
    causes = (random.random((num_rows, 3)) < 0.3) @ (random.random((3, num_columns)) < 0.4)
    values = (random.random(causes.shape) < 1 - 0.98 * 0.1**causes).astype(float)
    if missing:
        values[random.random(causes.shape) < 0.1] = np.nan
    return values
"""

SAME = (
    CELLS
    + """
values = cells(64, 12, sys.argv[1] == "missing")
settings = dict(num_warmup=6, num_samples=3, num_chains=1, seed=1, sweep="parallel", capacity=16)
alone = mf.sample(mf.NoisyOrIBP(), values, chain_method="vectorized", **settings)
assert np.min(alone.draws["num_features"]) > 1
for sums, num_devices in (each.split() for each in sys.argv[2:]):
    num_devices = int(num_devices)
    if sums == "broken":
        leave_out_the_last_device()
    spread = mf.sample(mf.NoisyOrIBP(), values, mesh=over(num_devices), **settings)
    same = all(np.array_equal(spread.draws[name], alone.draws[name]) for name in ("z", "y"))
    if same:
        for name, draws in alone.draws.items():
            np.testing.assert_allclose(spread.draws[name], draws, rtol=1e-4, err_msg=name)
    print("the same" if same else "others")
"""
)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("values", "devices"), [("complete", ["whole 8", "whole 2"]), ("missing", ["whole 2"])]
)
def test_rows_on_one_two_and_eight_devices_have_the_same_causes(values, devices):
    """Broken twin: what the last device adds to sums over rows left out."""
    found = run_on_eight_devices(SAME, values, *devices, "broken 2")
    assert found == ["the same"] * len(devices) + ["others"]


PROGRAM = (
    CELLS
    + """
NUM_COLUMNS, NUM_SLOTS = 12, 8
values = cells(1024, NUM_COLUMNS, True)
algorithm = mf.NoisyOrIBP().sampler(sweep="parallel", capacity=NUM_SLOTS)

alone, spread = (compiled_chunk(algorithm, mf.Dense(values), count) for count in (1, 8))
assert num_bytes(alone) > 6 * num_bytes(spread), (num_bytes(alone), num_bytes(spread))
print("a sixth at most")
sizes = sorted(size for some in exchanged(spread).values() for size in some)
assert len(sizes) > 3 and sizes[-1] <= NUM_SLOTS * NUM_COLUMNS, sizes[-3:]
print("sums alone are exchanged")
"""
)


@pytest.mark.slow
def test_a_device_holds_its_rows_and_sums_alone_are_exchanged():
    assert run_on_eight_devices(PROGRAM) == ["a sixth at most", "sums alone are exchanged"]


def test_the_sampler_says_what_it_can_spread():
    model = mf.NoisyOrIBP()
    assert model.mesh_axes({"sweep": "parallel"}) == ("data",)
    assert model.mesh_axes({"sweep": "sequential"}) == ()
    moves = {"sweep": "parallel", "split_merge": 1, "shared_births": 2}
    assert model.mesh_axes(moves) == ()
    advice = "without split_merge and shared_births it spreads rows over 'data'"
    assert model.mesh_advice(moves) == advice
    assert model.sampler(sweep="sequential").row_arrays is None
