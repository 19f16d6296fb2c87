"""Chains and free energies as pure functions: the same as what the verbs run."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS, HMCGibbs
from scipy.special import betaln

import jaxmf as mf
from jaxmf.engine import chain_kernel, run
from jaxmf.engine.chunk import INIT_FOLD
from jaxmf.testing import check_means
from tests.support import engine_toys

COUNTS = np.array([[3, 1, 0, 0], [2, 2, 0, 1], [0, 0, 1, 3], [0, 1, 2, 2]])
NUM_STEPS = 4


def keys_of_sample(seed, num_chains):
    """The keys that `mf.sample` starts chains with."""
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(num_chains))


def scanned(kernel, chain_key):
    """The draws of one chain, by the keys of `mf.sample`."""
    init, step = kernel

    def once(state, index):
        key = jax.random.fold_in(chain_key, index)
        state = step(jax.random.fold_in(key, 0), state)
        return state, kernel.read(jax.random.fold_in(key, 1), state)

    start = init(jax.random.fold_in(chain_key, INIT_FOLD))
    return jax.lax.scan(once, start, jnp.arange(NUM_STEPS))


@pytest.mark.slow
def test_chains_under_vmap_and_scan_are_those_of_sample():
    model = mf.LDA(2)
    data = mf.Tokens.from_counts(COUNTS)
    kernel = mf.kernel(model, data)
    chains = jax.jit(jax.vmap(scanned, in_axes=(None, 0)))
    last, draws = chains(kernel, keys_of_sample(3, 2))
    settings = {"num_warmup": 0, "num_samples": NUM_STEPS, "num_chains": 2, "progress": False}
    post = mf.sample(model, data, seed=3, chain_method="vectorized", **settings)
    assert set(draws) == set(post.draws)
    np.testing.assert_array_equal(draws["topic_counts"], post.draws["topic_counts"])
    np.testing.assert_allclose(draws["log_joint"], post.draws["log_joint"], rtol=1e-5)
    np.testing.assert_array_equal(last.num_steps, [NUM_STEPS] * 2)
    # and not the same for all keys
    assert len(np.unique(np.asarray(draws["log_joint"]))) > 2


def test_kernels_and_energies_are_made_inside_of_jit_from_data_with_numbers():
    model, data = mf.LinearGaussianIBP(), mf.Dense(COUNTS)
    ones = mf.SparseBinary.from_array(COUNTS > 0)
    outside, energy = mf.kernel(model, data), mf.free_energy(mf.SparseBinaryMF(1), ones)
    found = jax.eval_shape(lambda key: mf.kernel(model, data).init(key), jax.random.key(0))
    assert str(found) == str(jax.eval_shape(outside.init, jax.random.key(0)))

    def inside(parameters, hyperparameters):
        return mf.free_energy(mf.SparseBinaryMF(1), ones)(parameters, hyperparameters)

    start = jax.jit(energy.start)(jax.random.key(0))
    np.testing.assert_allclose(jax.jit(inside)(*start), jax.jit(energy)(*start), rtol=1e-6)


@pytest.mark.slow
def test_a_chain_without_slots_stands_still_and_continues_once_it_has_grown():
    num_steps = 40
    algorithm = engine_toys.growing()
    whole = run(algorithm, 0.0, num_samples=num_steps, seed=0)
    kernel = chain_kernel(algorithm, 0.0)
    chain_key = keys_of_sample(0, 1)[0]
    step = jax.jit(kernel.step)
    state = kernel.init(jax.random.fold_in(chain_key, INIT_FOLD))
    num_grown = 0
    while int(state.num_steps) < num_steps:
        key = jax.random.fold_in(jax.random.fold_in(chain_key, state.num_steps), 0)
        before, state = state, step(key, state)
        if any(state.overflow.values()):
            assert int(state.num_steps) == int(before.num_steps)
            other = step(jax.random.key(99), state)
            jax.tree.map(np.testing.assert_array_equal, other, state)
            sizes = {axis: 2 * size for axis, size in kernel.capacity(state).items()}
            state, num_grown = kernel.grow(state, sizes), num_grown + 1
    assert num_grown > 0
    last = kernel.read(chain_key, state)
    for name, draws in whole.draws.items():
        np.testing.assert_array_equal(last[name], draws[0, -1])


def test_sizes_of_other_axes_or_below_the_present_ones_are_refused():
    kernel = chain_kernel(engine_toys.growing(), 0.0)
    state = kernel.init(jax.random.key(0))
    with pytest.raises(ValueError, match="'rows' is no axis"):
        kernel.grow(state, {"rows": 8})
    axis, size = next(iter(kernel.capacity(state).items()))
    with pytest.raises(ValueError, match="is less than"):
        kernel.grow(state, {axis: size - 1})


@pytest.mark.parametrize("name", ["step", "read"])
def test_a_state_of_the_model_is_no_state_of_the_chain(name):
    kernel = chain_kernel(engine_toys.growing(), 0.0)
    state = kernel.init(jax.random.key(0))
    with pytest.raises(TypeError, match=r"^state: must be a ChainState"):
        getattr(kernel, name)(jax.random.key(1), state.state)


@pytest.mark.parametrize("key", [0, np.array([0, 1], np.uint32), jnp.array([0, 1], jnp.uint32)])
def test_a_key_that_is_not_typed_is_refused(key):
    kernel = chain_kernel(engine_toys.growing(), 0.0)
    with pytest.raises(TypeError, match="key must be one typed key"):
        kernel.init(key)
    with pytest.raises(TypeError, match="key must be one typed key"):
        kernel.step(key, kernel.init(jax.random.key(0)))


def test_the_model_of_a_kernel_has_what_was_left_open():
    model = mf.LinearGaussianIBP(num_features=2)
    kernel = mf.kernel(model, 5 + 3 * X)
    start, key = jax.jit(kernel.init)(jax.random.key(0)), jax.random.key(1)
    log_joint = jax.jit(lambda kernel, state: kernel.model.log_joint(state, kernel.data))
    drawn = jax.jit(kernel.read)(key, start)["log_joint"]
    np.testing.assert_allclose(log_joint(kernel, start.state), drawn, rtol=1e-5)


def test_what_sample_refuses_kernel_refuses():
    with pytest.raises(TypeError, match="sample takes no option 'num_chains'"):
        mf.kernel(mf.LDA(2), COUNTS, num_chains=2)
    with pytest.raises(ValueError, match="sample"):
        mf.kernel(mf.SparseBinaryMF(2), np.eye(3))


ONES = np.array([[1, 1, 0, 0, 1], [1, 0, 1, 0, 0], [0, 0, 1, 1, 0], [0, 1, 0, 1, 1]])


@pytest.mark.tiers(exhaustive=["likelihood0", "likelihood2"])
@pytest.mark.parametrize(
    "likelihood",
    [
        mf.Gaussian(),
        pytest.param(mf.Bernoulli("quadratic"), marks=pytest.mark.slow),
        mf.Bernoulli("tilted"),
    ],
)
def test_the_gradient_of_the_free_energy_is_that_of_finite_differences(likelihood):
    with jax.enable_x64(True):
        energy = mf.free_energy(mf.SparseBinaryMF(2, likelihood=likelihood), ONES)
        at = jax.jit(energy.start)(jax.random.key(0))
        value = jax.jit(energy)
        gradient = jax.jit(jax.grad(energy, argnums=(0, 1)))(*at)
        generator = np.random.default_rng(0)
        direction = jax.tree.map(lambda leaf: generator.normal(size=leaf.shape), at)

        def moved(step):
            return jax.tree.map(lambda leaf, change: leaf + step * change, at, direction)

        size = 1e-5
        numeric = (value(*moved(size)) - value(*moved(-size))) / (2 * size)
        parts = jax.tree.map(lambda slope, change: jnp.sum(slope * change), gradient, direction)
        assert numeric.dtype == jnp.float64
        np.testing.assert_allclose(numeric, sum(jax.tree.leaves(parts)), rtol=1e-6)
        # each hyperparameter by itself
        for name in gradient[1]:
            change = {name: jnp.full_like(at[1][name], size)}
            up, down = ({**at[1], name: at[1][name] + s * change[name]} for s in (1, -1))
            slope = (value(at[0], up) - value(at[0], down)) / (2 * size)
            np.testing.assert_allclose(slope, jnp.sum(gradient[1][name]), rtol=1e-5, atol=1e-7)


def test_a_name_that_is_missing_or_unknown_is_refused():
    energy = mf.free_energy(mf.SparseBinaryMF(2, likelihood=mf.Gaussian()), ONES)
    names = dict.fromkeys(energy.parameter_names, 1.0)
    with pytest.raises(ValueError, match="parameters lacks 'row_mean'"):
        energy({name: 1.0 for name in names if name != "row_mean"}, {})
    with pytest.raises(ValueError, match="hyperparameters has 'alpha'"):
        energy(names, dict.fromkeys((*energy.hyperparameter_names, "alpha"), 1.0))
    with pytest.raises(TypeError, match="free_energy: LDA"):
        mf.free_energy(mf.LDA(2), COUNTS)


@pytest.mark.slow
def test_what_is_no_such_fit_is_refused_and_a_free_energy_is_shown_in_a_line():
    model = mf.SparseBinaryMF(2, likelihood=mf.Gaussian())
    energy = mf.free_energy(model, ONES)
    assert repr(energy) == f"FreeEnergy({model!r}, 4 x 5)"
    with pytest.raises(TypeError, match=r"at: posterior must be what .* returns, got int"):
        energy.at(3)
    post = mf.variational(model, ONES, num_epochs=1, progress=False)
    assert energy.at(post)[0]["row_mean"].shape == (4, 2)
    wider = mf.free_energy(dataclasses.replace(model, num_factors=3), ONES)
    with pytest.raises(ValueError, match=r"of the fit has shape .*, of this free energy .*3"):
        wider.at(post)


def test_random_starts_differ_by_key_and_others_are_refused():
    energy = mf.free_energy(mf.SparseBinaryMF(2, likelihood=mf.Gaussian()), ONES)

    @jax.jit
    @jax.vmap
    def energies(key):
        return energy(*energy.start(key, "random"))

    assert np.abs(np.diff(energies(jax.random.split(jax.random.key(0))))) > 1e-3
    with pytest.raises(ValueError, match="start must be one of"):
        energy.start(jax.random.key(0), "zeros")


@pytest.mark.slow
def test_the_free_energy_of_a_fit_is_the_one_that_it_reports():
    model = mf.SparseBinaryMF(2, likelihood=mf.Gaussian())
    post = mf.variational(model, ONES, num_epochs=4, progress=False)
    energy = mf.free_energy(model, ONES)
    reported = post.draws["free_energy"].item()
    assert float(energy(*energy.at(post))) == pytest.approx(reported, rel=1e-5)


X = np.array([[-1.7, -2.4], [1.2, 1.9], [2.3, 4.6]], np.float32)
TIME = np.array([[-1.0], [0.3], [1.2]], np.float32)
NUM_FEATURES = 2


def draws_by_numpyro(*, forgets_trend):
    """As in docs/how-to/numpyro.md: Z by the kernel, trend and noise by NUTS."""
    scales = {"noise_scale": dist.HalfNormal(1.0), "feature_scale": 1.0, "offset": 0.0}
    model = mf.LinearGaussianIBP(num_features=NUM_FEATURES, alpha=1.0, **scales)
    kernel = mf.kernel(model, X, capacity=NUM_FEATURES, anneal=False)
    start = kernel.init(jax.random.key(0))

    def at(sites):
        residual = jax.tree.map(lambda x: x - TIME * sites["trend"], kernel.data)
        state = start.state._replace(z=sites["z"] == 1, noise_scale=sites["noise_scale"])
        return dataclasses.replace(kernel, data=residual), start._replace(state=state)

    def program():
        positive = dist.ImproperUniform(dist.constraints.positive, (), ())
        bits = dist.Bernoulli(0.5).expand((len(X), NUM_FEATURES)).to_event(2)
        sites = {
            "trend": numpyro.sample("trend", dist.Normal(0, 1)),
            "noise_scale": numpyro.sample("noise_scale", positive),
            "z": numpyro.sample("z", bits),
        }
        moved, chain = at(sites)
        numpyro.factor("x", model.log_joint(chain.state, moved.data))

    def draw_features(rng_key, gibbs_sites, hmc_sites):
        moved, chain = at(gibbs_sites | hmc_sites)
        moved = kernel if forgets_trend else moved
        return {"z": moved.step(rng_key, chain).state.z.astype(gibbs_sites["z"].dtype)}

    sampler = HMCGibbs(NUTS(program), gibbs_fn=draw_features, gibbs_sites=["z"])
    mcmc = MCMC(sampler, num_warmup=200, num_samples=4_000, progress_bar=False)
    mcmc.run(jax.random.key(1))
    return jax.device_get(mcmc.get_samples())


def moments(z, trend, noise):
    """What is compared; the last axes of Z are (N, K)."""
    num_ones, pair = z.sum((-2, -1)), (z[..., 0, :] * z[..., 2, :]).sum(-1)
    return {"noise": noise, "trend": trend, "trend^2": trend**2, "ones": num_ones, "pair": pair,
            "ones trend": num_ones * trend, "pair trend": pair * trend}  # fmt: skip


def exact_moments():
    """By all Z and quadrature over trend and noise."""
    trend, noise = np.linspace(-4, 4, 97), (np.arange(300) + 0.5) / 75
    z = np.array(list(itertools.product((0, 1), repeat=len(X) * NUM_FEATURES)))
    z = z.reshape(-1, len(X), NUM_FEATURES)
    values, vectors = np.linalg.eigh(z @ z.swapaxes(1, 2))
    residual = X - trend[:, None, None] * TIME
    squares = (np.einsum("znk,tnd->ztkd", vectors, residual) ** 2).sum(-1)[:, :, None]
    variances = (values[:, None] + noise[:, None] ** 2)[:, None]
    log_joint = -(squares / variances + X.shape[1] * np.log(variances)).sum(-1) / 2
    counts = z.sum(1)
    shape = 1 / NUM_FEATURES
    log_prior = betaln(counts + shape, len(X) - counts + 1).sum(-1)
    log_joint += log_prior[:, None, None] - trend[:, None] ** 2 / 2 - noise**2 / 2
    weights = np.exp(log_joint - log_joint.max())
    each = moments(z[:, None, None], trend[:, None], noise)
    return {name: np.sum(weights * x) / weights.sum() for name, x in each.items()}


@pytest.mark.tiers(exhaustive=["True"])
@pytest.mark.slow
@pytest.mark.parametrize("forgets_trend", [False, True])
def test_the_kernel_moves_features_inside_a_numpyro_program(forgets_trend):
    draws = draws_by_numpyro(forgets_trend=forgets_trend)
    each = moments(draws["z"], draws["trend"], draws["noise_scale"])
    batches = {name: x.reshape(80, -1).mean(1) for name, x in each.items()}
    check = functools.partial(check_means, batches, exact_moments(), title="HMC within Gibbs")
    if not forgets_trend:
        check()
        return
    with pytest.raises(AssertionError, match="HMC within Gibbs"):
        check()
