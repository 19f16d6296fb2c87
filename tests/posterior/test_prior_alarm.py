"""Numbers of a network far from their prior have an alarm, whose prior finds the groups."""

import re

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.posterior import structure_alarms

STATED = mf.NormalInverseGamma().standard()
KIND = np.arange(40) % 2
VALUES = np.random.default_rng(0).normal(size=40) + 8 * KIND
SETTINGS = {"num_warmup": 20, "num_samples": 10, "num_chains": 1, "progress": False}


def fit(family, values):
    model = mf.Network(
        kind=mf.Block(mf.Dirichlet(2), by="shop"),
        price=mf.Block(family, by="kind", observed=True),
    )
    shops = {"shop": ["01", "02"] * 20}
    return mf.sample(model, mf.Tokens.from_columns(shops, values={"price": values}), **SETTINGS)


def sentence(post):
    return next((a.sentence for a in structure_alarms.priors_far_from_values(post)), "")


@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
@pytest.mark.parametrize(("scale", "offset"), [(1, 1e6), (1e-3, 0)])
def test_the_alarm_states_a_prior_that_finds_the_groups(scale, offset):
    values = scale * VALUES + offset
    far = fit(STATED, values)
    assert sorted(far.reference_draw()["price_number"]) == [0, 40]
    said = sentence(far)
    assert f"Column price has mean {values.mean():.7g}" in said
    assert next(a.kind for a in far.alarms()) == "prior far away"
    settings = dict(re.findall(r"(location|weight|shape|rate)=([-+.e\d]+\d)", said))
    near = fit(mf.NormalInverseGamma(**{name: float(x) for name, x in settings.items()}), values)
    assert sorted(near.reference_draw()["price_number"]) == [20, 20]
    assert sentence(near) == ""
    assert "Leave its settings out, mf.NormalInverseGamma()" in said
    left_open = fit(mf.NormalInverseGamma(), values)  # no alarm, or the run would warn
    assert sorted(left_open.reference_draw()["price_number"]) == [20, 20]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::jaxmf.RunWarning")
def test_numbers_near_their_prior_have_none():
    standardised = (VALUES - VALUES.mean()) / VALUES.std()
    for values in (standardised, VALUES, np.zeros(40)):
        assert sentence(fit(STATED, values)) == ""
    rows = mf.DPMixture(family=STATED)
    assert sentence(mf.sample(rows, VALUES[:, None], **SETTINGS)) == ""
    far = mf.sample(rows, VALUES[:, None] + 1e6, **SETTINGS)
    assert "Column x has mean 1000004" in sentence(far)
