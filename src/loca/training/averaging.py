"""Averages of weights, as one more optimizer around an optimizer."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from loca.models import Operator
from loca.parameters import trainable
from loca.training.step import State
from loca.typing import PyTree


class Averaged(NamedTuple):
    """The state of the optimizer inside, the average of the parameters, and how many steps it was taken over."""

    inner: PyTree
    average: PyTree
    steps: Int[Array, ""]


def average_weights(inner: optax.GradientTransformation, decay: float = 0.999) -> optax.GradientTransformation:
    """θ̄ ← d θ̄ + (1 − d) θ after every step of the optimizer inside, which itself never sees the average.

    d = min(decay, (1 + k)/(10 + k)) at step k: at first the average is short, since there is little worth remembering.
    """

    def start(params: PyTree) -> Averaged:
        average = jax.tree.map(jnp.copy, params)  # a buffer of its own, so that both can be given away
        return Averaged(inner.init(params), average, jnp.zeros((), jnp.int32))

    def update(updates: PyTree, state: PyTree, params: PyTree | None = None) -> tuple[PyTree, Averaged]:
        if params is None:
            raise ValueError("an average of parameters needs them: call update(gradients, state, parameters)")
        updates, within = inner.update(updates, state.inner, params)
        d = jnp.minimum(decay, (1.0 + state.steps) / (10.0 + state.steps))
        moved = eqx.apply_updates(params, updates)
        average = jax.tree.map(lambda old, new: d * old + (1.0 - d) * new, state.average, moved)
        return updates, Averaged(within, average, state.steps + 1)

    return optax.GradientTransformation(start, update)


def trained(state: State) -> Operator:
    """The operator that a state stands for: with averaged weights if its optimizer keeps an average."""
    if not isinstance(state.optimizer_state, Averaged):
        return state.model
    given = eqx.filter(state.model, trainable(state.model), inverse=True)
    return eqx.combine(state.optimizer_state.average, given)
