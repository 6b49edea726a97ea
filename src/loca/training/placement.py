"""Where arrays lie when there are several devices."""

from __future__ import annotations

from typing import TypeVar

import equinox as eqx
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from loca.training.encoded import Encoded
from loca.typing import Array, PyTree

FUNCTIONS = "functions"
"""The axis of a mesh over which the functions of a batch are split."""

T = TypeVar("T", bound=PyTree)


def check_mesh(mesh: Mesh | None, batch_size: int) -> None:
    """Refuse a mesh that cannot split a batch."""
    if mesh is None:
        return
    if mesh.axis_names != (FUNCTIONS,):
        raise ValueError(
            f"the mesh has axes {mesh.axis_names}, expected ({FUNCTIONS!r},): "
            "jax.make_mesh((jax.device_count(),), ('functions',))"
        )
    if batch_size % mesh.size:
        raise ValueError(f"batches of {batch_size} cannot be split evenly over {mesh.size} devices")


def replicate(tree: T, mesh: Mesh | None) -> T:
    """All of it on every device of the mesh."""
    if mesh is None:
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, NamedSharding(mesh, PartitionSpec())), rest)


def split(batch: Encoded, mesh: Mesh | None) -> Encoded:
    """Each device its own functions of a batch, within a compiled program; the compiler does the rest."""
    if mesh is None:
        return batch

    def part(array: Array) -> Array:
        return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, PartitionSpec(FUNCTIONS)))

    return batch.each(part)
