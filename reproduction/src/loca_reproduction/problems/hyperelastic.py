"""Plane strain of a compressible neo-Hookean plate: quadratic elements, Newton's method, banded Cholesky factors."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import threadpoolctl
from jaxtyping import Bool, Float
from scipy.linalg import cho_solve_banded, cholesky_banded

from loca.domains import grid

TOLERANCE = 1e-10
"""Equilibrium is reached when the force on free components, relative to the reaction of the held components, is below
this, both in the Euclidean norm."""

ROUNDING = 8 * np.finfo(float).eps
"""Rounding errors of a force, relative to the norm of all μ, and of an energy, relative to ∫μ dx + Ψ."""

LAZINESS = 0.3
"""A factorization is reused as long as every step with it leaves at most this share of the unbalanced force."""

STEPS = 200  # the maximum number of steps of a search for equilibrium; usually about ten are needed


@dataclasses.dataclass(frozen=True)
class Material:
    """ψ(F) = μ/2 (F:F − 3 − 2 ln J) + λ/2 (½(J² − 1) − ln J) with J = det F and F₃₃ = 1.

    The rest state F = 1 has neither energy nor stress. Every method takes F at the points of every element, with
    indices in the order (i, element, j, point).
    """

    mu: Float[np.ndarray, "elements 1"]
    lam: Float[np.ndarray, "elements 1"]

    @classmethod
    def isotropic(cls, young: Float[np.ndarray, "n n"], poisson: float) -> "Material":
        """The material with Young's modulus young[i, j] in element i along x₁ and element j along x₂."""
        modulus = young.reshape(-1, 1)
        return cls(modulus / (2 * (1 + poisson)), modulus * poisson / ((1 + poisson) * (1 - 2 * poisson)))

    def energy(self, f: Float[np.ndarray, "2 elements 2 points"]) -> Float[np.ndarray, "elements points"]:
        """ψ; infinite where the material would be inverted (J ≤ 0)."""
        volume = determinant(f)
        inside = volume > 0
        log = np.log(np.where(inside, volume, 1))
        density = self.mu / 2 * ((f**2).sum((0, 2)) - 2 - 2 * log) + self.lam / 2 * ((volume**2 - 1) / 2 - log)
        return np.where(inside, density, np.inf)

    def stress(self, f: Float[np.ndarray, "2 elements 2 points"]) -> Float[np.ndarray, "2 elements 2 points"]:
        """P = ∂ψ/∂F = μF + g′(J) cof F, where g(J) is the part of ψ that depends only on the volume."""
        volume = determinant(f)
        pressure = self.lam / 2 * (volume - 1 / volume) - self.mu / volume
        return self.mu[:, None] * f + pressure[:, None] * cofactor(f)

    def moduli(
        self, f: Float[np.ndarray, "2 elements 2 points"], convex: bool
    ) -> Float[np.ndarray, "3 elements 4 points"]:
        """∂²ψ/∂F∂F = μ 1 + g″(J) cof F ⊗ cof F + g′(J) ∂cof F/∂F.

        The three blocks belong to the components (i, i′) = (1, 1), (1, 2), (2, 2); each holds the four pairs (j, j′).
        Only the last term can be negative; `convex` leaves it out.
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
    """J = det F, the volume of the material relative to its volume at rest."""
    return f[0, :, 0] * f[1, :, 1] - f[0, :, 1] * f[1, :, 0]


def cofactor(f: Float[np.ndarray, "2 elements 2 points"]) -> Float[np.ndarray, "2 elements 2 points"]:
    """cof F = ∂J/∂F."""
    c = f[::-1, :, ::-1].copy()
    c[0, :, 1] *= -1
    c[1, :, 0] *= -1
    return c


class Plate:
    """The square [0, side]² with n × n quadratic elements of nine nodes, integrated with 3 × 3 Gauss points.

    Nodes form a lattice of 2n + 1 by 2n + 1 points; displacements w and forces are arrays over it, x₁ first. The
    constructor computes everything that depends only on the mesh: the sparsity of the tangent, and the position of
    every element's entries in it.

    **Arguments:**

    - `elements`: n.
    - `side`: length of an edge.
    - `held`: whether each component of each node is prescribed.
    """

    def __init__(self, elements: int, side: float, held: Bool[np.ndarray, "nodes nodes 2"]):
        self.elements, self.side, self.held = elements, side, held
        across = 2 * elements + 1
        axis = np.linspace(0, side, across)
        self.x = grid(axis, axis).reshape(across, across, 2)
        corner = 2 * np.arange(elements)
        offsets = np.array([(a, b) for a in range(3) for b in range(3) if (a, b) != (1, 1)] + [(1, 1)])
        lattice = grid(corner, corner)[:, None] + offsets
        self._nodes = lattice[..., 0] * across + lattice[..., 1]

        spacing = side / elements
        gradients, weights = shape_gradients()
        self._gradients = (gradients / spacing).reshape(9, 18)
        self._weights = weights * spacing**2
        self._spread = (gradients / spacing * self._weights).transpose(1, 2, 0).reshape(18, 9)
        self._products = np.einsum("ajp,bkp,p->jkpab", gradients, gradients, weights).reshape(36, 81)

        # the center of an element belongs to no other and is eliminated; other free components are numbered along x₂
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
        """∂²Ψ/∂w∂w, one matrix per element."""
        moduli = material.moduli(self.deformation(w), convex)
        blocks = (moduli.reshape(3, -1, 36) @ self._products).reshape(3, -1, 9, 9)
        k = np.empty((blocks.shape[1], 9, 2, 9, 2))
        k[:, :, 0, :, 0], k[:, :, 0, :, 1], k[:, :, 1, :, 1] = blocks
        k[:, :, 1, :, 0] = blocks[1].transpose(0, 2, 1)
        return k.reshape(-1, 18, 18)

    def factor(self, material: Material, w: Float[np.ndarray, "nodes nodes 2"], convex: bool = False) -> "Factor":
        """The Cholesky factorization of the tangent; raises `LinAlgError` if the tangent is not positive definite."""
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

    @threadpoolctl.threadpool_limits.wrap(limits=1, user_api="blas")  # threads of OpenBLAS cost more than they save
    def equilibrium(
        self, material: Material, w: Float[np.ndarray, "nodes nodes 2"]
    ) -> Float[np.ndarray, "nodes nodes 2"]:
        """Find the displacements that minimize Ψ among those equal to w where the plate is held, starting from w.

        This is Newton's method with a factorization that is renewed only when convergence slows down. Every step
        decreases Ψ, because the factorized matrix is positive definite: the tangent or, if that is indefinite, its
        convex part.
        """
        factor, before, unbalanced = None, np.inf, np.inf
        energy = self.energy(material, w)
        if not np.isfinite(energy):
            raise ValueError("the guess turns part of the plate inside out (det F ≤ 0); pass a smoother guess")
        # under tiny loads, forces and energies are small differences of larger numbers
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
            f"no equilibrium after {STEPS} steps: the unbalanced force is still {unbalanced:.1e}. The load is too "
            "large for the material, or the guess is too far away; pass a smaller load or a better guess"
        )

    def path(
        self, material: Material, affine: Float[np.ndarray, "nodes nodes 2"], loads: Sequence[float]
    ) -> Iterator[Float[np.ndarray, "nodes nodes 2"]]:
        """The equilibria of the plate held at load · affine, for one load after the other.

        The search for each starts from the better of two guesses, the one with less energy: the displacement of a
        uniform plate, and the last equilibrium scaled by the load, which is usually closer but may invert elements.
        """
        shape = affine
        for load in loads:
            guess = min((load * shape, load * affine), key=lambda w: self.energy(material, w))
            w = self.equilibrium(material, guess)
            shape = w / load
            yield w

    def _collect(self, local: Float[np.ndarray, "elements local 2"]) -> Float[np.ndarray, "nodes nodes 2"]:
        """Sum the contributions of all elements to every node."""
        nodes = self._nodes[:, : local.shape[1]].ravel()
        size = self.x.shape[0] ** 2
        return np.stack([np.bincount(nodes, local[..., i].ravel(), size) for i in range(2)], -1).reshape(self.x.shape)


@dataclasses.dataclass(frozen=True)
class Factor:
    """A solver of K w = f by static condensation: the inverse center block of every element, and a banded factor."""

    plate: Plate
    center: Float[np.ndarray, "elements 2 2"]  # K_cc⁻¹ of the center nodes
    follow: Float[np.ndarray, "elements 2 16"]  # K_cc⁻¹ K_cb: the centers from the eight other nodes of their element
    band: Float[np.ndarray, "width free"]  # Cholesky factor of K_bb − K_bc K_cc⁻¹ K_cb, in LAPACK's lower banded form

    def solve(self, force: Float[np.ndarray, "nodes nodes 2"]) -> Float[np.ndarray, "nodes nodes 2"]:
        """K⁻¹ f on the free components and zero on the held components."""
        plate = self.plate
        inside = force[1::2, 1::2].reshape(-1, 1, 2)
        condensed = force - plate._collect((inside @ self.follow).reshape(-1, 8, 2))
        w = np.zeros(force.shape)
        w[plate._numbered] = cho_solve_banded((self.band, True), condensed[plate._numbered], check_finite=False)
        shell = w.reshape(-1, 2)[plate._nodes[:, :8]].reshape(-1, 16, 1)
        w[1::2, 1::2] = (self.center @ inside.transpose(0, 2, 1) - self.follow @ shell).reshape(*w[1::2, 1::2].shape)
        return w


def shape_gradients() -> tuple[Float[np.ndarray, "9 2 9"], Float[np.ndarray, " 9"]]:
    """Gradients of the nine quadratic shape functions of [0, 1]² at 3 × 3 Gauss points, and the weights of the points.

    The functions are in the order of the lattice {0, ½, 1}², the last coordinate varying fastest, with the center moved
    to the end.
    """
    nodes, weights = np.polynomial.legendre.leggauss(3)
    t = (nodes + 1) / 2
    value = np.stack([(1 - t) * (1 - 2 * t), 4 * t * (1 - t), t * (2 * t - 1)])
    slope = np.stack([4 * t - 3, 4 - 8 * t, 4 * t - 1])
    gradients = np.stack([np.einsum("ap,bq->abpq", slope, value), np.einsum("ap,bq->abpq", value, slope)], axis=2)
    gradients = gradients.reshape(9, 2, 9)
    order = [0, 1, 2, 3, 5, 6, 7, 8, 4]
    return gradients[order], np.outer(weights, weights).ravel() / 4
