"""Chains of real factors are judged by the cells that they predict."""

import numpy as np
import pytest

import jaxmf as mf
from jaxmf.posterior.records import Meta
from jaxmf.results import Posterior
from tests.support.alarms import kinds

NUM_CHAINS, NUM_DRAWS, SHAPE = 3, 200, (30, 20)
CELLS = np.divmod(np.arange(0, 600, 2), 20)


def posterior(*, level=0.0, noise=0.0, share=1.0, draws=NUM_DRAWS, model=None, **changed):
    """Chains that agree but for log joint and noise, the last chain changed.

    Args:
      level: added to the means of a share of the rows, in sds of these.
      noise: relative, of the sd of the noise.
    """
    random = np.random.default_rng(0)
    u = 0.1 * random.normal(size=(NUM_CHAINS, draws, SHAPE[0], 2))
    u[-1, :, : int(share * SHAPE[0]), 1] += 0.1 * level
    v = np.broadcast_to([1.0, 0.0], (NUM_CHAINS, draws, SHAPE[1], 2))
    apart = np.arange(NUM_CHAINS)[:, None] + random.normal(size=(NUM_CHAINS, draws))
    scale = 1 + 0.001 * apart
    scale[-1] += noise
    moments = {
        f"{side}_{name}": np.zeros((NUM_CHAINS, draws, 1, *shape))
        for side in ("row", "column")
        for name, shape in (("mean", (2,)), ("factor", (2, 2)))
    }
    found = moments | {"u": u, "v": v, "log_joint": apart, "noise_scale": scale} | changed
    data = mf.Entries(*CELLS, random.normal(size=len(CELLS[0])), SHAPE)
    meta = Meta(
        "sample", 0, {"num_warmup": 5, "num_samples": draws}, {}, {}, "", 1.0, 1.0, True, {}
    )
    model = mf.BPMF(1, scale=1.0, offset=0.0) if model is None else model
    kept = {name: np.asarray(x, np.float32) for name, x in found.items() if x is not None}
    return Posterior(model, data, kept, meta)


def test_a_slow_log_joint_is_said_and_no_alarm_where_predictions_agree():
    post = posterior()
    assert post.summary()["log_joint", "R-hat"] > 1.1
    assert "R-hat" not in kinds(post)
    agreement = post.cell_agreement()
    assert agreement.num_cells == 256
    assert 1 < agreement.rhat < 1.03
    assert "not yet on log_joint, noise_scale" in post.summary().caption


@pytest.mark.parametrize(
    "fault", [{"level": 0.7}, {"level": 3.0, "share": 0.1}, {"noise": 0.1}, {"noise": -0.1}]
)
def test_chains_that_predict_differently_raise_the_alarm(fault):
    post = posterior(**fault)
    assert "R-hat" in kinds(post)
    assert "not yet on" not in post.summary().caption


@pytest.mark.parametrize(
    "unknown",
    [{"u": None}, {"draws": 50}, {"model": mf.BPMF(1, mixture=mf.DirichletProcess())}],
    ids=["no vectors", "few draws", "groups"],
)
def test_where_cells_say_too_little_numbers_of_the_model_raise_it(unknown):
    post = posterior(**unknown)
    assert post.cell_agreement() is None
    assert "R-hat" in kinds(post)


def test_a_log_joint_that_drifts_is_no_alarm_where_predictions_agree():
    rising = np.linspace(0, 100, NUM_DRAWS) + np.random.default_rng(1).normal(size=(3, NUM_DRAWS))
    assert "drift" not in kinds(posterior(log_joint=rising))
    assert "drift" in kinds(posterior(log_joint=rising, level=0.7))
