"""What a store holds: the names and dimensions of its arrays, and how samples are taken apart and put together."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from loca.data.queries import Free, Indexed, Shared
from loca.data.samples import Samples, Variable
from loca.domains import Domain
from loca.typing import Measurements

FORMAT = 1
"""Version of the layout, to be raised when an older reader would misread a newer store."""

Arrays = Mapping[str, np.ndarray]
"""Arrays by name; `u` and `s` always, the others where they apply."""

DIMENSIONS = {
    "u": ("sensor", "input"),
    "s": ("query", "output"),
    "x": ("sensor", "sensor_axis"),
    "y": ("query", "query_axis"),
    "mask": ("sensor",),
    "index": ("query",),
}


@dataclasses.dataclass(frozen=True, eq=False)
class StoreLayout:
    """N samples: `once` the arrays all of them share, `each` an example of the arrays every one has of its own."""

    count: int
    domain: Domain
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    once: Arrays
    each: Arrays

    def description(self) -> dict[str, Any]:
        """What makes this layout what it is, as JSON can hold it."""
        return {
            "format": FORMAT,
            "count": self.count,
            "domain": self.domain.to_json(),
            "inputs": [variable._asdict() for variable in self.inputs],
            "outputs": [variable._asdict() for variable in self.outputs],
            "arrays": {name: [array.dtype.str, *array.shape] for name, array in sorted(self.each.items())},
            "shared": {name: array_digest(array) for name, array in sorted(self.once.items())},
        }


def take_apart(samples: Samples) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The arrays that all functions share, and those with one row for each function."""
    once: dict[str, Any] = {} if samples.x is None else {"x": samples.x}
    each: dict[str, Any] = {"s": samples.s}
    if isinstance(samples.u, Measurements):
        each |= {"u": samples.u.u, "x": samples.u.x, "mask": samples.u.mask}
    else:
        each["u"] = samples.u
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


def put_together(
    once: Mapping[str, Any],
    each: Arrays,
    *,
    domain: Domain,
    inputs: tuple[Variable, ...],
    outputs: tuple[Variable, ...],
) -> Samples:
    """The samples that `take_apart` would take apart into these arrays, in single precision."""
    rows = {name: jnp.asarray(array) for name, array in each.items()}
    if "y" in rows:
        queries = Free(rows["y"])
    elif "index" in rows:
        queries = Indexed(once["y"], rows["index"])
    else:
        queries = Shared(once["y"])
    u = Measurements(rows["u"], rows["x"], rows["mask"]) if "mask" in rows else rows["u"]
    return Samples(u, queries, rows["s"], x=once.get("x"), domain=domain, inputs=inputs, outputs=outputs)


def dimensions(name: str, rowwise: bool, indexed: bool) -> tuple[str, ...]:
    """What the axes of an array are called; equal names have equal sizes, as xarray wants it."""
    own = DIMENSIONS[name]
    if name == "y" and indexed:
        own = ("location", "query_axis")
    return ("sample", *own) if rowwise else own


def sample_digests(each: Arrays) -> np.ndarray:
    """SHA-256 of the bytes of every sample, its arrays in the order of their names."""
    arrays = [np.ascontiguousarray(each[name]) for name in sorted(each)]
    digests = np.empty((len(arrays[0]), 32), np.uint8)
    for i in range(len(digests)):
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(array[i].tobytes())
        digests[i] = np.frombuffer(digest.digest(), np.uint8)
    return digests


def content_digest(once: Arrays, samples: np.ndarray) -> str:
    """SHA-256 of what is shared and of the digests of all samples in order: the same however the work was cut up."""
    digest = hashlib.sha256()
    for name in sorted(once):
        digest.update(array_digest(once[name]).encode())
    digest.update(np.ascontiguousarray(samples).tobytes())
    return digest.hexdigest()


def array_digest(array: np.ndarray) -> str:
    """SHA-256 of an array's shape, kind and bytes."""
    header = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(header + np.ascontiguousarray(array).tobytes()).hexdigest()
