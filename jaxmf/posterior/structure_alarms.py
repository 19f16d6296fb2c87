"""Alarms about the structure that a run found: no feature, one group, a level among features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxmf.data import Dense, units
from jaxmf.likelihoods.families.normal import NormalInverseGamma
from jaxmf.model import HasGroups, HasNetwork, HasRowGroups, WarnsOfFits, settings_of
from jaxmf.posterior.data_alarms import is_normal, named, observed_values
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.records import Alarm
from jaxmf.posterior.run_alarms import MOSTLY_ONE, can_split_groups, is_about_means
from jaxmf.priors.features import IndianBuffet
from jaxmf.slots import FIRST_SLOTS

_DRAWS_SEEN = 10  # of the groups of rows
_ROWS_OF_A_GROUP = 10  # with known cells, from which on one value alone is no chance
_NEARLY_ALL_ROWS = 0.95  # share of the rows from which on a feature is rather a level
_MOST_OF_VARIANCE = 0.5  # share of the variance of groups from the location of their prior
_BLURRED = 10  # a prior sd over that of the values, from which on groups are blurred


def nothing_in_use(posterior: Draws) -> Iterator[Alarm]:
    """No feature or factor in all draws, one group in most, or no feature in those of one chain."""
    for name, values in posterior.draws.items():
        if (
            not name.startswith("num_")
            or values.ndim != 2
            or name in ("num_epochs", "num_iterations")
        ):
            continue
        what = name.removeprefix("num_").replace("_", " ")
        if not name.endswith(("features", "factors")):
            share = np.mean(values == 1)
            if share > MOSTLY_ONE:
                draws = "All draws" if share == 1 else f"{share:.0%} of the draws"
                yield Alarm(
                    "one group",
                    f"{draws} have one group ({name} is 1): no structure was found. If you "
                    f"expect some, {_how_to_find_groups(posterior)}",
                )
        elif not values.any():
            yield Alarm(
                "no features",
                f"No draw has any {what} ({name} is 0): predictions follow from the "
                f"hyperparameters alone. {_why_none(posterior)}",
            )
        elif not values.any(axis=1).all():
            chain = int(np.flatnonzero(~values.any(axis=1))[0])
            yield Alarm(
                "no features",
                f"Chain {chain} has no {what} in any draw while others do: it is stuck in an "
                "empty state. Run longer, or start from another seed",
            )


def one_of_stated_groups(posterior: Draws) -> Iterator[Alarm]:
    """All rows in one group, of a number of groups that is stated and so is not in the draws."""
    if not isinstance(posterior.model, HasNetwork):
        return
    for name, block in posterior.model.network().blocks.items():
        counts = posterior.draws.get(f"{name}_counts")
        if block.observed or block.by or block.distribution.grows or counts is None:
            continue
        if counts.shape[-1] > 1 and not np.any(np.sum(counts > 0, axis=-1) > 1):
            yield Alarm(
                "one group",
                f"One of the {counts.shape[-1]} groups has all rows in all draws: no structure was "
                f"found. If you expect some, {_how_to_find_groups(posterior, stated=True)}",
            )


def priors_far_from_values(posterior: Draws) -> Iterator[Alarm]:
    """Numbers of tokens whose normal groups get their variance from the prior, not from them.

    A group of n values has k (k + n) (location_n - location)^2 / 2n in its rate for the distance
    of its mean from that of the prior, which counts as k values. One draw is looked at.
    """
    if not isinstance(posterior.model, HasGroups):
        return
    network, tokens = posterior.model.over(posterior.data)
    for name, block in network.blocks.items():
        family: Any = block.distribution
        if type(family) is not NormalInverseGamma or f"{name}_rate" not in posterior.draws:
            continue
        values = np.asarray(tokens.values[name], float)
        draw = posterior.reference_draw()
        count, location, rate = (
            np.asarray(draw[f"{name}_{part}"], float).reshape(-1)
            for part in ("number", "location", "rate")
        )
        weight = float(family.weight)
        distance = location - float(family.location)
        between = weight * (weight + count) * distance**2 / (2 * np.maximum(count, 1))
        share = float(np.sum(count * between / rate) / max(count.sum(), 1))
        prior_sd = float(np.sqrt(family.rate / family.shape))
        if share > _MOST_OF_VARIANCE:
            trouble = (
                f"{share:.0%} of the variance of its groups is the distance of their means from "
                f"the prior's location {float(family.location):g}"
            )
        elif values.std() > 0 and prior_sd > _BLURRED * values.std():
            trouble = f"its prior has a sd of {prior_sd:.3g} within groups"
        else:
            continue
        found: Any = NormalInverseGamma().known_from(
            jnp.asarray(values), num_groups=network.groups_of_values(tokens)[name]
        )
        yield Alarm(
            "prior far away",
            f"Column {name} has mean {values.mean():.7g} and sd {values.std():.3g}, and {trouble}, "
            "so groups are not distinguished. Leave its settings out, mf.NormalInverseGamma(), "
            "which takes them from the column, or state a prior on the scale of the data: "
            f"mf.NormalInverseGamma(location={float(found.location):.7g}, weight={found.weight}, "
            f"shape={found.shape}, rate={float(found.rate):.3g})",
        )


def groups_of_one_value(posterior: Draws) -> Iterator[Alarm]:
    """Groups in which a column of few values has a single one, where groups are normal.

    The density of a group grows without bound as it gets as narrow as a value, so whole values
    become groups. Ten draws are looked at.
    """
    data, labels = posterior.data, posterior.draws.get("group_of_tokens")
    if labels is None or not isinstance(posterior.model, HasRowGroups):
        return
    if not isinstance(data, Dense) or labels.size == 0 or labels.shape[-1] != data.num_rows:
        return
    family = settings_of(posterior.model).get("family")
    graded = [int(j) for j in units.graded_columns(data) if is_normal(family, int(j))]
    values = np.asarray(data.values)[:, graded]
    known = np.ones(values.shape, bool)
    if data.observed is not None:
        known = np.asarray(data.observed)[:, graded]
    draws = labels.reshape(-1, data.num_rows)
    draws = draws[np.linspace(0, len(draws) - 1, min(_DRAWS_SEEN, len(draws))).astype(int)]
    found = []
    for index, column in enumerate(graded):
        seen, x = known[:, index], values[known[:, index], index]
        parts = [[x[rows[seen] == group] for group in np.unique(rows)] for rows in draws]
        is_one = [
            any(p.size >= _ROWS_OF_A_GROUP and np.ptp(p) == 0 for p in each) for each in parts
        ]
        if np.mean(is_one) >= 0.5:
            found.append(column)
    if found:
        yield Alarm(
            "one value",
            "In most draws a group holds one value alone of columns with few values: "
            f"{named(data, found)}. The cells of a group are taken for normal, and the density of "
            f"a group is the higher the narrower it is. {_family_of_few_values(data, graded)}",
        )


def _family_of_few_values(data: Dense, graded: list[int]) -> str:
    """Which family columns of few values should have: one of counts where most have more."""
    x = np.asarray(data.values)
    x = x if data.observed is None else x[np.asarray(data.observed)]
    if 2 * len(graded) < data.num_columns and np.all((x >= 0) & (x % 1 == 0)):
        return (
            "Say that the cells are counts: family=mf.IndependentColumns(mf.GammaPoisson()). "
            "Where the totals of rows differ several-fold, they make groups too: see mf.LDA"
        )
    return (
        "Describe such columns by probabilities of their values: DirichletMultinomial(V) of 0 to "
        "V - 1 in family=mf.MixedColumns([...]); of answers 1 to 5 pass answer - 1, and V is 5"
    )


def _how_to_find_groups(posterior: Draws, *, stated: bool = False) -> str:
    data = posterior.data
    if isinstance(data, Dense) and data.num_columns >= data.num_rows / 2:
        return (
            "use fewer columns, such as the first three principal components of the columns over "
            f"their standard deviations: {data.num_rows} rows are too few for parameters of "
            f"{data.num_columns} columns in each group"
        )
    if stated:
        return "run more chains"
    moves = not posterior.meta.options.get("split_merge") and can_split_groups(posterior)
    return f"run longer{' with split_merge=5' * moves}, or state a larger concentration"


def _why_none(posterior: Draws) -> str:
    values = observed_values(posterior.data)
    if values is not None and values.size and np.ptp(values) == 0:
        return "All observed cells are equal: there is nothing else to find"
    return "Check the scale of the data against the priors"


def known_to_model(posterior: Draws) -> Iterator[Alarm]:
    """Alarms of the model itself, such as factors that are all switched off."""
    if posterior.is_variational and isinstance(posterior.model, WarnsOfFits):
        for kind, sentence in posterior.model.alarms(posterior.reference_draw(), posterior.data):
            yield Alarm(kind, sentence)


def search_out_of_slots(posterior: Draws) -> Iterator[Alarm]:
    """As many features as the slots that a start from a search had: rows went without more."""
    options = posterior.meta.options
    if options.get("start") != "search":
        return
    capacity: Any = options.get("capacity")
    num_slots = FIRST_SLOTS if capacity is None else int(capacity)
    priors = settings_of(posterior.model)
    for name, prior in (
        ("num_features", priors["row_prior"]),
        ("num_column_features", priors["column_prior"]),
    ):
        most = int(posterior.draws[name].max())
        if isinstance(prior, IndianBuffet) and most >= num_slots:
            yield Alarm(
                "search out of slots",
                f"The search for a start had {num_slots} slots a side, and a draw has {most} "
                f"features ({name}): rows that needed more slots went without in the search, and "
                f"the chains may start far from the mode. Set capacity={2 * most}",
            )


def level_as_feature(posterior: Draws) -> Iterator[Alarm]:
    """A feature of nearly all rows, where the column means were subtracted.

    Features raise the means of their columns, so rows without any are not about zero then, and one
    more feature, of all rows, says where they are.
    """
    if not is_about_means(posterior) or "z" not in posterior.draws or not posterior.num_draws:
        return
    z = posterior.draws["z"]
    shares = z.sum(axis=-2).max(axis=-1, initial=0) / z.shape[-2]
    probability = float(np.sum(posterior.weights * (shares >= _NEARLY_ALL_ROWS)))
    if probability >= 0.5:
        yield Alarm(
            "level",
            f"In {probability:.0%} of the draws one of the features is in "
            f"{_NEARLY_ALL_ROWS:.0%} of the rows or more, and num_features counts it: it is the "
            "level of rows without features, which is not the mean of the columns. Set bias=True "
            "to keep it apart",
        )
