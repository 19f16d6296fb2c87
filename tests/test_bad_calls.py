"""Bad calls over the public API: refused in words that name the user's argument.

Every fifteenth of the calls of `benchmarks.robustness.bad_calls`, which has all of them.
"""

import inspect

import pytest

import jaxmf as mf
from benchmarks.robustness import bad_calls, public_api
from benchmarks.robustness.bad_calls import Case, Target, judge
from jaxmf import registry

SHARE = 15


@pytest.mark.parametrize("group", public_api.GROUPS)
def test_bad_calls_are_refused_by_the_users_names(group):
    unclear = [
        f"{case.name}: {outcome.verdict}: {outcome.words}"
        for case, outcome in bad_calls.outcomes([group], share=SHARE)
        if outcome.verdict != "clear"
    ]
    assert not unclear, "\n".join(unclear)


def test_every_public_class_and_function_is_called():
    called = {t.name.split("[")[0] for group in public_api.GROUPS.values() for t in group()}
    without_arguments = {"Exact", "Probit", "Sigmoid"}
    made_by_jaxmf = {"Posterior", "Prediction"}
    takes_blocks_by_name = {"Network"}
    takes_functions_and_a_fitted_model = {"contrastive_divergence"}
    known = called | without_arguments | made_by_jaxmf | takes_blocks_by_name
    public = {
        name
        for name in mf.__all__
        if name[0] != "_" and callable(getattr(mf, name)) and not inspect.ismodule(name)
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
        (lambda: mf.Gaussian(-1.0), "noise_variance must be positive"),
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
