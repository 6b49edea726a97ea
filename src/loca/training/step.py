"""One step of training, as a pure function."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from loca.losses import mean_squared
from loca.models import Operator, shard
from loca.parameters import trainable
from loca.training.encoded import Encoded
from loca.typing import PyTree

Loss = Callable[..., Float[Array, ""]]
"""loss(prediction, truth): from values of a batch, in standardized units, to the number that training makes small.

With weighted queries it is called as loss(prediction, truth, weights).
"""


class State(eqx.Module):
    """All that changes while training."""

    model: Operator
    optimizer_state: PyTree
    step: Int[Array, ""]

    @classmethod
    def start(cls, model: Operator, optimizer: optax.GradientTransformation) -> State:
        """The state before the first step, with buffers of its own: a run may use them up, the model stays as it is."""
        return first(model, optimizer)


@eqx.filter_jit
def first(model: Operator, optimizer: optax.GradientTransformation) -> State:
    """`State.start`, as one program instead of one for each shape of an array."""
    # strong types from the beginning: a weakly typed scalar would change type in the first step and compile twice
    model = jax.tree.map(lambda leaf: leaf.copy().astype(leaf.dtype) if eqx.is_array(leaf) else leaf, model)
    learned = eqx.filter(model, trainable(model))
    return State(model, optimizer.init(learned), jnp.zeros((), jnp.int32))


def advance(
    state: State,
    batch: Encoded,
    optimizer: optax.GradientTransformation,
    loss: Loss = mean_squared,
    mesh: Mesh | None = None,
) -> tuple[State, Float[Array, ""]]:
    """θ ← θ − update(∇_θ loss), and the loss before it.

    Pure: compile it, scan it, map it, shard it. Only parameters that `trainable` names are changed.
    With a mesh its devices share the work, see `loca.models.shard`.
    """
    learned, given = eqx.partition(state.model, trainable(state.model))

    def objective(learned: PyTree) -> Float[Array, ""]:
        model: Operator = eqx.combine(learned, given)
        asked = model if mesh is None else shard(model, mesh)
        weights = () if batch.weights is None else (batch.weights,)
        return loss(asked.respond(batch.codes, batch.queries), batch.s, *weights)

    value, gradient = jax.value_and_grad(objective)(learned)
    updates, optimizer_state = optimizer.update(gradient, state.optimizer_state, learned)
    model = eqx.combine(eqx.apply_updates(learned, updates), given)
    return State(model, optimizer_state, state.step + 1), value
