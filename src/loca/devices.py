"""Devices, meshes and processes: where arrays live and who works on them."""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from loca.parameters import trainable
from loca.typing import Array, PyTree

__all__ = ["shard_large"]


@dataclasses.dataclass(frozen=True)
class ProcessGroup:
    """This process among those that do the same work: number `index` of `count`.

    All processes make the same calls in the same order. What only one may do, such as writing a file, the first does.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def of(cls, mesh: Mesh | None) -> "ProcessGroup":
        """The processes whose devices are in a mesh: one, or all of them."""
        found = {0} if mesh is None else {device.process_index for device in mesh.devices.flat}
        if len(found) == 1:
            return cls()
        if len(found) < jax.process_count():
            raise ValueError(
                f"the mesh has devices of {len(found)} of the {jax.process_count()} processes; use the devices of "
                "all of them, jax.devices(), or of one, jax.local_devices()"
            )
        return cls(jax.process_index(), jax.process_count())

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.index == 0

    def gather(self, number: int) -> np.ndarray:
        """An integer from every process; waits for all processes."""
        if self.count == 1:
            return np.array([number])
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(np.asarray([number], np.int32))).reshape(-1)

    def broadcast(self, number: int) -> int:
        """The number that the first process passes."""
        return int(self.gather(number)[0])

    def any(self, flag: bool) -> bool:
        """Whether any process passes true."""
        return bool(self.gather(flag).any())

    def barrier(self) -> None:
        """Wait until all processes are here."""
        self.gather(0)


SINGLE_PROCESS = ProcessGroup()
"""The group of a process that works alone."""


FUNCTIONS = "functions"
"""The mesh axis that splits functions."""

QUERIES = "queries"
"""The mesh axis that splits queries."""

NODES = "nodes"
"""The mesh axis that splits quadrature nodes."""

AXES = FUNCTIONS, QUERIES, NODES


def complete(mesh: Mesh) -> Mesh:
    """The same devices with all of `AXES`; an axis that the mesh lacks gets one device.

    Raises `ValueError` if the mesh has any other axis.
    """
    if not set(mesh.axis_names) <= set(AXES):
        raise ValueError(
            f"the mesh has axes {mesh.axis_names}, expected some of {AXES}: "
            "jax.make_mesh((jax.device_count(),), ('functions',))"
        )
    order = [mesh.axis_names.index(axis) for axis in AXES if axis in mesh.axis_names]
    devices = np.transpose(mesh.devices, order).reshape([mesh.shape.get(axis, 1) for axis in AXES])
    # a mesh from the constructor leaves the shardings to the compiler; jax.make_mesh would make them part of the types
    return Mesh(devices, AXES)


def pad_to_multiple(rows: Array, devices: int, axis: int) -> Array:
    """Repeat the last row along an axis until the devices can split the axis evenly."""
    missing = -rows.shape[axis] % devices
    if not missing:
        return rows
    return jnp.pad(rows, [(0, missing if i == axis else 0) for i in range(rows.ndim)], mode="edge")


T = TypeVar("T", bound=PyTree)

ShardingRule = Callable[[Array, Mesh], PartitionSpec]
"""Says how a learned array, or the optimizer's state for it, is split over a mesh between steps."""


def replicated(array: Array, mesh: Mesh) -> PartitionSpec:
    """Every device holds the whole array."""
    return PartitionSpec()


def shard_large(array: Array, mesh: Mesh, size: int = 2**16) -> PartitionSpec:
    """Split an array of at least `size` elements over the "functions" axis; replicate the others.

    The first axis that the devices split evenly is the one that is split.
    """
    devices = mesh.shape[FUNCTIONS]
    even = [axis for axis, length in enumerate(array.shape) if array.size >= size and length % devices == 0]
    return PartitionSpec(*(None,) * even[0], FUNCTIONS) if even else PartitionSpec()


def place(tree: T, mesh: Mesh | None, rule: ShardingRule = replicated) -> T:
    """Put the arrays of a tree on the devices of a mesh; every process must pass the same tree."""
    if mesh is None:
        return tree
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.tree.map(_put, arrays, _shardings(arrays, mesh, rule)), rest)


def _put(array: Array, sharding: NamedSharding) -> Array:
    if sharding.is_fully_addressable or not array.is_fully_addressable:
        return jax.device_put(array, sharding)
    # an array of this process alone becomes a global array by way of the host
    return jax.make_array_from_callback(array.shape, sharding, np.asarray(array).__getitem__)


def constrain(tree: T, mesh: Mesh | None, rule: ShardingRule = replicated) -> T:
    """What `place` does, inside a compiled program."""
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(tree, _shardings(tree, mesh, rule))


def _shardings(arrays: PyTree, mesh: Mesh, rule: ShardingRule) -> PyTree:
    """The sharding of every array: by the rule if it is learned, replicated otherwise, since every step reads it."""

    def of(array: Array, learned: bool) -> NamedSharding:
        return NamedSharding(mesh, rule(array, mesh) if learned else PartitionSpec())

    return jax.tree.map(of, arrays, trainable(arrays))


def shard_functions(tree: T, mesh: Mesh | None) -> T:
    """Split the leading axis, that of the functions, of all arrays; inside a compiled program."""
    if mesh is None:
        return tree
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec(FUNCTIONS)))


def process_part(mesh: Mesh | None) -> tuple[int, int]:
    """(i, n) if this process reads part i of n equal parts of every batch; (0, 1) if it reads all of it."""
    if mesh is None or ProcessGroup.of(mesh) == SINGLE_PROCESS:
        return 0, 1
    owners = [{device.process_index for device in part.flat} for part in mesh.devices]  # of each part of a batch
    count = len(owners) // jax.process_count()
    # jax.devices() gives each process equal, adjacent parts; with any other mesh it is still correct to read everything
    if owners == [{i // count} for i in range(jax.process_count() * count)]:
        return jax.process_index(), jax.process_count()
    return 0, 1


def from_process_rows(tree: T, mesh: Mesh, size: int) -> T:
    """Arrays of `size` rows that span all devices, from the rows that each process has read."""
    if ProcessGroup.of(mesh) == SINGLE_PROCESS:
        return tree
    rows = NamedSharding(mesh, PartitionSpec(FUNCTIONS))
    return jax.tree.map(
        lambda part: jax.make_array_from_process_local_data(rows, np.asarray(part), (size, *part.shape[1:])), tree
    )


def local_copy(tree: T) -> T:
    """Replace arrays that are replicated over several processes by this process's copy; leave the others."""

    def own(leaf: Array) -> Array:
        return leaf if not eqx.is_array(leaf) or leaf.is_fully_addressable else leaf.addressable_data(0)

    return jax.tree.map(own, tree)
