"""Which way imports run, and what `import jaxmf` costs."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "arviz_base",
    "IPython",
    "jinja2",
    "matplotlib",
    "numpyro",
    "pandas",
    "pooch",
    "scipy.stats",
    "sklearn",
)


def lint_imports(root: Path) -> tuple[int, str]:
    """Exit status and report of import-linter on the package under `root`."""
    program = "import sys; from importlinter.cli import lint_imports_command as run; run()"
    result = subprocess.run(
        [sys.executable, "-c", program, "--no-cache", "--config", "pyproject.toml"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


def test_imports_run_downwards():
    status, report = lint_imports(ROOT)
    assert status == 0, report
    assert "0 broken" in report


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("types.py", "import jaxmf.data", "imports run downwards"),
        ("types.py", "if TYPE_CHECKING:\n    import jaxmf.data", "imports run downwards"),
        ("engine/run.py", "import jaxmf.data", "imports run downwards"),
        ("samplers/gibbs.py", "from jaxmf.models import one", "imports run downwards"),
        ("models/two.py", "from jaxmf.models import one", "a model never imports another"),
        ("models/two.py", "import pytest", "test libraries stay in the tests"),
        ("attic.py", "", "imports run downwards"),  # a room without a floor
    ],
)
def test_an_import_upwards_is_seen(tmp_path, module, line, contract):
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    package = tmp_path / "jaxmf"
    for name in ("__init__", "types", "data", "engine/__init__", "samplers/__init__"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").touch()
    (package / "models").mkdir()
    for name in ("__init__", "one", "two"):
        (package / "models" / f"{name}.py").touch()
    (package / module).write_text(f"{line}\n")
    status, report = lint_imports(tmp_path)
    broken = [text for text in report.splitlines() if text.endswith("BROKEN")]
    assert status == 1, report
    assert any(text.startswith(contract) for text in broken), report


def test_importing_the_package_is_light():
    program = "import json, sys; import jaxmf; print(json.dumps(sorted(sys.modules)))"
    then = "; jaxmf.sample; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program + then], cwd=ROOT, capture_output=True, text=True, check=True
    )
    baseline = subprocess.run(
        [sys.executable, "-c", program.replace("import jaxmf", "import jax")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded, with_sample = map(json.loads, result.stdout.splitlines())
    assert not (set(loaded) - set(json.loads(baseline.stdout))).intersection(HEAVY)
    # half a second of processor time before the first step of a run
    assert "jaxmf.api" in with_sample
    assert "scipy.stats" not in with_sample


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["fit", "--help"], 0),
        (["fit", "bpfm", "x.npy", "--out", "run"], 2),
        (["fit", "lda", "x.npy", "--method", "vb", "--out", "run"], 2),
        (["fit", "bpmf", "nowhere.csv", "--out", "run"], 2),
        (["show", "nowhere"], 2),
    ],
)
def test_help_and_mistakes_do_not_wait_for_jax(arguments, status, tmp_path):
    program = (
        "import sys; from jaxmf.cli import run; status = run(sys.argv[1:]); "
        "sys.exit(9 if 'jax' in sys.modules else status)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=tmp_path,
        env=dict(os.environ) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == status, result.stderr


def test_every_public_name_is_loaded_from_where_the_stub_says():
    import jaxmf

    for name in jaxmf.__all__:
        assert getattr(jaxmf, name) is not None
    assert callable(jaxmf.variational)
    assert jaxmf.__version__


# --- circles --------------------------------------------------------------------------------------


def imported_by(path, modules):
    """The modules of the package that a file names anywhere, for types and in functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        named = [name for name in names if name in modules]
        # of `from package import module` the module alone
        found |= set(named[:-1] if len(named) > 1 and named[-1] == node.module else named)
    return found


def circles(graph):
    """Sets of modules that import each other, by whatever way."""
    reached = {module: set(graph[module]) for module in graph}
    changed = True
    while changed:
        changed = False
        for found in reached.values():
            more = set().union(*(reached[other] for other in found)) - found if found else set()
            changed |= bool(more)
            found |= more
    inside = [module for module in graph if module in reached[module]]
    return {frozenset(o for o in inside if o in reached[m] and m in reached[o]) for m in inside}


def test_no_modules_import_each_other():
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "jaxmf").rglob("*.py")
    }
    graph = {name: imported_by(path, set(paths)) - {name} for name, path in paths.items()}
    assert not [sorted(circle) for circle in circles(graph)]


def test_a_circle_is_seen(tmp_path):
    (tmp_path / "one.py").write_text("def run():\n    from two import go\n")
    (tmp_path / "two.py").write_text("import one\nimport three\n")
    (tmp_path / "three.py").write_text("")
    graph = {
        name: imported_by(tmp_path / f"{name}.py", {"one", "two", "three"})
        for name in ("one", "two", "three")
    }
    assert circles(graph) == {frozenset({"one", "two"})}
