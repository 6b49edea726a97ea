"""StableHLO: programs that JAX writes and runs on any of its platforms."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from loca.exporting.program import Program

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
"""The platforms on which one and the same program runs."""


def to_stablehlo(program: Program, *, gradients: bool) -> bytes:
    """A program in the serialized form of `jax.export`."""
    check_flatbuffers()
    function = jax.jit(program.function(in_chunks=not gradients))
    exported = export.export(function, platforms=PLATFORMS)(*program.specifications())
    return bytes(exported.serialize(vjp_order=1 if gradients else 0))


def run_stablehlo(program: bytes, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a serialized program."""
    check_flatbuffers()
    outputs: Any = export.deserialize(bytearray(program)).call(*inputs)
    return {name: np.asarray(values) for name, values in outputs.items()}


def check_flatbuffers() -> None:
    """Raise unless the package that `jax.export` reads and writes files with is installed."""
    if importlib.util.find_spec("flatbuffers") is None:
        raise ImportError("exported programs need flatbuffers; install it with `pip install loca-jax[export]`")
