"""Scaling of one training step: time and memory against the number of queries, nodes, functions and dimensions."""

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
"""The sizes that can be varied (P, Q, both together, N or d_y) and their values."""

ATTENTIONS = ("Dense", "Blocked", "Nystrom", "RandomFeatures")
"""The names of the attention classes that are compared."""

MEMORY_MAX = 4e9
"""Memory in bytes above which a step is compiled but not run."""

LONG = 10.0
"""A step that takes longer than this many seconds is timed only once."""


@dataclasses.dataclass(frozen=True)
class ScaleRow:
    """The cost of one training step of LOCA (loss, gradients, Adam) at given sizes.

    `way` is the name of the attention class. `seconds` is None if the step needs too much memory to run.
    """

    way: str
    queries: int
    nodes: int
    functions: int
    dimension: int
    seconds: float | None
    megabytes: float


def attention_of(name: str) -> Attention:
    """An attention by the name of its class, with 256 landmarks or features, or blocks of 512 nodes."""
    match name:
        case "Dense":
            return Dense()
        case "Blocked":
            return Blocked(512)
        case "Nystrom":
            return Nystrom(LANDMARKS)
        case _:
            return RandomFeatures(LIFT, LANDMARKS, key=jax.random.key(0))


def measure_scale(axis: str, *, attentions: Sequence[str] = ATTENTIONS, repeats: int = 3) -> Iterator[ScaleRow]:
    """Measure a training step while one size grows. The others are 1000 queries, 1000 nodes, 100 functions, d_y = 2.

    Seconds are the best of `repeats` steps, or the time of a single step if it is long. Megabytes are the memory that
    the compiler allocates for intermediate values.

    **Arguments:**

    - `axis`: the size that grows, one of `SCALE_AXES`.
    - `attentions`: the names of the attention classes to compare.
    - `repeats`: the number of timed steps.
    """
    for value in AXES[axis]:
        sizes = {"queries": 1000, "nodes": 1000, "functions": 100, "dimension": 2}
        sizes |= {"queries": value, "nodes": value} if axis == "both" else {axis: value}
        for attention in attentions:
            yield measure_step(attention, repeats=repeats, **sizes)


def measure_step(attention: str, *, queries: int, nodes: int, functions: int, dimension: int, repeats: int) -> ScaleRow:
    """Measure one training step at the given sizes, with an attention given by the name of its class."""
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
        attention=attention_of(attention),
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
    return ScaleRow(attention, queries, nodes, functions, dimension, seconds, used / 1e6)


def seconds_of(work: Callable[[], PyTree]) -> float:
    """Wall-clock time of a call."""
    start = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - start


def slope(x: Sequence[float | int], y: Sequence[float]) -> float:
    """The exponent of a power law y ∝ xᵖ, from a least-squares fit of the logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
