"""The models of the library, by name and by class.

A new model becomes known everywhere by one more entry in `ENTRIES`. Entries name classes and
functions, which are imported when they are first asked for: the command line looks up a name
without JAX.
"""

from __future__ import annotations

from jaxmf.arguments import meant
from jaxmf.registry.entry import Entry

ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="linear-gaussian-ibp",
        model_path="jaxmf.models.linear_gaussian:LinearGaussianIBP",
        methods={"sample": "sampler", "particle_filter": "filter"},
        container_name="Dense",
        one_line="hidden binary features that add up to real data (Indian buffet process)",
        anneals=True,
    ),
    Entry(
        name="noisy-or-ibp",
        model_path="jaxmf.models.noisy_or:NoisyOrIBP",
        methods={"sample": "sampler", "particle_filter": "filter"},
        container_name="Dense",
        one_line="hidden causes that turn on cells of 0/1 data (noisy-OR, Indian buffet process)",
        anneals=True,
    ),
    Entry(
        name="binary-mf",
        model_path="jaxmf.models.binary_mf:BinaryMF",
        container_name="Dense",
        one_line="binary features of rows and of columns, with weights between them (binary "
        "matrix factorisation)",
        anneals=True,
    ),
    Entry(
        name="sparse-binary",
        model_path="jaxmf.models.sparse_binary_mf:SparseBinaryMF",
        methods={"variational": "ascent"},
        default="variational",
        container_name="SparseBinary",
        one_line="real factors of a large sparse 0/1 matrix such as baskets (variational Bayes)",
    ),
    Entry(
        name="mixture-of-gaussians",
        model_path="jaxmf.models.mixtures:MixtureOfGaussians",
        container_name="Dense",
        one_line="groups of rows, a given number of them, each with a mean and a covariance",
        anneals=True,
    ),
    Entry(
        name="dp-mixture",
        model_path="jaxmf.models.mixtures:DPMixture",
        container_name="Dense",
        one_line="groups of rows, as many as they need (Dirichlet or Pitman-Yor process mixture)",
        anneals=True,
    ),
    Entry(
        name="flexible-mixture",
        model_path="jaxmf.models.mixtures:FlexibleMixture",
        container_name="Dense",
        one_line="groups of rows with a prior on how many there are of every size (flexible prior)",
    ),
    Entry(
        name="dcm",
        model_path="jaxmf.models.topics:DirichletCompoundMultinomial",
        container_name="Tokens",
        one_line="words of documents, each with probabilities of its own (Dirichlet compound "
        "multinomial)",
    ),
    Entry(
        name="lda",
        model_path="jaxmf.models.topics:LDA",
        container_name="Tokens",
        one_line="topics of documents, a given number of them (latent Dirichlet allocation)",
    ),
    Entry(
        name="hdp",
        model_path="jaxmf.models.topics:HDPLDA",
        container_name="Tokens",
        one_line="topics of documents, as many as they need (hierarchical Dirichlet process)",
    ),
    Entry(
        name="hfp",
        model_path="jaxmf.models.topics:HFP",
        container_name="Tokens",
        one_line="topics of documents with words at tables of sizes of their own (hierarchical "
        "flexible priors)",
    ),
    Entry(
        name="pam",
        model_path="jaxmf.models.topics:PAM",
        container_name="Tokens",
        one_line="topics of topics, any number of levels (pachinko allocation)",
    ),
    Entry(
        name="bi-lda",
        model_path="jaxmf.models.ratings:BiLDA",
        container_name="Entries",
        one_line="groups of users and of items behind ratings, given numbers of them",
    ),
    Entry(
        name="bi-hdp",
        model_path="jaxmf.models.ratings:BiHDP",
        container_name="Entries",
        one_line="groups of users and of items behind ratings, as many as they need",
    ),
    Entry(
        name="urp",
        model_path="jaxmf.models.ratings:URP",
        container_name="Entries",
        one_line="groups of users with ratings of every item (user rating profile)",
    ),
    Entry(
        name="bpmf",
        model_path="jaxmf.models.bpmf:BPMF",
        container_name="Entries",
        one_line="real factors of users and items behind ratings, with side information (Bayesian "
        "probabilistic matrix factorisation)",
    ),
    Entry(
        name="multi-lda",
        model_path="jaxmf.models.multiway:MultiLDA",
        container_name="Tokens",
        one_line="groups of every modality of a table of tokens, given numbers of them",
    ),
    Entry(
        name="multi-hdp",
        model_path="jaxmf.models.multiway:MultiHDP",
        container_name="Tokens",
        one_line="groups of every modality of a table of tokens, as many as they need",
    ),
    Entry(
        name="network",
        model_path="jaxmf.blocks:Network",
        container_name="Tokens",
        one_line="a network of mixture blocks of one's own (from Python)",
        has_functions=True,
    ),
    Entry(
        name="sparse-binary-series",
        model_path="jaxmf.models.sparse_binary_series:SparseBinarySeries",
        methods={"variational": "ascent"},
        default="variational",
        container_name="SparseSeries",
        one_line="real factors of a series of sparse 0/1 matrices, functions of time (variational "
        "Bayes, Gaussian processes)",
    ),
    Entry(
        name="feature-model",
        model_path="jaxmf.models.feature_model:FeatureModel",
        methods={"sample": "sampler", "particle_filter": "filter"},
        container_name="Dense",
        one_line="hidden binary features with a likelihood such as Poisson() or StudentT(), or one "
        "of one's own (from Python)",
        anneals=True,
        has_functions=True,
    ),
)


REGISTERED: dict[str, Entry] = {}
"""Models of other packages, by the name that they were registered under."""


def all_entries() -> tuple[Entry, ...]:
    """The models of the library, and those that were registered."""
    return (*ENTRIES, *REGISTERED.values())


def get(name: str) -> Entry:
    """The entry of a name, or of that of its class, whatever the case and the dashes.

    Raises:
        ValueError: there is none; the message lists the names.
    """
    for same in (str, _without_dashes):  # as it is written first
        for entry in all_entries():
            if same(name) in (same(entry.name), same(entry.class_name)):
                return entry
    known = [entry.name for entry in all_entries()]
    near = meant(name.replace("_", "-"), known)
    raise ValueError(f"there is no model {name!r}; there are: {', '.join(known)}.{near}")


def _without_dashes(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def entry_of(model: object) -> Entry:
    """The entry of a model object.

    Raises:
        TypeError: the object is no model of the library, or the class itself was given.
    """
    kind = model if isinstance(model, type) else type(model)
    for entry in all_entries():
        # names first: to compare classes imports that of the entry
        if kind.__name__ != entry.class_name or kind is not entry.model:
            continue
        if model is kind:
            raise TypeError(
                f"model is the class {kind.__name__}; give an object, such as {kind.__name__}(...)"
            )
        return entry
    known = ", ".join(entry.class_name for entry in all_entries())
    raise TypeError(
        f"model is a {type(model).__name__}, which is no model of jaxmf; there are: {known}. A "
        "model of another package is made known by jaxmf.register(its class)"
    )
