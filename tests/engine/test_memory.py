"""What a run says that it needs, against what it takes; refused before it is taken."""

import json
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmf.engine import Info, algorithm, run

SIZE = 10_000  # their products take 400 MB
LIMIT = 300 * 10**6


def walk(**changed):
    parts = {
        "init": lambda key, data: jnp.zeros(()),
        "step": lambda key, state, data, progress: (state + 1, Info(overflow={})),
        "record": lambda key, state, data: {"x": state},
    }
    return algorithm(**(parts | changed))


def large(x):
    return jax.lax.optimization_barrier(jnp.outer(x, x))


@pytest.mark.parametrize(
    "changed",
    [
        {"prepare": large},
        {"init": lambda key, data: jnp.sum(large(data) @ data)},
        {
            "step": lambda key, state, data, progress: (
                jnp.sum(large(data) @ data),
                Info(overflow={}),
            )
        },
    ],
    ids=["prepare", "init", "step"],
)
def test_a_program_that_does_not_fit_is_refused_before_it_runs(changed):
    def run_on(size):
        x = np.linspace(0, 1, size).astype("float32")
        return run(walk(**changed), x, num_samples=2, memory_limit=LIMIT)

    with pytest.raises(MemoryError, match=r"needs about .* and 300 MB are available"):
        run_on(SIZE)
    assert run_on(10).num_draws == 2


TAKES = """
    import jax, jax.numpy as jnp, numpy as np
    from jaxmf.engine import Info, algorithm, memory, run

    def status(name):
        lines = open("/proc/self/status").read().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

    said, check = [], memory.refuse_if_too_large
    def listen(needs, limit, num_draws):
        said.append(sum(needs))
        check(needs, limit, num_draws)
    memory.refuse_if_too_large = listen

    def spread(x):
        return jax.lax.optimization_barrier(jnp.outer(x, x))
    parts = {
        "init": lambda key, data: jnp.zeros(()),
        "step": lambda key, state, data, progress: (state + data[0, 0], Info(overflow={})),
        "record": lambda key, state, data: {"x": state},
    }
    if WHERE == "prepare":
        parts["prepare"] = spread
    else:
        parts["step"] = lambda key, state, data, progress: (
            jnp.sum(spread(data) @ data), Info(overflow={})
        )
    x = np.linspace(0, 1, 10_000).astype("float32")
    jax.block_until_ready(jnp.zeros(3) + 1)
    open("/proc/self/clear_refs", "w").write("5")
    before = status("VmRSS")
    run(algorithm(**parts), x, num_samples=2)
    print(json.dumps([max(said), status("VmHWM") - before]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize("where", ["prepare", "step"])
def test_what_is_said_is_within_a_fifth_of_what_is_taken(where):
    code = f"import json\nWHERE = {where!r}\n" + textwrap.dedent(TAKES)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, taken = json.loads(done.stdout)
    assert taken > 400e6
    assert 0.8 < said / taken < 1.2
