"""The complex modulus, differentiable everywhere it is asked to be."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def modulus(re: Float[Array, "*grid"], im: Float[Array, "*grid"]) -> Float[Array, "*grid"]:
    """|re + i·im|, with gradient zero at zero.

    The square root has infinite slope at 0 and the chain rule would turn that into 0·∞ = NaN; zero is the middle of
    the subdifferential, and what symmetry demands.
    """
    square = re * re + im * im
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)
