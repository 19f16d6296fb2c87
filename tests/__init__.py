"""Tests in folders as those of the package; `support` is what several of them share, `project` is
about words, imports, pages and benchmarks."""

FAST_COMPILE = {"xla_backend_optimization_level": 0}  # where the runs themselves are short
# Where they are long: 6 to 8 CPU s of compiling instead of 22 at level 3, for runs as fast.
LONG_RUNS = {"xla_backend_optimization_level": 1}
# Examples of docstrings that take more than two or three seconds, most of them to compile a chain.
SLOW_EXAMPLES = {
    "jaxmf.api.fit",
    "jaxmf.likelihoods.families.columns.IndependentColumns",
    "jaxmf.likelihoods.families.mixed_columns.MixedColumns",
    "jaxmf.posterior.cell_answers.at",
    "jaxmf.posterior.group_probabilities.group_probabilities",
    "jaxmf.posterior.pointwise.log_likelihood",
    "jaxmf.posterior.row_groups.groups",
    "jaxmf.pure_functions.free_energy",
    "jaxmf.results.comparison.compare",
    "jaxmf.sklearn.biclusters.BiclusterMF",
    "jaxmf.sklearn.imputer.FactorImputer",
    "jaxmf.sklearn.linear_gaussian.LinearGaussianIBPTransformer",
    "jaxmf.sklearn.mixtures.MixtureClusterer",
    "jaxmf.sklearn.noisy_or.NoisyOrTransformer",
    "jaxmf.sklearn.ratings.RatingRecommender",
    "jaxmf.sklearn.topics.TopicModel",
    "jaxmf.testing.calibration.simulation_based_calibration",
    "jaxmf.testing.models.check_model",
}
