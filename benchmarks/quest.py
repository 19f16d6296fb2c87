"""Market baskets made like those of the IBM Quest generator.

Items are bought in sets that go together. A table of such itemsets is drawn first
(`benchmarks.itemsets`). Then transactions are filled from the table (:func:`quest_baskets`), or
the transactions of customers from a second table, of sequences of itemsets
(:func:`quest_customers`).

Source: Agrawal & Srikant (1994), Fast algorithms for mining association rules, section 3.3, and
(1995), Mining sequential patterns, with the program that they published (version of June 1995) for
what the text leaves open:

- an itemset that does not fit, in half of the cases, is put in anyway: the first of a transaction
  too. Otherwise the transaction ends, and the itemset, with all its items, is kept for the next;
- only the distinct items of a transaction count towards its size;
- transactions in which nothing is left do not occur.

T10I4D100K is an output of that program, and has these rules: a test holds sizes of baskets within
0.02 of the original in total variation, which they are not where a first itemset is always taken
and sizes are Poisson variables themselves.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from benchmarks.itemsets import Hand, Levels, Patterns, chances, patterns
from jaxmf.arguments import check_count, check_number
from jaxmf.data import SparseBinary
from jaxmf.types import Seed

_LEAST_OFFERS = 100


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

    The size of a transaction is 1 more than a Poisson variable. Itemsets are drawn by their weights
    and put in, each without some of its items, until it is full: one more is left out as long as a
    coin with the itemset's corruption level says so. An itemset that does not fit is put in anyway
    in half of the cases and kept for the next transaction in the others, which ends this one.

    The size of an itemset is 1 more than a Poisson variable. An exponentially distributed share of
    it comes from the itemset before, the other items are drawn from all. Weights are exponential
    with mean 1, divided by their sum; corruption levels normal with standard deviation 0.1, cut to
    0 and 0.99.

    Args:
        seed: int or typed key.
        num_transactions: T.
        num_items: D.
        mean_size: of a transaction, before what does not fit; at least 1.
        num_itemsets: L.
        mean_itemset_size: of an itemset; at least 1.
        correlation: mean share of an itemset that comes from the one before.
        corruption: mean of the corruption levels before they are cut; at 0 nothing is left out.
        equal_items: whether all items are as likely to be put into an itemset; otherwise their
            weights are exponential.
    Returns:
        The transactions, and the table of itemsets.
    Raises:
        TypeError, ValueError: sizes below 1, settings out of range.
    Example:
        >>> made = quest_baskets(0, num_transactions=200, num_items=50, num_itemsets=20)
        >>> made.data.shape, len(made.itemsets.members)
        ((200, 50), 20)
    """
    _check_counts(num_transactions=num_transactions, num_items=num_items, num_itemsets=num_itemsets)
    _check_means(mean_size=mean_size, mean_itemset_size=mean_itemset_size)
    levels = _checked_levels(correlation, corruption)
    generator = _generator(seed)
    items = chances(generator, num_items, equal=equal_items)
    itemsets = patterns(generator, items, num_itemsets, mean_size=mean_itemset_size, levels=levels)
    hand = Hand(itemsets, generator)
    baskets: list[dict[int, None]] = []
    while len(baskets) < num_transactions:
        size = 1 + int(generator.poisson(mean_size - 1))
        basket = _basket(hand, size, max(num_itemsets, _LEAST_OFFERS))
        if basket:
            baskets.append(basket)
    return QuestBaskets(_matrix(baskets, num_items), itemsets)


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
    prints have four to eight items.) The number of transactions of a customer, and how many items
    each of them should have, are 1 more than Poisson variables. A customer is given sequences by
    their weights until he has as many items as that makes. A sequence is bought whole or, by a coin
    with its corruption level, in part: then it loses itemsets, and these lose items, as in
    `quest_baskets`. Its itemsets go into different transactions, drawn at random, in order; one
    that does not fit is bought anyway in half of the cases. A sequence with more items, when it is
    whole, than the customer still needs, or with more itemsets than he has transactions, is bought
    in half of the cases; in the others it is kept for the next customer, and this one is done.
    Transactions without items are left out; seven in ten remain with these settings, with five or
    six items each.

    Args:
        seed: int or typed key.
        num_customers: N.
        mean_transactions: of a customer; at least 1.
        num_items: D.
        mean_size: of a transaction, before what does not fit; at least 1.
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
        TypeError, ValueError: sizes below 1, settings out of range.
    Example:
        >>> made = quest_customers(0, num_customers=20, mean_transactions=5)
        >>> made.counts().shape
        (20, 1000)
    """
    _check_counts(
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
    levels = _checked_levels(correlation, corruption)
    generator = _generator(seed)
    items = chances(generator, num_items, equal=equal_items)
    itemsets = patterns(generator, items, num_itemsets, mean_size=mean_itemset_size, levels=levels)
    sequences = patterns(
        generator, itemsets.weights, num_sequences, mean_size=mean_sequence_length, levels=levels
    )
    hands = Hand(sequences, generator), Hand(itemsets, generator)
    baskets: list[dict[int, None]] = []
    basket_counts: list[int] = []
    while len(basket_counts) < num_customers:
        num_baskets = 1 + int(generator.poisson(mean_transactions - 1))
        size = 1 + int(generator.poisson(mean_size - 1))
        only = hands[0].draw() if keep_sequence else None
        bought = [basket for basket in _customer(hands, num_baskets, size, only) if basket]
        if bought:
            baskets += bought
            basket_counts.append(len(bought))
    customer = np.repeat(np.arange(num_customers), basket_counts)
    return QuestCustomers(_matrix(baskets, num_items), customer, itemsets, sequences)


# --- transactions --------------------------------------------------------------------------------


def _basket(hand: Hand, size: int, num_offers: int) -> dict[int, None]:
    """The items of a transaction, each once; at most this many itemsets are tried."""
    basket: dict[int, None] = {}
    for _ in range(num_offers):
        if len(basket) >= size:
            break
        itemset = hand.draw()
        left = hand.some_of(itemset)
        if len(basket) + len(left) > size and hand.coin():
            hand.put_back(itemset)
            break
        basket |= dict.fromkeys(left)
    return basket


def _customer(
    hands: tuple[Hand, Hand], num_baskets: int, size: int, only: int | None
) -> list[dict[int, None]]:
    """The transactions of one customer; `only` is the one sequence that he buys."""
    sequences, itemsets = hands
    baskets: list[dict[int, None]] = [{} for _ in range(num_baskets)]
    # small sequences may fill no transaction, however often they are bought
    for _ in range(num_baskets * size):
        room = num_baskets * size - sum(map(len, baskets))
        if room <= 0:
            break
        sequence = sequences.draw() if only is None else only
        in_part = sequences.is_corrupt(sequence)
        chosen = sequences.some_of(sequence) if in_part else sequences.all_of(sequence)
        fits = (
            len(chosen) <= num_baskets and sum(len(itemsets.all_of(one)) for one in chosen) <= room
        )
        if not fits and sequences.coin():
            if only is None:
                sequences.put_back(sequence)
            break
        positions = sequences.chosen(range(num_baskets), min(len(chosen), num_baskets))
        for position, itemset in zip(positions, chosen, strict=False):
            left = itemsets.some_of(itemset) if in_part else itemsets.all_of(itemset)
            if len(baskets[position]) + len(left) <= size or itemsets.coin():
                baskets[position] |= dict.fromkeys(left)
    return baskets


def _matrix(baskets: list[dict[int, None]], num_items: int) -> SparseBinary:
    rows = np.repeat(np.arange(len(baskets)), [len(basket) for basket in baskets])
    columns = np.fromiter((item for basket in baskets for item in basket), int, rows.size)
    return SparseBinary(rows, columns, (len(baskets), num_items))


def _generator(seed: Seed) -> np.random.Generator:
    if not isinstance(seed, (int, np.integer)):
        seed = np.asarray(jax.random.key_data(seed)).tolist()
    return np.random.default_rng(seed)


# --- what is asked for ---------------------------------------------------------------------------


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        check_count(name, count)


def _check_means(**means: float) -> None:
    for name, mean in means.items():
        check_number(name, mean, least=1)


def _checked_levels(correlation: float, corruption: float) -> Levels:
    check_number("correlation", correlation, least=0, below=1)
    check_number("corruption", corruption, least=0, below=1)
    return Levels(correlation, corruption)
