"""The walks of CONTRIBUTING.md are run as they stand there, and their lines are counted."""

import re
from pathlib import Path

import jax
import pytest

import jaxmf as mf
from jaxmf.testing import check_chain_rule, check_model
from tests import FAST_COMPILE

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
WALKS = dict(re.findall(r"\*\*\((\w)\) .*?```python\n(.*?)```", TEXT, flags=re.DOTALL))
ROWS = dict(re.findall(r"\| \((\w)\) .*? \| 0 \| 1 \| (\d+) \|", TEXT))


def run(letter):
    names = {"__name__": f"walk_{letter}"}
    exec(compile(WALKS[letter], f"CONTRIBUTING.md ({letter})", "exec"), names)  # noqa: S102
    return names["model"], names["data"]


def test_there_are_four_walks_and_their_lines_are_as_the_table_says():
    written = {
        letter: sum(bool(line.strip()) for line in code.splitlines())
        for letter, code in WALKS.items()
    }
    assert {letter: int(lines) for letter, lines in ROWS.items()} == written
    assert list(written) == ["a", "b", "c", "d"]


def test_the_walk_of_a_prior_ends_with_a_chain_and_its_check_refuses_rows_from_zero():
    model, data = run("d")
    chain = mf.kernel(model, data, anneal=False)
    start = jax.eval_shape(chain.init, jax.random.key(0))
    assert jax.eval_shape(chain.step, jax.random.key(1), start).state.z.shape[0] == 6
    right = type(model.prior)

    class FromZero(right):
        def new_rate(self, num_rows):
            return super().new_rate(num_rows + 1)

    with pytest.raises(AssertionError, match="chain rule of FromZero"):
        check_chain_rule(FromZero())


@pytest.mark.tiers(slow=["d"], exhaustive=["a", "b"])
@pytest.mark.parametrize("letter", ["a", "b", "c", "d"])
def test_a_walk_leads_to_something_that_keeps_the_contracts(letter):
    model, data = run(letter)
    assert "reported" in check_model(model, data, joint_distribution=False).checks


@pytest.mark.tiers(exhaustive=["b"])
@pytest.mark.slow
@pytest.mark.parametrize("letter", ["b", "c"])
def test_a_walk_leads_to_a_sampler_that_is_right(letter):
    model, data = run(letter)
    assert check_model(model, data, compiler_options=FAST_COMPILE).joint.passed
