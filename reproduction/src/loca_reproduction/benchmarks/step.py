"""One training step of LOCA in three implementations: the package, bare JAX, and the paper's layout.

The functions at the end of this file are the step written by hand in bare JAX, without the package. The ratio of the
package's time to theirs is the cost of its abstractions, which should be none.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from loca.data import Indexed, Samples
from loca.kernels import RBF
from loca.models import LOCA
from loca.training import Encoded, State, advance
from loca.typing import Key
from loca_reproduction.settings import SETTINGS, Setting

STEP_SETTINGS: dict[str, Setting] = {
    "antiderivative": SETTINGS["antiderivative"],
    "darcy-128": SETTINGS["darcy"],
    "darcy-1024": dataclasses.replace(SETTINGS["darcy"], queries=1024),
    "mechanical-mnist": SETTINGS["mechanical-mnist"],
    "shallow-water": SETTINGS["shallow-water"],
    "climate": SETTINGS["climate"],
}
"""The settings that can be timed: those of the paper, Darcy flow with two numbers of labels."""

OPTIMIZER = optax.adam(1e-3)
"""The optimizer of the timed steps."""


def random_functions(setting: Setting, key: Key, count: int) -> Samples:
    """Random functions with the shapes and the number of labels of a setting. Their values do not affect the cost."""
    u_key, y_key, index_key, s_key = jax.random.split(key, 4)
    samples = Samples(
        u=jax.random.normal(u_key, (count, math.prod(setting.sensors), setting.input_size)),
        y=setting.domain.sample(y_key, setting.locations),
        s=jax.random.normal(s_key, (count, setting.locations, setting.output_size)),
        domain=setting.domain,
    )
    return samples.observe(index_key, setting.queries) if setting.queries < setting.locations else samples


def parameters_of(model: LOCA) -> dict[str, Any]:
    """The trainable parameters of a model as plain lists of arrays."""
    assert isinstance(model.k, RBF)
    nets = {"q": model.q, "g": model.g, "f": model.f}
    params: dict[str, Any] = {
        name: [(w + 0.0, b + 0.0) for w, b in zip(net.weights, net.biases, strict=True)] for name, net in nets.items()
    }
    return params | {"log_rate": jnp.log(model.k.rate())}


class RepeatedStep:
    """A training step repeated in one compiled loop, always from the same initial state."""

    def __init__(self, one: Callable[[Any, Any], tuple[Any, Any]], carry: Any, data: Any):
        self.one, self.carry, self.data = one, carry, data
        self.loops: dict[int, Callable[[Any, Any], tuple[Any, jax.Array]]] = {}

    def run(self, count: int) -> jax.Array:
        """The losses of `count` steps. The first call with a new count compiles the loop."""
        if count not in self.loops:
            loop = jax.jit(lambda carry, data: jax.lax.scan(lambda c, _: self.one(c, data), carry, length=count))
            self.loops[count] = loop.lower(self.carry, self.data).compile()
        return jax.block_until_ready(self.loops[count](self.carry, self.data))[1]

    def seconds_per_step(self, count: int) -> float:
        """Wall-clock time per step, averaged over `count` steps."""
        start = time.perf_counter()
        self.run(count)
        return (time.perf_counter() - start) / count

    def steps_in(self, seconds: float) -> int:
        """The number of steps that take about so many seconds, by the fastest of three."""
        return max(1, round(seconds / min(self.seconds_per_step(1) for _ in range(3))))


def time_step(setting_name: str, *, rounds: int = 24, seconds: float = 0.25) -> dict[str, Any]:
    """Time the three implementations in turn, for `rounds` rounds of about `seconds` each.

    `ours` is the package. Times and ratios are medians over the rounds of one run. `gflop` is the number of
    floating-point operations of a step in 10⁹, and `sgemm_gflops_per_s` the speed of a large matrix product.
    """
    setting = STEP_SETTINGS[setting_name]
    data_key, model_key = jax.random.split(jax.random.key(0))
    samples = random_functions(setting, data_key, setting.batch_size)
    model = setting.loca(samples, key=model_key)
    batch = Encoded.of(model, samples)
    steps = {
        "ours": package_step(model, batch),
        "bare": bare_step(model, batch),
        "paper_layout": paper_layout_step(model, batch, setting),
    }
    losses = {name: float(step.run(1)[0]) for name, step in steps.items()}
    counts = {name: step.steps_in(seconds) for name, step in steps.items()}
    for name, step in steps.items():
        step.run(counts[name])  # compile before anything is timed
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds):
        # Every implementation follows every other equally often and runs once untimed. Otherwise it would be charged
        # for effects of its predecessor, such as memory still being freed or a throttled processor.
        order = list(steps) if turn % 2 else list(reversed(steps))
        for name in order[turn % 3 :] + order[: turn % 3]:
            steps[name].run(counts[name])
            times[name].append(steps[name].seconds_per_step(counts[name]))
    ms = {name: 1e3 * statistics.median(taken) for name, taken in times.items()}
    gflop = flops(model, batch) / 1e9
    return {
        "setting": setting_name,
        **{f"{name}_ms": value for name, value in ms.items()},
        "ratio_to_bare": median_ratio(times["ours"], times["bare"]),
        "speedup_over_paper_layout": median_ratio(times["paper_layout"], times["ours"]),
        "gflop": gflop,
        "gflops_per_s": 1e3 * gflop / ms["ours"],
        "sgemm_gflops_per_s": sgemm(),
        **{f"loss_{name}": value for name, value in losses.items()},
    }


def median_ratio(a: list[float], b: list[float]) -> float:
    """The median of the ratios within each round: a temporary slowdown of the machine affects both times."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


def package_step(model: LOCA, batch: Encoded) -> RepeatedStep:
    """The training step of the package."""
    arrays, static = eqx.partition(State.start(model, OPTIMIZER), eqx.is_array)

    def one(arrays: Any, batch: Encoded) -> tuple[Any, Any]:
        state, loss = advance(eqx.combine(arrays, static), batch, OPTIMIZER)
        return eqx.filter(state, eqx.is_array), loss

    return RepeatedStep(one, arrays, batch)


def bare_step(model: LOCA, batch: Encoded) -> RepeatedStep:
    """The same arithmetic in bare JAX, from encoded locations."""
    z, w = model.rule(batch.queries.points)
    data = {
        "codes": batch.codes,
        "y": model.e(batch.queries.points),
        "index": batch.queries.index if isinstance(batch.queries, Indexed) else None,
        "s": batch.s,
        "z": model.e(z),
        "w": w,
    }
    return RepeatedStep(lambda c, d: bare_advance(c, d, model.output_size), initial_carry(model), data)


def paper_layout_step(model: LOCA, batch: Encoded, setting: Setting) -> RepeatedStep:
    """The paper's layout, in which every function has its own copy of the queries and nodes."""
    size = len(batch.s)
    z, w = model.rule(batch.queries.points)
    own = setting.monte_carlo
    data = {
        "codes": batch.codes,
        "y": model.e(batch.queries.locations(size)),
        "s": batch.s,
        "z": None if own else jnp.tile(model.e(z), (size, 1, 1)),
        "w": jnp.full((size, setting.queries), 1.0 / setting.queries) if own else jnp.tile(w, (size, 1)),
    }
    return RepeatedStep(
        lambda c, d: bare_advance(c, d, model.output_size, predict=paper_layout_predict), initial_carry(model), data
    )


def initial_carry(model: LOCA) -> tuple[Any, Any, jax.Array]:
    """The initial state of a bare step: parameters, zero moments and step 0."""
    params = parameters_of(model)
    zeros = jax.tree.map(jnp.zeros_like, params)
    return params, (zeros, zeros), jnp.zeros(())


def flops(model: LOCA, batch: Encoded) -> float:
    """The number of floating-point operations of one step of the package, as counted by the compiler."""
    step = package_step(model, batch)
    cost = jax.jit(step.one).lower(step.carry, step.data).compile().cost_analysis()
    return cost["flops"] if cost else float("nan")


def sgemm(size: int = 2048, repeats: int = 5) -> float:
    """GFLOP/s of a large single-precision matrix product on this machine, the best of `repeats` runs."""
    a = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        product(a).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best / 1e9


# ---- the step by hand, in bare JAX -----------------------------------------------------------------------------------


def bare_mlp(layers: Any, h: Any) -> Any:
    """A multilayer perceptron with GELU activations."""
    for w, b in layers[:-1]:
        h = jax.nn.gelu(h @ w + b)
    w, b = layers[-1]
    return h @ w + b


def bare_kernel(rate: Any, a: Any, b: Any) -> Any:
    """exp(−rate·‖a − b‖²) for all pairs, batched over leading axes."""
    a2, b2 = jnp.sum(a**2, axis=-1), jnp.sum(b**2, axis=-1)
    r2 = a2[..., :, None] + b2[..., None, :] - 2.0 * a @ jnp.swapaxes(b, -1, -2)
    return jnp.exp(-rate * jnp.maximum(r2, 0.0))


def bare_predict(params: Any, batch: Any, channels: int) -> Any:
    """F(u)(y), with quantities at the nodes computed once, φ once per location and v once per function."""
    rate = jnp.exp(params["log_rate"])
    q_y, q_z = bare_mlp(params["q"], batch["y"]), bare_mlp(params["q"], batch["z"])
    k_yz, k_zz = bare_kernel(rate, q_y, q_z), bare_kernel(rate, q_z, q_z)
    w = batch["w"]
    kappa = k_yz * jax.lax.rsqrt(k_yz @ w)[:, None] * jax.lax.rsqrt(k_zz @ w)
    g = bare_mlp(params["g"], q_z) * w[:, None]
    g = jnp.split(g, channels, axis=-1)
    v = jnp.split(bare_mlp(params["f"], batch["codes"]), channels, axis=-1)
    s = [v_s @ jax.nn.softmax(kappa @ g_s, axis=-1).T for g_s, v_s in zip(g, v, strict=True)]
    s = jnp.stack(s, axis=-1)
    return s if batch["index"] is None else jnp.take_along_axis(s, batch["index"][:, :, None], axis=1)


def bare_adam(
    params: Any, gradient: Any, moments: Any, step: Any, rate: float = 1e-3, b1: float = 0.9, b2: float = 0.999
) -> Any:
    """One step of Adam, with ε = 10⁻⁸."""
    first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, moments[0], gradient)
    second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g**2, moments[1], gradient)
    c1, c2 = 1 - b1**step, 1 - b2**step
    params = jax.tree.map(lambda p, m, v: p - rate * (m / c1) / (jnp.sqrt(v / c2) + 1e-8), params, first, second)
    return params, (first, second)


def bare_advance(carry: Any, batch: Any, channels: int, predict: Callable[..., Any] = bare_predict) -> Any:
    """One training step: the mean squared loss, its gradient and an update by Adam."""
    params, moments, step = carry

    def objective(params: Any) -> Any:
        return jnp.mean((predict(params, batch, channels) - batch["s"]) ** 2)

    loss, gradient = jax.value_and_grad(objective)(params)
    params, moments = bare_adam(params, gradient, moments, step + 1)
    return (params, moments, step + 1), loss


def paper_layout_predict(params: Any, batch: Any, channels: int) -> Any:
    """F(u)(y) by Algorithm 1 with the layout that the paper's cost analysis implies. Written from the paper.

    Every function of the batch has its own queries (B, P, E) and nodes (B, Q, E), so q, g and both kernel matrices are
    computed B times. The nodes are None for Monte Carlo integration, where the queries are the nodes.
    """
    rate = jnp.exp(params["log_rate"])
    q_y = bare_mlp(params["q"], batch["y"])
    if batch["z"] is None:
        q_z = q_y
        k_yz = k_zz = bare_kernel(rate, q_y, q_y)
    else:
        q_z = bare_mlp(params["q"], batch["z"])
        k_yz, k_zz = bare_kernel(rate, q_y, q_z), bare_kernel(rate, q_z, q_z)
    w = batch["w"]
    root_y, root_z = jnp.sqrt(jnp.einsum("bpq,bq->bp", k_yz, w)), jnp.sqrt(jnp.einsum("bpq,bq->bp", k_zz, w))
    kappa = k_yz / root_y[:, :, None] / root_z[:, None, :]
    g = bare_mlp(params["g"], q_z)
    g = g.reshape(*g.shape[:2], channels, -1)
    g_tilde = jnp.einsum("bpq,bqsn,bq->bpsn", kappa, g, w)
    phi = jax.nn.softmax(g_tilde, axis=-1)
    v = bare_mlp(params["f"], batch["codes"])
    return jnp.einsum("bpsn,bsn->bps", phi, v.reshape(len(v), channels, -1))
