"""What goes between devices in one training step, read off the compiled program."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from loca.benchmarks.step import random_functions
from loca.devices import complete, constrain
from loca.models import SETTINGS
from loca.parameters import count as count_parameters
from loca.training import Encoded, State, advance
from loca.typing import Array, PyTree

KINDS: tuple[str, ...] = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
"""The collective operations that the compiler knows."""

BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
"""Of a number, by the compiler's name of its type."""


@dataclasses.dataclass(frozen=True)
class Collectives:
    """The collective operations of one compiled step.

    **Arguments:**

    - `axes`: the mesh, as numbers of devices by axis.
    - `locations`, `batch`: M and N of the step.
    - `parameter_bytes`: size of the gradient.
    - `counts`: how many operations there are of each kind.
    - `sizes`: bytes of the results that each device holds after all operations of a kind.
    """

    axes: dict[str, int]
    locations: int
    batch: int
    parameter_bytes: int
    counts: dict[str, int]
    sizes: dict[str, int]


def measure_collectives(
    devices: int = 8,
    *,
    setting: str = "darcy",
    meshes: Sequence[Mapping[str, int]] | None = None,
    locations: int | None = None,
) -> list[Collectives]:
    """Compile the training step of a setting for many devices, split in several ways, and count what goes between them.

    Nothing is run, so this machine simulates as many devices as are asked for; a fresh process is started for it, since
    their number cannot be changed later.

    **Arguments:**

    - `devices`: how many; a multiple of 4.
    - `setting`: one of the paper's experiments, by name in `loca.models.SETTINGS`.
    - `meshes`: ways to split it, as numbers of devices by axis; by default each axis alone and all three.
    - `locations`: M, all of them asked of every function; by default the setting's own, with its own labels.
    """
    if devices < 4 or devices % 4:
        raise ValueError(f"expected a multiple of 4, got {devices} devices")
    if setting not in SETTINGS:
        raise ValueError(f"unknown setting {setting!r}; choose one of {', '.join(SETTINGS)}")
    asked = {"setting": setting, "meshes": layouts(devices) if meshes is None else meshes, "locations": locations}
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-c", "from loca.benchmarks.collectives import main; main()", json.dumps(asked)],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the process that compiles for {devices} devices has failed:\n{done.stderr[-2000:]}")
    return [Collectives(**found) for found in json.loads(done.stdout.splitlines()[-1])]


def layouts(devices: int) -> list[dict[str, int]]:
    """Meshes of so many devices: each axis alone, and all three."""
    return [
        {"functions": devices},
        {"queries": devices},
        {"nodes": devices},
        {"functions": devices // 4, "queries": 2, "nodes": 2},
    ]


def collectives_of(setting: str, axes: Mapping[str, int], locations: int | None = None) -> Collectives:
    """The collectives of one step of a setting on a mesh of this process's devices."""
    mesh = complete(Mesh(np.array(jax.devices()).reshape(*axes.values()), tuple(axes)))
    sizes = SETTINGS[setting]
    sizes = sizes if locations is None else dataclasses.replace(sizes, locations=locations, queries=locations)
    batch = math.lcm(sizes.batch_size, mesh.shape["functions"])  # it must split
    samples = random_functions(sizes, jax.random.key(0), 4)
    model = sizes.loca(samples, key=jax.random.key(1))
    optimizer = optax.adam(1e-3)
    variable, constant = eqx.partition(State.start(model, optimizer), eqx.is_array)

    def one(variable: PyTree, encoded: Encoded) -> tuple[PyTree, Array]:
        state, loss = advance(eqx.combine(variable, constant), encoded.sharded(mesh), optimizer, mesh=mesh)
        return constrain(eqx.filter(state, eqx.is_array), mesh), loss

    encoded = jax.eval_shape(lambda few: few.take(jnp.zeros(batch, jnp.int32)), Encoded.of(model, samples))
    everywhere = NamedSharding(mesh, PartitionSpec())
    shapes = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=everywhere), (variable, encoded)
    )
    program = jax.jit(one, donate_argnums=0).lower(*shapes).compile().as_text() or ""
    counts, results = tally(program)
    return Collectives(
        axes=dict(axes),
        locations=len(samples.y.points),
        batch=batch,
        parameter_bytes=4 * count_parameters(model),
        counts=counts,
        sizes=results,
    )


def tally(program: str) -> tuple[dict[str, int], dict[str, int]]:
    """Collectives in the text of a compiled program, by kind: how many, and the bytes of their results.

    Those in which every device is alone with itself do not count.
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


def main() -> None:
    """Compile in this process what its last argument asks for, and tell in JSON."""
    asked = json.loads(sys.argv[-1])
    found = [collectives_of(asked["setting"], axes, asked["locations"]) for axes in asked["meshes"]]
    sys.stdout.write(json.dumps([dataclasses.asdict(each) for each in found]) + "\n")
