"""The list of models: read by the verbs, the command line, the compliance tests and the docs.

An `Entry` says what a model is called, which methods it has and what a tiny problem for it looks
like. A new model becomes known everywhere by one more entry in `ENTRIES`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxmf import settings
from jaxmf.blocks import Block, Network
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
from jaxmf.likelihoods.families.categories import DirichletMultinomial
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
from jaxmf.priors.flexible import FlexiblePrior
from jaxmf.priors.hdp import HDP
from jaxmf.variational import SharedSample


@dataclasses.dataclass(frozen=True)
class Entry:
    """One model of the library.

    Args:
        name: its name on the command line, words joined by dashes.
        model: the class.
        methods: public verb -> method of the class that builds the algorithm.
        default: the verb that `fit` runs.
        container: the container its data is read into.
        one_line: what it is, for `jaxmf models`.
        example: () -> (tiny model, tiny data) for tests and docs.
        has_functions: whether it is made of functions, which the command line cannot read.
    """

    name: str
    model: type
    methods: Mapping[str, str]
    default: str
    container: type
    one_line: str
    example: Callable[[], tuple[Any, Any]]
    has_functions: bool = False

    def builder(self, model: Any, method: str) -> Callable[..., Any]:
        """The bound function of `model` that makes the algorithm of a method."""
        return getattr(model, self.methods[method])


class Setting(NamedTuple):
    """One argument of a model or a method: its name, default and whether it has one."""

    name: str
    default: Any
    required: bool


def _linear_gaussian_example() -> tuple[Any, Any]:
    import numpy as np

    generator = np.random.default_rng(0)
    features = generator.normal(size=(2, 5))
    values = (generator.random((12, 2)) < 0.5) @ features + 0.3 * generator.normal(size=(12, 5))
    values[[1, 4, 7], [0, 2, 4]] = np.nan
    return LinearGaussianIBP(alpha=1.0, noise_scale=0.3, feature_scale=1.0), Dense.from_array(
        values
    )


def _noisy_or_example() -> tuple[Any, Any]:
    import numpy as np

    generator = np.random.default_rng(0)
    eta = (generator.random((12, 2)) < 0.5) @ (generator.random((2, 5)) < 0.4)
    values = 1.0 * (generator.random((12, 5)) < 1 - 0.95 * 0.2**eta)
    values[[1, 4, 7], [0, 2, 4]] = np.nan
    return NoisyOrIBP(alpha=1.0, cause_probability=0.4, efficacy=0.8, leak=0.05), Dense.from_array(
        values
    )


def _binary_mf_example() -> tuple[Any, Any]:
    import numpy as np

    from jaxmf.priors.features import IndianBuffet

    generator = np.random.default_rng(1)
    rows, columns = generator.random((12, 2)) < 0.5, generator.random((6, 2)) < 0.5
    weights = generator.normal(size=(2, 2))
    values = rows @ weights @ columns.T + 0.3 * generator.normal(size=(12, 6))
    values[[1, 4, 7], [0, 2, 4]] = np.nan
    prior = IndianBuffet(1.0)
    model = BinaryMF(row_prior=prior, column_prior=prior, noise_scale=0.3, weight_scale=1.0)
    return model, Dense.from_array(values)


def _feature_model_example() -> tuple[Any, Any]:
    import numpyro.distributions as dist
    from jax.tree_util import Partial

    from jaxmf.models.feature_model import row_likelihoods
    from jaxmf.priors.features import IndianBuffet

    _, data = _linear_gaussian_example()
    model = FeatureModel(
        Partial(row_likelihoods.gaussian, 0.5),
        dist.Normal(0.0, 1.0).expand([5]).to_event(1),
        prior=IndianBuffet(1.0),
        moments=Partial(row_likelihoods.gaussian_moments, 0.5),
    )
    return model, data


def _sparse_binary_example() -> tuple[Any, Any]:
    import numpy as np

    generator = np.random.default_rng(0)
    rows, columns = generator.normal(size=(12, 2)), generator.normal(size=(8, 2))
    ones = rows @ columns.T + 0.3 * generator.normal(size=(12, 8)) > 0.8
    model = SparseBinaryMF(num_factors=2, zeros=SharedSample(5))
    rows_of_ones, columns_of_ones = np.nonzero(ones)
    return model, SparseBinary(rows_of_ones, columns_of_ones, ones.shape)


def _corpus() -> Any:
    import numpy as np

    generator = np.random.default_rng(0)
    shares = generator.dirichlet([0.5, 0.5], size=6)
    words = generator.dirichlet(np.full(8, 0.3), size=2)
    return Tokens.from_counts(generator.poisson(12 * shares @ words))


def _rows() -> Any:
    import numpy as np

    generator = np.random.default_rng(0)
    return Dense.from_array(generator.normal(size=(12, 2)) + 3 * (generator.random((12, 1)) < 0.5))


def _ratings() -> Any:
    import numpy as np

    generator = np.random.default_rng(0)
    rows, columns = np.divmod(generator.choice(48, 30, replace=False), 6)
    return Entries(rows, columns, generator.integers(1, 6, 30), (8, 6))


def _stars() -> Any:
    import numpy as np

    generator = np.random.default_rng(0)
    rows, columns = np.divmod(generator.choice(48, 30, replace=False), 6)
    means = (generator.normal(size=(8, 2)) @ generator.normal(size=(2, 6)))[rows, columns]
    return Entries(rows, columns, 3 + means + 0.3 * generator.normal(size=30), (8, 6))


def _written() -> Any:
    import numpy as np

    generator = np.random.default_rng(0)
    columns = {"author": 4, "year": 3, "word": 5}
    return Tokens({name: generator.integers(0, n, 40) for name, n in columns.items()}, columns)


def _compound_example() -> tuple[Any, Any]:
    import numpyro.distributions as dist

    return DirichletCompoundMultinomial(dist.Gamma(1.0, 1.0)), _corpus()


def _flexible_mixture_example() -> tuple[Any, Any]:
    prior = FlexiblePrior.parametric(-1.0, 1.2, 0.5, num_items=14, num_unobserved=1)
    return FlexibleMixture(prior), _rows()


def _flexible_topics_example() -> tuple[Any, Any]:
    corpus = _corpus()
    tables = FlexiblePrior.parametric(-1.0, 1.2, 0.5, num_items=corpus.num_tokens)
    topics = FlexiblePrior.dirichlet_process(1.0, num_items=corpus.num_tokens)
    return HFP(tables, topics, 0.1), corpus


def _network_example() -> tuple[Any, Any]:
    model = Network(
        topic=Block(HDP(1.0, 1.0), by="document"),
        word=Block(DirichletMultinomial(8, 0.5), by="topic", observed=True),
    )
    return model, _corpus()


def _sparse_series_example() -> tuple[Any, Any]:
    import numpy as np

    generator = np.random.default_rng(0)
    times = np.array([0.0, 1.0, 2.5])
    # every row goes from one direction to another
    first, last = generator.normal(size=(2, 10, 2))
    share = (times / times[-1])[:, None, None]
    rows, columns = (1 - share) * first + share * last, generator.normal(size=(6, 2))
    ones = rows @ columns.T + 0.3 * generator.normal(size=(3, 10, 6)) > 0.8
    model = SparseBinarySeries(num_factors=2, zeros=SharedSample(4))
    return model, SparseSeries.from_matrices(list(1 * ones), times)


ENTRIES: tuple[Entry, ...] = (
    Entry(
        name="linear-gaussian-ibp",
        model=LinearGaussianIBP,
        methods={"sample": "sampler", "particle_filter": "filter"},
        default="sample",
        container=Dense,
        one_line="hidden binary features that add up to real data (Indian buffet process)",
        example=_linear_gaussian_example,
    ),
    Entry(
        name="noisy-or-ibp",
        model=NoisyOrIBP,
        methods={"sample": "sampler", "particle_filter": "filter"},
        default="sample",
        container=Dense,
        one_line="hidden causes that turn on cells of 0/1 data (noisy-OR, Indian buffet process)",
        example=_noisy_or_example,
    ),
    Entry(
        name="binary-mf",
        model=BinaryMF,
        methods={"sample": "sampler"},
        default="sample",
        container=Dense,
        one_line="binary features of rows and of columns, with weights between them (binary "
        "matrix factorisation)",
        example=_binary_mf_example,
    ),
    Entry(
        name="sparse-binary",
        model=SparseBinaryMF,
        methods={"variational": "ascent"},
        default="variational",
        container=SparseBinary,
        one_line="real factors of a large sparse 0/1 matrix such as baskets (variational Bayes)",
        example=_sparse_binary_example,
    ),
    Entry(
        name="mixture-of-gaussians",
        model=MixtureOfGaussians,
        methods={"sample": "sampler"},
        default="sample",
        container=Dense,
        one_line="groups of rows, a given number of them, each with a mean and a covariance",
        example=lambda: (MixtureOfGaussians(2, concentration=1.0), _rows()),
    ),
    Entry(
        name="dp-mixture",
        model=DPMixture,
        methods={"sample": "sampler"},
        default="sample",
        container=Dense,
        one_line="groups of rows, as many as they need (Dirichlet or Pitman-Yor process mixture)",
        example=lambda: (DPMixture(concentration=1.0), _rows()),
    ),
    Entry(
        name="flexible-mixture",
        model=FlexibleMixture,
        methods={"sample": "sampler"},
        default="sample",
        container=Dense,
        one_line="groups of rows with a prior on how many there are of every size (flexible prior)",
        example=_flexible_mixture_example,
    ),
    Entry(
        name="dcm",
        model=DirichletCompoundMultinomial,
        methods={"sample": "sampler"},
        default="sample",
        container=Tokens,
        one_line="words of documents, each with probabilities of its own (Dirichlet compound "
        "multinomial)",
        example=_compound_example,
    ),
    Entry(
        name="lda",
        model=LDA,
        methods={"sample": "sampler"},
        default="sample",
        container=Tokens,
        one_line="topics of documents, a given number of them (latent Dirichlet allocation)",
        example=lambda: (LDA(2, topic_concentration=0.5), _corpus()),
    ),
    Entry(
        name="hdp",
        model=HDPLDA,
        methods={"sample": "sampler"},
        default="sample",
        container=Tokens,
        one_line="topics of documents, as many as they need (hierarchical Dirichlet process)",
        example=lambda: (HDPLDA(topic_concentration=1.0), _corpus()),
    ),
    Entry(
        name="hfp",
        model=HFP,
        methods={"sample": "sampler"},
        default="sample",
        container=Tokens,
        one_line="topics of documents with words at tables of sizes of their own (hierarchical "
        "flexible priors)",
        example=_flexible_topics_example,
    ),
    Entry(
        name="pam",
        model=PAM,
        methods={"sample": "sampler"},
        default="sample",
        container=Tokens,
        one_line="topics of topics, any number of levels (pachinko allocation)",
        example=lambda: (PAM((2, 3), level_concentration=0.5), _corpus()),
    ),
    Entry(
        name="bi-lda",
        model=BiLDA,
        methods={"sample": "sampler"},
        default="sample",
        container=Entries,
        one_line="groups of users and of items behind ratings, given numbers of them",
        example=lambda: (BiLDA(2, 2, user_concentration=0.5), _ratings()),
    ),
    Entry(
        name="bi-hdp",
        model=BiHDP,
        methods={"sample": "sampler"},
        default="sample",
        container=Entries,
        one_line="groups of users and of items behind ratings, as many as they need",
        example=lambda: (BiHDP(), _ratings()),
    ),
    Entry(
        name="urp",
        model=URP,
        methods={"sample": "sampler"},
        default="sample",
        container=Entries,
        one_line="groups of users with a law of ratings for every item (user rating profile)",
        example=lambda: (URP(2, user_concentration=0.5), _ratings()),
    ),
    Entry(
        name="bpmf",
        model=BPMF,
        methods={"sample": "sampler"},
        default="sample",
        container=Entries,
        one_line="real factors of users and items behind ratings, with side information (Bayesian "
        "probabilistic matrix factorisation)",
        example=lambda: (BPMF(2, level=3.0), _stars()),
    ),
    Entry(
        name="multi-lda",
        model=MultiLDA,
        methods={"sample": "sampler"},
        default="sample",
        container=Tokens,
        one_line="groups of every modality of a table of tokens, given numbers of them",
        example=lambda: (MultiLDA({"author": 2, "year": 2}, "word", 0.5), _written()),
    ),
    Entry(
        name="multi-hdp",
        model=MultiHDP,
        methods={"sample": "sampler"},
        default="sample",
        container=Tokens,
        one_line="groups of every modality of a table of tokens, as many as they need",
        example=lambda: (MultiHDP(("author", "year"), "word", 1.0), _written()),
    ),
    Entry(
        name="network",
        model=Network,
        methods={"sample": "sampler"},
        default="sample",
        container=Tokens,
        one_line="a network of mixture blocks of one's own (from Python)",
        example=_network_example,
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
        example=_sparse_series_example,
    ),
    Entry(
        name="feature-model",
        model=FeatureModel,
        methods={"particle_filter": "filter"},
        default="particle_filter",
        container=Dense,
        one_line="hidden binary features with a likelihood and features of one's own (from Python)",
        example=_feature_model_example,
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


def check_method(entry: Entry, method: str) -> None:
    """Refuse a method that a model does not have, in words that name those it has."""
    if method not in entry.methods:
        verbs = " or ".join(f"jaxmf.{verb}" for verb in entry.methods)
        raise ValueError(f"{entry.model.__name__} has no method {method!r}; use {verbs}")


def check_data(model: Any, data: Any, name: str) -> None:
    """Refuse data outside the support of a model's likelihood, if the model knows of a limit.

    Args:
        model: calls its method `check_data(data, name)` where it has one.
        data: the container.
        name: what the user calls it, for the message.
    Raises:
        ValueError: from the model.
    """
    check = getattr(model, "check_data", None)
    if check is not None:
        check(data, name)


def model_settings(entry: Entry) -> list[Setting]:
    """The settings of a model, in the order of its constructor, and what they are by default."""
    settings = _settings_of(entry.model)
    if any(setting.required for setting in settings):
        made = {
            field.name: field.default_factory()
            for field in dataclasses.fields(entry.model)
            if field.default_factory is not dataclasses.MISSING
        }
        return [s._replace(default=made.get(s.name, s.default)) for s in settings]
    usual = entry.model()
    return [setting._replace(default=getattr(usual, setting.name)) for setting in settings]


def method_settings(entry: Entry, method: str) -> list[Setting]:
    """The options that a method of a model takes."""
    check_method(entry, method)
    function = getattr(entry.model, entry.methods[method])
    return [setting for setting in _settings_of(function) if setting.name != "self"]


def _settings_of(function: Callable[..., Any]) -> list[Setting]:
    empty = inspect.Parameter.empty
    return [
        Setting(name=name, default=parameter.default, required=parameter.default is empty)
        for name, parameter in inspect.signature(function).parameters.items()
    ]


def check_options(
    entry: Entry, method: str, options: Mapping[str, Any], verb: Callable[..., Any]
) -> None:
    """Refuse options that a method does not take, in words that name those it takes.

    Args:
        entry: the model's.
        method: the verb's name.
        options: what was given beyond the verb's own arguments.
        verb: the function of `jaxmf.api`, whose own arguments are named too.
    Raises:
        TypeError: an option is unknown.
    """
    own = [s.name for s in _settings_of(verb) if s.name not in ("model", "data", "options")]
    known = [s.name for s in method_settings(entry, method) if s.name not in own]
    unknown = [name for name in options if name not in known]
    if unknown:
        words = ", ".join(repr(name) for name in unknown)
        raise TypeError(
            f"{method} takes no option {words}; for {entry.model.__name__} it takes "
            f"{', '.join(known + own)}"
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
