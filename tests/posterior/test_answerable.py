"""dir() of a posterior lists the questions that it answers."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf import registry
from jaxmf.posterior.answerable import CONDITIONS

# how to ask what has an argument that is needed
ASKED = {
    "at": lambda post: post.at(1.0),
    "document_completion": lambda post: post.document_completion(post.data),
    "document_log_likelihood": lambda post: post.document_log_likelihood(post.data),
    "group_probabilities": lambda post: post.group_probabilities(indicator(post)),
    "held_out_log_likelihood": lambda post: post.held_out_log_likelihood([1.0], cells=([0], [0])),
    "num_groups": lambda post: post.num_groups(several(post)),
    "predict": lambda post: post.predict(([0], [0])),
    "probabilities": lambda post: post.probabilities(([0], [0])),
    "scores": lambda post: post.scores(([0], [0])),
    "similar_documents": lambda post: post.similar_documents(0),
    "top_entries": lambda post: post.top_entries(shown(post)),
    "topics_over": lambda post: post.topics_over(
        np.arange(getattr(post.data, "sizes", {}).get("document", 2))
    ),
    "transform": lambda post: post.transform(post.data),
}
EXAMPLES = [entry.name for entry in registry.ENTRIES]
QUICK = ["linear-gaussian-ibp", "lda"]
SLOW = ["bpmf", "dp-mixture"]


def indicator(post):
    """A latent block, where the model is a network with one."""
    network = getattr(post.model, "network", None)
    return next(iter(network().indicators), None) if network else None


def several(post):
    """A block whose number of groups is learned, where there are several; else None."""
    growing = [name for name in post.draws if name.startswith("num_") and name != "num_features"]
    return growing[0].removeprefix("num_") if len(growing) > 1 else None


def shown(post):
    """A column to ask for entries of."""
    if hasattr(post.model, "shown_columns"):
        return post.model.shown_columns()[0]
    return post.model.network().observed[0] if hasattr(post.model, "network") else "row"


def fitted(name):
    entry = registry.get(name)
    model, data = entry.example()
    if "sample" in entry.methods:
        return mf.sample(model, data, num_warmup=2, num_samples=5, num_chains=1, progress=False)
    return mf.fit(model, data, num_epochs=3, progress=False)


def ask(post, name):
    """The answer to a question, or its refusal."""
    if name in ASKED:
        return ASKED[name](post)
    found = getattr(post, name)
    return found() if callable(found) else found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.tiers(slow=SLOW, exhaustive=[name for name in EXAMPLES if name not in QUICK + SLOW])
@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_listed_is_answered_and_what_is_not_is_refused_with_a_reason(name):
    post = fitted(name)
    listed = set(dir(post))
    assert {"summary", "alarms", "save", "plot", "draws", "model"} <= listed
    assert listed <= set(object.__dir__(post))
    for question in CONDITIONS:
        if question in listed:
            ask(post, question)
        else:
            with pytest.raises(ValueError, match=r"\w+ \w+"):
                ask(post, question)


def test_conditions_are_of_questions_that_there_are():
    assert all(hasattr(mf.Posterior, name) for name in CONDITIONS)
