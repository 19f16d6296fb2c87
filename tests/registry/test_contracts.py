"""What models can do is written down, and nothing else finds it out."""

import ast
import inspect
from pathlib import Path

import pytest

from jaxmf import model as contracts
from jaxmf import registry

PACKAGE = Path(contracts.__file__).parent
CAPABILITIES = {
    name: value
    for name, value in vars(contracts).items()
    if isinstance(value, type) and getattr(value, "_is_protocol", False)
    if value.__module__ == contracts.__name__
}
NETWORK = {"HasGroups", "HasNetwork"}
TOPICS = NETWORK | {"CompletesDocuments", "RanksWords", "ScoresDocuments"}
TOPICS |= {"ShowsColumns", "TransformsDocuments"}
MIXTURE = NETWORK | {"DrawsCells", "HasPointwiseLikelihood", "HasRowGroups"}
MIXTURE |= {"PredictsCells", "TransformsRows"}
ROWS = MIXTURE | {"DrawsNewRows", "HasColumnValues", "TakesNewRows"}
ROWS |= {"ScoresCellsOfNewRows", "ScoresFurtherRows"}
RATINGS = MIXTURE - {"HasRowGroups"} | {
    "HasCategories",
    "RanksColumns",
    "ShowsColumns",
    "TakesNewRowsOfCategories",
}
CELLS = {"PredictsCells", "TakesNewRows", "TransformsRows"}
BINARY = CELLS | {"HasFeatures", "TrimsDraws"}
SPARSE = CELLS | {"HasAscent", "ScoresCells", "ScoresNewRows", "WarnsOfFits"}
OF_MODELS = {
    "linear-gaussian-ibp": BINARY | {"Anneals", "HasBias", "HasParticles", "ScalesColumns"},
    "noisy-or-ibp": BINARY | {"Anneals", "HasParticles"},
    "binary-mf": BINARY | {"Anneals", "HasBias", "HasBiclusters", "ScalesColumns"},
    "sparse-binary": SPARSE | {"HasFactors", "HoldsOutOnes", "SolvesInClosedForm"},
    "sparse-binary-series": SPARSE | {"KnowsTime"},
    "feature-model": BINARY
    | {"Anneals", "DrawsCells", "DrawsNewRows", "HasBias", "HasCategories", "HasParticles"}
    | {"HasPointwiseLikelihood", "ScalesColumns", "TakesNewRowsOfCategories"},
    "mixture-of-gaussians": ROWS | {"Anneals", "HasRowLikelihood"},
    "dp-mixture": ROWS | {"Anneals", "HasRowLikelihood"},
    "flexible-mixture": ROWS,
    "dcm": NETWORK,
    "network": NETWORK,
    "lda": TOPICS,
    "hdp": TOPICS,
    "pam": TOPICS,
    "hfp": TOPICS - {"RanksWords", "ScoresDocuments"} | {"LimitsDocuments"},
    "multi-lda": NETWORK | {"ShowsColumns"},
    "multi-hdp": NETWORK | {"ShowsColumns"},
    "bi-lda": RATINGS,
    "bi-hdp": RATINGS,
    "urp": RATINGS,
    "bpmf": CELLS
    | {
        "HasCategories",
        "HasFactors",
        "HasSideGroups",
        "KeepsLess",
        "NarrowsDraws",
        "PredictsWholeRows",
        "RanksColumns",
        "ScalesColumns",
    }
    | {"TakesNewColumns", "TakesNewRowsOfCategories", "TakesRowFeatures", "TakesUnknownIds"},
}


@pytest.mark.parametrize("entry", registry.ENTRIES, ids=lambda entry: entry.name)
def test_every_model_has_the_capabilities_that_it_had(entry):
    example, _ = entry.example()
    assert isinstance(example, contracts.Model)
    has = {name for name, capability in CAPABILITIES.items() if isinstance(example, capability)}
    # what checks of samplers ask for is no question of a posterior
    assert has - {"SimulatesAlike", "SimulatesMatrices", "SimulatesMore"} == OF_MODELS[entry.name]
    assert entry.anneals == ("Anneals" in has)


@pytest.mark.parametrize("name", CAPABILITIES)
def test_every_hook_of_a_capability_says_what_it_returns(name):
    capability = CAPABILITIES[name]
    assert inspect.getdoc(capability)
    hooks = contracts.hooks_of(capability)
    assert hooks
    for hook in hooks:
        member = inspect.getattr_static(capability, hook)
        function = member.fget if isinstance(member, property) else member
        assert function.__doc__, f"{name}.{hook}"
        assert function.__annotations__["return"], f"{name}.{hook}"


def probes(source):
    """Calls of hasattr or getattr with a name in quotes, on a model."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id not in ("hasattr", "getattr") or len(node.args) < 2:
            continue
        of_model = ast.unparse(node.args[0]).rpartition(".")[2] == "model"
        if of_model and isinstance(node.args[1], ast.Constant):
            yield node.lineno


@pytest.mark.parametrize("room", ["posterior", "plot", "report", "cli", "registry", "sklearn"])
def test_no_room_asks_a_model_for_an_attribute_by_name(room):
    found = {
        path.name: list(probes(path.read_text())) for path in sorted((PACKAGE / room).glob("*.py"))
    }
    assert found
    assert not any(found.values()), found


@pytest.mark.parametrize("name", ["api.py", "pure_functions.py", "diagnostics.py"])
def test_no_module_asks_a_model_for_an_attribute_by_name(name):
    assert not list(probes((PACKAGE / name).read_text()))


def test_a_probe_is_seen():
    assert list(probes('if hasattr(posterior.model, "at"): pass')) == [1]


def test_a_network_has_a_method_at_and_knows_no_time():
    network, _ = registry.get("network").example()
    series, _ = registry.get("sparse-binary-series").example()
    assert callable(network.at)
    assert not isinstance(network, contracts.KnowsTime)
    assert isinstance(series, contracts.KnowsTime)


def test_the_error_of_a_question_names_the_hook():
    network, _ = registry.get("network").example()
    error = contracts.lacks(network, contracts.TakesNewRows, "new_rows")
    assert "Network does not have predict_rows; see jaxmf.model.TakesNewRows" in str(error)
