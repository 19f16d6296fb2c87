"""Bayesian probabilistic matrix factorisation with side information.

    U_i ~ N(mu_u + B_u' x_i, Sigma_u)             vectors of the rows (users)
    V_j ~ N(mu_v + B_v' x_j, Sigma_v)             vectors of the columns (items)
    (mu, Sigma) ~ normal-inverse-Wishart          on either side                  eq 6.22
    mu_ij = U_a' V_a + b_i + c_j + U_b' x_j + V_b' x_i + (U_c + V_c)' z_ij        Table 6.1
    r_ij = offset_j + unit_j (scale mu_ij + N(0, noise_scale^2)), or probits     eq 6.23

With `column_noise` the noise of column j is f_j times as large (see `priors/column_noise.py`).

A row's factors U_a and bias b are the U_i above, with one covariance; B, the link, lets them depend
on features, so that a row or column never seen is predicted from its own. The coefficients for
features of columns and of cells are apart from them, normal with a precision for every part of the
features (see `samplers/factors/coefficients.py`): in one covariance with the factors, as Porteous
has it, a few dozen of them make a rating a priori many times as wide as the data.

Source: Salakhutdinov & Mnih (2008), Bayesian probabilistic matrix factorization using Markov chain
Monte Carlo; Porteous (2010), section 6.2; Simm et al. (2017) for the link.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxmf.column_units import ColumnUnits
from jaxmf.data import CellFeatures, Entries, Features
from jaxmf.data.container import unchecked
from jaxmf.data.process_cells import sums
from jaxmf.likelihoods.cells.gaussian import Gaussian
from jaxmf.likelihoods.cells.noise import NormalNoise, ProbitNoise, ThresholdNoise
from jaxmf.likelihoods.cells.ordinal import Ordinal
from jaxmf.likelihoods.cells.probit import Probit
from jaxmf.likelihoods.families.multivariate_normal import NormalInverseWishart
from jaxmf.model import Model, Value
from jaxmf.models.bpmf.state import Observed, PreparedRatings
from jaxmf.priors.column_noise import least_noise
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.priors.partition_prior import PartitionPrior
from jaxmf.priors.scales import squared
from jaxmf.readable import Readable
from jaxmf.samplers.factors.coefficients import CoefficientParts
from jaxmf.samplers.factors.layout import arranged
from jaxmf.samplers.factors.link import spectra
from jaxmf.samplers.factors.shares import shared_out, shared_out_of_processes
from jaxmf.samplers.factors.vectors import Known
from jaxmf.types import STATIC, Array, ArrayLike, Draw, PyTree

WIDEST = 512  # of features with coefficients, all in all
_WIDEST_PART = 64  # with coefficients unless these are asked for
_OF_COLUMN_NOISE = ("noise_factors", "noise_spread")


@dataclass(frozen=True)
class BPMFSpec(ColumnUnits, Readable, Model[Entries]):
    """The fields of `BPMF`, and what follows from them alone."""

    num_factors: int = field(default=16, metadata=STATIC)
    row_features: Features | None = None
    column_features: Features | None = None
    cell_features: CellFeatures | None = None
    row_classes: Any = None
    column_classes: Any = None
    likelihood: Gaussian | Probit | Ordinal = Gaussian()  # noqa: RUF009
    row_prior: NormalInverseWishart | None = None
    column_prior: NormalInverseWishart | None = None
    mixture: Any = None
    bias: bool = field(default=True, metadata=STATIC)
    coefficients: bool | None = field(default=None, metadata=STATIC)
    link: bool | None = field(default=None, metadata=STATIC)
    link_precision: Hyperparameter = None
    coefficient_precision: Hyperparameter = None
    offset: Any = None
    column_unit: float | Array | None = None
    scale: Any = None
    column_noise: bool = field(default=False, metadata=STATIC)

    @property
    def is_normal(self) -> bool:
        """Whether cells are normal about their means."""
        return isinstance(self.likelihood, Gaussian)

    @property
    def cell_distribution(self) -> str:
        """The distribution of a cell given a draw, as predictions know it."""
        return "normal"

    cells_given_draw = "independent"  # where draws keep the vectors

    @property
    def judged_by_cells(self) -> bool:
        """Whether chains are judged by their predictions: groups are an answer too."""
        return self.mixture == (None, None)

    @property
    def kept_for_cells(self) -> tuple[str, ...]:
        """Names of the arrays of a draw that predictions need."""
        return ("u", "v")

    @property
    def values(self) -> tuple[float, ...] | None:
        """The values that a cell may have; None for real ones."""
        return None if isinstance(self.likelihood, Gaussian) else self.likelihood.levels

    def cell_noise(self, unit: ArrayLike = 1.0) -> Any:
        """Noise of cells in a state; `unit` is the spread of the default prior."""
        if isinstance(self.likelihood, Probit):
            return ProbitNoise(self.likelihood)
        if isinstance(self.likelihood, Ordinal):
            return ThresholdNoise(self.likelihood)
        scale = self.likelihood.noise_scale
        if scale is None:
            import numpyro.distributions as dist

            return NormalNoise(dist.InverseGamma(1.0, jnp.asarray(unit) ** 2))
        return NormalNoise(squared(scale))

    def least_factor(self, unit: ArrayLike, noise_scale: Array) -> Array:
        """The lower end of the factors of columns: see `priors/column_noise.py`."""
        return least_noise(self.cell_noise(unit).noise_variance, power=0.5) / noise_scale

    def transpose(self) -> Self:
        """The model of the transposed matrix: rows and columns exchanged."""
        swapped = {
            "row_features": self.column_features,
            "column_features": self.row_features,
            "row_classes": self.column_classes,
            "column_classes": self.row_classes,
            "row_prior": self.column_prior,
            "column_prior": self.row_prior,
            "mixture": self.mixture[::-1],
            "column_noise": False,  # what rows have of their own is passed beside the model
        }
        if self.has_column_units:  # which have no form as rows: kernels see cells in units
            swapped |= {"offset": 0.0, "column_unit": None}
        # settings are checked once; inside a transformation numbers cannot be looked at
        return unchecked(self, **swapped)

    def row_mixture(self) -> PartitionPrior | None:
        """The prior of the rows' groups, if there are any."""
        return self.mixture[0]

    def row_link(self) -> Features | None:
        """The features that the rows' vectors depend on, if any."""
        features = self.row_features
        return features if self.link and features is not None and features.width else None

    def column_link(self) -> Features | None:
        """The features that the columns' vectors depend on, if any."""
        return self.transpose().row_link()

    @property
    def core_width(self) -> int:
        """E, factors and bias: the entries of a vector that are no coefficients."""
        return self.num_factors + int(self.bias)

    def row_width(self) -> int:
        """D, entries of a row's vector."""
        return self.core_width + sum(self.row_coefficients().widths)

    def column_width(self) -> int:
        """Entries of a column's vector."""
        return self.transpose().row_width()

    def row_coefficients(self) -> CoefficientParts:
        """The parts of the coefficients of the rows: of the columns' features, and of cells'."""
        others, cells = self.column_features, self.cell_features
        chosen = parts_with_coefficients(others, self.coefficients)
        widths = [stop - start for start, stop in chosen]
        # what all rows have in common is in the biases of the columns, where these have a link
        has_mean = [not (self.bias and self.column_link() is not None)] * len(widths)
        if cells is not None and cells.width:
            widths.append(cells.width)
            has_mean.append(True)
        return CoefficientParts(tuple(widths), tuple(has_mean))

    def row_hyperprior(self) -> NormalInverseWishart:
        """The prior of mean and covariance of the rows' factors and biases."""
        prior, width = self.row_prior, self.core_width
        if prior is not None:
            return prior.with_size(width).standard()
        # means add as much again: the products of factors have variance 4 K s^2, a bias 2 s
        share = 0.5 if self.bias else 1.0
        # in units of the noise, which of such cells is nowhere else: they may be all but certain
        variance = 1.0 if self.is_normal else 4.0
        scale = np.full(width, np.sqrt(share * variance / (4 * max(self.num_factors, 1))))
        if self.bias:
            scale[-1] = variance * (0.125 if self.num_factors else 0.25)
        if self.is_normal and self.mixture == (None, None):
            # the scale is the mean of a variance whose usual value, 1 over the mean of its inverse,
            # is a third of it: with this as the mean, factors of few rows are shrunk and noise
            # takes their part. Groups are many draws from the prior, and there its mean counts
            scale *= 3
        return NormalInverseWishart(width, scale=np.diag(scale)).standard()

    def noise_draw(self, noise: PyTree) -> Draw:
        """Arrays of a draw about the noise."""
        if self.is_normal:
            return {"noise_scale": jnp.sqrt(noise)}
        return {"thresholds": noise} if noise.size else {}

    def transpose_draws(self, draws: Mapping[str, Value]) -> dict[str, Value]:
        """Draws of the transposed model: rows and columns exchanged."""
        turned = {"u": "v", "v": "u"}
        draws = {name: each for name, each in draws.items() if name not in _OF_COLUMN_NOISE}
        for name in draws:
            for prefix, other in (("row_", "column_"), ("column_", "row_")):
                if name.startswith(prefix):
                    turned[name] = other + name.removeprefix(prefix)
        return {turned.get(name, name): value for name, value in draws.items()}

    # --- data -------------------------------------------------------------------------------------

    @property
    def has_column_units(self) -> bool:
        """Whether cells are about an offset a column, or in a unit, before all else."""
        return self.column_unit is not None or np.ndim(self.offset) > 0

    def centred(self, data: Entries) -> Entries:
        """The cells about the offset of their column, in its unit; as they are without both."""
        if not self.has_column_units:
            return data
        return unchecked(data, values=self._in_column_units(data.values, data.columns))

    def _in_column_units(self, values: Array, columns: Array) -> Array:
        return self.from_data_units(values, columns) if self.has_column_units else values

    def prepare(self, data: Observed) -> PreparedRatings:
        """The observed cells as the sampler goes through them; prepared ones as they are."""
        if isinstance(data, PreparedRatings):
            return data
        sizes, has_cells = (self.row_width(), self.column_width()), self.cell_features is not None
        cells = arranged(data, sizes, has_cells=has_cells)
        cells = cells._replace(values=self.standardised(data.values, data.columns, data))
        features = jnp.zeros((cells.values.shape[0], 0), cells.values.dtype)
        if self.cell_features is not None:
            features = self.cell_features.take(data.rows, data.columns)
        known = self.known(cells.num_rows, cells.num_columns, features)
        linked = self.row_link(), self.column_link()
        found = [() if each is None else spectra(each) for each in linked]
        return PreparedRatings(cells, *self._taken_out(data), known, *found)

    def shared_out(self, data: Entries, num_devices: int) -> PreparedRatings:
        """The observed cells as the sampler goes through them on several devices.

        Args:
          num_devices: over which rows and columns are spread.
        """
        sizes, standardised = (self.row_width(), self.column_width()), self.standardised
        if data.elsewhere is not None:
            cells = shared_out_of_processes(data, sizes, standardised, num_devices)
        else:
            values = standardised(data.values, data.columns, data)
            cells = shared_out(data, sizes, values=values, num_devices=num_devices)
        known = self.known(*data.shape, jnp.zeros((0, 0), cells.values.dtype))
        return PreparedRatings(cells, *self._taken_out(data), known)

    def _taken_out(self, data: Entries) -> tuple[Array, Array, Array]:
        """Centre and unit of a chain's cells, and the sum of the logs of the columns' units."""
        return self.centre(data), self.unit(data), jnp.asarray(self.log_unit(data))

    def known(self, num_rows: int, num_columns: int, cells: Array) -> Known:
        """The features of all rows and columns, as dense arrays, beside those of some cells."""
        rows = self._dense(self.row_features, num_rows, cells.dtype)
        return Known(rows, self._dense(self.column_features, num_columns, cells.dtype), cells)

    def _dense(self, features: Features | None, num_rows: int, dtype: DTypeLike) -> Array:
        chosen = parts_with_coefficients(features, self.coefficients)
        if features is None or not chosen:
            return jnp.zeros((num_rows, 0), dtype)
        return features.take_columns([index for part in chosen for index in range(*part)])

    def centre(self, data: Observed) -> Array:
        """Number subtracted from the cells, in units of columns: () float."""
        if isinstance(data, PreparedRatings):
            return data.centre
        if not self.is_normal or self.has_column_units:
            return jnp.zeros((), jnp.result_type(float))
        return mean_of(data.values) if self.offset is None else jnp.asarray(self.offset)

    def unit(self, data: Observed) -> Array:
        """Divisor of the cells without their offset, in units of columns: () float.

        Of constant cells their size: nothing else is known of how wide such cells may be.
        """
        if isinstance(data, PreparedRatings):
            return data.unit
        dtype = jnp.result_type(float) if data.spans_processes else data.values.dtype
        if not self.is_normal:
            return jnp.ones((), dtype)
        if self.scale is not None:
            return jnp.asarray(self.scale, dtype)
        values = self._in_column_units(data.values, data.columns)
        mean = mean_of(values)
        return unit_of(mean, jnp.sqrt(jnp.mean((values - mean) ** 2))).astype(dtype)

    def standardised(self, values: Array, columns: Array, data: Observed) -> Array:
        """Values (T,) of cells of these columns without the offset, in the units of the data."""
        values = self._in_column_units(values, columns)
        return (values - self.centre(data).astype(values.dtype)) / self.unit(data)


def parts_with_coefficients(
    features: Features | None, coefficients: bool | None
) -> list[tuple[int, int]]:
    """First and last column (not included) of the parts of features that have coefficients."""
    if features is None or coefficients is False:
        return []
    ends = [0, *itertools.accumulate(features.parts)]
    most = _WIDEST_PART if coefficients is None else WIDEST
    chosen = [part for part in itertools.pairwise(ends) if part[1] - part[0] <= most]
    total = sum(stop - start for start, stop in chosen)
    return chosen if total <= WIDEST else []


def mean_of(values: Array) -> Array:
    """The mean () of values (T,), far from zero too: a sum of large numbers costs digits."""
    return values[0] + jnp.mean(values - values[0])


def unit_of(mean: Array, spread: Array) -> Array:
    """Divisor of values of this mean and standard deviation; see `BPMF.unit`."""
    size = jnp.where(mean == 0, 1, jnp.abs(mean))
    rounding = 4 * jnp.finfo(mean.dtype).eps * jnp.abs(mean)
    return jnp.where(spread > rounding, spread, size)


def moments_of_processes(data: Entries) -> tuple[float, float]:
    """Mean and standard deviation of the values of all processes, which call it together."""
    assert data.elsewhere is not None
    assert data.elsewhere.cells is not None
    values = data.elsewhere.cells.arrays[2].astype(float)
    near = sums([float(values[0])])[0] / jax.process_count()
    mean = near + sums([float(np.sum(values - near))])[0] / data.num_entries
    squares = sums([float(np.sum((values - mean) ** 2))])[0]
    return float(mean), float(np.sqrt(squares / data.num_entries))
