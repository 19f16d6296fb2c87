"""Market baskets made like those of the IBM Quest generator.

Items are bought in sets that go together. A table of such itemsets is drawn first: sizes, the
items, a weight for how often an itemset is bought, and a corruption level for how much of it is
left out when it is. Then transactions are filled from the table (:func:`quest_baskets`), or the
transactions of customers from a second table, of sequences of itemsets (:func:`quest_customers`).

Written from the published descriptions: Agrawal & Srikant (1994), Fast algorithms for mining
association rules, section 2.4.3; Agrawal & Srikant (1995), Mining sequential patterns, section 4.1.
Where these leave something open T10I4D100K decides, which is an output of that generator:

- items are not equally often put into itemsets but with exponential weights: 130 of its 1,000 items
  never occur, where equal chances leave about 10;
- correlation and corruption have a mean of 1/4, where the text has 1/2;
- a transaction takes its first itemset whatever the size, and an itemset keeps at least one item:
  none of its baskets is empty.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from jaxmf.data import SparseBinary
from jaxmf.types import Seed

_CORRUPTION_SD = 0.1**0.5


class Patterns(NamedTuple):
    """A table of L patterns: sets of items, or sequences of itemsets.

    Attributes:
        members: L arrays of positions, of items in the data or of itemsets in their table.
        weights: (L,) float, the probability of each pattern, summing to one.
        corruption: (L,) float, the probability that one more member is left out.
    """

    members: list[np.ndarray]
    weights: np.ndarray
    corruption: np.ndarray


class QuestBaskets(NamedTuple):
    """Transactions with the truth behind them.

    Attributes:
        data: T transactions by D items.
        itemsets: what goes together.
    """

    data: SparseBinary
    itemsets: Patterns


class QuestCustomers(NamedTuple):
    """Transactions of customers with the truth behind them.

    Attributes:
        data: T transactions by D items.
        customer: (T,) int, whose transaction it is; rising.
        itemsets: what goes together in a transaction.
        sequences: itemsets that a customer buys one after the other, as positions in `itemsets`.
    """

    data: SparseBinary
    customer: np.ndarray
    itemsets: Patterns
    sequences: Patterns

    def counts(self) -> np.ndarray:
        """(N, D) int: in how many of his transactions a customer has bought an item."""
        table = np.zeros((self.customer[-1] + 1, self.data.num_columns), int)
        np.add.at(table, (self.customer[np.asarray(self.data.rows)], self.data.columns), 1)
        return table


def quest_baskets(
    seed: Seed,
    *,
    num_transactions: int = 100_000,
    num_items: int = 1000,
    mean_size: float = 10.0,
    num_itemsets: int = 2000,
    mean_itemset_size: float = 4.0,
    correlation: float = 0.25,
    corruption: float = 0.25,
    equal_items: bool = False,
) -> QuestBaskets:
    """Transactions of the Quest generator; by default like T10I4D100K.

    The size of a transaction is Poisson, at least 1. Itemsets are drawn by their weights and put
    in, each without some of its items: one more is left out, down to one, as long as a coin with
    its corruption level says so. An itemset that does not fit is put in anyway in half of the cases
    (always, where nothing is in yet) and kept for the next transaction in the others; either ends
    the transaction.

    The size of an itemset is Poisson, at least 1. An exponentially distributed share of it comes
    from the itemset before, the other items are drawn from all. Weights are exponential with mean
    1, divided by their sum; corruption levels normal with variance 0.1, cut to [0, 1].

    Args:
        seed: whole number or typed key.
        num_transactions: T.
        num_items: D.
        mean_size: of a transaction, before what does not fit.
        num_itemsets: L.
        mean_itemset_size: of an itemset.
        correlation: mean share of an itemset that comes from the one before.
        corruption: mean of the corruption levels before they are cut; at 0 nothing is left out.
        equal_items: whether all items are as likely to be put into an itemset; otherwise their
            weights are exponential.

    Returns:
        The transactions, and the table of itemsets.

    Raises:
        ValueError: sizes below 1, numbers out of range.

    Example:
        >>> made = quest_baskets(0, num_transactions=200, num_items=50, num_itemsets=20)
        >>> made.data.shape, len(made.itemsets.members)
        ((200, 50), 20)
    """
    _check_sizes(num_transactions=num_transactions, num_items=num_items, num_itemsets=num_itemsets)
    _check_means(mean_size=mean_size, mean_itemset_size=mean_itemset_size)
    _check_shares(correlation=correlation, corruption=corruption)
    generator = _generator(seed)
    chances = _chances(generator, num_items, equal=equal_items)
    itemsets = _patterns(
        generator, chances, num_itemsets, mean_itemset_size, (correlation, corruption)
    )
    sizes = _sizes(generator, mean_size, num_transactions)
    anyway = generator.random(num_transactions) < 0.5
    rows, columns = _filled(generator, itemsets, sizes, anyway)
    return QuestBaskets(_matrix(rows, columns, (num_transactions, num_items)), itemsets)


def quest_customers(
    seed: Seed,
    *,
    num_customers: int = 1000,
    mean_transactions: float = 100.0,
    num_items: int = 1000,
    mean_size: float = 4.0,
    num_sequences: int = 50,
    mean_sequence_length: float = 4.0,
    num_itemsets: int = 50,
    mean_itemset_size: float = 4.0,
    correlation: float = 0.25,
    corruption: float = 0.25,
    equal_items: bool = False,
    keep_sequence: bool = False,
) -> QuestCustomers:
    """Transactions of customers; by default as in the market baskets of Porteous (2010), 6.1.10.

    (The thesis has 10,000 customers. It does not say how large its itemsets are; those that it
    prints have four to eight items.) Numbers of transactions and their sizes are Poisson, at least
    1. A customer is given sequences by their weights until his transactions are full: a sequence
    loses itemsets by its corruption level, and an itemset items by its own; the itemsets go into
    different transactions that have room, drawn at random, in order. A transaction has room until
    it is full or an itemset did not fit, which it takes anyway in half of the cases. A sequence
    with more itemsets than transactions have room is kept for the next customer in half of the
    cases; in the others as much as fits is bought. Either way the customer is done.

    Args:
        seed: whole number or typed key.
        num_customers: N.
        mean_transactions: of a customer.
        num_items: D.
        mean_size: of a transaction, before what does not fit.
        num_sequences, mean_sequence_length: of the table of sequences of itemsets.
        num_itemsets, mean_itemset_size: of the table of itemsets.
        correlation: mean share of an itemset, or sequence, that comes from the one before.
        corruption: as in `quest_baskets`, of both tables.
        equal_items: as in `quest_baskets`.
        keep_sequence: whether a customer is given one sequence, again and again, instead of a new
            one each time; customers then come in groups, one a sequence.

    Returns:
        The transactions with their customers, and both tables.

    Raises:
        ValueError: sizes below 1, numbers out of range.

    Example:
        >>> made = quest_customers(0, num_customers=20, mean_transactions=5)
        >>> made.counts().shape
        (20, 1000)
    """
    _check_sizes(
        num_customers=num_customers,
        num_items=num_items,
        num_sequences=num_sequences,
        num_itemsets=num_itemsets,
    )
    _check_means(
        mean_transactions=mean_transactions,
        mean_size=mean_size,
        mean_sequence_length=mean_sequence_length,
        mean_itemset_size=mean_itemset_size,
    )
    _check_shares(correlation=correlation, corruption=corruption)
    generator = _generator(seed)
    levels = (correlation, corruption)
    chances = _chances(generator, num_items, equal=equal_items)
    itemsets = _patterns(generator, chances, num_itemsets, mean_itemset_size, levels)
    sequences = _patterns(generator, itemsets.weights, num_sequences, mean_sequence_length, levels)
    numbers = _sizes(generator, mean_transactions, num_customers)
    sizes = _sizes(generator, mean_size, int(numbers.sum()))
    rows, columns = _bought(
        generator, (itemsets, sequences), numbers, sizes, keep_sequence=keep_sequence
    )
    data = _matrix(rows, columns, (sizes.size, num_items))
    return QuestCustomers(data, np.repeat(np.arange(num_customers), numbers), itemsets, sequences)


# --- tables --------------------------------------------------------------------------------------


def _generator(seed: Seed) -> np.random.Generator:
    if not isinstance(seed, (int, np.integer)):
        seed = np.asarray(jax.random.key_data(seed)).tolist()
    return np.random.default_rng(seed)


def _sizes(generator: np.random.Generator, mean: float, number: int) -> np.ndarray:
    return np.maximum(generator.poisson(mean, number), 1)


def _chances(generator: np.random.Generator, number: int, *, equal: bool) -> np.ndarray:
    weights = np.ones(number) if equal else generator.exponential(size=number)
    return weights / weights.sum()


def _patterns(
    generator: np.random.Generator,
    chances: np.ndarray,
    number: int,
    mean_size: float,
    levels: tuple[float, float],
) -> Patterns:
    """A table of patterns of members with these chances; levels: correlation and corruption."""
    sizes = np.minimum(_sizes(generator, mean_size, number), chances.size)
    shares = np.minimum(levels[0] * generator.exponential(size=number), 1)
    members: list[np.ndarray] = []
    for size, share in zip(sizes, shares, strict=True):
        # the keys of a dictionary: in order, each once
        own: dict[int, None] = {}
        if members:
            taken = min(round(share * size), members[-1].size)
            own = dict.fromkeys(generator.permutation(members[-1])[:taken].tolist())
        while len(own) < size:
            own |= dict.fromkeys(generator.choice(chances.size, size, p=chances).tolist())
        members.append(np.array(list(own)[:size]))
    corruption = np.clip(levels[1] + _CORRUPTION_SD * generator.normal(size=number), 0, 1)
    if levels[1] == 0:
        corruption = np.zeros(number)
    return Patterns(members, _chances(generator, number, equal=False), corruption)


def _drawn(generator: np.random.Generator, table: Patterns, number: int) -> np.ndarray:
    """Patterns drawn by their weights: (number,) int."""
    return generator.choice(table.weights.size, number, p=table.weights)


def _kept(generator: np.random.Generator, table: Patterns, chosen: np.ndarray) -> np.ndarray:
    """How many members are left of chosen patterns, at least one: (M,) int."""
    sizes = np.array([one.size for one in table.members])[chosen]
    uniforms = generator.random(chosen.size)
    # a geometric number of coins that fall on "leave out"
    with np.errstate(divide="ignore"):
        lost = np.log(uniforms) / np.log(np.minimum(table.corruption[chosen], 1 - 1e-9))
    return np.maximum(sizes - np.minimum(np.floor(lost), sizes), 1).astype(int)


def _left(
    generator: np.random.Generator, table: Patterns, chosen: np.ndarray, kept: np.ndarray
) -> np.ndarray:
    """The members that are left, a random choice of each pattern's, in their order, end to end."""
    sizes = np.array([one.size for one in table.members])
    padded = np.zeros((sizes.size, sizes.max()), int)
    for place, one in enumerate(table.members):
        padded[place, : one.size] = one
    keys = generator.random((chosen.size, padded.shape[1]))
    keys[np.arange(padded.shape[1]) >= sizes[chosen][:, None]] = 2
    ranks = np.argsort(np.argsort(keys, axis=1), axis=1)
    return padded[chosen][ranks < kept[:, None]]


# --- transactions --------------------------------------------------------------------------------


def _filled(
    generator: np.random.Generator, itemsets: Patterns, sizes: np.ndarray, anyway: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the ones of transactions; what stands there twice is given twice."""
    chosen = np.zeros(0, int)
    kept: list[int] = []
    owners: list[int] = []
    next_one = 0
    for place, (size, put) in enumerate(zip(sizes.tolist(), anyway.tolist(), strict=True)):
        filled = 0
        while filled < size:
            if next_one == len(kept):
                more = _drawn(generator, itemsets, max(1000, sizes.size))
                chosen = np.concatenate([chosen, more])
                kept += _kept(generator, itemsets, more).tolist()
            fits = filled + kept[next_one] <= size
            if fits or put or filled == 0:
                owners.append(place)
                filled += kept[next_one]
                next_one += 1
            if not fits:
                break
    chosen, left = chosen[:next_one], np.array(kept[:next_one])
    return np.repeat(owners, left), _left(generator, itemsets, chosen, left)


def _bought(
    generator: np.random.Generator,
    tables: tuple[Patterns, Patterns],
    numbers: np.ndarray,
    sizes: np.ndarray,
    *,
    keep_sequence: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The same of the transactions of customers, of which there are `numbers` each."""
    room, anyway = sizes.tolist(), (generator.random(sizes.size) < 0.5).tolist()
    put_back = (generator.random(numbers.size) < 0.5).tolist()
    filled = [0] * sizes.size
    placed: list[tuple[int, int, int]] = []  # transaction, itemset, how many items are left of it
    ends = np.cumsum(numbers)
    starts = ends - numbers
    hand: list[tuple[int, int, float]] | None = None
    chosen = _drawn(generator, tables[1], numbers.size) if keep_sequence else None
    stream = _sequences(generator, tables, 1 + sizes.size // 8)
    for customer, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if chosen is not None:
            hand, number = None, 2 * int(numbers[customer])
            stream = _sequences(generator, tables, number, int(chosen[customer]))
        has_room = list(range(start, end))
        while has_room:
            hand = hand or next(stream)
            fits = len(hand) <= len(has_room)
            if not fits and put_back[customer]:
                break
            hand = hand[: len(has_room)]
            places = sorted(_taken_out(has_room, [uniform for _, _, uniform in hand]))
            for place, (itemset, size, _) in zip(places, hand, strict=True):
                goes = filled[place] == 0 or filled[place] + size <= room[place]
                if goes or anyway[place]:
                    placed.append((place, itemset, size))
                    filled[place] += size
                if goes and filled[place] < room[place]:
                    has_room.append(place)
            hand = None
            if not fits:
                break
    owners, members, left = np.array(placed).T
    return np.repeat(owners, left), _left(generator, tables[0], members, left)


def _sequences(
    generator: np.random.Generator,
    tables: tuple[Patterns, Patterns],
    block: int,
    only: int | None = None,
) -> Iterator[list[tuple[int, int, float]]]:
    """Corrupted sequences: of each itemset its place, how many items are left, a uniform number."""
    itemsets, sequences = tables
    while True:
        chosen = np.full(block, only) if only is not None else _drawn(generator, sequences, block)
        lengths = _kept(generator, sequences, chosen)
        members = _left(generator, sequences, chosen, lengths)
        kept = _kept(generator, itemsets, members)
        uniforms = generator.random(members.size)
        lines = list(zip(members.tolist(), kept.tolist(), uniforms.tolist(), strict=True))
        start = 0
        for length in lengths.tolist():
            yield lines[start : start + length]
            start += length


def _taken_out(places: list[int], uniforms: list[float]) -> list[int]:
    """As many places as there are uniform numbers, drawn without replacement and taken out."""
    taken = []
    for uniform in uniforms:
        index = int(uniform * len(places))
        places[index], places[-1] = places[-1], places[index]
        taken.append(places.pop())
    return taken


def _matrix(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> SparseBinary:
    cells = np.unique(rows * shape[1] + columns)
    return SparseBinary(cells // shape[1], cells % shape[1], shape)


# --- what is asked for ---------------------------------------------------------------------------


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}: must be at least 1, is {size}.")


def _check_means(**means: float) -> None:
    for name, mean in means.items():
        if not 0 < mean < np.inf:
            raise ValueError(f"{name}: must be a positive number, is {mean}.")


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share < 1:
            raise ValueError(f"{name}: must be from 0 to below 1, is {share}.")
