"""How the cost of one training step grows: seconds and memory against queries, nodes, functions and dimension."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence

import equinox as eqx
import jax
import numpy as np
import optax

from loca.attention import Attention, Blocked, Dense, Nystrom, RandomFeatures
from loca.data import Samples
from loca.domains import Box
from loca.encoders import Sensors
from loca.models import LOCA
from loca.rules import MonteCarlo
from loca.training import Encoded, State, advance
from loca.typing import PyTree

SENSORS, LIFT, LANDMARKS = 100, 100, 256

AXES: dict[str, tuple[int, ...]] = {
    "queries": (1_000, 3_162, 10_000, 31_623, 100_000),
    "nodes": (1_000, 3_162, 10_000, 31_623, 100_000),
    "both": (1_000, 3_162, 10_000, 31_623, 100_000),
    "functions": (10, 32, 100, 316, 1000),
    "dimension": (1, 2, 3, 4),
}
"""What may grow, P, Q, both together, N or d_y, and how far."""

WAYS = ("Dense", "Blocked", "Nystrom", "RandomFeatures")
"""Ways to evaluate the coupling, by name."""

MEMORY_MAX = 4e9
"""Bytes beyond which a step is compiled but not run."""


LONG = 10.0
"""Seconds from which on a step is timed once."""


@dataclasses.dataclass(frozen=True)
class ScaleRow:
    """One training step of LOCA (loss, gradients, Adam) of some sizes; no seconds where it would not fit in memory."""

    way: str
    queries: int
    nodes: int
    functions: int
    dimension: int
    seconds: float | None
    megabytes: float


def attention_of(way: str) -> Attention:
    """A way of coupling by its name, with 256 landmarks or features, or blocks of 512 nodes."""
    match way:
        case "Dense":
            return Dense()
        case "Blocked":
            return Blocked(512)
        case "Nystrom":
            return Nystrom(LANDMARKS)
        case _:
            return RandomFeatures(LIFT, LANDMARKS, key=jax.random.key(0))


def measure_scale(axis: str, *, ways: Sequence[str] = WAYS, repeats: int = 3) -> Iterator[ScaleRow]:
    """Let one size grow, with 1000 queries, 1000 nodes, 100 functions and two dimensions otherwise.

    Seconds are the best of a few steps, or of a long one its own; megabytes what the compiler sets aside for values
    that a step makes and uses.
    """
    for value in AXES[axis]:
        sizes = {"queries": 1000, "nodes": 1000, "functions": 100, "dimension": 2}
        sizes |= {"queries": value, "nodes": value} if axis == "both" else {axis: value}
        for way in ways:
            yield measure_step(way, repeats=repeats, **sizes)


def measure_step(way: str, *, queries: int, nodes: int, functions: int, dimension: int, repeats: int) -> ScaleRow:
    """One row."""
    keys = iter(jax.random.split(jax.random.key(0), 5))
    domain = Box.unit(dimension)
    samples = Samples(
        jax.random.normal(next(keys), (functions, SENSORS, 1)),
        domain.sample(next(keys), queries),
        jax.random.normal(next(keys), (functions, queries, 1)),
        domain=domain,
    )
    model = LOCA.create(
        samples,
        key=next(keys),
        encoder=Sensors(SENSORS),
        rule=MonteCarlo(domain, nodes, key=next(keys)),
        attention=attention_of(way),
        lift_size=LIFT,
    )
    optimizer = optax.adam(1e-3)
    variable, constant = eqx.partition(State.start(model, optimizer), eqx.is_array)
    batch = Encoded.of(model, samples)

    def step(variable: PyTree, batch: Encoded) -> PyTree:
        return eqx.filter(advance(eqx.combine(variable, constant), batch, optimizer)[0], eqx.is_array)

    compiled = jax.jit(step).lower(variable, batch).compile()
    memory = compiled.memory_analysis()
    used = float(memory.temp_size_in_bytes) if memory is not None else float("nan")
    seconds = None
    if used < MEMORY_MAX:
        seconds = seconds_of(lambda: compiled(variable, batch))
        if seconds < LONG:
            seconds = min(seconds_of(lambda: compiled(variable, batch)) for _ in range(repeats))
    return ScaleRow(way, queries, nodes, functions, dimension, seconds, used / 1e6)


def seconds_of(work: Callable[[], PyTree]) -> float:
    """Wall-clock time of some work."""
    start = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - start


def slope(x: Sequence[float | int], y: Sequence[float]) -> float:
    """The power with which y grows with x: least squares of the logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
