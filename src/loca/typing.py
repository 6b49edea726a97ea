"""Types of the arrays in public interfaces, in the paper's letters.

Sizes in the annotations are the paper's: `N` functions, `m` sensors, `P` queries, `Q` nodes, `n` features,
`l` the lifted dimension, `d_x`, `d_y`, `d_u`, `d_s` the dimensions of locations and values.
"""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jaxtyping
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

__all__ = ["Array", "Input", "Key", "Keys", "Measurements", "PyTree", "SupportsDLPack"]

Key = PRNGKeyArray
"""A typed random key, from `jax.random.key`."""

Keys = jaxtyping.Key[Array, " N"]
"""A key for each of N functions."""


@runtime_checkable
class SupportsDLPack(Protocol):
    """An array of any library that can share its memory, such as `torch.Tensor` and `cupy.ndarray`."""

    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, Any]: ...


class Measurements(eqx.Module):
    """u(x) measured at arbitrary locations: values, their locations, and a mask.

    Functions with different numbers of sensors are padded to one array: a row whose `mask` is false is ignored.
    """

    u: Float[Array, "*N m d_u"]
    x: Float[Array, "*N m d_x"]
    mask: Bool[Array, "*N m"]


Input = Float[Array, "*N m d_u"] | Measurements
"""An input function: values at the sensors a model was built for, or measurements with their own locations."""
