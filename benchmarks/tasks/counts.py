"""A likelihood of one's own: counts that features add up to, a tenth missing; simulated."""

from pathlib import Path

from benchmarks.tasks.sides import run


def prepare(folder: Path) -> None:
    import numpy as np

    generator = np.random.default_rng(2)
    y = np.array([[5, 5, 0, 0, 0, 0, 3, 0], [0, 0, 6, 4, 0, 2, 0, 0], [0, 3, 0, 0, 7, 5, 0, 0]])
    rate = 0.3 + (generator.random((60, 3)) < 0.4) @ y
    x = generator.poisson(rate).astype(float)
    hidden = generator.random(x.shape) < 0.1
    np.savez(folder / "d.npz", x=np.where(hidden, np.nan, x), truth=x, rate=rate)


def jaxmf(folder: Path) -> dict[str, float]:
    import numpy as np
    import numpyro.distributions as dist

    import jaxmf as mf

    file = np.load(f"{folder}/d.npz")

    def log_likelihood(x, z, y, base_rate):
        return dist.Poisson(base_rate + z @ y).log_prob(x)

    def moments(z, y, base_rate):
        rate = base_rate + z @ y
        return rate, rate

    model = mf.FeatureModel(
        log_likelihood,
        dist.Gamma(1.0, 0.3).expand([8]).to_event(1),
        moments=moments,
        prior=mf.IndianBuffet(dist.Gamma(1.0, 1.0)),
        parameters={"base_rate": dist.Gamma(1.0, 2.0)},
        columns_independent=True,
        cell_distribution="poisson",
    )
    post = mf.sample(model, file["x"], num_warmup=300, num_samples=300, num_chains=2, seed=0)
    answer = post.predict()
    truth = file["truth"][answer.rows, answer.columns]
    low, high = np.asarray(answer.quantiles)
    error = answer.mean - file["rate"][answer.rows, answer.columns]
    return {
        "inside": float(np.mean((low <= truth) & (truth <= high))),
        "rmse_rate": float(np.sqrt(np.mean(error**2))),
        "num_features": post.num_features().mean,
    }


def numpyro(folder: Path) -> dict[str, float]:
    import itertools

    import jax
    import jax.numpy as jnp
    import numpy as np
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS

    file = np.load(f"{folder}/d.npz")
    x, patterns = file["x"], jnp.array(list(itertools.product([0.0, 1.0], repeat=4)))

    def log_rows(base_rate, y, weights):
        cells = dist.Poisson(base_rate + patterns @ y).log_prob(jnp.nan_to_num(x)[:, None])
        prior = patterns @ jnp.log(weights) + (1 - patterns) @ jnp.log1p(-weights)
        return jnp.where(jnp.isnan(x)[:, None], 0.0, cells).sum(-1) + prior

    def program():
        base_rate = numpyro.sample("base_rate", dist.Gamma(1.0, 2.0))
        y = numpyro.sample("y", dist.Gamma(1.0, 0.3).expand([4, 8]).to_event(2))
        weights = numpyro.sample("weights", dist.Beta(1.0, 1.0).expand([4]).to_event(1))
        numpyro.factor("x", jax.nn.logsumexp(log_rows(base_rate, y, weights), axis=1).sum())

    mcmc = MCMC(
        NUTS(program),
        num_warmup=300,
        num_samples=300,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0))

    def rates(draw, key):
        z = jax.random.categorical(key, log_rows(draw["base_rate"], draw["y"], draw["weights"]))
        return draw["base_rate"] + patterns[z] @ draw["y"]

    rate = np.asarray(jax.vmap(rates)(mcmc.get_samples(), jax.random.split(jax.random.key(1), 600)))
    hidden = np.isnan(x)
    low, high = np.quantile(np.random.default_rng(0).poisson(rate[:, hidden]), [0.05, 0.95], axis=0)
    truth = file["truth"][hidden]
    return {
        "inside": float(np.mean((low <= truth) & (truth <= high))),
        "rmse_rate": float(np.sqrt(np.mean((rate[:, hidden].mean(0) - file["rate"][hidden]) ** 2))),
    }


if __name__ == "__main__":
    run("counts", prepare, ("jaxmf", "numpyro"))
