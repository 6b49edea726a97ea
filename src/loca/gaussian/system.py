"""The normal equations of the coefficients, and conjugate gradients to solve them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from loca.devices import FUNCTIONS, pad_to_multiple
from loca.gaussian.labels import LabelMap, Values
from loca.typing import PyTree

Unknowns = Float[Array, "S r_u r_y"]
IterationCallback = Callable[[int, float], object]
"""Called after every iteration with its number and the largest residual; its result is ignored."""


class Block(NamedTuple):
    """Some functions: where they are labeled, and the values of their labels."""

    labels: LabelMap
    values: Values


class System:
    """A(C) = Σ Fᵀ (F C Hᵀ) H + λ C over all labels: the normal equations of min Σ (s − f(u)ᵀ C h(y))² + λ‖C‖².

    **Arguments:**

    - `blocks`: all functions. It is iterated over once for every application of A, so a large number of functions may
      be read from files every time.
    - `noise`: λ > 0.
    - `mesh`: splits the functions of every block over its devices. All that devices exchange is one sum of C per block.
    """

    def __init__(self, blocks: Iterable[Block], noise: float, mesh: Mesh | None = None):
        self.noise, self.mesh = noise, mesh
        self.blocks = blocks if mesh is None else OnMesh(blocks, mesh)
        self.power, self.right = self._sum(beginning)
        """diag A − λ, and the right-hand sides."""

    def __call__(self, c: Unknowns) -> Unknowns:
        return self._sum(normal, c) + self.noise * c

    def solve(self, tolerance: float, limit: int, report: IterationCallback | None = None) -> Solution:
        """The coefficients for the values of the labels, by conjugate gradients for all right-hand sides at once.

        They end after `limit` iterations, or when ‖b − A C‖/‖b‖ is below the tolerance for every right-hand side b,
        with ‖r‖² = r·M r for the preconditioner M: all features count alike.
        """
        # A⁻¹ if features are orthogonal over functions and over the locations of all labels
        preconditioner = 1.0 / (self.power + self.noise)
        return conjugate_gradients(self, self.right, preconditioner, None, (tolerance, limit), report)

    def variance(self, c: Unknowns, labels: int) -> Float[Array, " S"]:
        """σ² of maximum likelihood: sᵀ(K + λ)⁻¹s/n for n labels with covariance K + λ, without cancellation."""
        return (self._sum(misfit, c) / self.noise + jnp.sum(c**2, axis=(1, 2))) / labels

    def _sum(self, function: Callable[..., PyTree], *arguments: Array) -> PyTree:
        total = None
        for block in self.blocks:
            one = summed(function, block, arguments, self.mesh)
            if total is not None:
                jax.block_until_ready(total)  # or blocks would be read faster than used, and fill the memory
            total = one if total is None else jax.tree.map(jnp.add, total, one)
        return total


def beginning(block: Block) -> tuple[Float[Array, "r_u r_y"], Unknowns]:
    """Σ f_a(uₙ)² h_b(yₙₚ)², the diagonal of Fᵀ (F · Hᵀ) H, and Fᵀ s H."""
    return (block.labels.f**2).T @ block.labels.squares(), block.labels.adjoint(block.values)


def normal(block: Block, c: Unknowns) -> Unknowns:
    """Fᵀ (F C Hᵀ) H."""
    return block.labels.normal(c)


def misfit(block: Block, c: Unknowns) -> Float[Array, " S"]:
    """Σ (s − f(u)ᵀ C h(y))²."""
    return jnp.sum((block.values - block.labels(c)) ** 2, axis=(1, 2))


@eqx.filter_jit
def summed(function: Callable[..., PyTree], block: Block, arguments: tuple[Array, ...], mesh: Mesh | None) -> PyTree:
    """The value of a function that is a sum over the functions of a block, with each device adding its part."""
    if mesh is None:
        return function(block, *arguments)

    def on_device(block: Block, *arguments: Array) -> PyTree:
        return jax.lax.psum(function(block, *arguments), FUNCTIONS)

    specs = (partition(block), *(PartitionSpec() for _ in arguments))
    return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())(block, *arguments)


class Solution(NamedTuple):
    """Unknowns x, and the largest ‖b − A x‖/‖b‖ of all right-hand sides, in the norm of the preconditioner."""

    x: Any
    iterations: int
    residual: float


def conjugate_gradients(
    normal: Callable[[Any], Any], b: Any, preconditioner: Any, first: Any, accuracy: tuple[float, int],
    report: IterationCallback | None,
) -> Solution:  # fmt: skip
    """Iterate from the first solution, or from zero, in arrays of NumPy or JAX, for all right-hand sides at once."""

    def dot(a: Any, b: Any) -> Float[np.ndarray, " S"]:
        return np.asarray((a * b).sum(axis=(1, 2)))

    def ratio(a: Float[np.ndarray, " S"], b: Float[np.ndarray, " S"]) -> Float[np.ndarray, "S 1 1"]:
        """a/b, and 0 for a right-hand side that is solved exactly."""
        return np.where(b > 0.0, a / np.where(b > 0.0, b, 1.0), 0.0).astype(b.dtype)[:, None, None]

    def relative(rz: Float[np.ndarray, " S"]) -> float:
        return float(np.sqrt(np.max(rz / size)))

    size = dot(b, preconditioner * b)
    size = np.where(size > 0.0, size, 1.0)
    x, r = (0.0 * b, b) if first is None else (first, b - normal(first))
    p = preconditioner * r
    rz = dot(r, p)
    residual, count, (tolerance, limit) = relative(rz), 0, accuracy
    while count < limit and residual > tolerance:
        product = normal(p)
        alpha = ratio(rz, dot(p, product))
        x, r = x + alpha * p, r - alpha * product
        z = preconditioner * r
        before, rz = rz, dot(r, z)
        p, count, residual = z + ratio(rz, before) * p, count + 1, relative(rz)
        if report is not None:
            report(count, residual)
    return Solution(x, count, residual)


# ---- blocks ----------------------------------------------------------------------------------------------------------


class StoredBlocks:
    """Blocks in files, read one after the other. All of them have the same features of locations."""

    def __init__(self, directory: Path):
        self.directory, self.count = directory, 0
        self.first: LabelMap | None = None

    def append(self, block: Block) -> None:
        """Write a block; arrays that all blocks share stay in memory."""
        arrays = map(np.asarray, (block.values, *block.labels.rows))
        np.savez(self.directory / f"{self.count}.npz", *arrays, allow_pickle=False)
        self.first = self.first or block.labels
        self.count += 1

    def __iter__(self) -> Iterator[Block]:
        first = self.first
        assert first is not None, "no functions"
        for i in range(self.count):
            with np.load(self.directory / f"{i}.npz") as file:
                values, *rows = (jnp.asarray(file[name]) for name in file.files)
            yield Block(first.with_rows(*rows), values)


class OnMesh:
    """Blocks whose functions are split over the devices of a mesh; missing functions have features zero."""

    def __init__(self, blocks: Iterable[Block], mesh: Mesh):
        self.blocks, self.mesh = blocks, mesh

    def __iter__(self) -> Iterator[Block]:
        for block in self.blocks:
            count = self.mesh.shape[FUNCTIONS]
            f, *rows = (pad_to_multiple(each, count, 0) for each in block.labels.rows)
            added = jnp.arange(len(f))[:, None] >= block.values.shape[1]
            values = jnp.where(added, 0.0, pad_to_multiple(block.values, count, 1))
            whole = Block(block.labels.with_rows(jnp.where(added, 0.0, f), *rows), values)
            shardings = jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), partition(whole))
            yield jax.device_put(whole, shardings)


def partition(block: Block) -> PyTree:
    """How the arrays of a block are split: by functions where they have one row per function."""
    whole = jax.tree.map(lambda _: PartitionSpec(), block.labels)
    return Block(whole.with_rows(*[PartitionSpec(FUNCTIONS)] * len(block.labels.rows)), PartitionSpec(None, FUNCTIONS))  # pyright: ignore[reportArgumentType]
