"""What models of words have in common: words by the last of their indicators."""

from __future__ import annotations

from jaxmf.blocks import Block
from jaxmf.blocks.network_model import NetworkModel
from jaxmf.blocks.prediction import Draw, category_probabilities
from jaxmf.data import Tokens
from jaxmf.likelihoods.families.categories import DirichletMultinomial
from jaxmf.priors import hyper
from jaxmf.priors.hyper import Hyperparameter
from jaxmf.types import Array


class WordModel(NetworkModel[Tokens]):
    """Words by an indicator.

    Attributes:
        last: the indicator that the words hang on.
    """

    last = "topic"
    word_concentration: Hyperparameter

    def check_words(self) -> None:
        """Refuses a concentration of words that is none, by the name it has here."""
        hyper.validate_concentrations(self.word_concentration, None, "word_concentration")

    def words_by(self, by: str) -> Block:
        """The block of the words."""
        return Block(DirichletMultinomial(concentration=self.word_concentration), by, observed=True)

    def tokens(self, data: Tokens) -> Tokens:
        return data

    def entries(self, draw: Draw, data: Tokens) -> Array:
        """E[phi]: the probabilities of the words in every topic, (K, V) float."""
        network, _ = self.over(data)
        return category_probabilities(network, draw, "word")

    def shown_columns(self) -> tuple[str, ...]:
        """What a report shows the heaviest entries of."""
        return ("word",)

    def shares(self, draw: Draw, data: Tokens) -> Array:
        return draw["word_totals"].astype(float)
