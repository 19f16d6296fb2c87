"""What a setting may be, by name: the tables that saved runs and the command line look into.

A file names nothing that is not in one of these tables. A name is a key, never a path of modules
and attributes.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from jaxmf.arguments import meant, shown

# Priors of features, and parts of models, by the names they have on the command line; imported
# when they are named.
PRIORS = {
    "IndianBuffet": "jaxmf.priors.features",
    "BetaBernoulli": "jaxmf.priors.features",
    "RootInverseGamma": "jaxmf.priors.scales",
    "OccurringWords": "jaxmf.priors.occurring",
    "Block": "jaxmf.blocks.block",
    "Dirichlet": "jaxmf.priors.partitions",
    "DirichletProcess": "jaxmf.priors.partitions",
    "FlexiblePrior": "jaxmf.priors.flexible",
    "HDP": "jaxmf.priors.hdp",
    "PitmanYor": "jaxmf.priors.partitions",
    "BetaBinary": "jaxmf.likelihoods.families.categories",
    "DirichletMultinomial": "jaxmf.likelihoods.families.categories",
    "GammaPoisson": "jaxmf.likelihoods.families.poisson",
    "IndependentColumns": "jaxmf.likelihoods.families.columns",
    "MixedColumns": "jaxmf.likelihoods.families.mixed_columns",
    "NormalInverseGamma": "jaxmf.likelihoods.families.normal",
    "NormalInverseWishart": "jaxmf.likelihoods.families.multivariate_normal",
    "Bernoulli": "jaxmf.likelihoods.cells.bernoulli",
    "Gaussian": "jaxmf.likelihoods.cells.gaussian",
    "NegativeBinomial": "jaxmf.likelihoods.cells.negative_binomial",
    "NoisyOr": "jaxmf.likelihoods.cells.noisy_or",
    "Ordinal": "jaxmf.likelihoods.cells.ordinal",
    "Poisson": "jaxmf.likelihoods.cells.poisson",
    "Probit": "jaxmf.likelihoods.cells.probit",
    "StudentT": "jaxmf.likelihoods.cells.student_t",
    "Exact": "jaxmf.variational_bayes.zeros",
    "SharedSample": "jaxmf.variational_bayes.zeros",
    "RowSample": "jaxmf.variational_bayes.zeros",
}
# Functions that an option or a prior may be made of, by the names they have in saved runs.
FUNCTIONS = {
    **{
        f"resampling.{name}": ("jaxmf.samplers.resampling", name)
        for name in ("multinomial", "stratified", "systematic", "residual", "optimal")
    },
    "flexible.opened_tables": ("jaxmf.priors.flexible", "opened_tables"),
}
# What other packages have made known by `jaxmf.register`, by the name that it was registered under.
REGISTERED: dict[str, Callable[..., object]] = {}
# Distributions whose parameters are numbers, arrays or other distributions. Those made of
# functions, constraints or transformations are not among them.
_DISTRIBUTIONS = """
    AsymmetricLaplace AsymmetricLaplaceQuantile BernoulliLogits BernoulliProbs Beta BetaBinomial
    BetaNegativeBinomial BetaProportion BinomialLogits BinomialProbs CategoricalLogits
    CategoricalProbs Cauchy Chi2 Dagum Delta Dirichlet DirichletMultinomial DiscreteUniform
    DoublyTruncatedPowerLaw ExpandedDistribution Exponential FoldedDistribution Gamma GammaPoisson
    GaussianCopula GaussianCopulaBeta GaussianRandomWalk GaussianStateSpace GeometricLogits
    GeometricProbs Gompertz Gumbel HalfCauchy HalfNormal HurdleGamma HurdleLogNormal HurdleLogits
    HurdlePoisson HurdleProbs Independent IntervalCensoredDistribution InverseGamma InverseWishart
    InverseWishartCholesky Kumaraswamy LKJ LKJCholesky Laplace LeftCensoredDistribution
    LeftTruncatedDistribution LeftTruncatedGamma Levy LogNormal LogUniform Logistic
    LowRankMultivariateNormal LowerTruncatedPowerLaw MaskedDistribution MatrixNormal
    MixtureSameFamily MultinomialLogits MultinomialProbs MultivariateNormal MultivariateStudentT
    NegativeBinomial2 NegativeBinomialLogits NegativeBinomialProbs Normal OrderedLogistic Pareto
    Poisson ProjectedNormal RelaxedBernoulliLogits RightCensoredDistribution
    RightTruncatedDistribution RightTruncatedGamma SineBivariateVonMises SineSkewed SoftLaplace
    StudentT TruncatedPolyaGamma TwoSidedTruncatedDistribution TwoSidedTruncatedGamma Uniform Unit
    VonMises Weibull Wishart WishartCholesky ZeroInflatedLogits ZeroInflatedPoisson
    ZeroInflatedProbs ZeroSumNormal
"""
DISTRIBUTIONS = frozenset(_DISTRIBUTIONS.split())
# What the command line may write besides: functions of numpyro that make one of these.
_MAKER_NAMES = """
    Bernoulli Binomial Categorical Geometric HurdleDistribution HurdleNegativeBinomial2 Multinomial
    NegativeBinomial RelaxedBernoulli TruncatedCauchy TruncatedDistribution TruncatedGamma
    TruncatedNormal ZeroInflatedDistribution ZeroInflatedNegativeBinomial2
"""
MAKERS = frozenset(_MAKER_NAMES.split())
# Parameters that say the same in several ways: the one that is kept, and those left out.
_SAME = {"scale_tril": {"covariance_matrix", "precision_matrix", "scale_matrix", "rate_matrix"}}
_SAME["correlation_cholesky"] = {"correlation_matrix"}


def is_distribution(value: object) -> bool:
    """Whether a setting is a numpyro distribution (numpyro is not imported to find out)."""
    return type(value).__module__.partition(".")[0] == "numpyro" and hasattr(value, "log_prob")


def is_prior(value: object) -> bool:
    """Whether a setting is a prior of features, or a part of a model: `IndianBuffet(1.0)`."""
    return PRIORS.get(type(value).__name__) == type(value).__module__ or is_registered(type(value))


def is_registered(value: object) -> bool:
    """Whether a class or a function was made known by `jaxmf.register`."""
    return any(value is known for known in REGISTERED.values())


def registered_name(value: object) -> str:
    """The name that a class or a function was registered under."""
    return next(name for name, known in REGISTERED.items() if known is value)


def registered(name: object, module: object) -> Callable[..., object]:
    """The class or function that was registered under a name.

    Args:
        module: where it was defined when the file was written; for the message alone, never
            imported.
    Raises:
        NotRegisteredError: nothing is registered under this name.
    """
    if isinstance(name, str) and name in REGISTERED:
        return REGISTERED[name]
    raise not_registered(name, module)


class NotRegisteredError(ValueError):
    """A saved run names a class or function of another package that was not imported."""


class RegisteredCodeError(ValueError):
    """Code of another package raised an error while a saved run was read; it is the cause."""


def not_registered(name: object, module: object) -> NotRegisteredError:
    """Error for a file that names a class which is not registered."""
    return NotRegisteredError(
        f"{shown(name)} is of another package and is not registered in this session; import the "
        f"module that calls jaxmf.register for it, which was {shown(module)}, and load again (on "
        "the command line: jaxmf --import MODULE ...)"
    )


def makes_prior(name: str) -> bool:
    """Whether a name is that of a prior or a part of a model."""
    return name in PRIORS or isinstance(REGISTERED.get(name), type)


def prior_class(name: object) -> Callable[..., object]:
    """The class of a prior or a part of a model.

    Raises ValueError: there is none of this name.
    """
    if isinstance(name, str) and isinstance(REGISTERED.get(name), type):
        return REGISTERED[name]
    if not isinstance(name, str) or name not in PRIORS:
        raise ValueError(f"{shown(name)} is no prior or part of a model that a file may name")
    return getattr(importlib.import_module(PRIORS[name]), name)


def distribution_class(name: object, *, makers: bool = False) -> Callable[..., Any]:
    """The class of a numpyro distribution.

    Args:
        name: without its module.
        makers: whether functions that make one are meant as well, such as ``TruncatedNormal``.
    Raises:
        ValueError: there is none of this name.
    """
    known = DISTRIBUTIONS | MAKERS if makers else DISTRIBUTIONS
    if not isinstance(name, str) or name not in known:
        near = meant(name, [*DISTRIBUTIONS, *MAKERS, *PRIORS, *REGISTERED])
        raise ValueError(
            f"{shown(name)} is not a numpyro distribution made of numbers, nor a likelihood or "
            f"another part of a model.{near} Write for example Gamma(1, 1), HalfNormal(1), "
            "LogNormal(0, 1), InverseGamma(2, 1) or Poisson(). One of your own is known once its "
            "module is imported (on the command line: jaxmf --import MODULE ...)"
        )
    import numpyro.distributions as dist

    found = getattr(dist, name, None)
    if found is None:
        raise ValueError(f"{name!r} is not a distribution of the numpyro that is installed")
    return found


def function(name: object) -> Callable[..., object]:
    """The function of a name in `FUNCTIONS`.

    Raises ValueError: there is none of this name.
    """
    if not isinstance(name, str) or name not in FUNCTIONS:
        raise ValueError(
            f"{shown(name)} is no function that a saved run may name; these are "
            f"{', '.join(FUNCTIONS)}"
        )
    module, attribute = FUNCTIONS[name]
    return getattr(importlib.import_module(module), attribute)


def function_name(value: object) -> str | None:
    """The name of a function in `FUNCTIONS`; None if it has none."""
    known = _function_names().get(
        (getattr(value, "__module__", None), getattr(value, "__qualname__", None))
    )
    return known if known is not None and function(known) is value else None


@functools.cache
def _function_names() -> dict[tuple[object, object], str]:
    return {path: name for name, path in FUNCTIONS.items()}


def parameter_names(distribution: object) -> list[str]:
    """The parameters that a distribution can be made from again."""
    parameters = list(inspect.signature(type(distribution).__init__).parameters)[1:]
    left_out = set().union(*(same for kept, same in _SAME.items() if kept in parameters))
    left_out |= {"validate_args", "kwargs"}
    return [name for name in parameters if name not in left_out]
