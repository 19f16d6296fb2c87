"""Networks of mixture blocks by brute force: plain sums and products, nothing of the library's.

Every formula here is another one than the library uses: joint densities of all values of a group
instead of predictive ones, sums over table counts instead of auxiliary variables.
"""

import itertools
import math
from collections import defaultdict

import numpy as np
from scipy import stats
from scipy.special import gammaln, multigammaln

import jaxmf as mf


def log_of_sequence(labels, concentration):
    """Items one after the other, each with probability (n_k + a_k) / (n + sum a)."""
    weights = np.array(concentration, float)
    total = 0.0
    for label in labels:
        total += math.log(weights[label] / weights.sum())
        weights[label] += 1
    return total


def log_of_restaurant(labels, concentration, discount=0.0):
    """Customers one after the other: n_k - d for a table, alpha + d K for a new one."""
    counts, total = defaultdict(int), 0.0
    for num_seated, label in enumerate(labels):
        weight = counts[label] - discount
        if not counts[label]:
            weight = concentration + discount * sum(n > 0 for n in counts.values())
        total += math.log(weight / (num_seated + concentration))
        counts[label] += 1
    return total


def stirling(n, m):
    """Unsigned Stirling numbers of the first kind."""
    if n == 0 or m == 0:
        return float(n == m)
    return stirling(n - 1, m - 1) + (n - 1) * stirling(n - 1, m)


def log_of_franchise(batches, labels, concentration, base_concentration):
    """A partition shared by batches, the weights summed out: a sum over numbers of tables."""
    cells = defaultdict(int)
    for pair in zip(batches, labels, strict=True):
        cells[pair] += 1
    groups = sorted({group for _, group in cells})
    total = 0.0
    for tables in itertools.product(
        *(range(1, num_customers + 1) for num_customers in cells.values())
    ):
        of_group = defaultdict(int)
        term = 1.0
        for (pair, num_customers), opened in zip(cells.items(), tables, strict=True):
            term *= stirling(num_customers, opened) * concentration**opened
            of_group[pair[1]] += opened
        for group in groups:
            term *= base_concentration * math.gamma(of_group[group])
        gamma = base_concentration
        total += term * math.exp(math.lgamma(gamma) - math.lgamma(gamma + sum(tables)))
    for batch in sorted(set(batches)):
        size = sum(num_customers for pair, num_customers in cells.items() if pair[0] == batch)
        total *= math.exp(math.lgamma(concentration) - math.lgamma(concentration + size))
    return math.log(total)


def log_of_normals(values, family):
    """All values of a group at once: a multivariate t with a common correlation."""
    size = len(values)
    shape = family.rate / family.shape * (np.eye(size) + np.ones((size, size)) / family.weight)
    location = np.full(size, family.location)
    return float(stats.multivariate_t(location, shape, df=2 * family.shape).logpdf(values))


def log_of_vectors(values, family):
    """All vectors of a group at once: a matrix t (Gupta & Nagar 2000, definition 4.2.1)."""
    values = np.asarray(values, float)
    count, size = values.shape
    scale, location = (
        np.asarray(family.scale, float),
        np.asarray(family.location, float),
    )
    between = np.eye(count) + np.ones((count, count)) / family.weight
    apart = values - location
    after = scale + apart.T @ np.linalg.inv(between) @ apart
    result = multigammaln((family.degrees + count) / 2, size) - multigammaln(
        family.degrees / 2, size
    )
    result -= count * size / 2 * np.log(np.pi) + size / 2 * np.linalg.slogdet(between)[1]
    result += family.degrees / 2 * np.linalg.slogdet(scale)[1]
    return float(result - (family.degrees + count) / 2 * np.linalg.slogdet(after)[1])


def log_of_counts(values, family):
    """The total is negative binomial, and shared out evenly given it."""
    count, total = len(values), int(sum(values))
    chance = family.rate / (family.rate + count)
    result = stats.nbinom(family.shape, chance).logpmf(total)
    return float(result + stats.multinomial(total, np.full(count, 1 / count)).logpmf(values))


def log_of_columns(values, family):
    """Each column by itself, from the cells that are there."""
    table = np.asarray(values, float).reshape(len(values), -1)
    shape, total = table.shape[1:], 0.0
    locations, scales = (
        np.broadcast_to(np.asarray(unit, float), shape) for unit in (family.location, family.scale)
    )
    for cells, location, scale in zip(table.T, locations, scales, strict=True):
        known = (cells[~np.isnan(cells)] - location) / scale
        if not known.size:
            continue
        if not family.family.is_log:
            known = known.astype(int)
        total += log_of_group(family.family, known) - known.size * math.log(scale)
    return total


def log_of_group(family, values):
    """log p(values of a group), parameters integrated out."""
    if isinstance(family, mf.DirichletMultinomial):
        concentration = np.broadcast_to(np.asarray(family.concentration, float), (family.size,))
        return log_of_sequence(values, concentration)
    if isinstance(family, mf.BetaBinary):
        ones = int(sum(values))
        before = gammaln(family.a) + gammaln(family.b) - gammaln(family.a + family.b)
        a, b = family.a + ones, family.b + len(values) - ones
        return float(gammaln(a) + gammaln(b) - gammaln(a + b) - before)
    if isinstance(family, mf.NormalInverseGamma):
        return log_of_normals(values, family)
    if isinstance(family, mf.NormalInverseWishart):
        return log_of_vectors(values, family)
    if isinstance(family, mf.IndependentColumns):
        return log_of_columns(values, family)
    if isinstance(family, mf.MixedColumns):
        columns = np.asarray(values, float).T
        each = zip(columns, family.families, strict=True)
        return sum(log_of_columns(cells, mf.IndependentColumns(one)) for cells, one in each)
    return log_of_counts(values, family)


def log_of_partition(prior, batches, labels):
    """log p(groups of all items), of fixed hyperparameters."""
    if isinstance(prior, mf.HDP):
        return log_of_franchise(batches, labels, prior.concentration, prior.base_concentration)
    total = 0.0
    for batch in sorted(set(batches)):
        members = [label for at, label in zip(batches, labels, strict=True) if at == batch]
        if isinstance(prior, mf.Dirichlet):
            concentration = np.asarray(prior.concentration, float)
            total += log_of_sequence(
                members, np.broadcast_to(concentration, (prior.num_components,))
            )
        else:
            total += log_of_restaurant(
                members, prior.concentration, getattr(prior, "discount", 0.0)
            )
    return total


def parts_of(block, variables, num_tokens):
    """The part of every token, as anything hashable."""
    if block.rho is not None:
        return [
            int(block.rho(*(np.asarray(variables[parent][token]) for parent in block.by)))
            for token in range(num_tokens)
        ]
    return [
        tuple(int(variables[parent][token]) for parent in block.by) for token in range(num_tokens)
    ]


def log_joint(network, variables):
    """log p(indicators, observed values): the weights of an HDP summed out.

    Args:
        network: of fixed hyperparameters.
        variables: name -> (T,) or (T, D) values of columns, observed blocks and indicators.
    """
    num_tokens = len(next(iter(variables.values())))
    total = 0.0
    for name, block in network.blocks.items():
        parts = parts_of(block, variables, num_tokens)
        values = [np.asarray(variables[name])[token].tolist() for token in range(num_tokens)]
        if not block.observed:
            total += log_of_partition(block.distribution, parts, values)
            continue
        for part in sorted(set(parts)):
            of_part = [value for value, at in zip(values, parts, strict=True) if at == part]
            total += log_of_group(block.distribution, of_part)
    return total
