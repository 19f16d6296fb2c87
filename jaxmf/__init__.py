"""jaxmf: Bayesian nonparametric matrix factorisation in JAX.

Describe what is believed as a model, fit it to data, ask the posterior:

    import jaxmf as mf
    post = mf.fit(mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5), X)
    post.summary()

Open `jaxmf.types` for the vocabulary, `jaxmf.api` for the verbs, `jaxmf.posterior` for what comes
back. ``jaxmf.datasets``, ``jaxmf.testing``, ``jaxmf.sklearn``, ``jaxmf.diagnostics`` and
``jaxmf.registry`` are imported when they are first named.
"""

import importlib as _importlib
from typing import Any as _Any

_NAMES = {
    "fit": "api",
    "load": "api",
    "particle_filter": "api",
    "sample": "api",
    "variational": "api",
    "Dense": "data",
    "Entries": "data",
    "SparseBinary": "data",
    "Tokens": "data",
    "LinearGaussianIBP": "models.linear_gaussian",
    "Posterior": "posterior",
    "Prediction": "posterior",
}

_MODULES = (
    "data",
    "datasets",
    "diagnostics",
    "engine",
    "models",
    "plot",
    "priors",
    "registry",
    "report",
    "samplers",
    "sklearn",
    "testing",
    "types",
)


def __getattr__(name: str) -> _Any:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("jaxmf")
    if name in _NAMES:
        return getattr(_importlib.import_module(f"jaxmf.{_NAMES[name]}"), name)
    if name in _MODULES:
        return _importlib.import_module(f"jaxmf.{name}")
    raise AttributeError(f"module 'jaxmf' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "__version__"})
