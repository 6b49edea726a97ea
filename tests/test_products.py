"""Products in the precision asked for: the rounding is of the factors, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.products import matmul, matmul_transposed


def rounded(a) -> np.ndarray:
    """The nearest numbers with 8 leading bits, in double precision."""
    return np.asarray(jnp.asarray(a, jnp.bfloat16), np.float64)


@pytest.fixture(params=[(2, 3, 40), *(pytest.param(n, marks=pytest.mark.full) for n in [(7,), (3, 50)])], ids=str)
def factors(request, getkey):
    a, b = jax.random.normal(getkey(), (*request.param, 33)), jax.random.normal(getkey(), (33, 21))
    return a, b, jax.random.normal(getkey(), (*request.param, 21))


@pytest.mark.parametrize("product", [matmul, lambda a, b: matmul_transposed(a, b.T)], ids=["AB", "ABT"])
def test_factors_are_rounded_and_sums_are_not(product, factors):
    a, b, g = factors
    with jax.default_matmul_precision("bfloat16"):
        value, pull = jax.jit(lambda a, b: jax.vjp(product, a, b))(a, b)
        da, db = pull(g)
    tall_a, tall_g = rounded(a).reshape(-1, 33), rounded(g).reshape(-1, 21)
    for ours, expected in [
        (value, rounded(a) @ rounded(b)),
        (da, rounded(g) @ rounded(b).T),
        (db, tall_a.T @ tall_g),
    ]:
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(np.asarray(value) - np.asarray(a @ b)).max() > 1e-3  # it is not the product of the factors given


@pytest.mark.parametrize("product", [matmul, lambda a, b: matmul_transposed(a, b.T)], ids=["AB", "ABT"])
def test_nothing_is_rounded_unless_asked_for(product, factors):
    a, b, _ = factors
    np.testing.assert_array_equal(product(a, b), a @ b)
