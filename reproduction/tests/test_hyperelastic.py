"""The plate: its derivatives, exact solutions, and the search for equilibrium."""

import itertools

import numpy as np
import pytest

from loca_reproduction.problems import hyperelastic
from loca_reproduction.problems.hyperelastic import Material, Plate, cofactor, determinant

MU, LAM = 0.4, 0.6


def stretched(elements: int = 6, side: float = 3.0) -> Plate:
    """A plate whose edges are held along their normals."""
    nodes = 2 * elements + 1
    held = np.zeros((nodes, nodes, 2), bool)
    held[[0, -1], :, 0] = True
    held[:, [0, -1], 1] = True
    return Plate(elements, side, held)


def patchy(elements: int, seed: int = 0) -> Material:
    """Young's moduli from 1 to 100, as in the data set."""
    return Material.isotropic(np.random.default_rng(seed).uniform(0, 1, (elements, elements)) ** 4 * 99 + 1, 0.3)


def assembled(plate: Plate, k: np.ndarray, w: np.ndarray) -> np.ndarray:
    """K w from element matrices."""
    local = w.reshape(-1, 2)[plate._nodes].reshape(-1, 18, 1)
    return plate._collect((k @ local).reshape(-1, 9, 2))


@pytest.fixture
def rough():
    """A plate, a material and a far from smooth displacement that turns nothing inside out."""
    plate, material = stretched(), patchy(6)
    w = 0.6 * (plate.x / 3 - 0.5) + np.random.default_rng(1).normal(0, 0.02, plate.x.shape)
    assert determinant(plate.deformation(w)).min() > 0
    return plate, material, w


def test_force_and_stiffness_are_derivatives(rough):
    plate, material, w = rough
    v = np.random.default_rng(2).normal(size=w.shape)
    k = plate.stiffness(material, w)
    np.testing.assert_allclose(k, k.transpose(0, 2, 1), atol=1e-12)

    def errors(h: float) -> np.ndarray:
        """Central differences against derivatives."""
        slope = (plate.energy(material, w + h * v) - plate.energy(material, w - h * v)) / (2 * h)
        change = (plate.force(material, w + h * v) - plate.force(material, w - h * v)) / (2 * h)
        exact, product = (plate.force(material, w) * v).sum(), assembled(plate, k, v)
        return np.array([abs(slope / exact - 1), np.linalg.norm(change - product) / np.linalg.norm(product)])

    # second order in h: a wrong derivative would leave an error that does not shrink
    coarse, fine = errors(1e-4), errors(1e-5)
    np.testing.assert_allclose(coarse / fine, 100, rtol=0.05)
    assert (fine < 1e-5).all()


@pytest.mark.parametrize("stretch", [0.8, 1.2, 1.5])
def test_uniform_plate_stretches_uniformly(stretch):
    plate = stretched()
    material = Material.isotropic(np.full((6, 6), 7.0), 0.3)
    affine = (stretch - 1) * (plate.x - 1.5)
    inner = ~plate.held * np.random.default_rng(0).normal(0, 0.01, affine.shape)
    w = plate.equilibrium(material, affine + inner)
    np.testing.assert_allclose(w, affine, atol=1e-10)
    mu, lam, volume = 7 / 2.6, 7 * 0.3 / (1.3 * 0.4), stretch**2
    density = mu / 2 * (2 * stretch**2 - 2 - 2 * np.log(volume)) + lam / 2 * ((volume**2 - 1) / 2 - np.log(volume))
    assert plate.energy(material, w) == pytest.approx(9 * density, rel=1e-12)


def test_newton_converges_quadratically():
    plate, material = stretched(), patchy(6)
    w = 1.25 * plate.equilibrium(material, 1.2 * (plate.x / 3 - 0.5))
    start, errors = w, []
    for _ in range(5):
        force = plate.force(material, w)
        errors.append(np.linalg.norm(force[~plate.held]) / np.linalg.norm(force[plate.held]))
        w = w - plate.factor(material, w).solve(force)
    # 0.1, then 4e-3, 8e-6, 7e-11, rounding: a tangent that is wrong by a thousandth would gain three digits a step
    assert all(after < 2 * before**2 for before, after in itertools.pairwise(errors[:4]))
    assert errors[-1] < 1e-13
    np.testing.assert_allclose(plate.equilibrium(material, start), w, atol=1e-9)


def test_convex_part_of_the_moduli_is_never_negative(rough):
    plate, material, w = rough
    f = plate.deformation(w)
    volume, c = determinant(f), cofactor(f)
    assert (volume > 0).all()
    blocks = material.moduli(f, convex=True).reshape(3, -1, 2, 2, 9).transpose(1, 4, 0, 2, 3)
    full = np.block([[blocks[:, :, 0], blocks[:, :, 1]], [blocks[:, :, 1].swapaxes(-1, -2), blocks[:, :, 2]]])
    assert (np.linalg.eigvalsh(full) >= material.mu[:, :, None] * (1 - 1e-9)).all()
    # cof F is the derivative of det F: Euler's theorem for a function homogeneous of degree two
    np.testing.assert_allclose((c * f).sum((0, 2)), 2 * volume, rtol=1e-12)


def test_equilibrium_is_found_where_the_tangent_is_indefinite():
    plate, material = stretched(), patchy(6, seed=5)
    affine = 1.5 * (plate.x / 3 - 0.5)
    # shrunk to a third inside: the material is far below the volume at which its energy is convex
    rough = np.where(plate.held, affine, -0.66 * (plate.x - 1.5))
    rough = np.where((np.abs(plate.x - 1.5).max(-1, keepdims=True) > 1.2) & ~plate.held, 0.5 * affine, rough)
    assert np.isfinite(plate.energy(material, rough))
    with pytest.raises(np.linalg.LinAlgError):
        plate.factor(material, rough)
    expected = plate.equilibrium(material, affine)
    np.testing.assert_allclose(plate.equilibrium(material, rough), expected, atol=1e-8)


def test_failures_say_what_to_do(monkeypatch):
    plate, material = stretched(), patchy(6)
    with pytest.raises(ValueError, match="inside out"):
        plate.equilibrium(material, -2 * plate.x * np.array([1, 0]))
    monkeypatch.setattr(hyperelastic, "STEPS", 2)
    with pytest.raises(RuntimeError, match="no equilibrium after 2 steps"):
        plate.equilibrium(material, 1.5 * (plate.x / 3 - 0.5))
