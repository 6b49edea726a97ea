"""The normal equations of the coefficients, summed over blocks of functions and over devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from loca.devices import FUNCTIONS, pad_to_multiple
from loca.gaussian.conjugate_gradients import Report, Solution, Unknowns, conjugate_gradients
from loca.gaussian.labels import Labels, Values
from loca.typing import PyTree


class Block(NamedTuple):
    """Some functions: where they are labeled, and the values of their labels."""

    labels: Labels
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
        self.power = self._sum(squares)
        """diag A − λ."""

    @property
    def preconditioner(self) -> Float[Array, "r_u r_y"]:
        """1/diag A; it is A⁻¹ if features are orthogonal over functions and over the locations of all labels."""
        return 1.0 / (self.power + self.noise)

    def __call__(self, c: Unknowns) -> Unknowns:
        return self._sum(normal, c) + self.noise * c

    def solve(self, tolerance: float, limit: int, report: Report | None = None) -> Solution:
        """The coefficients for the values of the labels."""
        return conjugate_gradients(self, self._sum(adjoint), self.preconditioner, tolerance, limit, report)

    def misfit(self, c: Unknowns) -> Float[Array, " S"]:
        """Σ (s − f(u)ᵀ C h(y))² over all labels."""
        return self._sum(misfit, c)

    def _sum(self, function: Callable[..., Array], *arguments: Array) -> Array:
        total = None
        for block in self.blocks:
            one = summed(function, block, arguments, self.mesh)
            total = one if total is None else total + one
        assert total is not None
        return total


def normal(block: Block, c: Unknowns) -> Unknowns:
    """Fᵀ (F C Hᵀ) H."""
    return block.labels.adjoint(block.labels(c))


def adjoint(block: Block) -> Unknowns:
    """Fᵀ s H."""
    return block.labels.adjoint(block.values)


def misfit(block: Block, c: Unknowns) -> Float[Array, " S"]:
    """Σ (s − f(u)ᵀ C h(y))²."""
    return jnp.sum((block.values - block.labels(c)) ** 2, axis=(1, 2))


def squares(block: Block) -> Float[Array, "r_u r_y"]:
    """Σ f_a(uₙ)² h_b(yₙₚ)², the diagonal of Fᵀ (F · Hᵀ) H."""
    return (block.labels.f**2).T @ block.labels.squares


@eqx.filter_jit
def summed(function: Callable[..., Array], block: Block, arguments: tuple[Array, ...], mesh: Mesh | None) -> Array:
    """The value of a function that is a sum over the functions of a block, with each device adding its part."""
    if mesh is None:
        return function(block, *arguments)

    def on_device(block: Block, *arguments: Array) -> Array:
        return jax.lax.psum(function(block, *arguments), FUNCTIONS)

    specs = (partition(block), *(PartitionSpec() for _ in arguments))
    return jax.shard_map(on_device, mesh=mesh, in_specs=specs, out_specs=PartitionSpec())(block, *arguments)


class OnMesh:
    """Blocks whose functions are split over the devices of a mesh; missing functions have features zero."""

    def __init__(self, blocks: Iterable[Block], mesh: Mesh):
        self.blocks, self.mesh = blocks, mesh

    def __iter__(self) -> Iterator[Block]:
        for block in self.blocks:
            labels, count = block.labels, self.mesh.shape[FUNCTIONS]
            rows = tuple(pad_to_multiple(getattr(labels, name), count, 0) for name in labels.of_functions)
            labels = eqx.tree_at(by_names(labels), labels, rows)
            added = jnp.arange(len(labels.f)) >= block.values.shape[1]
            labels = eqx.tree_at(lambda tree: tree.f, labels, jnp.where(added[:, None], 0.0, labels.f))
            values = jnp.where(added[:, None], 0.0, pad_to_multiple(block.values, count, 1))
            whole = Block(labels, values)
            yield jax.tree.map(self._put, whole, partition(whole))

    def _put(self, array: Array, spec: PartitionSpec) -> Array:
        return jax.device_put(array, NamedSharding(self.mesh, spec))


def partition(block: Block) -> PyTree:
    """How the arrays of a block are split: by functions where they have one row per function."""
    labels = block.labels
    whole = jax.tree.map(lambda _: PartitionSpec(), labels)
    split = tuple(PartitionSpec(FUNCTIONS) for _ in labels.of_functions)
    return Block(eqx.tree_at(by_names(labels), whole, split), PartitionSpec(None, FUNCTIONS))  # pyright: ignore[reportArgumentType]


def by_names(labels: Labels) -> Callable[[Labels], tuple[Array, ...]]:
    """Picks the fields with one row per function."""
    return lambda tree: tuple(getattr(tree, name) for name in type(labels).of_functions)
