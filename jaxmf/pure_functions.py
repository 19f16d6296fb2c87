"""Models as pure functions that users may jit, vmap, scan and differentiate.

`kernel` is the Markov chain of `jaxmf.sample`, `free_energy` the bound that `jaxmf.variational`
minimises. Both check the model and the data once and are then plain JAX.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxmf import registry
from jaxmf.arguments import check_word, checks_call
from jaxmf.data import SparseBinary
from jaxmf.engine import ChainKernel, chain_kernel
from jaxmf.model import Model
from jaxmf.models.sparse_binary_mf import SparseBinaryMF
from jaxmf.preparation import prepare_run, with_device_options
from jaxmf.programs import full_products, refuse_in_fork
from jaxmf.types import STATIC, Array, Key
from jaxmf.variational_bayes.free_energy import free_energy as bound
from jaxmf.variational_bayes.pieces import Layout, num_lines
from jaxmf.variational_bayes.start import start_parameters
from jaxmf.variational_bayes.state import as_draw, from_draw, prepare
from jaxmf.variational_bayes.zeros import All

if TYPE_CHECKING:
    from jaxmf.results import Posterior

Named = dict[str, Array]

_HYPERPARAMETERS = ("prior_mean", "prior_scale", "noise_scale")


@checks_call
def kernel(model: Model, data: object, **options: object) -> ChainKernel:
    """The Markov chain of `jaxmf.sample` as pure functions ``init(key)`` and ``step(key, state)``.

    For a loop of your own: jit, vmap and scan them as any function of arrays. `jaxmf.sample` is the
    same chain with a host loop around it, which grows the state, writes checkpoints, and refuses
    what is not finite; none of that is done here. It takes key c = ``fold_in(seed, c)`` for chain
    c, starts with ``fold_in(c, 2**32 - 1)``, takes step s with ``fold_in(fold_in(c, s), 0)`` and
    reads its draw with ``fold_in(fold_in(c, s), 1)``.

    Args:
        model: a model that has the method "sample".
        data: a container, or what one can be made of.
        **options: options of the model's sampler, such as `capacity`.
    Returns:
        A `jaxmf.engine.ChainKernel`: ``init, step = kernel(model, data)``. ``read(key, state)`` of
        it is the draw that `jaxmf.sample` would keep, and `model` of it the model with what was
        left open taken from the data: densities are ``kernel.model.log_joint(state.state, data)``,
        as those of `model` itself know nothing of the data.
    Raises:
        ValueError: the model lacks the method, or does not have such data.
        TypeError: an unknown option; the message names the right ones.
        RuntimeError: in a fork of a process that has run or loaded something.
    Example:
        >>> import jax, numpy as np, jaxmf as mf
        >>> X = np.random.default_rng(0).normal(size=(6, 3))
        >>> init, step = mf.kernel(mf.LinearGaussianIBP(alpha=1.0), X)
        >>> start = jax.eval_shape(init, jax.random.key(0))
        >>> jax.eval_shape(step, jax.random.key(1), start).num_steps
        ShapeDtypeStruct(shape=(), dtype=int32)
    """
    refuse_in_fork()
    with jax.ensure_compile_time_eval():  # data have numbers inside of jax.jit too
        model, container, build, options = prepare_run(model, data, "sample", options, kernel, None)
        algorithm = build(**with_device_options(model, options, container, None))
        registry.check_draws(model, algorithm, container)
        return chain_kernel(algorithm, container, model)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False, repr=False)  # hashed by identity, as jax.jit does with functions
class FreeEnergy:
    """The free energy as a function: ``energy(parameters, hyperparameters)``, a () float.

    Both are dictionaries with the names that draws of the fit have. Made by `jaxmf.free_energy`.

    Args:
        model: the description.
        layout: the data as sums go through it.
        parameter_names: what it takes first.
        hyperparameter_names: what it takes second.
    """

    model: SparseBinaryMF
    layout: Layout
    parameter_names: tuple[str, ...] = field(metadata=STATIC)
    hyperparameter_names: tuple[str, ...] = field(metadata=STATIC)

    def __repr__(self) -> str:
        size = f"{num_lines(self.layout.rows)} x {num_lines(self.layout.columns)}"
        return f"FreeEnergy({self.model!r}, {size})"

    @full_products
    def __call__(
        self, parameters: Mapping[str, Array], hyperparameters: Mapping[str, Array]
    ) -> Array:
        """The free energy, an upper bound of -log p(X), over all cells: () float.

        Args:
            parameters: means and variances of the approximate posterior Q: "row_mean" and
                "row_variance" (N, K), "column_mean" and "column_variance" (D, K), "row_bias",
                "row_bias_variance" (N,), "column_bias", "column_bias_variance" (D,), "intercept",
                "intercept_variance" (). Variances are positive.
            hyperparameters: "row_prior_mean", "row_prior_scale", "column_prior_mean",
                "column_prior_scale" (K,), "row_bias_prior_scale", "column_bias_prior_scale",
                "intercept_prior_scale", "noise_scale" (). Scales are positive standard deviations.
        Raises:
            ValueError: a name is missing or unknown.
        """
        _check_names("parameters", parameters, self.parameter_names)
        _check_names("hyperparameters", hyperparameters, self.hyperparameter_names)
        return bound(
            from_draw(dict(parameters) | dict(hyperparameters)),
            self.layout,
            zeros=All(),
            likelihood=self.model.likelihood,
        )

    def start(self, key: Key, start: str = "svd") -> tuple[Named, Named]:
        """Parameters and hyperparameters that an ascent starts from.

        Args:
            key: typed PRNG key.
            start: as in `SparseBinaryMF.ascent`: "svd", the leading singular vectors, which are
                the same for all keys up to their accuracy; or "random", another for each key.
        Raises:
            ValueError: another `start`.
        """
        check_word("start", start, ("svd", "random"))
        first = start_parameters(key, self.layout, settings=self.model, start=start)
        return self._split(as_draw(first))

    def at(self, posterior: Posterior) -> tuple[Named, Named]:
        """Parameters and hyperparameters of a fit by `jaxmf.variational` of such a model.

        Raises:
            TypeError: no posterior of a `SparseBinaryMF`.
            ValueError: one of other sizes.
        """
        if not isinstance(getattr(posterior, "model", None), SparseBinaryMF):
            raise TypeError(
                "at: posterior must be what mf.variational(SparseBinaryMF(...), data) returns, got "
                f"{type(posterior).__name__}"
            )
        draw = posterior.reference_draw()
        for known in jax.eval_shape(self.start, jax.random.key(0)):
            for name, value in known.items():
                found = np.shape(draw[name]) if name in draw else None
                if found != value.shape:
                    raise ValueError(
                        f"at: {name} of the fit has shape {found}, of this free energy "
                        f"{value.shape}; fit the same model to the same data"
                    )
        return self._split(draw)

    def _split(self, draw: Mapping[str, Array | np.ndarray]) -> tuple[Named, Named]:
        """The parameters and the hyperparameters of a draw; what is neither is left out."""
        return (
            {name: jax.numpy.asarray(draw[name]) for name in self.parameter_names},
            {name: jax.numpy.asarray(draw[name]) for name in self.hyperparameter_names},
        )


def _check_names(argument: str, values: Mapping[str, Array], known: tuple[str, ...]) -> None:
    for word, names in (("lacks", set(known) - set(values)), ("has", set(values) - set(known))):
        if names:
            raise ValueError(
                f"{argument} {word} {', '.join(map(repr, sorted(names)))}; it takes "
                f"{', '.join(map(repr, known))}"
            )


@checks_call
def free_energy(model: SparseBinaryMF, data: object) -> FreeEnergy:
    """The free energy of `SparseBinaryMF` as a pure function of parameters and hyperparameters.

    An upper bound of -log p(X), which `jaxmf.variational` minimises. It goes through all zeros,
    whatever `model.zeros` is: in the time of the ones for Gaussian cells, by blocks of N D cells
    for others. Differentiable in everything, hyperparameters too.

    Args:
        model: `SparseBinaryMF`.
        data: `SparseBinary`, or what one can be made of.
    Returns:
        A `FreeEnergy`: call it with parameters and hyperparameters, as its methods `start(key)` and
        `at(posterior)` return them. Names that end in "variance" or "scale" are positive and are
        not checked: optimise their logarithms. What `mf.variational` finds is a `Posterior`;
        parameters of a loop of your own are not made into one.
    Raises:
        TypeError: another model.
        ValueError: data that the model does not have.
    Example:
        >>> import jax, numpy as np, jaxmf as mf
        >>> X = np.kron(np.eye(2), np.ones((4, 3)))
        >>> energy = mf.free_energy(mf.SparseBinaryMF(1, likelihood=mf.Gaussian()), X)
        >>> gradient = jax.jit(jax.grad(energy, argnums=1))(*energy.start(jax.random.key(0)))
        >>> gradient["column_prior_scale"].shape
        (1,)

        A loop of your own, with optax:

        >>> import optax
        >>> start, hyperparameters = energy.start(jax.random.key(0))
        >>> is_positive = lambda path: path[0].key.endswith("variance")
        >>> def change(fn, parameters):
        ...     return jax.tree_util.tree_map_with_path(
        ...         lambda path, x: fn(x) if is_positive(path) else x, parameters
        ...     )
        >>> loss = lambda free: energy(change(jax.numpy.exp, free), hyperparameters)
        >>> optimizer = optax.adam(0.05)
        >>> def step(carry, _):
        ...     free, memory = carry
        ...     value, slope = jax.value_and_grad(loss)(free)
        ...     updates, memory = optimizer.update(slope, memory)
        ...     return (optax.apply_updates(free, updates), memory), value
        >>> free = change(jax.numpy.log, start)
        >>> (free, _), path = jax.lax.scan(step, (free, optimizer.init(free)), length=100)
        >>> bool(path[-1] < path[0])
        True
        >>> bool((change(jax.numpy.exp, free)["row_variance"] > 0).all())
        True
    """
    if not isinstance(model, SparseBinaryMF):
        raise TypeError(f"free_energy: {type(model).__name__} has none; SparseBinaryMF has")
    with jax.ensure_compile_time_eval():  # as in `kernel`
        matched, container, _, _ = prepare_run(model, data, "variational", {}, free_energy, None)
        assert isinstance(matched, SparseBinaryMF)
        assert isinstance(container, SparseBinary)
        layout = prepare(container, num_validation=0, batch_size=None, seed=0).layout

    def start(key: Key) -> Named:
        return as_draw(start_parameters(key, layout, settings=matched, start="svd"))

    names = sorted(jax.eval_shape(start, jax.random.key(0)))
    hyperparameters = tuple(name for name in names if name.endswith(_HYPERPARAMETERS))
    parameters = tuple(name for name in names if name not in hyperparameters)
    return FreeEnergy(matched, layout, parameters, hyperparameters)
