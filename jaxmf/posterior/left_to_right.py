"""The log probability of whole new documents, with its errors."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxmf.answers import Answer
from jaxmf.arguments import check_count, check_seed
from jaxmf.data import Tokens, as_container
from jaxmf.data.names import ids_or_positions
from jaxmf.diagnostics import evenly_spread
from jaxmf.model import ScoresDocuments
from jaxmf.posterior.draw_blocks import filled_blocks
from jaxmf.posterior.draws import Draws
from jaxmf.posterior.topic_draws import topic_blocks
from jaxmf.programs import jit_method

_DOCUMENTS_AT_ONCE = 32  # of similar lengths
_ALONE = 0.5  # Monte Carlo error beyond which one draw has most of the probability


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class DocumentScore(Answer):
    """Log probabilities of whole documents.

    Estimates of probabilities are unbiased, so their logs are too small on average: given a draw by
    about half the variance of the log, which more particles lessen, and after the mean over
    draws by what the draws that were left out would add. Compare models by equal numbers of both.

    Args:
        documents: (M,) ids of the documents, or positions.
        log_likelihood: (M,) log of the mean over draws of p(words of the document | draw), the
            order of the words included.
        by_draw: (S, M) log p(words of the document | draw).
        monte_carlo_error: (M,) standard error of `log_likelihood` over draws; NaN with one draw.
            Near 1 a single draw carries all of the probability: the error itself is then too small,
            and `log_likelihood` is about the largest of `by_draw` less log S.
        num_words: (M,) int, words of each document.
        mean: log probability of a word; the perplexity is exp(-mean).
        standard_error: of that mean, over documents.
        num_dropped: tokens with words that the data lacks, which were left out.
    """

    documents: np.ndarray
    log_likelihood: np.ndarray
    by_draw: np.ndarray
    monte_carlo_error: np.ndarray
    num_words: np.ndarray
    mean: float
    standard_error: float
    num_dropped: int = 0

    _axes: ClassVar = {
        "log_likelihood monte_carlo_error num_words": "document",
        "by_draw": "draw document",
    }
    _labels: ClassVar = {"document": "documents"}

    def table(self) -> dict[str, np.ndarray]:
        """Columns of a table with one line a document."""
        names = ("log_likelihood", "monte_carlo_error", "num_words")
        return {"document": self.documents, **{name: getattr(self, name) for name in names}}

    def footer(self) -> str:
        more = super().footer()
        error = "" if np.isnan(self.standard_error) else f" ± {self.standard_error:.4f}"
        shown = (
            f"{f'{more}; ' if more else ''}"
            f"log probability of a word {self.mean:.4f}{error}, perplexity "
            f"{np.exp(-self.mean):.4g}; {self.num_words.sum():,} words of "
            f"{self.num_words.size:,} documents"
        )
        num_alone = int(np.sum(self.monte_carlo_error > _ALONE))
        if not num_alone:
            return shown
        worst = np.log(len(self.by_draw)) / np.mean(self.num_words[self.num_words > 0])
        return (
            f"{shown}; of {num_alone:,} a single draw carries most of the probability, so that "
            f"the mean may be too small by about {worst:.2g}"
        )


def document_log_likelihood(
    posterior: Draws,
    new_documents: object,
    *,
    unknown: str = "error",
    num_draws: int = 10,
    num_particles: int = 20,
    seed: int = 0,
) -> DocumentScore:
    """Log probability of whole new documents, by particles from left to right.

    Nothing of a document is used up to find its topics, as `document_completion` does: the
    probability of each word given those before it, topics summed out, is estimated and
    multiplied up (Wallach, Murray, Salakhutdinov & Mimno 2009), without bias for any number of
    particles, and p(document) is averaged over draws. The probabilities of words in topics are
    their means in each draw. Time grows with words, draws, particles and topics.

    Args:
        new_documents: tokens or counts, as `document_completion` takes them.
        unknown: of words that the data lacks: "error", or "drop" to leave them out.
        num_draws: posterior draws used, evenly spread.
        num_particles: of each document in each draw; more of them for long documents.
        seed: of the particles.
    Returns:
        The log probability of each document with its Monte Carlo error over draws, their mean
        by word (the perplexity is exp(-mean)) with its standard error over documents;
        `.to_pandas()` is the table.
    Warns:
        UserWarning: more than half of the tokens are left out, or all those of a document.
    Raises:
        ValueError: the model has no words of documents, or none of the documents has a word.
    """
    check_count("num_draws", num_draws)
    check_count("num_particles", num_particles)
    check_seed("seed", seed)
    if not isinstance(posterior.model, ScoresDocuments):
        raise ValueError(
            f"{type(posterior.model).__name__} has no probability of a whole document; LDA, "
            "HDPLDA and PAM have"
        )
    tokens = as_container(new_documents, Tokens, "new_documents")
    new = posterior.container(tokens, "new_documents", unknown=unknown)
    blocks = topic_blocks(posterior)
    words, lengths = _padded(new, blocks.document, blocks.word)
    draws, weights = posterior.flat_draws()
    chosen = evenly_spread(weights.size, num_draws)
    by_draw = np.zeros((chosen.size, lengths.size))
    order = np.argsort(-lengths, kind="stable")
    size = min(_DOCUMENTS_AT_ONCE, order.size)
    for line, which in enumerate(chosen):
        key = jax.random.fold_in(jax.random.key(seed), int(which))
        draw = {name: values[which] for name, values in draws.items()}
        for _, index in filled_blocks(order.size, size):
            documents = order[index]
            by_draw[line, documents] = _log_probability(
                posterior.model,
                key,
                draw,
                posterior.data,
                jnp.asarray(words[documents]),
                jnp.asarray(lengths[documents]),
                documents=jnp.asarray(documents),
                num_particles=num_particles,
            )
    ids = ids_or_positions(new.names.get(blocks.document), lengths.size)
    score = _score(ids, by_draw, weights[chosen] / weights[chosen].sum(), lengths)
    return dataclasses.replace(score, num_dropped=tokens.num_tokens - new.num_tokens)


def _score(
    documents: np.ndarray, by_draw: np.ndarray, weights: np.ndarray, lengths: np.ndarray
) -> DocumentScore:
    """Averages the probabilities over draws: from log probabilities (S, M) and weights (S,)."""
    highest = by_draw.max(axis=0)
    shares = weights[:, None] * np.exp(by_draw - highest)
    total = shares.sum(axis=0)
    log_likelihood = highest + np.log(total)
    num_draws, num_words = len(by_draw), lengths.sum()
    # of the log of a weighted mean, by the delta method
    residual = shares / total - weights[:, None]
    square = num_draws / max(num_draws - 1, 1) * np.sum(residual**2, axis=0)
    mean = float(log_likelihood.sum() / num_words)
    num_documents = np.sum(lengths > 0)
    spread = np.sum((log_likelihood - mean * lengths) ** 2) * num_documents
    error = np.sqrt(spread / (num_documents - 1)) / num_words if num_documents > 1 else np.nan
    return DocumentScore(
        documents=documents,
        log_likelihood=log_likelihood,
        by_draw=by_draw,
        monte_carlo_error=np.sqrt(square) if num_draws > 1 else np.full(lengths.size, np.nan),
        num_words=lengths,
        mean=mean,
        standard_error=float(error),
    )


def _padded(tokens: Tokens, document: str, word: str) -> tuple[np.ndarray, np.ndarray]:
    """Words of every document, (M, N) int32, zeros at the end, and how many: (M,) int32.

    Raises ValueError: no document has a word.
    """
    documents, words = np.asarray(tokens.columns[document]), np.asarray(tokens.columns[word])
    lengths = np.bincount(documents, minlength=tokens.sizes[document])
    if not lengths.any():
        raise ValueError("new_documents: none has a word, so there is nothing to score")
    order = np.argsort(documents, kind="stable")
    starts = np.cumsum(lengths) - lengths
    table = np.zeros((lengths.size, lengths.max()), np.int32)
    rows = documents[order]
    table[rows, np.arange(order.size) - starts[rows]] = words[order]
    return table, lengths.astype(np.int32)


_log_probability = jit_method(
    ScoresDocuments.log_probability_of_documents, static_argnames="num_particles"
)
