"""Where arrays lie when there are several devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from loca.data import Samples
from loca.models import Operator, spread
from loca.models.spread import FUNCTIONS
from loca.parameters import trainable
from loca.training.encoded import Encoded
from loca.training.processes import ALONE, Crew
from loca.typing import Array, PyTree

T = TypeVar("T", bound=PyTree)

Rule = Callable[[Array, Mesh], PartitionSpec]
"""Over which axes of a mesh an array of parameters, or of the optimizer's state, is split between steps."""

LARGE = 2**16
"""Numbers from which on an array is worth splitting."""


def whole(array: Array, mesh: Mesh) -> PartitionSpec:
    """All of it on every device."""
    return PartitionSpec()


def split_large(array: Array, mesh: Mesh, size: int = LARGE) -> PartitionSpec:
    """An array of that size along its first axis that splits evenly over the devices of "functions"; others whole."""
    devices = mesh.shape[FUNCTIONS]
    even = [axis for axis, length in enumerate(array.shape) if array.size >= size and length % devices == 0]
    return PartitionSpec(*(None,) * even[0], FUNCTIONS) if even else PartitionSpec()


def checked(mesh: Mesh | None, model: Operator, batch_size: int) -> Mesh | None:
    """A mesh with all axes there are; refused if it cannot split this model's work on a batch."""
    if mesh is None:
        return None
    mesh = spread(model, mesh).mesh
    if batch_size % mesh.shape[FUNCTIONS]:
        raise ValueError(f"batches of {batch_size} cannot be split evenly over {mesh.shape[FUNCTIONS]} devices")
    return mesh


def place(tree: T, mesh: Mesh | None, rule: Rule = whole) -> T:
    """On the devices of the mesh, by default all of it on each; every process has the same to begin with."""
    if mesh is None:
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    placed = jax.tree.map(put, arrays, shardings(arrays, mesh, rule))
    return eqx.combine(placed, rest)


def put(array: Array, sharding: NamedSharding) -> Array:
    """An array on the devices of a mesh."""
    if sharding.is_fully_addressable or not array.is_fully_addressable:
        return jax.device_put(array, sharding)
    # what a process has to itself becomes part of what all have in common by way of the host
    return jax.make_array_from_callback(array.shape, sharding, np.asarray(array).__getitem__)


def keep(tree: T, mesh: Mesh | None, rule: Rule = whole) -> T:
    """The same within a compiled program."""
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(tree, shardings(tree, mesh, rule))


def shardings(arrays: PyTree, mesh: Mesh, rule: Rule) -> PyTree:
    """Where each lies: by the rule if it is learned, and if it is given on every device, as all use it in each step."""

    def of(array: Array, learned: bool) -> NamedSharding:
        return NamedSharding(mesh, rule(array, mesh) if learned else PartitionSpec())

    return jax.tree.map(of, arrays, trainable(arrays))


def by_function(tree: T, mesh: Mesh | None) -> T:
    """Each device its own functions, which are the rows of all arrays, within a compiled program."""
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec(FUNCTIONS)))


def split(batch: Encoded, mesh: Mesh | None) -> Encoded:
    """Each device its own functions of a batch, within a compiled program."""
    return batch.each(lambda rows: by_function(rows, mesh))


def own_part(mesh: Mesh | None) -> tuple[int, int]:
    """(i, n) if this process has the i-th of n equal parts of the functions of every batch; (0, 1) if it needs all."""
    if mesh is None or Crew.of(mesh) == ALONE:
        return 0, 1
    devices = mesh.devices  # the first axis is that of the functions
    mine = [i for i, part in enumerate(devices) if any(each.process_index == jax.process_index() for each in part.flat)]
    count = len(mine)
    # equal and side by side, as those of jax.devices() in their order are; if not, reading all is right as well
    if mine and mine == list(range(mine[0], mine[0] + count)) and not mine[0] % count and not len(devices) % count:
        return mine[0] // count, len(devices) // count
    return 0, 1


def gather_parts(batch: Samples, mesh: Mesh | None, size: int) -> Samples:
    """The batch that every process has read its part of, as one that spans all devices."""
    if mesh is None or Crew.of(mesh) == ALONE:
        return batch
    rows = NamedSharding(mesh, PartitionSpec(FUNCTIONS))

    def joined(part: Array) -> Array:
        return jax.make_array_from_process_local_data(rows, np.asarray(part), (size, *part.shape[1:]))

    spanning = jax.tree.map(joined, batch.u), batch.y.each(joined), joined(batch.s)
    # a change of leaves, not new Samples: these would look at values, which are no longer all here
    return place(eqx.tree_at(lambda batch: (batch.u, batch.y, batch.s), batch, spanning), mesh)


def own_copy(tree: T) -> T:
    """What lies whole on all devices of several processes, as this process's own; the rest as it is."""

    def own(leaf: Array) -> Array:
        return leaf if not eqx.is_array(leaf) or leaf.is_fully_addressable else leaf.addressable_data(0)

    return jax.tree.map(own, tree)
