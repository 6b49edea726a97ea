"""One training step: its time and memory as sizes grow, and the communication between devices in its program."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from loca.attention import Attention, Blocked, Dense, Nystrom
from loca.data import Samples
from loca.domains import Box
from loca.encoders import Sensors
from loca.models import LOCA
from loca.parameters import count as count_parameters
from loca.rules import MonteCarlo
from loca.training import Encoded, State, advance
from loca_reproduction.benchmarks.step import random_functions
from loca_reproduction.machine import in_new_process
from loca_reproduction.settings import SETTINGS

SENSORS, LIFT = 100, 100

AXES: dict[str, tuple[int, ...]] = {
    "queries": (1_000, 3_162, 10_000, 31_623, 100_000),
    "nodes": (1_000, 3_162, 10_000, 31_623, 100_000),
    "both": (1_000, 3_162, 10_000, 31_623, 100_000),
    "functions": (10, 32, 100, 316, 1000),
    "dimension": (1, 2, 3, 4),
}
"""The sizes that can be varied (P, Q, both together, N or d_y) and their values."""

Row = dict[str, Any]
"""What was measured, by name."""

ATTENTIONS: dict[str, Attention] = {"Dense": Dense(), "Blocked": Blocked(512), "Nystrom": Nystrom(256)}
"""The methods that are compared, by the names of their classes, with blocks of 512 nodes and 256 landmarks."""

MEMORY_MAX = 4e9
"""Memory in bytes above which a step is compiled but not run."""

LONG = 10.0
"""A step that takes longer than this many seconds is timed only once."""


def measure_scale(axis: str, *, repeats: int = 3) -> Iterator[Row]:
    """Measure a training step while one size grows. The others are 1000 queries, 1000 nodes, 100 functions, d_y = 2.

    Seconds are the best of `repeats` steps, or the time of a single step if it is long. Megabytes are the memory that
    the compiler allocates for intermediate values.
    """
    for value in AXES[axis]:
        sizes = {"queries": 1000, "nodes": 1000, "functions": 100, "dimension": 2}
        sizes |= {"queries": value, "nodes": value} if axis == "both" else {axis: value}
        for attention in ATTENTIONS:
            yield measure_step(attention, repeats=repeats, **sizes)


def measure_step(attention: str, *, queries: int, nodes: int, functions: int, dimension: int, repeats: int) -> Row:
    """Seconds and megabytes of one training step of LOCA at these sizes; `attention` is the name of a class.

    `seconds` is None if the step needs too much memory to run.
    """
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
        attention=ATTENTIONS[attention],
        lift_size=LIFT,
    )
    optimizer = optax.adam(1e-3)
    variable, constant = eqx.partition(State.start(model, optimizer), eqx.is_array)
    batch = Encoded.of(model, samples)

    def step(variable: Any, batch: Encoded) -> Any:
        return eqx.filter(advance(eqx.combine(variable, constant), batch, optimizer)[0], eqx.is_array)

    compiled = jax.jit(step).lower(variable, batch).compile()
    memory = compiled.memory_analysis()
    used = float(memory.temp_size_in_bytes) if memory is not None else float("nan")
    seconds = None
    if used < MEMORY_MAX:
        seconds = seconds_of(lambda: compiled(variable, batch))
        if seconds < LONG:
            seconds = min(seconds_of(lambda: compiled(variable, batch)) for _ in range(repeats))
    return {
        "way": attention,
        "queries": queries,
        "nodes": nodes,
        "functions": functions,
        "dimension": dimension,
        "seconds": seconds,
        "megabytes": used / 1e6,
    }


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall-clock time of a call."""
    start = time.perf_counter()
    jax.block_until_ready(work())
    return time.perf_counter() - start


def slope(x: Sequence[float | int], y: Sequence[float]) -> float:
    """The exponent of a power law y ∝ xᵖ, from a least-squares fit of the logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


MESH = ("functions", "queries", "nodes")
"""The axes of a mesh of devices."""

KINDS: tuple[str, ...] = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
"""The names of the collective operations of the compiler."""

BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
"""Size of a number, by the compiler's name for its type."""


def measure_collectives(
    devices: int = 8,
    *,
    setting: str = "darcy",
    meshes: Sequence[Mapping[str, int]] | None = None,
    locations: int | None = None,
) -> list[Row]:
    """Compile the training step of a setting for several meshes and count the collective operations.

    `counts` are the operations of each kind, and `sizes` the bytes of their results on each device. The step is
    compiled for simulated devices and not run. This happens in a new process, because JAX cannot change the number of
    devices after it has started.

    **Arguments:**

    - `devices`: number of devices, a multiple of 4.
    - `setting`: one of the paper's experiments, by its name in `SETTINGS`.
    - `meshes`: the meshes, as numbers of devices by axis. By default, each axis alone and all three together.
    - `locations`: M, with every function queried at all of them. By default, the locations and labels of the setting.
    """
    if devices < 4 or devices % 4:
        raise ValueError(f"expected a multiple of 4 as the number of devices, got {devices}")
    together = {"functions": devices // 4, "queries": 2, "nodes": 2}
    meshes = [*({axis: devices} for axis in MESH), together] if meshes is None else [dict(axes) for axes in meshes]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return in_new_process(all_collectives, setting, meshes, locations, XLA_FLAGS=flags, JAX_PLATFORMS="cpu")


def collectives_of(setting: str, axes: Mapping[str, int], locations: int | None = None) -> Row:
    """The collective operations of one step of a setting, on a mesh of all devices of this process."""
    mesh = Mesh(np.array(jax.devices()).reshape([axes.get(axis, 1) for axis in MESH]), MESH)
    sizes = SETTINGS[setting]
    sizes = sizes if locations is None else dataclasses.replace(sizes, locations=locations, queries=locations)
    batch = math.lcm(sizes.batch_size, mesh.shape["functions"])  # must be divisible by the number of devices
    samples = random_functions(sizes, jax.random.key(0), 4)
    model = sizes.loca(samples, key=jax.random.key(1))
    optimizer = optax.adam(1e-3)
    variable, constant = eqx.partition(State.start(model, optimizer), eqx.is_array)

    def one(variable: Any, encoded: Encoded) -> tuple[Any, Any]:
        state, loss = advance(eqx.combine(variable, constant), encoded.sharded(mesh), optimizer, mesh=mesh)
        return jax.lax.with_sharding_constraint(eqx.filter(state, eqx.is_array), everywhere), loss

    everywhere = NamedSharding(mesh, PartitionSpec())
    encoded = jax.eval_shape(lambda few: few.take(jnp.zeros(batch, jnp.int32)), Encoded.of(model, samples))
    shapes = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=everywhere), (variable, encoded)
    )
    program = jax.jit(one, donate_argnums=0).lower(*shapes).compile().as_text() or ""
    counts, results = tally(program)
    return {
        "axes": dict(axes),
        "locations": len(samples.y.points),
        "batch": batch,
        "parameter_bytes": 4 * count_parameters(model),  # of the gradient
        "counts": counts,
        "sizes": results,
    }


def tally(program: str) -> tuple[dict[str, int], dict[str, int]]:
    """The number of collective operations in the text of a compiled program, and the bytes of their results, by kind.

    Operations within groups of a single device are not counted.
    """
    counts, sizes = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    for result, kind, rest in re.findall(rf" = (.*?) ({'|'.join(KINDS)})(?:-start)?\((.*)", program):
        if re.search(r"replica_groups=\{\{[0-9]+\}", rest):
            continue
        counts[kind] += 1
        for dtype, shape in re.findall(r"([a-z]+[0-9]*)\[([0-9,]*)\]", result):
            sizes[kind] += BYTES[dtype] * math.prod(int(side) for side in shape.split(",") if side)
    met = [kind for kind in KINDS if counts[kind]]
    return {kind: counts[kind] for kind in met}, {kind: sizes[kind] for kind in met}


def all_collectives(setting: str, meshes: list[dict[str, int]], locations: int | None) -> list[Row]:
    """The collective operations on each of these meshes."""
    return [collectives_of(setting, axes, locations) for axes in meshes]
