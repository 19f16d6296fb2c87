"""Tokens of which each process has those of its documents: in one, and in two with two devices."""

import signal

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import jaxmf as mf
from jaxmf.engine import load_run
from tests.engine.test_two_processes_end import wait_for_steps
from tests.support.two_processes import printed, started

MESH = Mesh(np.array(jax.devices()[:1]), ("data",))


def test_tokens_of_one_process_are_the_corpus():
    counts = [[2, 0], [0, 1]]
    data = mf.Tokens.from_process_rows(counts, mesh=MESH)
    assert data.fingerprint() == mf.Tokens.from_counts(counts).fingerprint()
    assert not data.spans_processes
    with pytest.raises(ValueError, match="mesh: has no axis 'data'"):
        mf.Tokens.from_process_rows(counts, mesh=Mesh(MESH.devices, ("chain",)))


SETUP = """
import time
import jaxmf as mf
from jaxmf.blocks import tile_shares
from jaxmf.data import process_cells
from tests.support.eight_devices import leave_out_the_last_device

folder = arguments[0]
random = np.random.default_rng(0)
mesh = mesh_of(4, ("data",))
process_cells.CELLS_A_BLOCK = 64  # so that there are several
columns = {"document": np.sort(random.integers(30, size=400)), "word": random.zipf(1.5, 400) % 40}
half = columns["document"] < 12
parts = [half, ~half]
documents, words = [f"d{i}" for i in range(30)], [f"w{i}" for i in range(40)]
# a level is numbered where it first has a document or a word
order = list(dict.fromkeys(columns["word"].tolist()))
columns["word"] = np.array([order.index(word) for word in columns["word"]])
words = [words[word] for word in order]
whole = mf.Tokens(
    columns, {"document": 30, "word": len(words)}, names={"document": documents, "word": words}
)
models = {"LDA": mf.LDA(4), "HDPLDA": mf.HDPLDA()}
model = models["LDA"]
settings = dict(num_warmup=1, num_chains=1, seed=1, mesh=mesh, sweep="parallel")

def tokens(some):
    names = {"document": documents, "word": words}
    taken = {label: [names[label][i] for i in column[some]] for label, column in columns.items()}
    return mf.Tokens.from_columns(taken)
"""
PARTS = """
def refusal(call):
    try:
        call()
    except (ValueError, TypeError) as error:
        print(error)

def of_process(x):
    return mf.Tokens.from_process_rows(x, mesh=mesh)

data = of_process(tokens(parts[process]))
assert data.fingerprint() == whole.fingerprint()
for side in whole.names:
    assert list(data.names[side]) == list(whole.names[side])
print(data)
ours, shares = tile_shares.share_out(model, data, 4), tile_shares.share_out(model, whole, 4)
for name in tile_shares.ROW_ARRAYS:
    array = getattr(ours, name)
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(shard.data, getattr(shares, name)[shard.index])
    assert 2 * sum(shard.data.nbytes for shard in array.addressable_shards) == array.nbytes

def same(post, other):
    return all(np.array_equal(post.draws[name], draws) for name, draws in other.draws.items())

alone = mf.sample(model, whole, num_samples=2, **settings)
post = mf.sample(model, data, num_samples=2, keep="assignments", **settings)
assert same(post, alone)
assert len(np.unique(post.draws["topic_of_tokens"])) == 4
repr(post), post.summary(), post.top_entries("word")
if process == 0:
    post.save(folder + "/saved", data=False)
    mf.load(folder + "/saved", data=whole).topic_coherence()
print("as the whole")
by_topic = mf.Block(mf.DirichletMultinomial(), by="topic", observed=True)
other = mf.Network(topic=mf.Block(mf.Dirichlet(2), by="document"), word=by_topic)
refusal(post.topic_coherence)
refusal(lambda: mf.sample(model, data, num_samples=2, **settings | {"mesh": None}))
refusal(lambda: mf.sample(other, data, num_samples=2, **settings))
refusal(lambda: of_process(tokens(half)))
refusal(lambda: of_process(np.ones((2, 2 + process), int)))
refusal(lambda: of_process(mf.Tokens({"user": [0]}, {"user": 1})))
"""
WHOLE = """
from jaxmf.data import process_tokens

def same(post, other):
    return all(np.array_equal(post.draws[name], draws) for name, draws in other.draws.items())

data = mf.Tokens.from_process_rows(tokens(parts[process]), mesh=mesh)
settings |= dict(num_warmup=2, keep="assignments")
for model in (mf.PAM((2, 3)), mf.HDPLDA()):
    alone = mf.sample(model, whole, num_samples=2, **settings)
    assert same(mf.sample(model, data, num_samples=2, **settings), alone)
print("as the whole", data.elsewhere.cells.arrays[0].size)
right = process_tokens.gathered
process_tokens.gathered = lambda *of: {name: column[::-1] for name, column in right(*of).items()}
assert not same(mf.sample(model, data, num_samples=2, **settings), alone)
process_tokens.gathered = right
settings["num_warmup"] = 1
alone = mf.sample(mf.LDA(4), whole, num_samples=2, **settings)
leave_out_the_last_device()
assert not same(mf.sample(mf.LDA(4), data, num_samples=2, **settings), alone)
print("caught")
"""
KILLED = """
model = models[arguments[1]]
data = mf.Tokens.from_process_rows(tokens(parts[process]), mesh=mesh)
mf.sample(
    model, data, num_samples=100_000, checkpoint=folder + "/run", checkpoint_seconds=0,
    progress=lambda report: time.sleep(0.1), keep="assignments", **settings
)
"""
REST = """
model = models[arguments[1]]
settings |= dict(num_samples=int(arguments[2]), keep="assignments")
resumed = mf.sample(model, whole, checkpoint=folder + "/run", resume=True, **settings)
never = mf.sample(model, whole, **settings)
for name, draws in never.draws.items():
    np.testing.assert_array_equal(resumed.draws[name], draws, err_msg=name)
print("as never stopped")
"""


@pytest.mark.slow
def test_two_processes_with_documents_of_their_own_have_the_run_of_the_whole(tmp_path):
    first, second = printed(SETUP + PARTS, str(tmp_path))
    starts = [
        "Tokens(400 tokens, document: 30, word:",
        "as the whole",
        "data: the rows lie in several processes, none of which has all of them",
        "data: their rows lie in several processes; pass the mesh",
        "data: their rows lie in several processes, which jaxmf.sample of LinearGaussianIBP",
        "row_names: the row 'd0' is in process 0 and in process 1 of jax.distributed",
        "data: process 1 of jax.distributed has other cells than process 0: num_columns is 3, not",
        "data: tokens in several processes have the columns 'document' and 'word' and no values",
    ]
    assert first == second
    for line, start in zip(first, starts, strict=True):
        assert line.startswith(start), line


@pytest.mark.exhaustive
def test_and_of_models_that_need_all_tokens_everywhere(tmp_path):
    """Broken twins: tokens in another order, counts without those of the last device."""
    sizes = []
    for first, second in printed(SETUP + WHOLE, str(tmp_path)):
        assert (first[:12], second) == ("as the whole", "caught")
        sizes.append(int(first[12:]))
    assert sum(sizes) == 400


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["LDA", "HDPLDA"])
def test_where_one_process_is_killed_a_single_one_goes_on(name, tmp_path):
    """Of documents that are shared out, and of tokens that are everywhere."""
    with started(SETUP + KILLED, str(tmp_path), name) as processes:
        (tmp_path / "run").mkdir()
        wait_for_steps(tmp_path / "run", processes[0])
        processes[1].send_signal(signal.SIGKILL)
        for process in processes:
            process.communicate(timeout=120)
    num_draws = str(load_run(tmp_path / "run")[0].num_draws + 3)
    assert printed(SETUP + REST, str(tmp_path), name, num_draws, count=1) == [["as never stopped"]]
