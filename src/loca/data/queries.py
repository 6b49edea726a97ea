"""Arrays as users have them, and where output functions are queried: three forms, kept as given and never expanded."""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Float, Int, Num

from loca.typing import Array, Input, Key, Keys, Measurements, MultiInput, Numbers, PyTree, SupportsDLPack


def as_numbers(values: Numbers, name: str, *shapes: str) -> Array:
    """Numbers as a JAX array of floating-point numbers, with one axis for each letter of one of the shapes.

    The shapes are the expected one, and optionally that without the last axis, such as "(N, m, d_u)" and "(N, m)",
    which then has length one. The name is that of the argument, for messages.
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
    if isinstance(array, jax.Array):
        array = array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)
    else:
        channels = array.shape[-1] if array.ndim == axes[0] else 1
        array = jnp.asarray(single(array, name, jax.dtypes.canonicalize_dtype(float), channels))
    return array if array.ndim == axes[0] else array[..., None]


def single(values: np.ndarray, name: str, precision: Any = np.float32, channels: int = 1) -> np.ndarray:
    """Numbers in single precision, or the given one; raise if they overflow, or if values that vary become equal.

    The last axis may hold a number of `channels`, each of which varies for itself.
    """
    limits = np.finfo(precision)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        cast = values.astype(precision, copy=False)
    if values.dtype.kind == "b" or (values.dtype.kind == "f" and values.dtype.itemsize <= cast.dtype.itemsize):
        return cast
    if (np.isinf(cast) & np.isfinite(values)).any():
        raise ValueError(
            f"{name} has values up to {np.abs(values[np.isfinite(values)]).max():.3g}, but numbers of {limits.bits} "
            f"bits end at {limits.max:.2g}; choose another unit, or take their logarithm"
        )
    kept = np.where(np.abs(cast) < limits.tiny, 0.0, cast)  # as XLA treats smaller numbers
    wide, narrow = (each.reshape(-1, max(channels, 1)).astype(np.float64) for each in (values, kept))
    low, high = wide.min(axis=0, initial=np.inf), wide.max(axis=0, initial=-np.inf)
    lost = (high > low) & (narrow.max(axis=0, initial=-np.inf) == narrow.min(axis=0, initial=np.inf))
    if lost.any():
        raise ValueError(
            f"{name} varies from {low[lost][0]:.17g} to {high[lost][0]:.17g}, which is the same in numbers of "
            f"{limits.bits} bits; subtract the mean and choose another unit, in double precision"
        )
    return cast


def as_input(u: Numbers | Measurements | MultiInput, *, many: bool) -> Input:
    """An input function, or many, with arrays from numbers as users have them."""
    if isinstance(u, MultiInput):
        fields = tuple(as_input(field, many=many) for field in u.fields)
        shapes = ("(N, k)", "(N,)") if many else ("(k,)",)
        return MultiInput(fields, None if u.scalars is None else as_numbers(u.scalars, "scalars", *shapes))  # pyright: ignore[reportArgumentType]
    shapes = ("(N, m, d_u)", "(N, m)") if many else ("(m, d_u)", "(m,)")
    if not isinstance(u, Measurements):
        given = getattr(u, "shape", ())
        if not many and len(given) == 3:
            raise ValueError(
                f"expected u of one function, got shape {given}; use `predict` for many functions, or jax.vmap"
            )
        return as_numbers(u, "u", *shapes)
    values = as_numbers(u.u, "the values of Measurements", *shapes)
    x = as_numbers(u.x, "the locations of Measurements", shapes[0].replace("d_u", "d_x"), shapes[1])
    mask = jnp.asarray(shared_array(u.mask), dtype=bool)
    if not values.shape[:-1] == x.shape[:-1] == mask.shape:
        raise ValueError(
            f"the values of Measurements have shape {values.shape}, their locations {x.shape} and their mask "
            f"{mask.shape}; pass one location and one entry of the mask for each value"
        )
    return Measurements(values, x, mask)


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


class Queries(eqx.Module):
    """The query locations of N output functions, P for each function."""

    y: eqx.AbstractVar[Float[Array, "*N M d_y"]]

    @property
    def points(self) -> Float[Array, "M d_y"]:
        """All stored locations, one per row."""
        return self.y.reshape(-1, self.y.shape[-1])

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """P, the number of queries per function."""

    @abc.abstractmethod
    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        """The locations of each of N = `functions` functions, written out."""

    @abc.abstractmethod
    def gather(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        """The values at the queries, given one value for each of the `points`.

        The result has one row per function, or a single row if all functions share their queries.
        """

    @abc.abstractmethod
    def each(self, change: Callable[[Array], Array]) -> "Queries":
        """Apply `change` to every array that has one row per function."""

    def take(self, rows: Int[Array, " B"]) -> "Queries":
        """The queries of the functions with these numbers."""
        return self.each(lambda array: take_rows(array, rows))

    @abc.abstractmethod
    def choose(self, columns: Int[Array, "N count"]) -> "Queries":
        """For every function, the queries with the numbers in its row of `columns`."""


class Shared(Queries):
    """The same locations for all functions, such as a grid."""

    y: Float[Array, "P d_y"]

    @property
    def count(self) -> int:
        return self.y.shape[0]

    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        return jnp.broadcast_to(self.y, (functions, *self.y.shape))

    def gather(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        return values

    def each(self, change: Callable[[Array], Array]) -> "Shared":
        return self

    def choose(self, columns: Int[Array, "N count"]) -> "Indexed":
        return Indexed(self.y, columns)


class Indexed(Queries):
    """For every function, P of M shared locations: yᵢₚ = y[index[i, p]]."""

    y: Float[Array, "M d_y"]
    index: Int[Array, "N P"]

    @property
    def count(self) -> int:
        return self.index.shape[1]

    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        return self.y[self.index]

    def gather(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        return values[self.index]

    def each(self, change: Callable[[Array], Array]) -> "Indexed":
        return Indexed(self.y, change(self.index))

    def choose(self, columns: Int[Array, "N count"]) -> "Indexed":
        return Indexed(self.y, jnp.take_along_axis(self.index, columns, axis=1))


class Free(Queries):
    """Different locations for every function."""

    y: Float[Array, "N P d_y"]

    @property
    def count(self) -> int:
        return self.y.shape[1]

    def locations(self, functions: int) -> Float[Array, "N P d_y"]:
        return self.y

    def gather(self, values: Num[Array, " M"]) -> Num[Array, " P"] | Num[Array, "N P"]:
        return values.reshape(self.y.shape[:2])

    def each(self, change: Callable[[Array], Array]) -> "Free":
        return Free(change(self.y))

    def choose(self, columns: Int[Array, "N count"]) -> "Free":
        return Free(jnp.take_along_axis(self.y, columns[:, :, None], axis=1))


@jax.jit
def take_rows(tree: PyTree, rows: Int[Array, " B"]) -> PyTree:
    """The rows with these numbers of every array, by one program."""
    return jax.tree.map(lambda array: array[rows], tree)


def as_queries(y: Queries | Numbers) -> Queries:
    """Queries, from an array (P, d_y) that all functions share, an array (N, P, d_y), or P numbers if d_y = 1."""
    if isinstance(y, Queries):
        return jax.tree.map(shared_array, y)
    if np.ndim(y) == 3:  # pyright: ignore[reportArgumentType]
        return Free(check_locations(as_numbers(y, "y", "(N, P, d_y)"), "y"))
    return Shared(check_locations(as_numbers(y, "y", "(P, d_y)", "(P,)"), "y"))


def check_locations(points: Array, name: str) -> Array:
    """The same locations; raise if a coordinate is NaN or infinite. Those that JAX is tracing are not checked."""
    if not isinstance(points, Tracer):
        wrong = ~np.isfinite(np.asarray(points)).all(axis=-1)
        if wrong.any():
            first = ", ".join(str(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"{int(wrong.sum())} of {wrong.size} locations in {name} have coordinates that are NaN or infinite, "
                f"the first at index {first}; repair the coordinates, or leave these locations out"
            )
    return points


@functools.partial(jax.jit, static_argnames=("total", "count"))
def random_columns(keys: Keys, total: int, count: int) -> Int[Array, "N count"]:
    """For every key, `count` of `total` column numbers, drawn without replacement and sorted."""

    def draw(key: Key) -> Int[Array, " count"]:
        return jnp.sort(jax.random.permutation(key, total)[:count])

    return jax.lax.map(draw, keys, batch_size=256)
