"""The axes of a device mesh."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from loca.typing import Array

FUNCTIONS = "functions"
"""The mesh axis that splits functions."""

QUERIES = "queries"
"""The mesh axis that splits queries."""

NODES = "nodes"
"""The mesh axis that splits the quadrature nodes of `LOCA`."""

AXES = (FUNCTIONS, QUERIES, NODES)
"""All axes that a mesh may have."""


def complete(mesh: Mesh) -> Mesh:
    """The same devices with all of `AXES`; an axis that the mesh lacks gets one device.

    Raises `ValueError` if the mesh has any other axis.
    """
    if not set(mesh.axis_names) <= set(AXES):
        raise ValueError(
            f"the mesh has axes {mesh.axis_names}, expected some of {AXES}: "
            "jax.make_mesh((jax.device_count(),), ('functions',))"
        )
    missing = [axis for axis in AXES if axis not in mesh.axis_names]
    names = (*mesh.axis_names, *missing)
    devices = mesh.devices.reshape(*mesh.devices.shape, *(1 for _ in missing))
    # a mesh from the constructor leaves the shardings to the compiler; jax.make_mesh would make them part of the types
    return Mesh(np.transpose(devices, [names.index(axis) for axis in AXES]), AXES)


def pad_to_multiple(rows: Array, devices: int, axis: int) -> Array:
    """Repeat the last row along an axis until the devices can split the axis evenly."""
    missing = -rows.shape[axis] % devices
    if not missing:
        return rows
    return jnp.pad(rows, [(0, missing if i == axis else 0) for i in range(rows.ndim)], mode="edge")
