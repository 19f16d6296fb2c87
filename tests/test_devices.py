"""What the device decides: sweeps and block sizes, for platforms that are not here, too."""

from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

import jaxmf as mf
from jaxmf import devices, registry
from jaxmf.engine import Info, algorithm, run
from jaxmf.engine.sharding import check_mesh_axes
from tests.support.eight_devices import run_on_eight_devices

ROWS = np.zeros((2_000, 3))
PARALLEL = {
    "linear-gaussian-ibp": {"sweep": "parallel"},
    "noisy-or-ibp": {"sweep": "parallel"},
    "binary-mf": {"sweep": "bits", "weights": "explicit"},
    "lda": {"sweep": "parallel"},
    "hdp": {"sweep": "parallel"},
    "dp-mixture": {"sweep": "parallel"},
    "bi-lda": {"sweep": "parallel"},
    # no parallel sweep, or no sweep to choose
    "flexible-mixture": {"sweep": "sequential"},
    "hfp": {"sweep": "sequential"},
    "bpmf": {},
    "sparse-binary": {},
}


@pytest.mark.parametrize("kind", devices.SWEEP_COSTS)
def test_the_sweep_goes_by_platform_and_size(kind):
    costs = devices.SWEEP_COSTS[kind]
    fewest = costs.fewest_items()
    for num_items in (1, fewest, 10**9, None):
        assert devices.choose_sweep(kind, "cpu", num_items) == costs.sequential
    for platform in ("gpu", "tpu"):
        assert devices.choose_sweep(kind, platform, fewest) == costs.parallel
        assert devices.choose_sweep(kind, platform, None) == costs.parallel
        assert devices.choose_sweep(kind, platform, fewest - 1) == costs.sequential
        refused = devices.choose_sweep(kind, platform, 10**9, can_be_parallel=False)
        assert refused == costs.sequential


def test_a_parallel_sweep_is_for_data_whose_loop_would_take_longer():
    # a few dozen rows; thousands of tokens where 256 of them are drawn one after another anyway
    fewest = {kind: costs.fewest_items() for kind, costs in devices.SWEEP_COSTS.items()}
    assert 20 < fewest["linear_gaussian"] < 200
    assert 20 < fewest["noisy_or"] < 200
    assert 20 < fewest["tokens"] < 200
    assert 1_000 < fewest["growing_tokens"] < 10_000


def test_the_documentation_has_the_sizes_that_decide():
    docs = Path(__file__).parents[1] / "docs"
    sizes = (docs / "explanation" / "scaling.md").read_text(encoding="utf-8")
    counts = (docs / "measurements" / "scaling.md").read_text(encoding="utf-8")
    for costs in devices.SWEEP_COSTS.values():
        assert f"| {costs.fewest_items():,} " in sizes
        assert f"{costs.launches:,.0f} a row" in counts or costs.launches in (19, 28)


@pytest.mark.parametrize("name", PARALLEL)
def test_a_model_asks_for_its_parallel_sweep_on_a_gpu_alone(name):
    model, data = registry.get(name).example()
    data = mf.data.as_container(data, registry.get(name).container)
    on_gpu = model.device_options({}, platform="gpu")
    assert on_gpu == PARALLEL[name]
    on_cpu = model.device_options({}, platform="cpu", data=data)
    assert on_cpu.get("sweep") in (None, "collapsed", "sequential", "bits")
    assert on_cpu.get("weights") in (None, "collapsed")
    assert model.device_options({"sweep": "auto"}, platform="cpu", data=data) == on_cpu
    if on_cpu:
        if name.endswith("ibp"):
            # the examples are tiny: loops over their rows are short on a GPU, too
            assert model.device_options({}, platform="gpu", data=data) == on_cpu
        assert model.device_options({"sweep": on_cpu["sweep"]}, platform="gpu") == {}
        usual = model.sampler(), model.sampler(sweep=on_cpu["sweep"])
        assert jax.tree.structure(usual[0]) == jax.tree.structure(usual[1])


def test_weights_that_are_named_stay_on_every_device():
    model = mf.BinaryMF()
    options = {"weights": "collapsed"}
    assert model.device_options(options, platform="gpu") == {"sweep": "bits"}
    poisson = mf.BinaryMF(likelihood=mf.Poisson())
    assert poisson.device_options({}, platform="gpu") == {"sweep": "bits"}


def test_rows_and_columns_together_decide_whether_weights_are_kept_on_a_gpu():
    tall, small = (mf.Dense.from_array(np.zeros(shape)) for shape in ((200, 30), (60, 30)))
    model = mf.BinaryMF()
    kept = {"sweep": "bits", "weights": "explicit"}
    assert model.device_options({}, platform="gpu", data=tall) == kept
    summed_out = {"sweep": "bits", "weights": "collapsed"}
    assert model.device_options({}, platform="gpu", data=small) == summed_out


def test_weights_are_kept_on_a_cpu_where_a_sweep_without_them_would_take_too_long():
    genes, few = (mf.Dense.from_array(np.zeros(shape)) for shape in ((3051, 38), (50, 50)))
    model = mf.BinaryMF()
    kept = {"sweep": "bits", "weights": "explicit", "capacity": 32}
    assert model.device_options({}, platform="cpu", data=genes) == kept
    summed_out = {"sweep": "bits", "weights": "collapsed"}
    assert model.device_options({}, platform="cpu", data=few) == summed_out
    # what is passed stays, and a few features of a finite prior are no work
    wide = model.device_options({"capacity": 8}, platform="cpu", data=genes)
    assert wide == {"sweep": "bits", "weights": "explicit"}
    assert model.device_options({"weights": "collapsed"}, platform="cpu", data=genes) == {
        "sweep": "bits"
    }
    assert model.device_options({"sweep": "whole_rows"}, platform="cpu", data=genes) == {}
    prior = mf.BetaBernoulli(1.0, 1.0, 4)
    finite = mf.BinaryMF(row_prior=prior, column_prior=prior)
    assert finite.device_options({}, platform="cpu", data=genes) == summed_out


def test_samplers_that_are_built_by_hand_follow_the_default_device(monkeypatch):
    def sweep_of(model):
        return model.sampler().step.args[0].sweep

    assert sweep_of(mf.LDA(3)) == "sequential"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert sweep_of(mf.LDA(3)) == "parallel"
    assert sweep_of(mf.NoisyOrIBP()) == "parallel"
    assert not mf.BinaryMF().sampler().step.args[0].collapsed
    assert devices.platform_of(ROWS) == "gpu"
    with jax.default_device(jax.devices("cpu")[0]):
        assert devices.default_platform() == "cpu"
        assert sweep_of(mf.LDA(3)) == "sequential"
    on_cpu = jax.device_put(ROWS, jax.devices("cpu")[0])
    assert devices.platform_of((on_cpu,)) == "cpu"
    assert devices.platform_of(ROWS, Mesh(np.array(jax.devices("cpu")), ("chain",))) == "cpu"


@pytest.mark.slow
def test_a_run_goes_by_the_device_that_holds_the_data(monkeypatch):
    seen = []

    def step(key, state, data, progress):
        seen.append(devices.default_platform())
        return state + data[0], Info(overflow={})

    count = algorithm(
        init=lambda key, data: 0.0, step=step, record=lambda key, state, data: {"x": state}
    )
    cpu = jax.devices("cpu")[0]
    # a machine whose default device is a GPU, and data that were put on its CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert devices.default_platform() == "gpu"
    run(count, jax.device_put(np.ones(2), cpu), num_samples=1)
    assert set(seen) == {"cpu"}
    values = jax.device_put(np.random.default_rng(0).normal(size=(200, 2)), cpu)
    settings = {"num_warmup": 0, "num_samples": 1, "num_chains": 1, "progress": False}
    post = mf.sample(mf.LinearGaussianIBP(alpha=1.0, num_features=2), values, **settings)
    assert post.meta.options["sweep"] == "collapsed"
    assert devices.default_platform() == "gpu"


def test_blocks_are_larger_where_each_has_to_be_started(monkeypatch):
    on_cpu = {name: devices.block_size(name) for name in devices.BLOCK_SIZES}
    assert on_cpu["factor cells"] == 4_096
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for name, size in on_cpu.items():
        assert devices.block_size(name) > size


def test_the_sweep_is_named_by_the_run_its_progress_and_its_report(tmp_path):
    model, data = registry.get("linear-gaussian-ibp").example()
    reports = []
    settings = {"num_warmup": 2, "num_samples": 2, "num_chains": 1, "progress": reports.append}
    folder = tmp_path / "run"
    post = mf.sample(model, data, checkpoint=folder, **settings)
    assert post.meta.options["sweep"] == "collapsed"
    assert {report.note for report in reports} == {"sweep=collapsed"}
    assert post.facts()["sweep"] == "collapsed"
    # "auto" is what no sweep is: the checkpoint of the one is that of the other
    again = mf.sample(model, data, checkpoint=folder, resume=True, sweep="auto", **settings)
    np.testing.assert_array_equal(again.draws["log_joint"], post.draws["log_joint"])
    page = tmp_path / "report.html"
    post.report(page)
    assert "sweep=collapsed" in page.read_text(encoding="utf-8")


def test_a_mesh_with_an_axis_that_nothing_is_spread_over_is_refused():
    one = Mesh(np.array(jax.devices()[:1]), ("data",))
    check_mesh_axes(one, "LDA", (), {})
    check_mesh_axes(None, "LDA", (), {})
    assert mf.LDA(3).mesh_axes({"sweep": "parallel"}) == ("data",)
    assert mf.LDA(3).mesh_axes({"sweep": "sequential"}) == ()
    assert mf.BPMF(2).mesh_axes({}) == ("data",)
    assert mf.BPMF(2, likelihood=mf.Probit()).mesh_axes({}) == ()


PROGRAM = """
import jax, numpy as np
import jaxmf as mf
from jaxmf import registry
from jax.sharding import Mesh

settings = dict(num_warmup=1, num_samples=1, num_chains=1, progress=False)
mesh = Mesh(np.array(jax.devices()), ("data",))
for name, options in (("binary-mf", {}), ("lda", {}), ("noisy-or-ibp", {"sweep": "sequential"})):
    model, data = registry.get(name).example()
    try:
        mf.sample(model, data, mesh=mesh, **options, **settings)
    except ValueError as error:
        print(str(error).split(",")[0], "other sweep" * ('sweep="parallel"' in str(error)))
try:
    mf.particle_filter(*registry.get("linear-gaussian-ibp").example(), mesh=mesh)
except ValueError as error:
    print(str(error).split(",")[0], "other sweep" * ('sweep="parallel"' in str(error)))
"""


SPREAD = """
import jax, numpy as np
import jaxmf as mf
from jaxmf import registry
from jaxmf.data import as_container
from jaxmf.engine.sharding import Placement
from jax.sharding import Mesh

def share(tree):
    \"\"\"Bytes on the first device over bytes in all.\"\"\"
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    here = sum(leaf.addressable_shards[0].data.nbytes for leaf in leaves)
    return here / sum(leaf.nbytes for leaf in leaves)

place = Placement(Mesh(np.array(jax.devices()), ("chain",)), batched=True)
model, data = registry.get("noisy-or-ibp").example()
data = place.put_everywhere(as_container(data, mf.Dense))
keys = place.put_chains(jax.random.split(jax.random.key(0), 8))
init = jax.vmap(model.sampler().init, in_axes=(0, None))
print(share(jax.jit(init, out_shardings=place.chains)(keys, data)), share(data))
"""


@pytest.mark.slow
def test_states_of_chains_lie_on_their_devices_and_data_on_all():
    assert run_on_eight_devices(SPREAD) == ["0.125 1.0"]


@pytest.mark.slow
def test_eight_devices_on_an_axis_of_no_use_are_refused():
    assert run_on_eight_devices(PROGRAM) == [
        "mesh: BinaryMF with sweep='bits' cannot use the axis 'data' other sweep",
        "mesh: LDA with sweep='sequential' cannot use the axis 'data' other sweep",
        "mesh: NoisyOrIBP with sweep='sequential' cannot use the axis 'data' other sweep",
        "mesh: particle_filter cannot use the axis 'data' ",
    ]
