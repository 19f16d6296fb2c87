"""The models of the library, by name and by class; a model as JSON and back.

A new model becomes known everywhere by one more entry in `ENTRIES`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxmf import settings
from jaxmf.blocks import Network
from jaxmf.data import (
    CellFeatures,
    Dense,
    Entries,
    Features,
    SparseBinary,
    SparseSeries,
    Tokens,
    feature_parts,
)
from jaxmf.models.binary_mf import BinaryMF
from jaxmf.models.bpmf import BPMF
from jaxmf.models.feature_model import FeatureModel
from jaxmf.models.linear_gaussian import LinearGaussianIBP
from jaxmf.models.mixtures import DPMixture, FlexibleMixture, MixtureOfGaussians
from jaxmf.models.multiway import MultiHDP, MultiLDA
from jaxmf.models.noisy_or import NoisyOrIBP
from jaxmf.models.ratings import URP, BiHDP, BiLDA
from jaxmf.models.sparse_binary_mf import SparseBinaryMF
from jaxmf.models.sparse_binary_series import SparseBinarySeries
from jaxmf.models.topics import HDPLDA, HFP, LDA, PAM, DirichletCompoundMultinomial
from jaxmf.registry import examples
from jaxmf.registry.entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="linear-gaussian-ibp",
        model=LinearGaussianIBP,
        methods={"sample": "sampler", "particle_filter": "filter"},
        container=Dense,
        one_line="hidden binary features that add up to real data (Indian buffet process)",
        example=examples.linear_gaussian,
    ),
    Entry(
        name="noisy-or-ibp",
        model=NoisyOrIBP,
        methods={"sample": "sampler", "particle_filter": "filter"},
        container=Dense,
        one_line="hidden causes that turn on cells of 0/1 data (noisy-OR, Indian buffet process)",
        example=examples.noisy_or,
    ),
    Entry(
        name="binary-mf",
        model=BinaryMF,
        container=Dense,
        one_line="binary features of rows and of columns, with weights between them (binary "
        "matrix factorisation)",
        example=examples.binary_mf,
    ),
    Entry(
        name="sparse-binary",
        model=SparseBinaryMF,
        methods={"variational": "ascent"},
        default="variational",
        container=SparseBinary,
        one_line="real factors of a large sparse 0/1 matrix such as baskets (variational Bayes)",
        example=examples.sparse_binary,
    ),
    Entry(
        name="mixture-of-gaussians",
        model=MixtureOfGaussians,
        container=Dense,
        one_line="groups of rows, a given number of them, each with a mean and a covariance",
        example=lambda: (MixtureOfGaussians(2, concentration=1.0), examples.rows()),
    ),
    Entry(
        name="dp-mixture",
        model=DPMixture,
        container=Dense,
        one_line="groups of rows, as many as they need (Dirichlet or Pitman-Yor process mixture)",
        example=lambda: (DPMixture(concentration=1.0), examples.rows()),
    ),
    Entry(
        name="flexible-mixture",
        model=FlexibleMixture,
        container=Dense,
        one_line="groups of rows with a prior on how many there are of every size (flexible prior)",
        example=examples.flexible_mixture,
    ),
    Entry(
        name="dcm",
        model=DirichletCompoundMultinomial,
        container=Tokens,
        one_line="words of documents, each with probabilities of its own (Dirichlet compound "
        "multinomial)",
        example=examples.compound,
    ),
    Entry(
        name="lda",
        model=LDA,
        container=Tokens,
        one_line="topics of documents, a given number of them (latent Dirichlet allocation)",
        example=lambda: (LDA(2, topic_concentration=0.5), examples.corpus()),
    ),
    Entry(
        name="hdp",
        model=HDPLDA,
        container=Tokens,
        one_line="topics of documents, as many as they need (hierarchical Dirichlet process)",
        example=lambda: (HDPLDA(topic_concentration=1.0), examples.corpus()),
    ),
    Entry(
        name="hfp",
        model=HFP,
        container=Tokens,
        one_line="topics of documents with words at tables of sizes of their own (hierarchical "
        "flexible priors)",
        example=examples.flexible_topics,
    ),
    Entry(
        name="pam",
        model=PAM,
        container=Tokens,
        one_line="topics of topics, any number of levels (pachinko allocation)",
        example=lambda: (PAM((2, 3), level_concentration=0.5), examples.corpus()),
    ),
    Entry(
        name="bi-lda",
        model=BiLDA,
        container=Entries,
        one_line="groups of users and of items behind ratings, given numbers of them",
        example=lambda: (BiLDA(2, 2, user_concentration=0.5), examples.ratings()),
    ),
    Entry(
        name="bi-hdp",
        model=BiHDP,
        container=Entries,
        one_line="groups of users and of items behind ratings, as many as they need",
        example=lambda: (BiHDP(), examples.ratings()),
    ),
    Entry(
        name="urp",
        model=URP,
        container=Entries,
        one_line="groups of users with a law of ratings for every item (user rating profile)",
        example=lambda: (URP(2, user_concentration=0.5), examples.ratings()),
    ),
    Entry(
        name="bpmf",
        model=BPMF,
        container=Entries,
        one_line="real factors of users and items behind ratings, with side information (Bayesian "
        "probabilistic matrix factorisation)",
        example=lambda: (BPMF(2, level=3.0), examples.stars()),
    ),
    Entry(
        name="multi-lda",
        model=MultiLDA,
        container=Tokens,
        one_line="groups of every modality of a table of tokens, given numbers of them",
        example=lambda: (MultiLDA({"author": 2, "year": 2}, "word", 0.5), examples.written()),
    ),
    Entry(
        name="multi-hdp",
        model=MultiHDP,
        container=Tokens,
        one_line="groups of every modality of a table of tokens, as many as they need",
        example=lambda: (MultiHDP(("author", "year"), "word", 1.0), examples.written()),
    ),
    Entry(
        name="network",
        model=Network,
        container=Tokens,
        one_line="a network of mixture blocks of one's own (from Python)",
        example=examples.network,
        has_functions=True,
    ),
    Entry(
        name="sparse-binary-series",
        model=SparseBinarySeries,
        methods={"variational": "ascent"},
        default="variational",
        container=SparseSeries,
        one_line="real factors of a series of sparse 0/1 matrices, functions of time (variational "
        "Bayes, Gaussian processes)",
        example=examples.sparse_series,
    ),
    Entry(
        name="feature-model",
        model=FeatureModel,
        methods={"particle_filter": "filter"},
        default="particle_filter",
        container=Dense,
        one_line="hidden binary features with a likelihood and features of one's own (from Python)",
        example=examples.feature_model,
        has_functions=True,
    ),
)


def get(name: str) -> Entry:
    """The entry of a name.

    Raises:
        ValueError: there is none; the message lists the names.
    """
    for entry in ENTRIES:
        if name in (entry.name, entry.model.__name__):
            return entry
    known = ", ".join(entry.name for entry in ENTRIES)
    raise ValueError(f"there is no model {name!r}; there are: {known}")


def entry_of(model: Any) -> Entry:
    """The entry of a model object.

    Raises:
        TypeError: the object is no model of the library, or the class itself was given.
    """
    for entry in ENTRIES:
        if type(model) is entry.model:
            return entry
        if model is entry.model:
            raise TypeError(
                f"model is the class {entry.model.__name__}; give an object, such as "
                f"{entry.model.__name__}(...)"
            )
    known = ", ".join(entry.model.__name__ for entry in ENTRIES)
    raise TypeError(
        f"model is a {type(model).__name__}, which is no model of jaxmf; there are: {known}"
    )


def encode_model(model: Any) -> dict[str, Any]:
    """A model as JSON: its name and its settings."""
    entry = entry_of(model)
    written = {
        field.name: settings.encode(getattr(model, field.name), name=field.name)
        for field in dataclasses.fields(model)
        if field.init
    }
    return {"name": entry.name, "settings": written}


def decode_model(written: Mapping[str, Any], features: Mapping[str, Any] | None = None) -> Any:
    """The model that `encode_model` wrote down, with the arrays of its features by setting."""
    held = features or {}
    return get(written["name"]).model(
        **{
            key: feature_parts.put_together(value, held[key])
            if key in held
            else settings.decode(value)
            for key, value in written["settings"].items()
        }
    )


def feature_arrays(model: Any) -> dict[str, dict[str, Any]]:
    """The arrays of a model's features by its settings: what `encode_model` leaves out."""
    found = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    return {
        name: feature_parts.arrays(value)
        for name, value in found.items()
        if isinstance(value, (Features, CellFeatures))
    }
