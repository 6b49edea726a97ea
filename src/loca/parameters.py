"""Which numbers of a model an optimizer may change, and how many there are."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

__all__ = ["Fixed", "Held", "Positive", "count", "positive", "trainable"]


class Fixed(eqx.Module):
    """A part whose arrays are given, not learned: nodes, filters, statistics.

    Gradients still flow *through* it; `trainable` merely tells the optimizer to leave its arrays alone.
    """


class Positive(eqx.Module):
    """A number that stays positive whatever the optimizer does: its logarithm is what is stored and learned."""

    log: Float[Array, ""]

    def __init__(self, value: float):
        if not value > 0:
            raise ValueError(f"expected a positive number, got {value}; pass the number itself, not its logarithm")
        self.log = jnp.log(jnp.asarray(value, dtype=float))

    def __call__(self) -> Float[Array, ""]:
        return jnp.exp(self.log)


class Held(Fixed):
    """A positive number that training leaves where it is: `RBF(rate=Held(0.2))`."""

    number: Positive

    def __init__(self, value: float):
        self.number = Positive(value)

    def __call__(self) -> Float[Array, ""]:
        return self.number()


def positive(value: float | Positive | Held) -> Positive | Held:
    """A learned positive number, unless the caller says otherwise with `Held`."""
    return value if isinstance(value, Positive | Held) else Positive(value)


def trainable(model: PyTree) -> PyTree:
    """A tree of booleans in the shape of `model`: true for every array that an optimizer may change.

    Use it where Equinox takes a filter: `eqx.partition(model, trainable(model))`.
    """

    def is_fixed(part: object) -> bool:
        return isinstance(part, Fixed)

    def mark(part: PyTree) -> PyTree:
        return jax.tree.map(lambda _: False, part) if is_fixed(part) else eqx.is_inexact_array(part)

    return jax.tree.map(mark, model, is_leaf=is_fixed)


def count(model: PyTree) -> int:
    """The number of real parameters that training may change."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, trainable(model))))
