"""Domains of any shape: closed forms over an L-shape, a disk and an airfoil, no weight outside, and a model's life."""

import math

import jax
import jax.numpy as jnp
import meshio
import numpy as np
import pytest

import loca
from loca.domains import Mesh, area_weights, domain_from_json
from loca.positions import Harmonic
from loca.prediction import QueryGrid, predict_dataset, predict_to, write_dataset
from loca.rules import CellRule, rule_on
from stores import stored


def mesh_grid(*axes):
    """Points of a product grid, the last coordinate varying fastest."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def quads(rows, columns, closed=False):
    """Quadrilaterals of a grid of points; a closed grid joins the last column to the first."""
    i, j = np.meshgrid(np.arange(rows - 1), np.arange(columns if closed else columns - 1), indexing="ij")
    k = (j + 1) % columns
    return np.stack([i * columns + j, (i + 1) * columns + j, (i + 1) * columns + k, i * columns + k], -1).reshape(-1, 4)


def halves(cells):
    """Two triangles for each quadrilateral."""
    return np.concatenate([cells[:, [0, 1, 2]], cells[:, [0, 2, 3]]])


def l_shape(n=2):
    """[0, 1]² without its upper right quarter, from n × n squares, n even."""
    points, cells = mesh_grid(*[np.linspace(0.0, 1.0, n + 1)] * 2), quads(n + 1, n + 1)
    return Mesh(points, halves(cells[~(points[cells].mean(axis=1) > 0.5).all(axis=1)]))


def disk(n):
    """The unit disk: triangles around its center, and n − 1 rings."""
    angle = 2.0 * math.pi * np.arange(6 * n) / (6 * n)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    points = np.concatenate([r * ring for r in np.arange(1, n + 1) / n] + [np.zeros((1, 2))])
    inner = np.stack([np.arange(6 * n), np.roll(np.arange(6 * n), -1), np.full(6 * n, len(points) - 1)], axis=1)
    return Mesh(points, np.concatenate([halves(quads(n, 6 * n, closed=True)), inner]))


CENTER, RADIUS, FAR = -0.1 + 0.1j, abs(1.1 - 0.1j), 4.0


def airfoil(n):
    """Points and quadrilaterals of an O-grid around a Joukowski airfoil: z = ζ + 1/ζ between two circles."""
    r = np.geomspace(RADIUS, FAR, n + 1)[:, None]
    zeta = CENTER + r * np.exp(2j * math.pi * np.arange(6 * n) / (6 * n) + 1j * np.angle(1.0 - CENTER))
    z = (zeta + 1.0 / zeta).ravel()
    return np.stack([z.real, z.imag], axis=-1), quads(n + 1, 6 * n, closed=True)


def test_linear_functions_are_exact_over_an_l_shape_and_quadratic_ones_of_order_two():
    shape = l_shape()
    assert shape.volume == 0.75
    exact = {(1, 0): 0.3125, (0, 1): 0.3125, (2, 0): 0.1875, (3, 1): 19 / 512, (2, 2): 1 / 9 - (7 / 24) ** 2}
    parts = [shape.partition(count) for count in (24, 96, 384)]
    assert [len(w) for _, w in parts] == [24, 96, 384]
    for (i, j), value in exact.items():
        errors = [abs(w @ (z[:, 0] ** i * z[:, 1] ** j) - value) for z, w in parts]
        if i + j == 1:
            assert max(errors) < 1e-14
        else:
            np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2.0, atol=0.1)
    rule = CellRule(shape, 24)
    np.testing.assert_array_equal(rule.z, parts[0][0].astype(np.float32))
    np.testing.assert_array_equal(rule.w, parts[0][1].astype(np.float32))


@pytest.mark.parametrize(("file", "options"), [("a.vtu", {}), ("a.msh", {"file_format": "gmsh22"}), ("a.xdmf", {})])
def test_files_are_read(file, options, tmp_path):
    """Quadrilaterals in a plane of space, with a boundary of lines, as solvers write them."""
    points, cells = airfoil(8)
    flat = np.concatenate([points, np.zeros((len(points), 1))], axis=1)
    boundary = np.stack([np.arange(47), np.arange(1, 48)], axis=1)
    meshio.Mesh(flat, [("line", boundary), ("quad", cells)]).write(tmp_path / file, **options)
    mesh = Mesh.read(tmp_path / file)
    np.testing.assert_allclose(mesh.vertices, points, rtol=1e-6)
    assert mesh.volume == pytest.approx(Mesh(points, halves(cells)).volume, rel=1e-6)


@pytest.mark.parametrize("kind", ["hexahedron", "wedge", "pyramid"])
def test_solid_cells_are_split_without_gaps(kind, tmp_path):
    cube = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]], float)
    points, cells, volume = {
        "hexahedron": (cube, [list(range(8))], 1.0),
        "wedge": (cube, [[0, 1, 2, 4, 5, 6]], 0.5),
        "pyramid": (np.concatenate([cube[:4], [[0.3, 0.2, 1.0]]]), [[0, 1, 2, 3, 4]], 1 / 3),
    }[kind]
    meshio.Mesh(points @ np.array([[2.0, 0.3, 0], [0, 1, 0.1], [0, 0, 1]]), [(kind, cells)]).write(tmp_path / "a.vtu")
    mesh = Mesh.read(tmp_path / "a.vtu")
    assert mesh.volume == pytest.approx(2.0 * volume)
    corners = np.asarray(mesh.vertices)[np.asarray(mesh.cells)]
    middle = corners.mean(axis=(0, 1))
    assert mesh.contains(middle + 0.2 * (corners.reshape(-1, 3) - middle)).all()


def test_a_quadrilateral_with_an_inward_corner_is_cut_there(tmp_path):
    points = np.array([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 2.0, 0.0]])
    for turn in range(4):
        cells = np.roll([[0, 1, 2, 3]], turn, axis=1)
        meshio.Mesh(points, [("quad", cells)]).write(tmp_path / f"{turn}.vtu")
        mesh = Mesh.read(tmp_path / f"{turn}.vtu")
        assert mesh.volume == pytest.approx(1.0)
        assert mesh.contains(np.array([[0.4, 0.4], [0.9, 0.9]])).tolist() == [True, False]


def test_nothing_in_the_airfoil_or_beyond_the_far_field_has_weight():
    points, cells = airfoil(16)
    mesh = Mesh(points, halves(cells))
    y = mesh_grid(np.linspace(-5.0, 5.0, 61), np.linspace(-5.0, 5.0, 61))
    z = y[:, 0] + 1j * y[:, 1]
    root = np.sqrt(z**2 / 4.0 - 1.0 + 0j)
    zeta = np.where(abs(z / 2.0 + root - CENTER) > abs(z / 2.0 - root - CENTER), z / 2.0 + root, z / 2.0 - root)
    distance = abs(zeta - CENTER)  # inverts the map: the larger of both solutions
    inside = (distance > 1.02 * RADIUS) & (distance < 0.98 * FAR)
    outside = (distance < 0.98 * RADIUS) | (distance > 1.02 * FAR)
    assert mesh.contains(y[inside]).all()
    assert not mesh.contains(y[outside]).any()
    weights = area_weights(mesh, y)
    assert weights[outside].max() == 0.0
    assert weights[inside].min() > 0.0
    rule = rule_on(mesh)
    assert mesh.contains(np.asarray(rule.z)).all()
    assert rule.w.sum() == pytest.approx(mesh.volume, rel=1e-5)


def test_vertices_have_lumped_masses_and_centers_their_cells():
    mesh = disk(5)
    cells, measures = np.asarray(mesh.cells), np.asarray(mesh.measures, np.float64)
    lumped = np.zeros(len(mesh.vertices))
    np.add.at(lumped, cells, measures[:, None] / 3.0)
    order = np.random.default_rng(0).permutation(len(lumped))
    y = np.asarray(mesh.vertices)[order]
    np.testing.assert_allclose(area_weights(mesh, y), lumped[order] / measures.sum(), rtol=1e-6)
    centers = np.asarray(mesh.vertices)[cells].mean(axis=1)
    np.testing.assert_allclose(area_weights(mesh, centers), measures / measures.sum(), rtol=1e-6)
    few = np.array([[0.5, 0.0], [-0.5, 0.0], [3.0, 0.0]])  # a half each; the third is outside
    np.testing.assert_allclose(area_weights(mesh, few), [0.5, 0.5, 0.0], atol=0.03)


def test_a_large_mesh_is_combined_into_compact_parts_of_equal_measure():
    mesh = disk(40)
    z, w = mesh.partition(64)
    assert len(z) == 64
    assert w.max() < 1.2 * w.min()
    # one node in a square of area h² = |Y|/64 misses its second moment h²/6
    assert w @ np.sum(z**2, axis=1) == pytest.approx(math.pi / 2 - math.pi * math.pi / 64 / 6, rel=0.005)


def test_a_cloud_keeps_its_hole_and_its_inlet():
    rng = np.random.default_rng(0)
    points = rng.uniform(-1.0, 1.0, (3000, 2))
    radius = np.linalg.norm(points, axis=1)
    ring = Mesh.from_points(points[(radius < 1.0) & (radius > 0.4)])
    assert ring.volume == pytest.approx(math.pi * (1.0 - 0.16), rel=0.05)
    assert not ring.contains(0.3 * points[radius < 1.0]).any()
    errors = []
    for n in (16, 32, 64):
        grid = mesh_grid(*[np.linspace(0.0, 1.0, n + 1)] * 2)
        errors.append(Mesh.from_points(grid[~(grid > 0.5).all(axis=1)]).volume - 0.75)
    np.testing.assert_allclose(np.log2(np.divide(errors[:-1], errors[1:])), 2.0, atol=0.1)


def test_a_mask_is_the_cells_around_its_points():
    middles = [(np.arange(8) + 0.5) / 8, (np.arange(12)[::-1] + 0.5) / 12]  # the second axis runs downwards
    y = mesh_grid(*middles)
    mask = ~(y > 0.5).all(axis=1)
    mesh = Mesh.from_mask(mask.reshape(8, 12), middles)
    assert mesh.volume == pytest.approx(0.75)
    np.testing.assert_allclose(area_weights(mesh, y), mask / mask.sum(), rtol=1e-5)
    solid = Mesh.from_mask(np.ones((2, 3, 4), bool), [np.arange(2.0), np.arange(3.0), np.arange(4.0)])
    assert solid.volume == pytest.approx(24.0)


def test_the_map_from_the_cube_is_uniform(getkey):
    mesh = l_shape()
    t = jax.random.uniform(getkey(), (100, 2), minval=0.01, maxval=0.99)
    y, jacobian = jax.jit(lambda t: (mesh.from_unit(t), jax.vmap(jax.jacobian(mesh.from_unit))(t)))(t)
    np.testing.assert_allclose(np.abs(np.linalg.det(jacobian)), mesh.volume, rtol=1e-3)
    assert mesh.contains(np.asarray(y)).all()


def test_facts():
    mesh = l_shape()
    assert mesh.bounds == ((0.0, 1.0), (0.0, 1.0))
    assert domain_from_json(mesh.to_json()) == mesh
    assert Harmonic(mesh).domain == loca.domains.Box.unit(2)  # features are smooth across cells
    assert isinstance(rule_on(mesh), CellRule)
    inside = QueryGrid.even(mesh, (5, 5)).present((slice(0, 5), slice(0, 5)))
    assert inside is not None
    assert inside.sum() == 21  # of 25; four lie beyond the inward corner
    assert len(mesh.triangles(np.asarray(mesh.vertices)[-2::-1])) == 6  # in any order; the last vertex has no cell
    assert mesh.triangles(np.zeros((3, 2))) is None


def test_mistakes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cells of shape \(C, d \+ 1\).*got \(4, 2\) and \(1, 4\)"):
        Mesh(np.zeros((4, 2)), [[0, 1, 2, 3]])
    with pytest.raises(ValueError, match="belong to no cell"):
        Mesh.from_points(mesh_grid(np.linspace(0.0, 1.0, 9), np.linspace(0.0, 1e-3, 9)))
    with pytest.raises(ValueError, match="none of the 1 locations lies in Mesh"):
        area_weights(l_shape(), np.array([[0.9, 0.9]]))
    surface = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    meshio.Mesh(surface, [("triangle", [[0, 1, 2]])]).write(tmp_path / "surface.vtu")
    with pytest.raises(ValueError, match="2-dimensional, but 3 of their coordinates vary"):
        Mesh.read(tmp_path / "surface.vtu")


def functions(mesh, count, seed):
    """s(y) = a₁ y₁ + a₂ |y|² at the vertices, from u = (a₁, a₁, a₁, a₂, a₂, a₂)."""
    a = jax.random.normal(jax.random.key(seed), (count, 2))
    y = mesh.vertices
    s = a[:, :1] * y[:, 0] + a[:, 1:] * jnp.sum(y**2, axis=-1)
    u = jnp.repeat(a, 3, axis=1)[:, :, None]
    return loca.Samples(u, y, s[..., None], x=jnp.linspace(0.0, 1.0, 6)[:, None], domain=mesh)


@pytest.mark.full
def test_a_model_on_a_mesh_is_trained_saved_evaluated_and_drawn(tmp_path):
    mesh = disk(3)
    train, test = functions(mesh, 60, 0), functions(mesh, 20, 1)
    assert not [finding for finding in loca.checks.check(train).findings if finding.level == "error"]
    small = {"num_features": 8, "lift_size": 8, "lift_widths": (16,), "proposal_widths": (16,), "feature_widths": (16,)}
    rule = CellRule(mesh, 32)
    model = loca.LOCA.create(train, key=jax.random.key(0), rule=rule, **small)
    weights = area_weights(mesh, mesh.vertices)
    model, _ = loca.fit(model, train, steps=300, batch_size=20, weights=jnp.asarray(weights, jnp.float32))
    report = loca.evaluate(model, test, weights=weights)
    error = np.asarray(model.predict(test.u, test.y) - test.s, np.float64)
    expected = np.sqrt((weights @ error[..., 0].T ** 2) / (weights @ np.asarray(test.s[..., 0], np.float64).T ** 2))
    np.testing.assert_allclose(report.errors["relative_l2"][:, 0], expected, rtol=1e-4)
    assert expected.mean() < 0.5

    loca.save(model, tmp_path / "model", data=train)
    again = loca.load(tmp_path / "model")
    assert again.domain == mesh
    np.testing.assert_array_equal(again.predict(test.u, test.y), model.predict(test.u, test.y))

    store = stored(tmp_path / "test.zarr", test)
    assert store.domain == mesh
    written = predict_to(again, store, tmp_path / "prediction.zarr", queries=QueryGrid.even(mesh, (5, 5)))
    assert np.isnan(written.s1.values).sum() == 20 * 12  # the corners of the square lie outside of the disk
    nodes = test.take(jnp.arange(2))
    found = predict_dataset(model, nodes)
    with pytest.raises(ValueError, match="pass `domain`"):
        write_dataset(found, tmp_path / "p.vtu")
    write_dataset(found, str(tmp_path / "p.vtu"), model.domain)
    file = meshio.read(tmp_path / "p_1.vtu")
    np.testing.assert_array_equal(file.cells[0].data, mesh.cells)
    np.testing.assert_allclose(file.point_data["s1"], model(nodes.u[1], nodes.y.points)[:, 0], rtol=1e-4, atol=1e-5)
    panels = loca.figures.fields(model, test).axes
    assert any(type(drawn).__name__ == "TriMesh" for panel in panels for drawn in panel.collections)
