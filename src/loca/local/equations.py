"""Normal equations of regression on features, summed over blocks, on one device or on a mesh of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Bool, Float

from loca.devices import FUNCTIONS, complete, local_copy
from loca.typing import PyTree

Regression = Callable[[PyTree, PyTree], tuple[Float[Array, "B P K"], Float[Array, "B P d"]]]
"""From a rule and a block of functions to features and to what they should explain."""


class NormalEquations:
    """Σ x xᵀ and Σ x r over features x and targets r, in double precision; one sum for each of several parts.

    **Arguments:**

    - `parts`, `features`, `outputs`: how many there are.
    - `mesh`: devices that share the functions of every block. All that they exchange is the sums.
    """

    def __init__(self, parts: int, features: int, outputs: int, mesh: Mesh | None = None):
        self.mesh = None if mesh is None else complete(mesh)
        self.matrix = [np.zeros((features, features)) for _ in range(parts)]
        self.right = [np.zeros((features, outputs)) for _ in range(parts)]

    @property
    def multiple(self) -> int:
        """Blocks have a multiple of this number of functions."""
        return 1 if self.mesh is None else self.mesh.shape[FUNCTIONS]

    def add(self, part: int, regression: Regression, rule: PyTree, block: PyTree, count: int) -> None:
        """Add the sums over the first `count` functions of a block; the others only fill it."""
        if self.mesh is None:  # NumPy multiplies a matrix by itself five times as fast as XLA does on CPUs
            x, r = flat(regression, rule, block, count)
            found = x.T @ x, x.T @ r
        else:
            valid = jnp.arange(len(jax.tree.leaves(block)[0])) < count
            with jax.enable_x64(True):
                found = local_copy(summed(regression, rule, block, valid, self.mesh))
        self.matrix[part] += np.asarray(found[0])
        self.right[part] += np.asarray(found[1])

    def solve(
        self, strengths: Sequence[float], without: int | None = None, kept: Bool[np.ndarray, " K"] | None = None
    ) -> Float[np.ndarray, "L K d"]:
        """The weights for each penalty, from all parts, or from all but one; infinite if they are not determined.

        Features have size 1 for the penalty; those that are not `kept` have weights zero.
        """
        kept = np.ones(len(self.right[0]), bool) if kept is None else kept
        scaled, sizes, right = self._scaled(without, kept)
        found = np.zeros((len(strengths), *self.right[0].shape))
        for i, strength in enumerate(strengths):
            try:
                factor = scipy.linalg.cho_factor(scaled + strength * np.eye(len(sizes)), check_finite=False)
                found[i, kept] = scipy.linalg.cho_solve(factor, right / sizes) / sizes
            except np.linalg.LinAlgError:
                found[i] = np.inf
        return found

    def factor(self, strength: float, kept: Bool[np.ndarray, " K"]) -> Float[np.ndarray, "K q"]:
        """F with F Fᵀ = (A + penalty)⁻¹ for the matrix A of all parts and the features that are kept."""
        scaled, sizes, _ = self._scaled(None, kept)
        lower, found = np.linalg.cholesky(scaled + strength * np.eye(len(sizes))), np.zeros((len(kept), len(sizes)))
        found[kept] = scipy.linalg.solve_triangular(lower.T, np.eye(len(sizes))) / sizes
        return found

    def _scaled(self, without: int | None, kept: Bool[np.ndarray, " K"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The matrix for features of size 1, their sizes, and the right-hand sides."""
        parts = [i for i in range(len(self.matrix)) if i != without]
        matrix, right = (np.sum([each[i] for i in parts], axis=0) for each in (self.matrix, self.right))
        matrix = matrix[np.ix_(kept, kept)]
        sizes = np.sqrt(np.maximum(np.diag(matrix), 0.0))
        sizes = np.where(sizes > 0.0, sizes, 1.0)[:, None]
        return matrix / (sizes * sizes.T), sizes, right[kept]


def flat(regression: Regression, rule: PyTree, block: PyTree, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets of the first functions of a block, one row for each label."""
    x, r = (np.asarray(each, np.float64)[:count] for each in compiled(regression, rule, block))
    return x.reshape(-1, x.shape[-1]), r.reshape(-1, r.shape[-1])


@eqx.filter_jit
def compiled(regression: Regression, rule: PyTree, block: PyTree) -> tuple[Array, Array]:
    """Features and targets."""
    return regression(rule, block)


@eqx.filter_jit
def summed(
    regression: Regression, rule: PyTree, block: PyTree, valid: Bool[Array, " B"], mesh: Mesh
) -> tuple[Float[Array, "K K"], Float[Array, "K d"]]:
    """Σ x xᵀ and Σ x r over a block, with each device adding its functions."""

    def on_device(block: PyTree, valid: Bool[Array, " b"]) -> tuple[Array, Array]:
        both = (jnp.where(valid[:, None, None], each, 0.0).astype(jnp.float64) for each in regression(rule, block))
        x, r = (each.reshape(-1, each.shape[-1]) for each in both)
        return jax.lax.psum((x.T @ x, x.T @ r), FUNCTIONS)

    split = PartitionSpec(FUNCTIONS)
    return jax.shard_map(on_device, mesh=mesh, in_specs=(split, split), out_specs=PartitionSpec())(block, valid)
