"""Bad calls over the public API: refused in words that name the user's argument.

Every fifteenth of the calls of `benchmarks.robustness.bad_calls`, which has all of them.
"""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmf as mf
from benchmarks.robustness import bad_calls, public_api
from benchmarks.robustness.bad_calls import Case, Target, judge
from jaxmf import registry
from jaxmf.data.names import positions

SHARE = 15


@pytest.mark.parametrize("group", public_api.GROUPS)
def test_bad_calls_are_refused_by_the_users_names(group):
    unclear = [
        f"{case.name}: {outcome.verdict}: {outcome.words}"
        for case, outcome in bad_calls.outcomes([group], share=SHARE)
        if outcome.verdict != "clear"
    ]
    assert not unclear, "\n".join(unclear)


def _is_a_warning(public):
    return inspect.isclass(public) and issubclass(public, Exception)


def test_every_public_class_and_function_is_called():
    called = {t.name.split("[")[0] for group in public_api.GROUPS.values() for t in group()}
    without_arguments = {"Exact", "Probit"}
    made_by_jaxmf = {"Posterior", "Prediction"}
    takes_blocks_by_name = {"Network"}
    takes_functions_and_a_fitted_model = {"contrastive_divergence"}
    checked_by_the_questions_that_take_it = {"Positions"}
    # see the tests of comparison, calibration, annealed runs and pure functions
    called_elsewhere = {"compare", "simulation_based_calibration", "smc", "kernel", "free_energy"}
    known = called | called_elsewhere | without_arguments | made_by_jaxmf | takes_blocks_by_name
    bases_of_classes = {
        "AdditiveFamily",
        "Family",
        "Likelihood",
        "Model",
        "NetworkModel",
        "PartitionPrior",
    }
    for bad in (3, int, "x", None):
        with pytest.raises(TypeError, match=r"^register: "):
            mf.register(bad)
    known |= checked_by_the_questions_that_take_it | bases_of_classes | {"register"}
    public = {
        name
        for name in mf.__all__
        if callable(getattr(mf, name)) and not _is_a_warning(getattr(mf, name))
    }
    assert public - known - takes_functions_and_a_fitted_model == set()


def test_every_option_of_every_method_is_tried():
    tried = {
        (target.name, case.argument)
        for target in public_api.verbs()
        for case in bad_calls.cases_of(target)
    }
    options = {argument for _, argument in tried}
    for entry in registry.ENTRIES:
        for verb in entry.methods:
            for setting in registry.method_settings(entry, verb):
                assert setting.name in options, (entry.name, setting.name)


def _foreign(num_rows=1):
    return 1 / num_rows


def _silent(num_rows=1):
    return num_rows


def _other_name(num_rows=1):
    mf.LDA(num_rows)


def _python_error(num_rows=1):
    return len(num_rows)


@pytest.mark.parametrize(
    ("function", "verdict"),
    [
        (_foreign, "foreign kind"),
        (_silent, "accepted"),
        (_other_name, "names no argument"),
        (_python_error, "foreign origin"),
    ],
)
def test_the_judge_sees_what_is_not_clear(function, verdict):
    case = Case(Target("twin", function), "num_rows", "zero", lambda: 0)
    assert judge(case).verdict == verdict


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mf.IndianBuffet(-1.0), "alpha must be positive"),
        (lambda: mf.IndianBuffet(1.0, 0.0), "concentration must be positive"),
        (lambda: mf.BetaBernoulli(1.0, 1.0, 0), "num_features must be at least 1"),
        (lambda: mf.BetaBernoulli(1.0, 1.0, 10**12), "num_features must be at most 1,048,576"),
        (lambda: mf.Gaussian(-1.0), "noise_scale must be positive"),
        (lambda: mf.LDA(0), "num_topics must be at least 1"),
        (lambda: mf.LDA(2, topic_concentration=0), "topic_concentration must be positive"),
        (lambda: mf.BiLDA(0, 2), "num_user_groups must be at least 1"),
    ],
)
def test_parts_are_refused_by_the_names_they_have_here(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_resample_fn_is_a_function_or_its_name():
    model, data = registry.get("linear-gaussian-ibp").example()
    entry = registry.entry_of(model)
    options = {"resample_fn": "stratified"}
    read = registry.read_options(entry, "particle_filter", options, mf.particle_filter)
    assert read["resample_fn"] is mf.samplers.resampling.stratified
    with pytest.raises(ValueError, match=r"'multinomial', .*'optimal'.*'log_mean_weight'"):
        mf.particle_filter(model, data, resample_fn="log_mean_weight")


def _traced_calls():
    model, data = registry.get("linear-gaussian-ibp").example()
    few = {"num_warmup": 1, "num_samples": 1, "num_chains": 1, "progress": False}

    def of_data(x):
        return mf.sample(model, x, **few).draws["log_joint"]

    def of_seed(seed):
        return mf.sample(model, data, seed=seed, **few).draws["log_joint"]

    def of_alpha(alpha):
        return mf.sample(mf.LinearGaussianIBP(alpha=alpha), data, **few).draws["log_joint"].sum()

    def kernel_of_data(x):
        return mf.kernel(model, x).init(jax.random.key(0)).num_steps

    def of_nothing(verb, *what):
        return jax.jit(lambda shift: verb(*what).draws["log_joint"] + shift)(0.0)

    ones = (mf.SparseBinaryMF(1), np.eye(2))
    yield "data: jaxmf.sample", lambda: jax.jit(of_data)(jnp.ones((3, 2)))
    yield "data: jaxmf.sample", lambda: jax.vmap(of_data)(jnp.ones((2, 3, 2)))
    yield "data: jaxmf.kernel", lambda: jax.jit(kernel_of_data)(jnp.ones((3, 2)))
    yield "seed: jaxmf.sample", lambda: jax.vmap(of_seed)(jax.random.split(jax.random.key(0), 2))
    yield "model: jaxmf.sample", lambda: jax.grad(of_alpha)(1.0)
    # with data and seed fixed: arrays made inside of a program have no values either
    yield "jaxmf.sample", lambda: jax.jit(lambda shift: of_data(data) + shift)(0.0)
    yield "jaxmf.particle_filter", lambda: of_nothing(mf.particle_filter, model, data)
    yield "jaxmf.smc", lambda: of_nothing(mf.smc, model, data)
    yield "jaxmf.variational", lambda: of_nothing(mf.variational, *ones)
    yield "new_rows", lambda: jax.jit(mf.sample(model, data, **few).transform)(jnp.ones((3, 5)))


@pytest.mark.parametrize(("what", "call"), list(_traced_calls()))
def test_a_run_inside_a_transformation_of_jax_is_refused_in_words(what, call):
    with pytest.raises(TypeError, match=rf"^{what} stands inside jax.jit, vmap"):
        call()


def test_cells_are_not_gathered_for_models_without_cells_of_their_rows():
    for name, words in (("dp-mixture", "of a further row"), ("lda", "no cells to predict")):
        model, data = registry.get(name).example()
        with pytest.raises(ValueError, match=f"^predict_at: .*{words}"):
            mf.sample(model, data, predict_at=([0], [0]))


def test_a_network_without_an_observed_block_is_refused():
    model = mf.Network(topic=mf.Block(mf.Dirichlet(2), by="document"))
    with pytest.raises(ValueError, match="no block of the network is observed"):
        mf.sample(model, mf.Tokens({"document": [0, 0, 1]}, {"document": 2}))


def test_ids_that_are_numpy_scalars_in_a_list_are_saved(tmp_path):
    posterior = public_api.empty_posterior("linear-gaussian-ibp", "sample")
    ids = [np.int64(10), np.str_("b"), np.float64(0.5), "d", np.bool_(True)]
    data = mf.Dense(np.asarray(posterior.data.to_array()), column_names=ids)
    dataclasses.replace(posterior, data=data).save(tmp_path)
    names = mf.load(tmp_path).data.column_names.tolist()
    assert names == [10, "b", 0.5, "d", True]
    assert [type(name) for name in names] == [int, str, float, str, bool]


def test_what_cannot_be_saved_is_said_and_nothing_is_lost(tmp_path):
    posterior = public_api.empty_posterior("linear-gaussian-ibp", "sample")
    meta = dataclasses.replace(posterior.meta, options={"resample_fn": lambda *a: a})
    with pytest.raises(TypeError, match=r"resample_fn = .* Nothing was written.*to_arviz"):
        dataclasses.replace(posterior, meta=meta).save(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    data = mf.Dense(posterior.data.to_array(), row_names=[(i, i) for i in range(12)])
    with pytest.raises(TypeError, match=r"row_names: the id \(0, 0\) is a tuple.*Nothing was"):
        dataclasses.replace(posterior, data=data).save(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_id_like_one_that_is_not_there_is_offered():
    names = np.array([1000, "user 1, Zürich", 1002, "bo"], object)
    for name, words in [
        ("user 1", r"Is 'user 1, Zürich' meant\? .* are 1000, 'user 1, Zürich', 1002, \.\.\.\.$"),
        ("1000", "Is 1000 meant"),
    ]:
        with pytest.raises(ValueError, match=words):
            positions("rows", name, names=names, size=4)


def test_pictures_take_rows_by_their_ids():
    posterior = public_api.empty_posterior("linear-gaussian-ibp", "sample")
    ids = [100 + 2 * i for i in range(12)]
    data = mf.Dense(posterior.data.to_array(), row_names=ids)
    plot = dataclasses.replace(posterior, data=data).plot
    for picture in (plot.cooccurrence, plot.reconstruction):
        assert picture(rows=[100, 102, 110]).axes
        with pytest.raises(ValueError, match="rows: no row has the id 3"):
            picture(rows=[3])
    assert plot.average_images(image_shape=(1, 5)).axes
