"""What another package adds works as what jaxmf has itself; `tests/extension` is that package."""

import ast
import dataclasses
import importlib
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.tree_util import Partial

import jaxmf as mf
from jaxmf import registry
from jaxmf.data import Tokens
from jaxmf.registry.entries import REGISTERED
from jaxmf.settings.names import RegisteredCodeError
from jaxmf.testing import check_model
from tests import FAST_COMPILE
from tests.extension.families import ZeroOrPoisson
from tests.extension.likelihoods import student_t, student_t_moments, student_t_row
from tests.extension.models import RobustMeans, State
from tests.extension.priors import Gnedin

FOLDER = Path(__file__).parents[1] / "extension"
SETTINGS = {"num_warmup": 2, "num_samples": 4, "num_chains": 1, "progress": False}


def matrix():
    values = np.random.default_rng(0).normal(size=(6, 3))
    values[[0, 3], [1, 2]] = np.nan
    return mf.Dense.from_array(values)


def counts():
    values = np.array([0, 3, 0, 2, 0, 7, 0, 1.0])
    columns = {"document": np.array([0, 0, 0, 0, 1, 1, 1, 1])}
    return Tokens(columns, {"document": 2}, {"count": values})


def words():
    columns = {"word": np.array([0, 1, 0, 2, 2, 1])}
    return Tokens(columns, {"word": 3})


def zero_inflated(**settings):
    """Two groups of documents' counts, zero-inflated Poisson each."""
    return mf.Network(
        group=mf.Block(mf.Dirichlet(2, 1.0), by="document"),
        always_zero=mf.Block(mf.Dirichlet(2, 1.0), by="group"),
        count=mf.Block(ZeroOrPoisson(**settings), by=("always_zero", "group"), observed=True),
    )


def partition(prior):
    return mf.Network(
        group=mf.Block(prior),
        word=mf.Block(mf.DirichletMultinomial(3, 0.5), by="group", observed=True),
    )


def features():
    return mf.FeatureModel(
        Partial(student_t, 4.0, 0.5),
        dist.Normal(0.0, 1.0).expand([3]).to_event(1),
        prior=mf.IndianBuffet(1.0),
        moments=Partial(student_t_moments, 4.0, 0.5),
        sample_row=Partial(student_t_row, 4.0, 0.5),
    )


CASES = {
    "model": (RobustMeans(), matrix),
    "family": (zero_inflated(), counts),
    "prior": (partition(Gnedin(0.5)), words),
    "likelihood": (features(), matrix),
}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_the_extension_imports_public_names_alone(path):
    public = {"jaxmf", "jaxmf.engine"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxmf"):
            assert node.module in public
        if isinstance(node, ast.Import):
            assert all(name.name in public for name in node.names if "jaxmf" in name.name)


@pytest.mark.tiers(slow=["prior"], exhaustive=["family", "likelihood", "model"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_added_keeps_the_contracts(name):
    model, data = CASES[name]
    report = check_model(model, data(), joint_distribution=False)
    assert {"saved and loaded", "reported", "summarised"} <= set(report.checks)


def statistics_of_means(state, data):
    return {
        "mean": jnp.mean(state.means),
        "largest": jnp.max(jnp.abs(state.means)),
        "precision": jnp.mean(state.precisions),
        "residual": jnp.mean(jnp.abs(data.values[1:3] - state.means)),
    }


def statistics_of_groups(state, data):
    """Which tokens are together, hyperparameters, and what is in the groups."""
    found = {}
    for name, labels in state.values.items():
        same = labels[:, None] == labels
        found |= {
            f"pairs of {name}": jnp.sum(same),
            f"first of {name}": same[0, 1] + 2 * same[2, 4],
        }
        for column in ("word", "count"):
            values = data.columns.get(column, data.values.get(column))
            if values is not None:
                alike = values[:, None] == values
                found[f"{column} within {name}"] = jnp.sum(same & alike)
    for name, hyperparameters in state.hyperparameters.items():
        for label, value in hyperparameters.items():
            if value.ndim == 0:
                found[f"{label} of {name}"] = value
    return found


LEARNED = dist.Gamma(3.0, 2.0)


@pytest.mark.tiers(exhaustive=["family", "family-learned", "prior", "prior-learned"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "data", "statistics"),
    [
        (RobustMeans(mean_scale=2.0), matrix, statistics_of_means),
        (zero_inflated(), counts, statistics_of_groups),
        (zero_inflated(shape=LEARNED, rate=dist.Gamma(4.0, 2.0)), counts, statistics_of_groups),
        (partition(Gnedin(0.3)), words, statistics_of_groups),
        (partition(Gnedin(dist.Beta(2.0, 2.0))), words, statistics_of_groups),
    ],
    ids=["model", "family", "family-learned", "prior", "prior-learned"],
)
def test_samplers_of_what_is_added_leave_the_joint_distribution(model, data, statistics):
    report = check_model(model, data(), statistics=statistics, compiler_options=FAST_COMPILE)
    assert report.joint.passed


# --- what is refused, and by which words ----------------------------------------------------------

LOADED_ALONE = """
import jaxmf
try:
    jaxmf.load({folder!r})
except ValueError as error:
    print(type(error).__name__, error)
import {module}
print(type(jaxmf.load({folder!r}).model).__name__)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "module"), [("model", "tests.extension.models"), ("prior", "tests.extension.priors")]
)
def test_a_run_of_another_package_says_what_to_import(tmp_path, name, module):
    model, data = CASES[name]
    with np.errstate(all="ignore"):
        mf.sample(model, data(), **SETTINGS).save(tmp_path / "run")
    program = LOADED_ALONE.format(folder=str(tmp_path / "run"), module=module)
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=FOLDER.parent.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    refused, loaded = found.stdout.strip().splitlines()
    assert "is not registered in this session; import the module that calls jaxmf.regis" in refused
    assert repr(module) in refused
    assert refused.startswith("NotRegisteredError")  # the file is not damaged
    assert loaded == type(model).__name__


BRITTLE = """
from dataclasses import dataclass
import jax
import jaxmf as mf
from tests.extension.models import RobustMeans

FAILS = set()

@mf.register
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Brittle(RobustMeans):
    def __post_init__(self):
        if "settings" in FAILS:
            raise RuntimeError("no room for these settings")

    def sampler(self):
        if "sampler" in FAILS:
            raise KeyError("table")
        return super().sampler()
"""


def test_code_of_another_package_that_fails_is_no_damage_of_the_file(tmp_path, monkeypatch):
    (tmp_path / "brittle.py").write_text(BRITTLE)
    monkeypatch.syspath_prepend(str(tmp_path))
    brittle = importlib.import_module("brittle")
    try:
        mf.sample(brittle.Brittle(), matrix(), **SETTINGS).save(tmp_path / "run")
        for part, cause, words in (
            ("settings", RuntimeError, "'model' or failed on it: RuntimeError: no room for these"),
            ("sampler", KeyError, "'run' or failed on it: KeyError: 'table'"),
        ):
            brittle.FAILS = {part}
            with pytest.raises(RegisteredCodeError, match=f"brittle, .* refused {words}") as found:
                mf.load(tmp_path / "run")
            assert isinstance(found.value.__cause__, cause)
        brittle.FAILS = set()
        assert mf.load(tmp_path / "run").model == brittle.Brittle()
        monkeypatch.setattr(registry, "decode_model", _import_what_is_missing)
        with pytest.raises(ImportError, match="'model' needs a module: No module named 'no_such"):
            mf.load(tmp_path / "run")
    finally:
        del REGISTERED["brittle"]


def _import_what_is_missing(*arguments):
    importlib.import_module("no_such_module")


def test_a_module_that_a_file_names_is_never_imported(tmp_path):
    from jaxmf import settings

    written = {"registered": "Nothing", "module": "antigravity", "parameters": {}}
    with pytest.raises(ValueError, match=r"'Nothing' is of another package.*'antigravity'"):
        settings.decode(written)
    assert "antigravity" not in sys.modules


def test_a_model_that_is_not_registered_is_refused():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Means(RobustMeans):
        pass

    with pytest.raises(TypeError, match=r"Means, which is no model of jaxmf.*jaxmf\.register"):
        mf.sample(Means(), matrix(), **SETTINGS)


def variant(**attributes):
    return dataclasses.dataclass(frozen=True)(type("Other", (mf.Model,), attributes))


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({}, r"Other\.data_type must be a container"),
        ({"data_type": mf.Dense}, r"Other\.sampler is not defined, and jaxmf\.sample needs it"),
        (
            {
                "data_type": mf.Dense,
                "methods": {"particle_filter": "filter"},
                "filter": lambda self: None,
            },
            r"Other\.particle_draw is not defined, and jaxmf\.particle_filter needs it",
        ),
        ({"data_type": mf.Dense, "methods": {"draw": "sampler"}}, "'draw' is no verb"),
        (
            {
                "data_type": mf.Dense,
                "sampler": lambda self: None,
                "default_method": "variational",
            },
            r"Other\.default_method is 'variational', which Other\.methods lacks",
        ),
    ],
)
def test_a_model_without_a_hook_is_refused_by_its_name(attributes, words):
    with pytest.raises(ValueError, match=words):
        mf.register(variant(**attributes))


def test_what_cannot_be_registered_is_refused():
    with pytest.raises(TypeError, match="neither a class nor a function"):
        mf.register(Partial(student_t, 1.0))
    with pytest.raises(TypeError, match="must be a frozen dataclass"):
        mf.register(type("Loose", (), {}))
    taken = dataclasses.dataclass(frozen=True)(type("HDP", (), {}))
    owner = "'HDP' is what saved runs and the command line call a part of jaxmf"
    with pytest.raises(ValueError, match=owner):
        mf.register(taken)
    numpyro_name = dataclasses.dataclass(frozen=True)(type("AsymmetricLaplace", (), {}))
    with pytest.raises(
        ValueError, match=r"a distribution of numpyro; .*name='MyAsymmetricLaplace'"
    ):
        mf.register(numpyro_name)
    lda = dataclasses.dataclass(frozen=True)(type("LDA", (mf.Model,), {}))
    with pytest.raises(ValueError, match="'lda' is a model of jaxmf"):
        mf.register(lda)


@pytest.mark.parametrize(
    ("attributes", "is_known", "error", "words"),
    [
        ({"mean": None}, True, ValueError, "Half lacks in_support, log_density, sample, variance"),
        ({"hyperparameters": ("scal",)}, True, ValueError, "Half names 'scal', which is no field"),
        ({}, False, TypeError, "JAX does not know Half: put @jax.tree_util.register_dataclass"),
    ],
)
def test_a_likelihood_that_lacks_something_is_refused(attributes, is_known, error, words):
    base = mf.Likelihood if "mean" in attributes else mf.Gaussian
    half = dataclasses.dataclass(frozen=True)(type("Half", (base,), attributes))
    if is_known:
        jax.tree_util.register_dataclass(half)
    with pytest.raises(error, match=words):
        mf.register(half)


def test_a_model_that_jax_does_not_know_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Unknown(RobustMeans):
        pass

    mf.register(Unknown)
    with pytest.raises(TypeError, match=r"register_dataclass above @dataclass"):
        mf.sample(Unknown(), matrix(), **SETTINGS)


def test_a_model_without_simulation_names_the_hook():
    model, data = mf.registry.get("bpmf").example()
    with pytest.raises(ValueError, match="BPMF does not have simulate_like"):
        check_model(model, data)


def test_the_parallel_sweep_needs_a_hook_of_the_prior():
    with pytest.raises(TypeError, match=r"needs Gnedin\.weight_shapes, which is not defined"):
        mf.sample(partition(Gnedin(0.5)), words(), sweep="parallel", **SETTINGS)


def test_a_subclass_with_other_probabilities_is_another_prior():
    """It must not be sampled by what is derived from the probabilities of its base."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Squared(mf.DirichletProcess):
        def log_prob(self, counts, hyperparameters):
            return 2 * super().log_prob(counts, hyperparameters)

    with pytest.raises(TypeError, match=r"needs Squared\.weight_shapes"):
        mf.sample(partition(Squared(1.0)), words(), sweep="parallel", **SETTINGS)
    with pytest.raises(ValueError, match="this network has none"):
        mf.sample(partition(Squared(1.0)), words(), split_merge=1, **SETTINGS)


def test_the_command_line_lists_what_is_registered(capsys):
    from jaxmf.cli import run

    assert run(["models"]) == 0
    assert "robust-means" in capsys.readouterr().out


def test_the_command_line_fits_and_shows_a_model_of_another_package(tmp_path, capsys):
    from jaxmf.cli import run

    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(6, 3)))
    ours = ["--import", "tests.extension.models"]
    out = str(tmp_path / "run")
    counts = ["--warmup", "2", "--samples", "4", "--chains", "1", "--no-progress"]
    settings = ["--set", "mean_scale=2.0"]
    fitted = [*ours, "fit", "robust-means", str(tmp_path / "X.npy"), "--out", out]
    assert run([*fitted, *counts, *settings]) == 0, capsys.readouterr().err
    assert run([*ours, "show", out]) == 0
    assert "RobustMeans(noise_scale=1, mean_scale=2, degrees=4)" in capsys.readouterr().out


def test_the_command_line_imports_a_module_of_the_present_folder(tmp_path, capsys, monkeypatch):
    from jaxmf.cli import run

    (tmp_path / "my_part_of_this_folder.py").write_text("print('imported')")
    (tmp_path / "my_broken_part.py").write_text("import no_such_dependency")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    assert run(["--import", "my_part_of_this_folder", "models"]) == 0
    assert capsys.readouterr().out.startswith("imported")
    assert run(["--import", "no_such_module", "models"]) == 2
    said = capsys.readouterr().err
    assert "--import no_such_module: this module is neither installed" in said
    assert "PYTHONPATH" in said
    assert run(["--import", "./my_part_of_this_folder", "models"]) == 2
    assert "name it without .py and without its folder" in capsys.readouterr().err
    assert run(["--import", "my_broken_part", "models"]) == 2
    assert "No module named 'no_such_dependency'" in capsys.readouterr().err
    data = tmp_path / "X.npy"
    np.save(data, np.ones((3, 2)))
    unknown = ["fit", "feature-model", str(data), "--out", "run", "--set", "likelihood=Unknown()"]
    assert run(unknown) == 2
    assert "jaxmf --import MODULE" in capsys.readouterr().err


def broken(model):
    """RobustMeans whose sampler forgets the prior of the means."""

    class Broken(RobustMeans):
        def sampler(self):
            wide = dataclasses.replace(model, mean_scale=1e6)
            right = model.sampler()
            return right._replace(step=wide.sampler().step)

    return Broken


@pytest.mark.slow
def test_a_wrong_sampler_is_caught():
    model = RobustMeans(mean_scale=0.5)
    cls = jax.tree_util.register_dataclass(
        dataclasses.dataclass(frozen=True)(broken(model)),
        data_fields=["noise_scale", "mean_scale", "degrees"],
        meta_fields=[],
    )
    mf.register(cls)
    with pytest.raises(AssertionError, match="FAILED"):
        check_model(
            cls(mean_scale=0.5), matrix(), statistics=statistics_of_means, num_replicates=2_000
        )


def test_a_draw_without_log_joint_is_refused(monkeypatch):
    model = RobustMeans()
    original = RobustMeans.sampler

    def sampler(self):
        right = original(self)
        return right._replace(record=Partial(lambda key, state, data: {"means": state.means}))

    monkeypatch.setattr(RobustMeans, "sampler", sampler)
    with pytest.raises(TypeError, match=r"the draws of RobustMeans\.sampler must have log_joint"):
        check_model(model, matrix(), joint_distribution=False)


def test_states_of_the_model_are_what_its_sampler_takes():
    model, data = RobustMeans(), matrix()
    state, drawn = model.simulate_like(jax.random.key(0), data)
    assert isinstance(state, State)
    assert drawn.num_missing == data.num_missing
