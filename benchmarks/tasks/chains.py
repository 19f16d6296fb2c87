"""Sixteen tables at once inside a jitted program of one's own: the noise of each; simulated."""

from pathlib import Path

from benchmarks.tasks.sides import run


def prepare(folder: Path) -> None:
    import numpy as np

    generator = np.random.default_rng(3)
    y = 1.5 * generator.normal(size=(3, 8))
    tables = [
        (generator.random((60, 3)) < 0.4) @ y + 0.5 * generator.normal(size=(60, 8))
        for _ in range(16)
    ]
    np.savez(folder / "d.npz", x=np.array(tables))


def jaxmf(folder: Path) -> dict[str, float]:
    import dataclasses

    import jax
    import numpy as np
    import numpyro.distributions as dist

    import jaxmf as mf

    tables = np.load(f"{folder}/d.npz")["x"].astype("float32")
    model = mf.LinearGaussianIBP(
        num_features=4, alpha=1.0, noise_scale=dist.HalfNormal(1.0), feature_scale=1.5, offset=0.0
    )
    kernel = mf.kernel(model, tables[0], capacity=4)

    @jax.jit
    @jax.vmap
    def run(table, key):
        chain = dataclasses.replace(kernel, data=jax.tree.map(lambda _: table, kernel.data))

        def body(state, key):
            state = chain.step(key, state)
            return state, state.state.noise_scale

        return jax.lax.scan(body, chain.init(key), jax.random.split(key, 300))[1]

    noise = np.asarray(run(tables, jax.random.split(jax.random.key(0), 16)))[:, 150:]
    low, high = np.quantile(noise, [0.05, 0.95], axis=1)
    return {"inside": float(np.mean((low < 0.5) & (high > 0.5))), "mean": float(noise.mean())}


def numpyro(folder: Path) -> dict[str, float]:
    import itertools

    import jax
    import jax.numpy as jnp
    import numpy as np
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    tables = np.load(f"{folder}/d.npz")["x"].astype("float32")
    patterns = jnp.array(list(itertools.product([0.0, 1.0], repeat=4)))

    def program(table):
        noise = numpyro.sample("noise_scale", dist.HalfNormal(1.0))
        y = numpyro.sample("y", dist.Normal(0, 1.5).expand([4, 8]).to_event(2))
        weights = numpyro.sample("weights", dist.Beta(0.25, 1.0).expand([4]).to_event(1))
        prior = patterns @ jnp.log(weights) + (1 - patterns) @ jnp.log1p(-weights)
        rows = dist.Normal(patterns @ y, noise).log_prob(table[:, None]).sum(-1) + prior
        numpyro.factor("x", jax.nn.logsumexp(rows, axis=1).sum())

    @jax.jit
    @jax.vmap
    def run(table, key):
        mcmc = MCMC(
            NUTS(program, max_tree_depth=6), num_warmup=150, num_samples=150, progress_bar=False
        )
        mcmc.run(key, table)
        return mcmc.get_samples()["noise_scale"]

    noise = np.asarray(run(tables, jax.random.split(jax.random.key(0), 16)))
    low, high = np.quantile(noise, [0.05, 0.95], axis=1)
    return {"inside": float(np.mean((low < 0.5) & (high > 0.5))), "mean": float(noise.mean())}


if __name__ == "__main__":
    run("chains", prepare, ("jaxmf", "numpyro"))
