"""Arrays of other libraries, such as PyTorch and CuPy, shared without a copy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loca.typing import SupportsDLPack


def shared_array(values: Any) -> Any:
    """The same numbers as a JAX array, if `values` is an array of another library that supports DLPack.

    Anything else is returned unchanged, arrays of JAX and NumPy too. The memory is shared if the array is aligned, has
    a precision that JAX uses, and has no gaps. Integers become floating-point numbers.
    """
    if isinstance(values, jax.Array | np.ndarray | np.generic) or not isinstance(values, SupportsDLPack):
        return values
    try:
        array = jnp.from_dlpack(values)
    except jax.errors.JaxRuntimeError:  # a layout that only NumPy can describe, such as every second row
        array = jnp.asarray(np.from_dlpack(values))
    return array.astype(float) if jnp.issubdtype(array.dtype, jnp.integer) else array
