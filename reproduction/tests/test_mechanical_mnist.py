"""Mechanical MNIST: the published energies, reference displacements, symmetries, refinement, and which digit is which.

The full tier compares 100 and 300 digits with data instead of 4; `--log-cli-level=INFO` shows the differences.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.data import grid_shape
from loca_reproduction.problems.hyperelastic import Material, Plate
from loca_reproduction.problems.mechanical_mnist import MechanicalMNIST, equibiaxial_plate, pull, young_modulus

DATA = Path(__file__).parents[3] / "shared/data"
LOADS = (6.0, 14.0)
log = logging.getLogger(__name__)


def data(name: str):
    """A file of real or reference data, or a skip."""
    if not (DATA / name).is_file():
        pytest.skip(f"{DATA / name} is not here; see the table of data in ../shared/data/README.md")
    return np.load(DATA / name, allow_pickle=False)


def difference(field: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Relative L2 difference of displacement fields, one for each load."""
    return np.linalg.norm(field - expected, axis=(-2, -1)) / np.linalg.norm(expected, axis=(-2, -1))


def by_location(fields: np.ndarray) -> np.ndarray:
    """Fields kept as (…, row from the bottom, column, component), in the order of our locations."""
    return fields.swapaxes(-3, -2).reshape(*fields.shape[:-3], 784, 2).astype(float)


@pytest.fixture(scope="module")
def drawing() -> np.ndarray:
    """A figure 7 that has no symmetry, with soft edges."""
    image = np.zeros((28, 28))
    image[6:9, 6:21] = 255
    for row in range(9, 24):
        image[row, 20 - row // 2 : 23 - row // 2] = 255
    blurred = sum(np.roll(image, shift, (0, 1)) for shift in [(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)]) / 5
    return blurred.astype(np.uint8)


@pytest.fixture
def archive(tmp_path, drawing) -> str:
    """A file in the form of mnist.npz, with three training and two test images."""
    train = np.stack([drawing, drawing[::-1], drawing[:, ::-1]])
    np.savez(tmp_path / "mnist.npz", x_train=train, x_test=train[:2] // 2)
    return str(tmp_path / "mnist.npz")


def uniaxial_plate() -> Plate:
    """As in the published set: the lower edge fixed, the upper one moved and kept from narrowing, the sides free."""
    held = np.zeros((57, 57, 2), bool)
    held[:, [0, -1]] = True
    return Plate(28, 28.0, held)


def uniaxial_errors(digits: range, loads: Sequence[float]) -> np.ndarray:
    """Relative differences from the published strain energies, for digits of the test set and loads."""
    published, images = data("mmnist_uniaxial_psi_test.npz"), data("mnist.npz")["x_test"]
    columns = [published["d"].tolist().index(load) for load in loads]
    plate, energies = uniaxial_plate(), []
    for digit in digits:
        material = Material.isotropic(young_modulus(images[digit]), 0.3)
        path = plate.path(material, plate.x / 28 * np.array([0, 1]), loads)
        energies.append([plate.energy(material, w) for w in path])
    return np.abs(np.array(energies) / published["psi"][digits.start : digits.stop, columns].astype(float) - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "loads"),
    [
        (4, [1.0, 6.0, 14.0]),
        # the published energies have five decimals, which for d < 0.1 leaves one digit or none
        pytest.param(100, [0.1, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0], marks=pytest.mark.full),
    ],
)
def test_energies_are_those_of_the_published_data(count, loads):
    errors = uniaxial_errors(range(count), loads)
    log.info("relative difference: mean %.1e, max %.1e", errors.mean(), errors.max())
    assert errors.max() < 0.01


@pytest.mark.parametrize("count", [4, pytest.param(300, marks=pytest.mark.full)])
def test_displacements_are_those_of_the_reference(count):
    reference, images = data("mmnist_equibiaxial_ref300.npz"), data("mnist.npz")["x_test"]
    expected = by_location(reference["disp"])
    errors = np.array([difference(pull(images[i], LOADS), expected[i]) for i in range(count)])
    log.info("relative difference: mean %.1e, max %.1e", errors.mean(), errors.max())
    # the reference has the same elements but another solver, and is kept in single precision
    assert errors.max() < 1e-6


@pytest.mark.slow
def test_refinement_approaches_an_independent_solution():
    expected = by_location(data("mmnist_equibiaxial_ref300.npz")["fenicsx_sample0"])
    image = data("mnist.npz")["x_test"][0]
    coarse, fine = (difference(pull(image, LOADS, refinement), expected) for refinement in (1, 2))
    # FEniCSx with 140 × 140 × 2 quadratic triangles; stresses are singular at pixel corners, so the order is below 3
    assert coarse.max() < 0.0025
    assert (fine < coarse / 3).all()


def test_forces_balance(drawing):
    plate, material = equibiaxial_plate(1), Material.isotropic(young_modulus(drawing), 0.3)
    for load in (0.001, *LOADS):
        w = plate.equilibrium(material, load * (plate.x / 28 - 0.5))
        np.testing.assert_array_equal(w[[0, -1], :, 0], [[-load / 2] * 57, [load / 2] * 57])
        np.testing.assert_array_equal(w[:, [0, -1], 1], [[-load / 2, load / 2]] * 57)
        force = plate.force(material, w)
        # relative to the reaction; at d = 0.001 that is small and rounding is felt
        assert np.linalg.norm(force[~plate.held]) < (1e-10 if load > 1 else 1e-9) * np.linalg.norm(force[plate.held])
        # what pulls on opposite edges is equal and opposite
        assert force[0, :, 0].sum() == pytest.approx(-force[-1, :, 0].sum(), rel=1e-8)


def test_symmetries_of_the_image_are_symmetries_of_the_field(drawing):
    w = pull(drawing, LOADS).reshape(2, 28, 28, 2)
    mirrored = pull(drawing[:, ::-1], LOADS).reshape(2, 28, 28, 2)
    np.testing.assert_allclose(mirrored, w[:, ::-1] * np.array([-1, 1]), atol=1e-9)
    upset = pull(drawing[::-1], LOADS).reshape(2, 28, 28, 2)
    np.testing.assert_allclose(upset, w[:, :, ::-1] * np.array([1, -1]), atol=1e-9)
    # transposing (x₁, x₂) reverses both axes of an image, whose rows run downwards, and swaps them
    swapped = pull(drawing[::-1].T[::-1], LOADS).reshape(2, 28, 28, 2)
    np.testing.assert_allclose(swapped, w.swapaxes(1, 2)[..., ::-1], atol=1e-9)


def test_stiff_pixels_strain_less():
    image = np.zeros((28, 28), np.uint8)
    image[2:8, 18:26] = 255  # rows from the top, columns from the left: the upper right corner
    w = pull(image, LOADS).reshape(2, 28, 28, 2)
    strain = np.diff(w[1, :, :, 0], axis=0)
    assert strain[19:24, 21:25].max() < 0.2 * strain.mean()
    assert strain[3:9, 21:25].min() > strain.mean()


def test_result_does_not_depend_on_the_way_there(drawing):
    np.testing.assert_allclose(pull(drawing, (14.0,))[0], pull(drawing, (0.1, 6.0, 14.0))[2], atol=1e-8)


def test_great_leaps_are_possible(drawing):
    plate, material = uniaxial_plate(), Material.isotropic(young_modulus(drawing), 0.3)
    affine = plate.x / 28 * np.array([0, 1])
    little, much = plate.path(material, affine, [0.1, 28.0])
    # linear elasticity would turn pixels inside out at this load, so the last equilibrium is no guess
    assert np.isinf(plate.energy(material, 280 * little))
    *_, step_by_step = plate.path(material, affine, [4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0])
    np.testing.assert_allclose(much, step_by_step, atol=1e-8)


def test_pairs_do_not_depend_on_their_company(archive, drawing, getkey):
    problem, key = MechanicalMNIST(archive), getkey()
    u, s = problem.pairs(key, range(3))
    again = problem.pairs(key, [2, 0])
    np.testing.assert_array_equal(again, (u[[2, 0]], s[[2, 0]]))
    numbers = problem.numbers(key, range(3))
    assert sorted(numbers) == [0, 1, 2]
    first = int(np.flatnonzero(numbers == 0)[0])
    np.testing.assert_array_equal((u[first], s[first]), pull(drawing, LOADS))


def test_keys_give_orders_of_their_own(archive):
    problem = MechanicalMNIST(archive)
    orders = {tuple(problem.numbers(jax.random.key(seed), range(3))) for seed in range(40)}
    assert len(orders) == 6


def test_locations_and_samples(archive, getkey):
    problem = MechanicalMNIST(archive, split="test")
    assert grid_shape(jnp.asarray(problem.x)) == (28, 28)
    samples = problem.sample(getkey(), 2)
    assert problem.domain == samples.domain
    # the first coordinate of the displacement grows with the first of the location, from edge to edge
    u, s = (np.asarray(values).reshape(2, 28, 28, 2) for values in (samples.u, samples.s))
    for values, load in ((u, 6), (s, 14)):
        for component, along in ((0, 1), (1, 2)):
            edges = values[..., component].swapaxes(1, along)[:, [0, -1]]
            assert (np.sign(edges) == np.array([-1, 1])[:, None]).all()
            assert (np.abs(edges) < load / 2).all()
            # an edge's pixel centers are half a pixel from an edge that is moved by d/2, where the strain is d/28
            assert np.abs(edges).mean() == pytest.approx(load / 2 - load / 56, rel=0.05)
    assert problem.arguments == {
        "digits": archive, "split": "test", "input_load": 6.0, "output_load": 14.0, "refinement": 1,
    }  # fmt: skip


def test_digits_are_read_from_the_file_that_is_named(archive, tmp_path, monkeypatch, getkey):
    key = getkey()
    monkeypatch.setenv("LOCA_MNIST", archive)
    np.testing.assert_array_equal(MechanicalMNIST().numbers(key, [1]), MechanicalMNIST(archive).numbers(key, [1]))
    monkeypatch.delenv("LOCA_MNIST")
    with pytest.raises(FileNotFoundError, match=r"LOCA_MNIST is not set.*download mnist\.npz"):
        MechanicalMNIST().pairs(key, [0])
    with pytest.raises(FileNotFoundError, match="there is no file"):
        MechanicalMNIST(str(tmp_path / "nowhere.npz")).pairs(key, [0])
    np.savez(tmp_path / "other.npz", x_train=np.zeros((3, 32, 32), np.uint8))
    with pytest.raises(ValueError, match=r"expected \(count, 28, 28\)"):
        MechanicalMNIST(str(tmp_path / "other.npz")).pairs(key, [0])
