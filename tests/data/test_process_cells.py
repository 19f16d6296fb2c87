"""Cells of which each process has a part: in one process, and in two with two devices each."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import jaxmf as mf
from tests.support.two_processes import printed


@pytest.mark.parametrize("container", [mf.Entries, mf.SparseBinary])
def test_cells_of_one_process_are_the_matrix(container):
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    x = np.array([[1.0, 0.0], [0.0, 1.0]])
    data = container.from_process_rows(x, mesh=mesh)
    assert data.fingerprint() == container.from_array(x).fingerprint()
    assert not data.spans_processes
    with pytest.raises(ValueError, match="mesh: has no axis 'data'"):
        container.from_process_rows(x, mesh=Mesh(mesh.devices, ("chain",)))
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        _ = data.other


PROGRAM = """
import warnings
import jaxmf as mf
from jaxmf.data import process_cells

warnings.simplefilter("ignore", mf.RunWarning)
folder = arguments[0]
random = np.random.default_rng(0)
mesh = mesh_of(4, ("data",))
process_cells.CELLS_A_BLOCK = 32  # so that there are several

def refusal(call):
    try:
        call()
    except (ValueError, TypeError) as error:
        print(error)

def bytes_here(tree):
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    return sum(s.data.nbytes for leaf in leaves for s in leaf.addressable_shards)

def are_the_same(ours, whole):
    for leaf, other in zip(jax.tree.leaves(ours), jax.tree.leaves(whole), strict=True):
        if leaf.shape != other.shape:
            return False
        for shard in leaf.addressable_shards if isinstance(leaf, jax.Array) else ():
            if not np.array_equal(shard.data, np.asarray(other)[shard.index]):
                return False
    return True

def without_the_second(part):
    for index, block in enumerate(blocks(part)):
        if index < -(-part.counts[0] // 32):
            yield block

def as_the_whole(ours, whole, prepare, run, at):
    assert ours.fingerprint() == whole.fingerprint()
    for side in ("row_names", "column_names"):
        assert list(getattr(ours, side)) == list(getattr(whole, side))
    prepared = prepare(ours)
    assert are_the_same(prepared, prepare(whole))
    assert 0.4 < bytes_here(prepared) / sum(leaf.nbytes for leaf in jax.tree.leaves(prepared)) < 0.6
    process_cells._blocks = without_the_second
    assert not are_the_same(prepare(ours), prepare(whole))
    process_cells._blocks = blocks
    alone, post = run(whole), run(ours, checkpoint=folder + "/" + type(ours).__name__)
    resumed = run(ours, checkpoint=folder + "/" + type(ours).__name__, resume=True)
    for name, draws in alone.draws.items():
        np.testing.assert_allclose(post.draws[name], draws, rtol=1e-4, atol=1e-4, err_msg=name)
        np.testing.assert_array_equal(resumed.draws[name], post.draws[name], err_msg=name)
    np.testing.assert_allclose(post.predict(at).mean, alone.predict(at).mean, rtol=1e-4)
    repr(post), post.summary()
    print(f"{ours} as the whole")
    refusal(lambda: post.recommend(at[0][0]))
    refusal(lambda: run(ours, mesh=None))
    return post

blocks = process_cells._blocks

# ratings in any order: rows have cells in both processes
cells = np.unique(random.integers(30 * 14, size=260))
rows, columns = np.divmod(random.permutation(cells), 14)
values = (3 + random.normal(size=rows.size)).astype(np.float32)

def ratings(some):
    sides = [lines[some].tolist() for lines in (rows, columns)]
    ids = [list(dict.fromkeys(side)) for side in sides]
    at = [list(map(names.index, side)) for names, side in zip(ids, sides, strict=True)]
    return mf.Entries(*at, values[some], tuple(map(len, ids)), *ids)

whole, half = ratings(slice(None)), slice(0, 80) if process == 0 else slice(80, None)
ours = mf.Entries.from_process_rows(ratings(half), mesh=mesh)
model = mf.BPMF(2)

def sample(data, **settings):
    settings = dict(num_warmup=1, num_samples=2, num_chains=1, seed=1, mesh=mesh) | settings
    return mf.sample(model, data, **settings)

at = rows[:2].tolist(), columns[90:92].tolist()
known = mf.BPMF(2, offset=3.0, scale=2.0)  # means of parts are those of the whole to rounding
post = as_the_whole(ours, whole, lambda data: known.shared_out(data, 4), sample, at)
np.testing.assert_allclose(post.model.offset, values.mean(), rtol=1e-6)
refusal(lambda: mf.Entries.from_process_rows(ratings(slice(0, 9)), mesh=mesh))
refusal(lambda: mf.Entries.from_process_rows([[1.0, np.inf if process else 1.0]], mesh=mesh))
refusal(lambda: mf.Entries.from_process_rows([[1.0] * (2 + process)], mesh=mesh))

# baskets: unequal numbers of rows, so that some go to devices of the other process
baskets = random.random((80, 12)) < 0.2
baskets[0] = True
seen = baskets | (random.random(baskets.shape) > 0.05)

def ones(some):
    ids = list(range(80))[some], list("abcdefghijkl")
    return mf.SparseBinary.from_array(
        baskets[some], observed=seen[some], row_names=ids[0], column_names=ids[1]
    )

whole, half = ones(slice(None)), slice(0, 30) if process == 0 else slice(30, None)
ours = mf.SparseBinary.from_process_rows(ones(half), mesh=mesh)
factors = mf.SparseBinaryMF(2, zeros=mf.SharedSample(5), likelihood=mf.Bernoulli("quadratic"))

def fit(data, **settings):
    settings = dict(num_epochs=2, hold_out=5, seed=1, mesh=mesh) | settings
    return mf.variational(factors, data, **settings)

def laid_out(data):
    return factors.prepare(data, hold_out=5, num_devices=4)

as_the_whole(ours, whole, laid_out, fit, ([3, 40], ["a", "l"]))
refusal(lambda: fit(ours, num_validation=4, hold_out=None))
refusal(lambda: mf.SparseBinary.from_process_rows(ones(slice(0, 40)), mesh=mesh))
"""


@pytest.mark.exhaustive
def test_two_processes_with_a_part_of_the_cells_each_have_the_run_of_the_whole(tmp_path):
    """Broken twin: cells laid out without those of the second process."""
    first, second = printed(PROGRAM, str(tmp_path))
    needs_cells = "data: the rows lie in several processes, none of which has all of them"
    starts = [
        "Entries(30 x 14, 197 observed) as the whole",
        needs_cells,
        "data: their rows lie in several processes; pass the mesh that they were made with",
        "rows, columns: two processes of jax.distributed have a value of the same cell",
        "data: the cells of process 1 were refused: ValueError: data: infinite value: inf at row 0",
        "data: process 1 of jax.distributed has other cells than process 0: num_columns is 3, not",
        "SparseBinary(80 x 12,",
        needs_cells,
        "data: their rows lie in several processes; pass the mesh that they were made with",
        "num_validation: the rows lie in several processes, which do not rank them",
        "row_names: the row 0 is in process 0 and in process 1 of jax.distributed",
    ]
    assert len(first) == len(second) == len(starts), first
    for line, other, start in zip(first, second, starts, strict=True):
        assert line.startswith(start), line
        assert other == line or other.startswith("data: infinite value: inf")
