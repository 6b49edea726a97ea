"""The content of a store: names and dimensions of its arrays, digests, and statistics of its channels."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from loca.data.queries import Free, Indexed, Shared
from loca.data.samples import Samples, Variable
from loca.data.transforms import is_round_off
from loca.domains import Domain
from loca.typing import Measurements, MultiInput

FORMAT = 1
"""Version of the format; to be raised when an older reader would misread a newer store."""

Arrays = Mapping[str, np.ndarray]
"""Arrays by name: always `u` and `s`, others where they apply."""

SCALARS = "scalars"
"""The name of the numbers beside fields. The arrays of the first field are `u`, `x` and `mask`, those of the second
`u_2`, `x_2` and `mask_2`."""

DIMENSIONS = {
    "u": ("sensor", "input"),
    "s": ("query", "output"),
    "x": ("sensor", "sensor_axis"),
    "y": ("query", "query_axis"),
    "mask": ("sensor",),
    "index": ("query",),
}


@dataclasses.dataclass(frozen=True, eq=False)
class StoreSchema:
    """The schema of a store.

    **Arguments:**

    - `count`: N, the number of samples.
    - `domain`: Y.
    - `inputs`, `outputs`: names and units of the channels of u and s.
    - `once`: the arrays that all samples share.
    - `each`: the arrays of one sample, as an example.
    - `sensor_coordinates`, `query_coordinates`: names and units of the columns of x and y; empty if unknown.
    """

    count: int
    domain: Domain
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    once: Arrays
    each: Arrays
    sensor_coordinates: tuple[Variable, ...] = ()
    query_coordinates: tuple[Variable, ...] = ()

    def description(self) -> dict[str, Any]:
        """The schema in a form that JSON can hold."""
        variables = ("inputs", "outputs", "sensor_coordinates", "query_coordinates")
        return {
            "format": FORMAT,
            "count": self.count,
            "domain": self.domain.to_json(),
            **{name: [variable._asdict() for variable in getattr(self, name)] for name in variables},
            "arrays": {name: [array.dtype.str, *array.shape] for name, array in sorted(self.each.items())},
            "shared": {name: array_digest(array) for name, array in sorted(self.once.items())},
        }


# ---- arrays ----------------------------------------------------------------------------------------------------------


def samples_to_arrays(samples: Samples) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The arrays that all functions share, and those with one row for each function."""
    once: dict[str, Any] = {}
    each: dict[str, Any] = {"s": samples.s}
    if isinstance(samples.u, MultiInput) and samples.u.scalars is not None:
        each[SCALARS] = samples.u.scalars
    fields = samples.u.fields if isinstance(samples.u, MultiInput) else (samples.u,)
    places = samples.x if isinstance(samples.x, tuple) else (samples.x,)
    for end, field, x in zip(endings(), fields, places, strict=False):
        if isinstance(field, Measurements):
            each |= {f"u{end}": field.u, f"x{end}": field.x, f"mask{end}": field.mask}
        else:
            each[f"u{end}"] = field
        if x is not None:
            once[f"x{end}"] = x
    match samples.y:
        case Free(y=y):
            each["y"] = y
        case Indexed(y=y, index=index):
            once["y"] = y
            each["index"] = index
        case Shared(y=y):
            once["y"] = y
        case other:
            raise ValueError(f"queries of type {type(other).__name__} cannot be stored; use Shared, Indexed or Free")
    return {name: np.asarray(a) for name, a in once.items()}, {name: np.asarray(a) for name, a in each.items()}


def samples_from_arrays(once: Mapping[str, Any], each: Arrays, **about: Any) -> Samples:
    """The samples whose arrays `samples_to_arrays` returns, in single precision.

    **Arguments:**

    - `once`, `each`: the arrays.
    - `about`: domain, inputs, outputs and the coordinates of sensors and queries, as for `Samples`.
    """
    rows = {name: jnp.asarray(array) for name, array in each.items()}
    if "y" in rows:
        queries = Free(rows["y"])
    elif "index" in rows:
        queries = Indexed(once["y"], rows["index"])
    else:
        queries = Shared(once["y"])
    ends = list(itertools.takewhile(lambda end: f"u{end}" in rows, endings()))
    fields = tuple(
        Measurements(rows[f"u{end}"], rows[f"x{end}"], rows[f"mask{end}"]) if f"mask{end}" in rows else rows[f"u{end}"]
        for end in ends
    )
    u, x = fields[0], once.get("x")
    if len(fields) > 1 or SCALARS in rows:
        u, x = MultiInput(fields, rows.get(SCALARS)), tuple(once.get(f"x{end}") for end in ends)
    return Samples(u, queries, rows["s"], x=x, **about)


def endings() -> Iterator[str]:
    """Endings of the names of the arrays of each field: none, _2, _3, …"""
    return itertools.chain([""], (f"_{i}" for i in itertools.count(2)))


def dimensions(name: str, rowwise: bool, indexed: bool) -> tuple[str, ...]:
    """The names of the axes of an array; axes of equal name have equal size, as xarray requires."""
    if name == SCALARS:
        return ("sample", "scalar")
    letter, _, number = name.partition("_")
    own = tuple(f"{axis}_{number}" if number else axis for axis in DIMENSIONS[letter])
    if name == "y" and indexed:
        own = ("location", "query_axis")
    return ("sample", *own) if rowwise else own


# ---- digests ---------------------------------------------------------------------------------------------------------


def sample_digests(each: Arrays) -> np.ndarray:
    """SHA-256 of the bytes of every sample, with its arrays in the order of their names."""
    arrays = [np.ascontiguousarray(each[name]) for name in sorted(each)]
    digests = np.empty((len(arrays[0]), 32), np.uint8)
    for i in range(len(digests)):
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(array[i].tobytes())
        digests[i] = np.frombuffer(digest.digest(), np.uint8)
    return digests


def content_digest(once: Arrays, samples: np.ndarray) -> str:
    """SHA-256 of the shared arrays and the digests of all samples: independent of how the work was divided."""
    digest = hashlib.sha256()
    for name in sorted(once):
        digest.update(array_digest(once[name]).encode())
    digest.update(np.ascontiguousarray(samples).tobytes())
    return digest.hexdigest()


def array_digest(array: np.ndarray) -> str:
    """SHA-256 of the dtype, shape and bytes of an array."""
    header = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(header + np.ascontiguousarray(array).tobytes()).hexdigest()


# ---- statistics ------------------------------------------------------------------------------------------------------


def moments(values: Float[np.ndarray, "*N d"], mask: Bool[np.ndarray, "*N"] | None = None) -> Float[np.ndarray, "5 d"]:
    """n, mean x̄, Σ(x − x̄)², min and max of the finite values of each channel, where the mask, if given, is true."""
    kept = values.reshape(-1, values.shape[-1]) if mask is None else values[mask]
    channels = (channel[np.isfinite(channel)] for channel in kept.T.astype(np.float64, order="C"))
    return np.array([channel_moments(channel) for channel in channels]).T


def channel_moments(values: Float[np.ndarray, " n"]) -> tuple[float, float, float, float, float]:
    """n, x̄, Σ(x − x̄)², min and max of one channel."""
    if not len(values):
        return 0.0, 0.0, 0.0, np.inf, -np.inf
    mean = values.mean()
    squares = np.square(values - mean).sum()  # not a BLAS product, whose sum depends on the number of threads
    return float(len(values)), mean, squares, values.min(), values.max()


def input_moments(each: Arrays) -> Float[np.ndarray, "5 d"]:
    """The moments of all input channels: those of every field, then the scalars."""
    ends = itertools.takewhile(lambda end: f"u{end}" in each, endings())
    tables = [moments(each[f"u{end}"], each.get(f"mask{end}")) for end in ends]
    if SCALARS in each:
        tables.append(moments(each[SCALARS]))
    return np.concatenate(tables, axis=1)


def merge_moments(a: Float[np.ndarray, "5 d"], b: Float[np.ndarray, "5 d"]) -> Float[np.ndarray, "5 d"]:
    """x̄ = x̄ₐ + δ n_b/n and Σ = Σₐ + Σ_b + δ² nₐn_b/n with δ = x̄_b − x̄ₐ (Chan, Golub & LeVeque 1979)."""
    n = np.maximum(a[0] + b[0], 1.0)
    delta = b[1] - a[1]
    mean, squares = a[1] + delta * b[0] / n, a[2] + b[2] + delta**2 * a[0] * b[0] / n
    return np.stack([a[0] + b[0], mean, squares, np.minimum(a[3], b[3]), np.maximum(a[4], b[4])])


@dataclasses.dataclass(frozen=True, eq=False)
class Statistics:
    """Count, mean, standard deviation, minimum and maximum of the finite values of each channel."""

    count: Float[np.ndarray, " d"]
    mean: Float[np.ndarray, " d"]
    std: Float[np.ndarray, " d"]
    min: Float[np.ndarray, " d"]
    max: Float[np.ndarray, " d"]

    @classmethod
    def of(cls, tables: Iterable[Float[np.ndarray, "5 d"]]) -> Statistics:
        """The statistics of several pieces together, whose moments are merged in the order given."""
        count, mean, squares, low, high = functools.reduce(merge_moments, tables)
        return cls(count, mean, np.sqrt(squares / np.maximum(count, 1.0)), low, high)

    def shift_and_scale(self) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
        """Mean and standard deviation; 1 for a constant channel, whose standard deviation is round-off."""
        scale = np.where(is_round_off(self.std, self.mean), 1.0, self.std)
        return jnp.asarray(self.mean, jnp.float32), jnp.asarray(scale, jnp.float32)

    def to_json(self) -> dict[str, Any]:
        """Lists of numbers; null for the range of a channel without finite values."""
        return {
            name: [float(value) if np.isfinite(value) else None for value in values]
            for name, values in vars(self).items()
        }

    @classmethod
    def from_json(cls, lists: dict[str, Any]) -> Statistics:
        """The inverse of `to_json`."""
        return cls(**{name: np.array(values, dtype=np.float64) for name, values in lists.items()})
