"""Matrix products that honor `jax.default_matmul_precision` on CPUs too.

Within `jax.default_matmul_precision("bfloat16")` factors are rounded to bfloat16 and sums computed in single precision,
in derivatives as well. JAX itself does so on accelerators only. CPUs with matrix units for bfloat16 (Intel's AMX) are
several times faster this way, but the compiler uses them only if every product is written as A B or A Bᵀ of matrices
in row-major layout: so each derivative is written here in one of these forms.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint
from jaxtyping import Array, Float


def matmul(a: Float[Array, "*N q"], b: Float[Array, "q r"]) -> Float[Array, "*N r"]:
    """A B."""
    return rounded(a, b, 0) if is_rounded(a) else a @ b


def matmul_transposed(a: Float[Array, "*N q"], b: Float[Array, "r q"]) -> Float[Array, "*N r"]:
    """A Bᵀ."""
    return rounded(a, b, 1) if is_rounded(a) else a @ b.T


def is_rounded(a: Array) -> bool:
    """Whether the current precision of products is bfloat16."""
    precision = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    return precision == "bfloat16" and a.dtype == jnp.float32


def half(a: Array, b: Array, axis: int) -> Array:
    """The product over the last axis of `a` and one axis of `b`: factors in bfloat16, sums in single precision."""
    factors = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    return jax.lax.dot_general(*factors, (((a.ndim - 1,), (axis,)), ((), ())), preferred_element_type=jnp.float32)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def rounded(a: Float[Array, "*N q"], b: Float[Array, "_ _"], axis: int) -> Float[Array, "*N r"]:
    """A B (`axis` 0 of B is summed over) or A Bᵀ (`axis` 1), from rounded factors."""
    return half(a, b, axis)


def forward(a: Array, b: Array, axis: int) -> tuple[Array, tuple[Array, Array]]:
    """The product, and the residuals of its derivative."""
    return half(a, b, axis), (a.astype(jnp.bfloat16), b.astype(jnp.bfloat16))


def backward(axis: int, factors: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    """Of A B: dA = G Bᵀ and dB = Aᵀ G; of A Bᵀ: dA = G B and dB = Gᵀ A."""
    a, b = factors
    left, right = (each.reshape(-1, each.shape[-1]) for each in ((a, g) if axis == 0 else (g, a)))
    row_major = with_layout_constraint(left.T.astype(jnp.bfloat16), Layout((0, 1)))
    return half(g, b, 1 - axis), half(row_major, right, axis=0)


rounded.defvjp(forward, backward)
