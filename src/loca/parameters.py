"""Which numbers of a model an optimizer may change, and their count."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

__all__ = ["Fixed", "Positive", "count", "trainable"]


class Fixed(eqx.Module):
    """A part whose arrays are constants, not learned: nodes, filters, statistics.

    Gradients still flow *through* it; `trainable` only excludes its arrays from updates.
    """


class Positive(eqx.Module):
    """A number that stays positive under any update, because its logarithm is stored and learned."""

    log: Float[Array, ""]

    def __init__(self, value: float):
        if not value > 0:
            raise ValueError(f"expected a positive number, got {value}; pass the number itself, not its logarithm")
        self.log = jnp.log(jnp.asarray(value, dtype=float))

    def __call__(self) -> Float[Array, ""]:
        return jnp.exp(self.log)


class Held(Fixed):
    """A positive number that training does not change: `RBF(rate=Held(0.2))`."""

    number: Positive

    def __init__(self, value: float):
        self.number = Positive(value)

    def __call__(self) -> Float[Array, ""]:
        return self.number()


def positive(value: float | Positive | Held) -> Positive | Held:
    """A learned positive number, unless the caller passes `Held`."""
    return value if isinstance(value, Positive | Held) else Positive(value)


def trainable(model: PyTree) -> PyTree:
    """A tree of booleans with the structure of `model`: true for every array that an optimizer may change.

    Use it as an Equinox filter: `eqx.partition(model, trainable(model))`.
    """

    def is_fixed(part: object) -> bool:
        return isinstance(part, Fixed)

    def mark(part: PyTree) -> PyTree:
        return jax.tree.map(lambda _: False, part) if is_fixed(part) else eqx.is_inexact_array(part)

    return jax.tree.map(mark, model, is_leaf=is_fixed)


def count(model: PyTree) -> int:
    """The number of real parameters that training may change."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, trainable(model))))
