"""The Darcy solver against scikit-fem, against a manufactured solution, and against the physics."""

import jax
import numpy as np
import pytest
import scipy.sparse.csgraph
import scipy.sparse.linalg
import skfem
from skfem.helpers import dot, grad

from loca.problems import Darcy, five_point
from loca.problems.darcy import DarcyFlow, flow


def solve_with_scikit_fem(resolution: int, u: np.ndarray) -> np.ndarray:
    """The same weak form on the same triangles, assembled and solved by scikit-fem."""
    ours = flow(resolution)
    mesh = skfem.MeshTri(ours.nodes.T.copy(), ours.triangles.T.copy())
    basis = skfem.Basis(mesh, skfem.ElementTriP1(), intorder=8)
    walls = [skfem.FacetBasis(mesh, skfem.ElementTriP1(), facets=mesh.facets_satisfying(at), intorder=10)
             for at in (lambda x: x[1] == 0.0, lambda x: x[1] == 1.0)]  # fmt: skip

    @skfem.BilinearForm
    def stiffness(s, v, w):
        return w.u * dot(grad(s), grad(v))

    @skfem.LinearForm
    def source(v, w):
        return 5.0 * np.exp(-((w.x[0] - 0.5) ** 2) - (w.x[1] - 0.5) ** 2) * v

    @skfem.LinearForm
    def flux(v, w):
        return np.sin(5.0 * w.x[0]) * v

    A = stiffness.assemble(basis, u=basis.interpolate(u))
    b = source.assemble(basis) + sum(flux.assemble(wall) for wall in walls)
    fixed = basis.get_dofs(lambda x: (x[0] == 0.0) | (x[0] == 1.0)).all()
    return skfem.solve(*skfem.condense(A, b, D=fixed))


@pytest.mark.parametrize("resolution", [7, 32])
def test_equal_to_scikit_fem(resolution):
    u, s = Darcy(resolution=resolution).pairs(jax.random.key(0), range(5))
    for permeability, pressure in zip(u[..., 0], s[..., 0], strict=True):
        reference = solve_with_scikit_fem(resolution, permeability)
        assert np.abs(pressure - reference).max() <= 1e-10 * np.abs(reference).max()


def manufactured_error(resolution: int) -> float:
    """L2 error at the nodes for s = sin πx₁ · (1 + x₂²) and u = 1 + x₁x₂."""
    pi = np.pi

    def f(x1, x2):  # −∇·(u∇s)
        u, u1, u2 = 1.0 + x1 * x2, x2, x1
        s1, s2 = pi * np.cos(pi * x1) * (1.0 + x2**2), 2.0 * x2 * np.sin(pi * x1)
        s11, s22 = -(pi**2) * np.sin(pi * x1) * (1.0 + x2**2), 2.0 * np.sin(pi * x1)
        return -(u1 * s1 + u * s11 + u2 * s2 + u * s22)

    def g(x1, x2):  # u ∂s/∂n, outward
        return (1.0 + x1 * x2) * 2.0 * x2 * np.sin(pi * x1) * np.where(x2 > 0.5, 1.0, -1.0)

    solver = DarcyFlow(resolution, f, g)
    x1, x2 = solver.nodes.T
    exact = np.sin(pi * x1) * (1.0 + x2**2)
    return float(np.sqrt(np.mean((solver.solve((1.0 + x1 * x2)[None])[0] - exact) ** 2)))


def test_second_order_on_a_manufactured_solution():
    coarse, middle, fine = (manufactured_error(resolution) for resolution in (17, 33, 65))
    assert np.log2(coarse / middle) == pytest.approx(2.0, abs=0.1)
    assert np.log2(middle / fine) == pytest.approx(2.0, abs=0.05)


def test_more_permeable_everywhere_means_less_pressure_in_proportion():
    solver = flow(16)
    u = 1.0 + np.random.default_rng(0).random((1, 256))
    np.testing.assert_allclose(solver.solve(3.0 * u), solver.solve(u) / 3.0, rtol=1e-12, atol=1e-14)


def test_permeability_must_be_positive():
    with pytest.raises(ValueError, match="must be positive, but its smallest value is -1"):
        flow(8).solve(np.full((1, 64), -1.0))


def sparse_solution(u: np.ndarray) -> np.ndarray:
    """The same differences of fluxes as a sparse matrix, from the differences between all neighbors."""
    n = len(u)
    number, weights = np.arange(n * n).reshape(n, n), []
    for one, other in ((number[1:], number[:-1]), (number[:, 1:], number[:, :-1])):
        weights.append((one.ravel(), other.ravel(), 0.5 * (u.ravel()[one] + u.ravel()[other]).ravel()))
    i, j, w = map(np.concatenate, zip(*weights, strict=True))
    graph = scipy.sparse.coo_array((w, (i, j)), shape=(n * n, n * n))
    laplacian = scipy.sparse.csgraph.laplacian((graph + graph.T).tocsr()) * (n - 1) ** 2
    inside = number[1:-1, 1:-1].ravel()
    s = np.zeros(n * n)
    s[inside] = scipy.sparse.linalg.spsolve(laplacian.tocsr()[inside][:, inside].tocsc(), np.ones(len(inside)))
    return s.reshape(n, n)


def test_the_two_valued_flow_solves_the_differences_of_fluxes():
    problem = Darcy(resolution=29, preset="piecewise", fine=57)
    u, s = (each.reshape(2, 29, 29) for each in problem.pairs(jax.random.key(0), range(2)))
    assert set(np.unique(u)) == {3.0, 12.0}
    fine = np.random.default_rng(0).choice([3.0, 12.0], size=(31, 31))
    np.testing.assert_allclose(five_point.solve(fine), sparse_solution(fine), atol=1e-12)
    own = Darcy(resolution=31, preset="piecewise", fine=31).solve(fine.reshape(1, -1))
    np.testing.assert_array_equal(own[0].reshape(31, 31), five_point.solve(fine))
    few, _ = (each.reshape(29, 29) for each in problem.pairs(jax.random.key(0), [1]))
    np.testing.assert_array_equal(few, u[1])  # whatever is computed with it
    assert (s[:, 0] == 0.0).all()
    assert (s[:, 1:-1, 1:-1] > 0.0).all()


def test_the_measure_of_the_two_valued_flow_is_its_own():
    with pytest.raises(ValueError, match="divides fine − 1 = 420, got 32"):
        Darcy(resolution=32, preset="piecewise")
    with pytest.raises(ValueError, match="has its own modes"):
        Darcy(resolution=29, preset="piecewise", rate=5.0)
