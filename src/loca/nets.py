"""Multilayer perceptrons."""

import itertools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.products import matmul
from loca.typing import Key

__all__ = ["MLP"]


class MLP(eqx.Module):
    """h ↦ W_L σ(… σ(W₁ h + b₁) …) + b_L on the last axis; any number of axes may precede it.

    Weights are Glorot normal, biases zero, σ is GELU.

    **Arguments:**

    - `sizes`: the widths of all layers, from input to output.
    - `activation`: σ.
    - `key`: randomness of the weights, split between the layers.
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    activation: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], *, activation: Callable[[Array], Array] = jax.nn.gelu, key: Key):
        if len(sizes) < 2 or min(sizes) < 1:
            raise ValueError(f"`sizes` needs at least an input and an output width, all positive, got {tuple(sizes)}")
        glorot = jax.nn.initializers.glorot_normal()
        pairs = list(itertools.pairwise(sizes))
        keys = jax.random.split(key, len(pairs))
        self.weights = tuple(glorot(k, pair) for k, pair in zip(keys, pairs, strict=True))
        self.biases = tuple(jnp.zeros(width) for _, width in pairs)
        self.activation = activation

    @property
    def sizes(self) -> tuple[int, ...]:
        """The widths of all layers, from input to output."""
        return (self.weights[0].shape[0], *(b.shape[0] for b in self.biases))

    def __call__(self, h: Float[Array, "*N d_in"]) -> Float[Array, "*N d_out"]:
        *hidden, (weight, bias) = zip(self.weights, self.biases, strict=True)
        for w, b in hidden:
            h = self.activation(matmul(h, w) + b)
        return matmul(h, weight) + bias
