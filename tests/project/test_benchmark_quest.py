"""Market baskets of the Quest generator: its distribution where that is known, and T10I4D100K."""

import jax
import numpy as np
import pytest

from benchmarks import quest
from jaxmf import datasets
from jaxmf.testing import check_means

SMALL = {"num_transactions": 20_000, "num_items": 60, "num_itemsets": 12, "mean_size": 1}


def one_itemset_each(seed, **settings):
    """Transactions of size 1, which are filled by a single itemset."""
    return quest.quest_baskets(seed, **(SMALL | settings))


def expected_frequencies(itemsets):
    """P(an item is in a basket of one itemset), and that of every size of a basket.

    Of an itemset nothing, one item or more is left. More do not fit: in half of the cases they are
    taken, in the others the itemset is tried again; after nothing comes a new itemset.
    """
    items, sizes = np.zeros(SMALL["num_items"]), np.zeros(12)
    for members, weight, level in zip(*itemsets, strict=True):
        size = members.size
        lost = np.arange(size)
        distribution = level**lost * (1 - level)
        distribution[:-1] /= 2
        distribution *= weight / (1 - distribution[:-1].sum())
        items[members] += (distribution @ (size - lost)) / size
        sizes[size - lost] += distribution
    return items / sizes.sum(), sizes / sizes.sum()


def check_distribution(made):
    x = made.data.to_scipy().toarray()
    items, sizes = expected_frequencies(made.itemsets)
    check_means(
        {"items": x, "sizes": x.sum(axis=1)[:, None] == np.arange(sizes.size)},
        {"items": items, "sizes": sizes},
        title="baskets of one itemset",
    )


def test_baskets_of_one_itemset_have_the_distribution_of_the_table():
    made = one_itemset_each(0)
    assert made.itemsets.weights.sum() == pytest.approx(1)
    assert ((made.itemsets.corruption >= 0) & (made.itemsets.corruption <= 1)).all()
    check_distribution(made)
    # a broken twin: nothing is left out
    whole = one_itemset_each(0, corruption=0.0)
    table = whole.itemsets._replace(corruption=made.itemsets.corruption)
    with pytest.raises(AssertionError):
        check_distribution(whole._replace(itemsets=table))
    # another: all itemsets are as likely
    even = np.full_like(made.itemsets.weights, 1 / made.itemsets.weights.size)
    with pytest.raises(AssertionError):
        check_distribution(made._replace(itemsets=made.itemsets._replace(weights=even)))


def test_tables_have_the_sizes_weights_and_shared_items_that_were_asked_for():
    num_itemsets = 4000
    settings = {"num_transactions": 1, "num_items": 5000, "num_itemsets": num_itemsets}
    table = quest.quest_baskets(1, **settings, corruption=0.5, equal_items=True).itemsets
    sizes = np.array([members.size for members in table.members])
    assert all(np.unique(members).size == members.size for members in table.members)
    # one more than Poisson with mean 3
    assert abs(sizes.mean() - 4) < 5 * np.sqrt(3 / num_itemsets)
    assert abs(sizes.var() - 3) < 5 * np.sqrt((3 + 2 * 3**2) / num_itemsets)
    # exponential: as much spread as mean
    assert abs(num_itemsets * table.weights.std() - 1) < 5 * np.sqrt(2 / num_itemsets)
    assert abs(np.mean(table.corruption) - 0.5) < 5 * 0.1 / np.sqrt(num_itemsets)
    assert abs(np.std(table.corruption) - 0.1) < 5 * 0.1 / np.sqrt(2 * num_itemsets)
    pairs = zip(table.members[:-1], table.members[1:], strict=True)
    shared = np.array([np.isin(new, old).mean() for old, new in pairs])
    # mean 1/4, less what the itemset before is too small for; 4 of 5,000 are in both by chance
    assert 0.2 < shared.mean() < 0.26
    alone = quest.quest_baskets(1, **settings, correlation=0.0, equal_items=True).itemsets
    pairs = zip(alone.members[:-1], alone.members[1:], strict=True)
    assert np.mean([np.isin(new, old).mean() for old, new in pairs]) < 0.01


def frequency_figures(data):
    """Mean size, sizes, how unequal the items' frequencies are, and what goes together."""
    x = data.to_scipy().tocsr().astype(np.int32)
    sizes, frequencies = np.diff(x.indptr), np.bincount(x.indices, minlength=x.shape[1])
    together = (x.T @ x).tocoo()
    apart = together.row != together.col
    # of every item that is bought at all, the one most often bought with it
    best = np.zeros(x.shape[1])
    np.maximum.at(best, together.row[apart], together.data[apart])
    common = frequencies >= 50
    return {
        "mean size": sizes.mean(),
        "sizes": np.bincount(sizes, minlength=50)[:50] / sizes.size,
        "share of items used": np.mean(frequencies > 0),
        "share of the top tenth": np.sort(frequencies)[-100:].sum() / frequencies.sum(),
        "log of pairs": np.log(np.sum(together.data[apart] >= 200) / 2),
        "never alone": np.mean(best[common] > 0.97 * frequencies[common]),
    }


TOLERANCES = {
    "mean size": 0.1,
    "share of items used": 0.03,
    "share of the top tenth": 0.05,
    "log of pairs": 0.2,
    "never alone": 0.035,
}


def compare(ours, theirs):
    """Each figure's distance over what is allowed."""
    apart = {name: abs(ours[name] - theirs[name]) / most for name, most in TOLERANCES.items()}
    return apart | {"sizes": 0.5 * np.abs(ours["sizes"] - theirs["sizes"]).sum() / 0.02}


@pytest.mark.exhaustive
def test_beside_t10i4d100k(data_dir):
    """Mean size within 0.1, sizes within 0.02 in total variation, share of items used within 0.03,
    of the most frequent tenth within 0.05; pairs with 200 baskets within a fifth; and of items
    that have another in 97 of 100 of their baskets, which there are if nothing is left out."""
    theirs = frequency_figures(datasets.t10i4d100k())
    apart = compare(frequency_figures(quest.quest_baskets(0).data), theirs)
    assert max(apart.values()) < 1, apart

    def refused(name, **settings):
        apart = compare(frequency_figures(quest.quest_baskets(0, **settings).data), theirs)
        assert apart[name] > 1, (settings, apart)

    # broken twins: equal items; nothing left out of itemsets; larger baskets
    refused("share of items used", equal_items=True)
    refused("never alone", corruption=0.0)
    refused("sizes", mean_size=10.5)


def test_customers_buy_their_sequences():
    made = quest.quest_customers(0, num_customers=200, keep_sequence=True)
    assert made.data.num_rows == made.customer.size
    # less than 100 on average, as those without items are left out
    num_transactions = np.bincount(made.customer)
    assert 60 < num_transactions.mean() < 100
    assert num_transactions.max() < 100 + 5 * 10
    counts = made.counts()
    assert counts.sum() == made.data.num_ones
    of_sequence = np.zeros((50, 1000), bool)
    for index, itemsets in enumerate(made.sequences.members):
        for itemset in itemsets:
            of_sequence[index, made.itemsets.members[itemset]] = True

    def num_inside(counts):
        outside = (counts > 0) @ ~of_sequence.T
        return np.sum((outside == 0).any(axis=1))

    assert num_inside(counts) == 200
    # a broken twin: customers who take a new sequence each time
    other = quest.quest_customers(0, num_customers=200)
    assert num_inside(other.counts()) < 20


def test_customers_as_in_the_thesis():
    made = quest.quest_customers(1)
    sizes = np.diff(made.data.to_scipy().tocsr().indptr)
    # 4, and what itemsets too large for a transaction add to it
    assert 4 < sizes.mean() < 6
    assert len(made.itemsets.members) == len(made.sequences.members) == 50
    lengths = [members.size for members in made.sequences.members]
    assert abs(np.mean(lengths) - 4) < 5 * 2 / np.sqrt(50)


def test_seeds_and_errors():
    few = {"num_transactions": 50, "num_itemsets": 5, "num_items": 20}
    first = quest.quest_baskets(3, **few).data.fingerprint()
    assert first == quest.quest_baskets(3, **few).data.fingerprint()
    assert first != quest.quest_baskets(4, **few).data.fingerprint()
    quest.quest_baskets(jax.random.key(0), **few)
    with pytest.raises(ValueError, match="num_itemsets"):
        quest.quest_baskets(0, num_itemsets=0)
    with pytest.raises(ValueError, match="mean_size"):
        quest.quest_baskets(0, mean_size=0)
    with pytest.raises(ValueError, match="corruption"):
        quest.quest_customers(0, corruption=1.0)
    with pytest.raises(ValueError, match="num_customers"):
        quest.quest_customers(0, num_customers=0)
