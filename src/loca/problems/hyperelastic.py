"""Plane strain of a compressible neo-Hookean plate: quadratic elements, Newton's method, banded Cholesky factors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float

from loca.workers import one_thread

TOLERANCE = 1e-10
"""Equilibrium: the force on free components over the reaction of the held ones, in the Euclidean norm."""

ROUNDING = 8 * np.finfo(float).eps
"""What rounding may leave of a force, relative to the norm of all μ, and of an energy, relative to ∫μ dx + Ψ."""

LAZINESS = 0.3
"""A factor is kept as long as every step with it leaves at most this share of the unbalanced force."""

STEPS = 200
"""Steps after which a search for equilibrium is given up; a usual one takes about ten."""


@dataclasses.dataclass(frozen=True)
class Material:
    """ψ(F) = μ/2 (F:F − 3 − 2 ln J) + λ/2 (½(J² − 1) − ln J) with J = det F and F₃₃ = 1.

    The rest state F = 1 is free of energy and of stress. Every method takes F at the points of every element with
    its indices in the order (i, element, j, point).
    """

    mu: Float[np.ndarray, "elements 1"]
    lam: Float[np.ndarray, "elements 1"]

    @classmethod
    def isotropic(cls, young: Float[np.ndarray, "n n"], poisson: float) -> Material:
        """The material with Young's modulus young[i, j] in element number i along x₁ and number j along x₂."""
        modulus = young.reshape(-1, 1)
        return cls(modulus / (2 * (1 + poisson)), modulus * poisson / ((1 + poisson) * (1 - 2 * poisson)))

    def energy(self, f: Float[np.ndarray, "2 elements 2 points"]) -> Float[np.ndarray, "elements points"]:
        """ψ; infinite where the material would be turned inside out."""
        volume = determinant(f)
        inside = volume > 0
        log = np.log(np.where(inside, volume, 1))
        density = self.mu / 2 * ((f**2).sum((0, 2)) - 2 - 2 * log) + self.lam / 2 * ((volume**2 - 1) / 2 - log)
        return np.where(inside, density, np.inf)

    def stress(self, f: Float[np.ndarray, "2 elements 2 points"]) -> Float[np.ndarray, "2 elements 2 points"]:
        """P = ∂ψ/∂F = μF + g′(J) cof F, where g(J) is the part of ψ that depends on the volume alone."""
        volume = determinant(f)
        pressure = self.lam / 2 * (volume - 1 / volume) - self.mu / volume
        return self.mu[:, None] * f + pressure[:, None] * cofactor(f)

    def moduli(
        self, f: Float[np.ndarray, "2 elements 2 points"], convex: bool
    ) -> Float[np.ndarray, "3 elements 4 points"]:
        """∂²ψ/∂F∂F = μ 1 + g″(J) cof F ⊗ cof F + g′(J) ∂cof F/∂F.

        The blocks are those of the components (i, i′) = (1, 1), (1, 2), (2, 2), each with its pairs (j, j′). The
        last term is the only one that can be negative; `convex` leaves it out.
        """
        volume, c = determinant(f), cofactor(f)
        inverse = volume**-2
        stiffening = self.lam / 2 * (1 + inverse) + self.mu * inverse
        first, second = np.array([0, 0, 1]), np.array([0, 1, 1])
        elements, points = volume.shape
        moduli = c[first][:, :, :, None] * (stiffening[:, None] * c)[second][:, :, None]
        moduli = moduli.reshape(3, elements, 4, points)
        moduli[::2, :, ::3] += self.mu[:, None]
        if not convex:
            pressure = self.lam / 2 * (volume - 1 / volume) - self.mu / volume
            moduli[1, :, 1] += pressure
            moduli[1, :, 2] -= pressure
        return moduli


def determinant(f: Float[np.ndarray, "2 elements 2 points"]) -> Float[np.ndarray, "elements points"]:
    """J = det F, the volume of the material relative to that at rest."""
    return f[0, :, 0] * f[1, :, 1] - f[0, :, 1] * f[1, :, 0]


def cofactor(f: Float[np.ndarray, "2 elements 2 points"]) -> Float[np.ndarray, "2 elements 2 points"]:
    """cof F = ∂J/∂F."""
    c = f[::-1, :, ::-1].copy()
    c[0, :, 1] *= -1
    c[1, :, 0] *= -1
    return c


class Plate:
    """The square [0, side]² in n × n quadratic elements of nine nodes, integrated with 3 × 3 Gauss points.

    Nodes form a lattice of 2n + 1 by 2n + 1; displacements w and forces are arrays over it, x₁ first. What depends on
    the mesh alone — the sparsity of the tangent, and where each number of each element goes — is found here, once.

    **Arguments:**

    - `elements`: n.
    - `side`: length of an edge.
    - `held`: which components of which nodes are prescribed.
    """

    def __init__(self, elements: int, side: float, held: Bool[np.ndarray, "nodes nodes 2"]):
        self.elements, self.side, self.held = elements, side, held
        across = 2 * elements + 1
        axis = np.linspace(0, side, across)
        self.x = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
        corner = 2 * np.arange(elements)
        offsets = np.array([(a, b) for a in range(3) for b in range(3) if (a, b) != (1, 1)] + [(1, 1)])
        lattice = np.stack(np.meshgrid(corner, corner, indexing="ij"), -1).reshape(-1, 1, 2) + offsets
        self._nodes = lattice[..., 0] * across + lattice[..., 1]

        spacing = side / elements
        gradients, weights = shape_gradients()
        self._gradients = (gradients / spacing).reshape(9, 18)
        self._weights = weights * spacing**2
        self._spread = (gradients / spacing * self._weights).transpose(1, 2, 0).reshape(18, 9)
        self._products = np.einsum("ajp,bkp,p->jkpab", gradients, gradients, weights).reshape(36, 81)

        # centers belong to one element each and are eliminated there; all other free components are numbered along x₂
        center = np.zeros((across, across, 1), bool)
        center[1::2, 1::2] = True
        self._numbered = ~(held | center)
        number = np.where(self._numbered, np.cumsum(self._numbered).reshape(held.shape) - 1, -1).reshape(-1, 2)
        shell = number[self._nodes[:, :8]].reshape(-1, 16)
        row, column = np.broadcast_arrays(shell[:, :, None], shell[:, None, :])
        self._pairs = np.flatnonzero((row >= column) & (column >= 0))
        row, column = row.ravel()[self._pairs], column.ravel()[self._pairs]
        self._width = int((row - column).max()) + 1
        self._band = column * self._width + row - column

    def deformation(self, w: Float[np.ndarray, "nodes nodes 2"]) -> Float[np.ndarray, "2 elements 2 points"]:
        """F = 1 + ∇w."""
        local = w.reshape(-1, 2).T[:, self._nodes]
        f = (local @ self._gradients).reshape(2, -1, 2, 9)
        f[0, :, 0] += 1
        f[1, :, 1] += 1
        return f

    def energy(self, material: Material, w: Float[np.ndarray, "nodes nodes 2"]) -> float:
        """Ψ(w) = ∫ψ(1 + ∇w) dx."""
        return float((material.energy(self.deformation(w)) @ self._weights).sum())

    def force(self, material: Material, w: Float[np.ndarray, "nodes nodes 2"]) -> Float[np.ndarray, "nodes nodes 2"]:
        """∂Ψ/∂w."""
        stress = material.stress(self.deformation(w))
        return self._collect((stress.reshape(2, -1, 18) @ self._spread).transpose(1, 2, 0))

    def stiffness(
        self, material: Material, w: Float[np.ndarray, "nodes nodes 2"], convex: bool = False
    ) -> Float[np.ndarray, "elements 18 18"]:
        """∂²Ψ/∂w∂w, element by element."""
        moduli = material.moduli(self.deformation(w), convex)
        blocks = (moduli.reshape(3, -1, 36) @ self._products).reshape(3, -1, 9, 9)
        k = np.empty((blocks.shape[1], 9, 2, 9, 2))
        k[:, :, 0, :, 0], k[:, :, 0, :, 1], k[:, :, 1, :, 1] = blocks
        k[:, :, 1, :, 0] = blocks[1].transpose(0, 2, 1)
        return k.reshape(-1, 18, 18)

    def factor(self, material: Material, w: Float[np.ndarray, "nodes nodes 2"], convex: bool = False) -> Factor:
        """A Cholesky factor of the tangent; raises `LinAlgError` when the tangent is not positive definite."""
        from scipy.linalg import cholesky_banded

        k = self.stiffness(material, w, convex)
        center = k[:, 16:, 16:]
        if not (np.linalg.det(center) > 0).all() or not (center[:, 0, 0] > 0).all():
            raise np.linalg.LinAlgError("an element's center is not stable")
        center = np.linalg.inv(center)
        follow = center @ k[:, 16:, :16]
        shell = k[:, :16, :16] - k[:, :16, 16:] @ follow
        size = int(self._numbered.sum())
        entries = np.bincount(self._band, shell.ravel()[self._pairs], size * self._width)
        band = entries.reshape(size, self._width).T
        return Factor(self, center, follow, cholesky_banded(band, True, True, False))

    @one_thread()
    def equilibrium(
        self, material: Material, w: Float[np.ndarray, "nodes nodes 2"]
    ) -> Float[np.ndarray, "nodes nodes 2"]:
        """The displacements that minimize Ψ among those equal to w where the plate is held; the search starts from w.

        Steps are Newton's, with a factor that is renewed only when it no longer pays. Every step goes downhill in Ψ,
        because the factor is one of a positive definite matrix: the tangent or, where that is not, its convex part.
        """
        factor, before, unbalanced = None, np.inf, np.inf
        energy = self.energy(material, w)
        if not np.isfinite(energy):
            raise ValueError("the guess turns some of the plate inside out (det F ≤ 0); pass a smoother one")
        # under tiny loads, small sums of numbers that are not small
        force_floor = ROUNDING * np.linalg.norm(material.mu)
        energy_floor = ROUNDING * (material.mu.sum() * (self.side / self.elements) ** 2 + energy)
        for _ in range(STEPS):
            force = self.force(material, w)
            unbalanced = np.linalg.norm(force[~self.held])
            if unbalanced <= max(TOLERANCE * np.linalg.norm(force[self.held]), force_floor):
                return w
            if factor is None or unbalanced > LAZINESS * before:
                try:
                    factor = self.factor(material, w)
                except np.linalg.LinAlgError:
                    factor = self.factor(material, w, convex=True)
            step, before = factor.solve(force), unbalanced
            while True:
                trial = w - step
                lower = self.energy(material, trial)
                if lower <= energy + energy_floor:
                    break
                step = step / 2
            w, energy = trial, lower
        raise RuntimeError(
            f"no equilibrium after {STEPS} steps: the unbalanced force is still {unbalanced:.1e}, so the load is "
            "beyond what the material bears, or the guess is too far; pass a smaller load or a nearer guess"
        )

    def path(
        self, material: Material, affine: Float[np.ndarray, "nodes nodes 2"], loads: Sequence[float]
    ) -> Iterator[Float[np.ndarray, "nodes nodes 2"]]:
        """Equilibria where the plate is held at load · affine, for one load after the other.

        Each is sought from that of the two guesses with less energy: what a uniform plate would do, and the last
        equilibrium in proportion — the nearer one, unless it turns something inside out.
        """
        shape = affine
        for load in loads:
            guess = min((load * shape, load * affine), key=lambda w: self.energy(material, w))
            w = self.equilibrium(material, guess)
            shape = w / load
            yield w

    def _collect(self, local: Float[np.ndarray, "elements local 2"]) -> Float[np.ndarray, "nodes nodes 2"]:
        """Sum over the elements that share a node."""
        nodes = self._nodes[:, : local.shape[1]].ravel()
        size = self.x.shape[0] ** 2
        return np.stack([np.bincount(nodes, local[..., i].ravel(), size) for i in range(2)], -1).reshape(self.x.shape)


@dataclasses.dataclass(frozen=True)
class Factor:
    """What solves K w = f: the inverse of every element's center block, and a banded factor of what is left.

    **Arguments:**

    - `plate`: whose K it is.
    - `center`: inverse 2 × 2 blocks K_cc⁻¹ of the center nodes.
    - `follow`: K_cc⁻¹ K_cb, with which centers follow the eight other nodes of their element.
    - `band`: Cholesky factor of K_bb − K_bc K_cc⁻¹ K_cb, assembled, in LAPACK's lower banded form.
    """

    plate: Plate
    center: Float[np.ndarray, "elements 2 2"]
    follow: Float[np.ndarray, "elements 2 16"]
    band: Float[np.ndarray, "width free"]

    def solve(self, force: Float[np.ndarray, "nodes nodes 2"]) -> Float[np.ndarray, "nodes nodes 2"]:
        """K⁻¹ f on the free components and zero on the held ones."""
        from scipy.linalg import cho_solve_banded

        plate = self.plate
        inside = force[1::2, 1::2].reshape(-1, 1, 2)
        condensed = force - plate._collect((inside @ self.follow).reshape(-1, 8, 2))
        w = np.zeros(force.shape)
        w[plate._numbered] = cho_solve_banded((self.band, True), condensed[plate._numbered], check_finite=False)
        shell = w.reshape(-1, 2)[plate._nodes[:, :8]].reshape(-1, 16, 1)
        w[1::2, 1::2] = (self.center @ inside.transpose(0, 2, 1) - self.follow @ shell).reshape(*w[1::2, 1::2].shape)
        return w


def shape_gradients() -> tuple[Float[np.ndarray, "9 2 9"], Float[np.ndarray, " 9"]]:
    """Gradients of the nine quadratic shape functions of [0, 1]² at 3 × 3 Gauss points, and the points' weights.

    Functions run over the lattice {0, ½, 1}², the last coordinate fastest, with the center moved to the end.
    """
    nodes, weights = np.polynomial.legendre.leggauss(3)
    t = (nodes + 1) / 2
    value = np.stack([(1 - t) * (1 - 2 * t), 4 * t * (1 - t), t * (2 * t - 1)])
    slope = np.stack([4 * t - 3, 4 - 8 * t, 4 * t - 1])
    gradients = np.stack([np.einsum("ap,bq->abpq", slope, value), np.einsum("ap,bq->abpq", value, slope)], axis=2)
    gradients = gradients.reshape(9, 2, 9)
    order = [0, 1, 2, 3, 5, 6, 7, 8, 4]
    return gradients[order], np.outer(weights, weights).ravel() / 4
