"""One training step of LOCA three ways, side by side: ours, by hand in bare JAX, and in the paper's layout."""

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

from loca.benchmarks import bare, paper_layout
from loca.data import Indexed, Samples
from loca.kernels import RBF
from loca.models import LOCA, SETTINGS, Setting
from loca.parameters import Positive
from loca.training import Encoded, State, advance
from loca.typing import Key

STEP_SETTINGS: dict[str, Setting] = {
    "antiderivative": SETTINGS["antiderivative"],
    "darcy-128": SETTINGS["darcy"],
    "darcy-1024": dataclasses.replace(SETTINGS["darcy"], queries=1024),
    "mechanical-mnist": SETTINGS["mechanical-mnist"],
    "shallow-water": SETTINGS["shallow-water"],
    "climate": SETTINGS["climate"],
}
"""The settings that can be timed: those of the paper, Darcy flow with two numbers of labels."""


@dataclasses.dataclass(frozen=True)
class StepTimes:
    """What one training step costs on this machine: medians over the rounds of one run, of times and of ratios."""

    setting: str
    ours_ms: float
    bare_ms: float
    paper_layout_ms: float
    ratio_to_bare: float
    speedup_over_paper_layout: float
    gflop: float
    gflops_per_s: float
    sgemm_gflops_per_s: float
    loss_ours: float
    loss_bare: float
    loss_paper_layout: float


def random_functions(setting: Setting, key: Key, count: int) -> Samples:
    """Random functions in the shapes of a setting, each with the labels it has there; values do not change a cost."""
    u_key, y_key, index_key, s_key = jax.random.split(key, 4)
    samples = Samples(
        u=jax.random.normal(u_key, (count, math.prod(setting.sensors), setting.input_size)),
        y=setting.domain.sample(y_key, setting.locations),
        s=jax.random.normal(s_key, (count, setting.locations, setting.output_size)),
        domain=setting.domain,
    )
    return samples.observe(index_key, setting.queries) if setting.queries < setting.locations else samples


def parameters_of(model: LOCA) -> dict[str, Any]:
    """The learned numbers of a model as plain lists of arrays."""
    assert isinstance(model.k, RBF)
    assert isinstance(model.k.rate, Positive)
    nets = {"q": model.q, "g": model.g, "f": model.f}
    params: dict[str, Any] = {
        name: [(w + 0.0, b + 0.0) for w, b in zip(net.weights, net.biases, strict=True)] for name, net in nets.items()
    }
    return params | {"log_rate": model.k.rate.log + 0.0}


class Way:
    """A training step repeated in one compiled loop, always from the same beginning."""

    def __init__(self, one: Callable[[Any, Any], tuple[Any, Any]], carry: Any, data: Any):
        self.one, self.carry, self.data = one, carry, data
        self.loops: dict[int, Callable[[Any, Any], tuple[Any, jax.Array]]] = {}

    def run(self, count: int) -> jax.Array:
        """The losses of that many steps; compiles at the first call with a count."""
        if count not in self.loops:
            loop = jax.jit(lambda carry, data: jax.lax.scan(lambda c, _: self.one(c, data), carry, length=count))
            self.loops[count] = loop.lower(self.carry, self.data).compile()
        return jax.block_until_ready(self.loops[count](self.carry, self.data))[1]

    def losses(self, count: int) -> list[float]:
        """The losses of that many steps."""
        return self.run(count).tolist()

    def seconds_per_step(self, count: int) -> float:
        """Wall-clock time per step over that many."""
        start = time.perf_counter()
        self.run(count)
        return (time.perf_counter() - start) / count


def time_step(name: str, *, rounds: int = 24, seconds: float = 0.25) -> StepTimes:
    """Time the three ways in turn, `rounds` times, each for about `seconds`."""
    setting = STEP_SETTINGS[name]
    data_key, model_key = jax.random.split(jax.random.key(0))
    samples = random_functions(setting, data_key, setting.batch_size)
    model = setting.loca(samples, key=model_key)
    batch = Encoded.of(model, samples)
    ways = {
        "ours": ours(model, batch),
        "bare": by_hand(model, batch),
        "paper_layout": in_paper_layout(model, batch, setting),
    }
    losses = {each: way.losses(1)[0] for each, way in ways.items()}
    counts = {each: max(1, round(seconds / way.seconds_per_step(1))) for each, way in ways.items()}
    for each, way in ways.items():
        way.run(counts[each])  # compile before anything is timed
    times: dict[str, list[float]] = {each: [] for each in ways}
    for turn in range(rounds):
        # Each way follows each other equally often, and runs once unmeasured: what came before it (its memory still
        # being returned, the processor still throttled by it) would otherwise be charged to it.
        order = list(ways) if turn % 2 else list(reversed(ways))
        for each in order[turn % 3 :] + order[: turn % 3]:
            ways[each].run(counts[each])
            times[each].append(ways[each].seconds_per_step(counts[each]))
    ms = {each: 1e3 * statistics.median(taken) for each, taken in times.items()}
    gflop = flops(model, batch) / 1e9
    return StepTimes(
        setting=name,
        ours_ms=ms["ours"],
        bare_ms=ms["bare"],
        paper_layout_ms=ms["paper_layout"],
        ratio_to_bare=ratio(times["ours"], times["bare"]),
        speedup_over_paper_layout=ratio(times["paper_layout"], times["ours"]),
        gflop=gflop,
        gflops_per_s=1e3 * gflop / ms["ours"],
        sgemm_gflops_per_s=sgemm(),
        loss_ours=losses["ours"],
        loss_bare=losses["bare"],
        loss_paper_layout=losses["paper_layout"],
    )


def ratio(a: list[float], b: list[float]) -> float:
    """The median of the ratios within a round: what slows the machine for a while slows both."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


OPTIMIZER = optax.adam(1e-3)


def ours(model: LOCA, batch: Encoded) -> Way:
    """The package's own step."""
    arrays, static = eqx.partition(State.start(model, OPTIMIZER), eqx.is_array)

    def one(arrays: Any, batch: Encoded) -> tuple[Any, Any]:
        state, loss = advance(eqx.combine(arrays, static), batch, OPTIMIZER)
        return eqx.filter(state, eqx.is_array), loss

    return Way(one, arrays, batch)


def by_hand(model: LOCA, batch: Encoded) -> Way:
    """The same arithmetic in bare JAX, with encoded locations given."""
    z, w = model.rule(batch.queries.points)
    data = {
        "codes": batch.codes,
        "y": model.e(batch.queries.points),
        "index": batch.queries.index if isinstance(batch.queries, Indexed) else None,
        "s": batch.s,
        "z": model.e(z),
        "w": w,
    }
    return Way(lambda c, d: bare.advance(c, d, model.output_size), beginning(model), data)


def in_paper_layout(model: LOCA, batch: Encoded, setting: Setting) -> Way:
    """The paper's layout, with every function's own copy of its queries and nodes."""
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
    return Way(lambda c, d: bare.advance(c, d, model.output_size, predict=paper_layout.predict), beginning(model), data)


def beginning(model: LOCA) -> tuple[Any, Any, jax.Array]:
    """Parameters, zero moments, step 0."""
    params = parameters_of(model)
    zeros = jax.tree.map(jnp.zeros_like, params)
    return params, (zeros, zeros), jnp.zeros(())


def flops(model: LOCA, batch: Encoded) -> float:
    """Floating-point operations of one of our steps, as the compiler counts them."""
    way = ours(model, batch)
    cost = jax.jit(way.one).lower(way.carry, way.data).compile().cost_analysis()
    return cost["flops"] if cost else float("nan")


def sgemm(size: int = 2048, repeats: int = 5) -> float:
    """GFLOP/s of a large single-precision matrix product on this machine, best of a few."""
    a = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        product(a).block_until_ready()
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best / 1e9
