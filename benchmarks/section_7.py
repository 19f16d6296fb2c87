"""Chapter 7 of Porteous (2010): flexible priors on a small clustering problem, and on KOS.

Section 7.3: 60 points of three Gaussians, a flexible prior from expected counts of groups beside
Dirichlet processes of four concentrations, by the error of the associations of pairs of points.
Section 7.5: ten tenths of KOS, half the words of a quarter of the documents held out; the HDP, its
concentration learned, beside the HFP with weights a + b log Gamma(i + c), all three learned.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import sparse, stats

import jaxmf as mf
from benchmarks.records import Paper
from jaxmf import datasets
from jaxmf.blocks import chain

MEANS = np.array([[3.0, 3.0], [9.0, 3.0], [6.0, 6.0]])
CONCENTRATIONS = (2.0, 1.0, 0.5, 0.1)
NUM_SETS, NUM_SWEEPS = 10, 1_000
NUM_PARTS, BURN_IN, NUM_DRAWS = 10, 300, 400
WORD_CONCENTRATION = 0.1


# --- section 7.3 ----------------------------------------------------------------------------------


def points(seed: int) -> tuple[mf.Dense, np.ndarray]:
    """20 points of each of three groups in the plane, and the groups."""
    groups = np.repeat(np.arange(3), 20)
    values = MEANS[groups] + np.random.default_rng(seed).normal(size=(60, 2))
    return mf.Dense.from_array(values), groups


def expected_counts(num_items: int = 60, *, scale: float = 40.0) -> np.ndarray:
    """E[m_i] as a half normal distribution of the size: (N,) float, sum i E[m_i] = N."""
    sizes = np.arange(1, num_items + 1)
    expected = np.exp(-(sizes**2) / (2 * scale**2))
    return expected * num_items / (sizes @ expected)


def mixtures() -> dict[str, mf.FlexibleMixture]:
    """The mixtures that differ in their prior alone; Dirichlet processes as flexible priors."""
    family = mf.NormalInverseWishart(2, location=(6.0, 4.0), weight=0.1, degrees=4.0)
    priors = {"flexible": mf.match_moments(expected_counts()).prior}
    for alpha in CONCENTRATIONS:
        priors[f"DP {alpha:g}"] = mf.FlexiblePrior.dirichlet_process(alpha, num_items=60)
    return {name: mf.FlexibleMixture(prior, family) for name, prior in priors.items()}


class Clustering(NamedTuple):
    """Averages over a chain.

    Attributes:
        together: (N, N) how often two points are in one group.
        counts: (N,) E[m_i].
    """

    together: Any
    counts: Any


@partial(jax.jit, static_argnums=3)
def clustered(model: Any, key: Any, data: Any, num_sweeps: int) -> Clustering:
    """A chain: as many sweeps that are left out as are averaged."""
    algorithm = model.sampler(keep="scalars", capacity=60)
    number = data.num_rows

    def one(index: Any, carry: Any) -> Any:
        state, sums = carry
        own_key = jax.random.fold_in(key, index)
        state, _ = algorithm.step(own_key, state, data, jnp.ones(()))
        own = state.values["group"]
        sizes = jnp.sum(own[:, None] == jnp.arange(number), axis=0)
        now = Clustering(
            own[:, None] == own, jnp.sum(sizes[:, None] == jnp.arange(1, number + 1), axis=0)
        )
        counts = index >= num_sweeps
        return state, jax.tree.map(lambda total, new: total + counts * new, sums, now)

    nothing = Clustering(jnp.zeros((number, number)), jnp.zeros(number))
    start = algorithm.init(jax.random.fold_in(key, 2 * num_sweeps), data), nothing
    _, sums = jax.lax.fori_loop(0, 2 * num_sweeps, one, start)
    return jax.tree.map(lambda total: total / num_sweeps, sums)


def example(num_sets: int, num_sweeps: int) -> dict[str, Any]:
    """Errors of association (data sets) of every prior, and E[m] of prior and posterior."""
    found: dict[str, Any] = {}
    for name, model in mixtures().items():
        runs = []
        for seed in range(num_sets):
            data, groups = points(seed)
            run = clustered(model, jax.random.key(seed), data, num_sweeps)
            runs.append((run, groups))
        upper = np.triu_indices(60, 1)
        errors = [
            float(np.mean(((g[:, None] == g)[upper] - np.asarray(run.together)[upper]) ** 2))
            for run, g in runs
        ]
        found[name] = {
            "errors": errors,
            "prior_counts": model.prior.expected_counts(60).tolist(),
            "posterior_counts": np.mean(
                [np.asarray(run.counts) for run, _ in runs], axis=0
            ).tolist(),
            "log_weights": model.prior.log_weights.tolist(),
        }
    return found


# --- section 7.5 ----------------------------------------------------------------------------------


class Split(NamedTuple):
    """One part of a collection, some words held out.

    Attributes:
        tokens: to learn from.
        held_out: (G,) int, words that were held out of every document.
        documents, words: (M,) int32 of these.
    """

    tokens: mf.Tokens
    held_out: np.ndarray
    documents: np.ndarray
    words: np.ndarray


def split(part: int, *, num_parts: int = NUM_PARTS, num_documents: int | None = None) -> Split:
    """A tenth of KOS, half of the words of a quarter of its documents held out."""
    counts = sparse.csr_array(datasets.documents.kos().counts)
    order = np.random.default_rng(0).permutation(counts.shape[0])
    own = counts[np.sort(order[part::num_parts])[:num_documents]]
    own = own[:, np.asarray(own.sum(axis=0)).ravel() > 0]
    generator = np.random.default_rng(part + 1)
    cells = sparse.coo_array(own)
    is_test = generator.random(own.shape[0]) < 0.25
    out = generator.binomial(cells.data.astype(int), 0.5) * is_test[cells.row]
    kept = sparse.csr_array((cells.data - out, (cells.row, cells.col)), own.shape)
    tokens = mf.Tokens.from_counts(kept)
    held = np.bincount(cells.row, out, own.shape[0]).astype(int)
    return Split(
        tokens, held,
        np.repeat(cells.row, out).astype(np.int32), np.repeat(cells.col, out).astype(np.int32),
    )  # fmt: skip


def largest(own: Split) -> int:
    """How many words the longest document has, those held out too."""
    return int(np.max(np.bincount(own.tokens.columns["document"]) + own.held_out))


def form(parameters: Any, num_items: int, held_out: tuple[int, ...]) -> mf.FlexiblePrior:
    """a + b log Gamma(i + c), c above -1 (eq 7.9); of the HDP b = 1 and c = 0, which stay."""
    free = jax.lax.stop_gradient(parameters["free"])
    b, c = 1 + free * (parameters["b"] - 1), free * jnp.expm1(parameters["log_c_1"])
    settings = {"num_items": num_items, "num_unobserved": held_out}
    return mf.FlexiblePrior.parametric(parameters["a"], b, c, **settings)


START = {"a": 0.0, "b": 1.0, "log_c_1": 0.0}
KINDS = {"HDP": START | {"free": 0.0}, "HFP": START | {"free": 1.0}}


@partial(jax.jit, static_argnums=(0, 1))
def _averaged(plan: Any, number: int, model: Any, key: Any, carry: Any, own: Any) -> Any:
    tokens, documents, words = own

    def one(carry: Any, index: Any) -> Any:
        state, total, no_room = carry
        own_key = jax.random.fold_in(key, index)
        state, info = chain.step(plan, model, own_key, state, tokens, jnp.ones(()))
        total = total + model.held_out_probabilities(state, tokens, documents, words)
        for short in info.overflow.values():
            no_room |= short
        return (state, total, no_room), jnp.sum(state.slots["topic"])

    return jax.lax.scan(one, carry, jnp.arange(number))


def perplexities(
    own: Split, *, seed: int, burn_in: int = BURN_IN, num_draws: int = NUM_DRAWS
) -> dict[str, dict[str, Any]]:
    """Of the held-out words under both models, each learned during the burn-in."""
    own_form = partial(form, num_items=largest(own), held_out=tuple(own.held_out.tolist()))
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, burn_in, 0.05))
    found = {}
    for kind, parameters in KINDS.items():
        start = mf.HFP(own_form(parameters), mf.DirichletProcess(), WORD_CONCENTRATION)
        learned = mf.contrastive_divergence(
            start, own.tokens, "table", form=own_form, parameters=parameters,
            capacity={"table": 64, "topic": 192}, optimizer=optimizer, num_steps=burn_in, seed=seed,
        )  # fmt: skip
        found[kind] = _perplexity(learned, own, seed=seed, num_draws=num_draws)
    return found


def _perplexity(learned: Any, own: Split, *, seed: int, num_draws: int) -> dict[str, Any]:
    model = mf.HFP(learned.prior, mf.DirichletProcess(), WORD_CONCENTRATION)
    plan = chain.plan(model.network(), joint=(), keep="scalars", capacity=64)
    total = jnp.zeros(own.words.shape)
    carry = learned.state, total, jnp.zeros((), bool)
    data = own.tokens, own.documents, own.words
    (_, total, no_room), topics = _averaged(
        plan, num_draws, model, jax.random.key(seed + 1_000), carry, data
    )
    if bool(no_room):
        raise RuntimeError("more tables or topics than there are slots")
    log_probability = np.log(np.asarray(total, float) / num_draws)
    return {
        "perplexity": float(np.exp(-log_probability.mean())),
        "parameters": {name: float(value) for name, value in learned.parameters.items()},
        "history": {name: value[::10].tolist() for name, value in learned.history.items()},
        "topics": float(np.mean(topics)),
        "log_weights": learned.prior.log_weights[:200].tolist(),
    }


def corpus(num_parts: int, say: Any, save: Any, **sizes: Any) -> dict[str, Any]:
    """Perplexities of both models on every part."""
    num_documents = sizes.pop("num_documents", None)
    found: dict[str, list[Any]] = {name: [] for name in KINDS}
    for part in range(num_parts):
        own = split(part, num_documents=num_documents)
        for name, result in perplexities(own, seed=part, **sizes).items():
            found[name].append(result)
        figures = ", ".join(f"{name} {one[-1]['perplexity']:.0f}" for name, one in found.items())
        say(f"part {part + 1} of {num_parts}: {own.tokens.num_tokens} words, {figures}")
        save(corpus=found)
    return found


def verdict(errors: dict[str, Any], found: dict[str, list[Any]]) -> list[str]:
    """What it comes to."""
    flexible = np.asarray(errors["flexible"]["errors"])
    words = [f"Association error, flexible prior: {flexible.mean():.4f}."]
    for name, one in errors.items():
        if name != "flexible":
            other = np.asarray(one["errors"])
            p_value = stats.ttest_rel(flexible, other).pvalue
            words.append(f"{name}: {other.mean():.4f} (paired test p = {p_value:.2g}).")
    hdp, hfp = (np.array([one["perplexity"] for one in found[name]]) for name in ("HDP", "HFP"))
    if len(hdp) > 1:
        p_value = stats.ttest_rel(hdp, hfp).pvalue
        words.append(
            f"Perplexity on KOS: HDP {hdp.mean():.0f}, HFP {hfp.mean():.0f}, lower in "
            f"{np.sum(hfp < hdp)} of {len(hdp)} parts (paired test p = {p_value:.2g}); the thesis "
            "has 1737 and 1675, p = .01."
        )
    return words


def run(*, quick: bool = False, json: Path | None = None) -> dict[str, Any]:
    """Both experiments, printed, and written to `json`."""
    num_sets, num_sweeps = (2, 50) if quick else (NUM_SETS, NUM_SWEEPS)
    sizes: dict[str, Any] = {"burn_in": BURN_IN, "num_draws": NUM_DRAWS}
    if quick:
        sizes = {"burn_in": 25, "num_draws": 10, "num_documents": 60}
    num_parts = 2 if quick else NUM_PARTS
    about = {
        "data_sets": num_sets, "sweeps": [num_sweeps] * 2, "parts_of_kos": num_parts, **sizes,
        "word_concentration": WORD_CONCENTRATION,
    }  # fmt: skip
    paper = Paper("flexible", about, quick=quick, json=json)
    errors = example(num_sets, num_sweeps)
    paper.save(example=errors)
    paper.say("section 7.3: done")
    found = corpus(num_parts, paper.say, paper.save, **sizes)
    return paper.end(verdict(errors, found))
