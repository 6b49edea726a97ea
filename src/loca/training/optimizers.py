"""Optimizers: the paper's, the default, and averages of weights."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from loca.typing import PyTree


def paper_optimizer(rate: float = 1e-3) -> optax.GradientTransformation:
    """Adam with the paper's learning rate, rate·0.99^(step/100), which decays continuously."""
    return optax.adam(optax.exponential_decay(rate, 100, 0.99))


def default_optimizer(steps: int, rate: float = 4e-3) -> optax.GradientTransformation:
    """Adam with linear warm-up, cosine decay to zero, clipped gradients and averaged weights.

    The learning rate rises over the first 5 % of the steps. Gradients are clipped to norm 1, so that one unusual batch
    cannot derail a run. Averaged weights vary less from step to step than the weights themselves. On validation
    functions of three problems, errors were 17 % below those of the paper's optimizer after the same number of steps
    (`reproduction/studies/default_optimizer.py`).

    **Arguments:**

    - `steps`: number of steps of the run; the learning rate is zero after the last.
    - `rate`: the highest learning rate. Twice the default is better for small networks and short runs, but made a long
      run diverge.
    """
    warmup = max(1, steps // 20)
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, warmup, max(steps, warmup + 1))
    return average_weights(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule)))


class Averaged(eqx.Module):
    """The state of `average_weights`: the inner optimizer's state, the average, and the number of steps taken."""

    inner: PyTree
    average: PyTree
    count: Int[Array, ""]


def average_weights(inner: optax.GradientTransformation, decay: float = 0.999) -> optax.GradientTransformation:
    """Track θ̄ ← d θ̄ + (1 − d) θ after every step of an optimizer, which never sees the average.

    At step k, d = min(decay, (1 + k)/(10 + k)): early on the average is short, since early weights are soon outdated.
    `trained` returns the model with the averaged weights.
    """
    averaging = Averaging(inner, decay)
    return optax.GradientTransformation(averaging.start, averaging)


@dataclasses.dataclass(frozen=True, eq=False)
class Averaging:
    """The update of `average_weights`."""

    inner: optax.GradientTransformation
    decay: float

    def start(self, params: PyTree) -> PyTree:
        """The state before the first step."""
        average = jax.tree.map(jnp.copy, params)  # a separate buffer, so that both can be donated
        return Averaged(self.inner.init(params), average, jnp.zeros((), jnp.int32))

    def __call__(self, updates: PyTree, state: PyTree, params: PyTree | None = None) -> tuple[PyTree, PyTree]:
        """The updates of the inner optimizer, and the new average."""
        if params is None:
            raise ValueError("averaging weights requires the parameters; call update(gradients, state, parameters)")
        updates, within = self.inner.update(updates, state.inner, params)
        d = jnp.minimum(self.decay, (1.0 + state.count) / (10.0 + state.count))
        moved = eqx.apply_updates(params, updates)
        average = jax.tree.map(lambda old, new: d * old + (1.0 - d) * new, state.average, moved)
        return updates, Averaged(within, average, state.count + 1)


def slowed(optimizer: optax.GradientTransformation, factor: float | Float[Array, ""]) -> optax.GradientTransformation:
    """The optimizer with all its updates multiplied by a factor, and the same states.

    An average of weights is that of the weights which result.
    """
    if isinstance(optimizer.update, Averaging):
        return average_weights(slowed(optimizer.update.inner, factor), optimizer.update.decay)

    def update(updates: PyTree, state: PyTree, params: PyTree | None = None) -> tuple[PyTree, PyTree]:
        updates, state = optimizer.update(updates, state, params)
        return jax.tree.map(lambda each: factor * each, updates), state

    return optax.GradientTransformation(optimizer.init, update)
