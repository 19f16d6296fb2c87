"""jaxmf: Bayesian nonparametric matrix factorisation in JAX.

Describe what is believed as a model, fit it to data, ask the posterior:

    import jaxmf as mf
    post = mf.fit(mf.LinearGaussianIBP(alpha=1.0, noise_scale=0.5), X)
    post.summary()

Open `jaxmf.types` for the vocabulary, `jaxmf.api` for the verbs, `jaxmf.posterior` for what comes
back. The public names stand in ``__init__.pyi``; each is imported when it is first used, so that
``import jaxmf`` and ``jaxmf --help`` do not wait for JAX.
"""

import lazy_loader as _lazy

_load, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("jaxmf")
        except metadata.PackageNotFoundError:  # a source tree that is not installed
            return "unknown"
    return _load(name)
