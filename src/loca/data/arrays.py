"""Arrays as users have them: lists, integers, any precision, arrays of other libraries, one channel without an axis."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from loca.typing import Array, Input, Measurements, MultiInput, Numbers, SupportsDLPack


def as_numbers(values: Numbers, name: str, *shapes: str) -> Array:
    """Numbers as a JAX array of floating-point numbers, with one axis for each letter of one of the shapes.

    The last axis of the first shape may be missing if it has length one, as in the second shape.

    **Arguments:**

    - `values`: an array, or lists of numbers.
    - `name`: that of the argument, for messages.
    - `shapes`: the expected shape, and optionally that without the last axis, such as "(N, m, d_u)" and "(N, m)".
    """
    expected = f"expected {name} as an array of shape {' or '.join(shapes)}"
    values = shared_array(values)
    try:
        array = values if isinstance(values, jax.Array) else np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{expected}, got lists that do not form one ({error})") from None
    if not (jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.kind in "iub"):
        raise ValueError(f"{expected} with real numbers, got {array.dtype}")
    axes = [shape.count(",") + 1 if "," in shape and not shape.endswith(",)") else 1 for shape in shapes]
    if array.ndim not in axes:
        given = "a single number" if array.ndim == 0 else f"shape {array.shape}"
        raise ValueError(f"{expected}, got {given}")
    if not (isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jnp.floating)):
        array = jnp.asarray(array, dtype=float)  # single precision, unless JAX is set to double
    return array if array.ndim == axes[0] else array[..., None]


def as_input(u: Numbers | Measurements | MultiInput, *, many: bool) -> Input:
    """An input function, or many, with arrays from numbers as users have them."""
    if isinstance(u, MultiInput):
        fields = tuple(as_input(field, many=many) for field in u.fields)
        shapes = ("(N, k)", "(N,)") if many else ("(k,)",)
        return MultiInput(fields, None if u.scalars is None else as_numbers(u.scalars, "scalars", *shapes))  # pyright: ignore[reportArgumentType]
    shapes = ("(N, m, {})", "(N, m)") if many else ("(m, {})", "(m,)")
    if isinstance(u, Measurements):
        return as_measurements(u, *shapes)
    given = getattr(u, "shape", ())
    if not many and len(given) == 3:
        raise ValueError(
            f"expected u of one function, got shape {given}; use `predict` for many functions, or jax.vmap"
        )
    return as_numbers(u, "u", *(shape.format("d_u") for shape in shapes))


def as_measurements(given: Measurements, *shapes: str) -> Measurements:
    """Measurements with arrays from numbers as users have them; values, locations and mask must agree."""
    u = as_numbers(given.u, "the values of Measurements", *(shape.format("d_u") for shape in shapes))
    x = as_numbers(given.x, "the locations of Measurements", *(shape.format("d_x") for shape in shapes))
    mask = jnp.asarray(shared_array(given.mask), dtype=bool)
    if not u.shape[:-1] == x.shape[:-1] == mask.shape:
        raise ValueError(
            f"the values of Measurements have shape {u.shape}, their locations {x.shape} and their mask {mask.shape}; "
            "pass one location and one entry of the mask for each value"
        )
    return Measurements(u, x, mask)


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
