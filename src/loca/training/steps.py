"""Training steps: one as a pure function, and many on data that is in memory or streamed from disk."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from loca.data import Queries, Records, Samples, Stream, batch_rows, stream
from loca.devices import (
    ShardingRule,
    constrain,
    from_process_rows,
    local_copy,
    place,
    process_part,
    replicated,
    shard_functions,
)
from loca.losses import mean_squared
from loca.models import Operator, shard
from loca.parameters import trainable
from loca.typing import Input, PyTree

Loss = Callable[..., Float[Array, ""]]
"""loss(prediction, truth): from standardized outputs of a batch to the number that training minimizes.

If locations have weights, it is called as loss(prediction, truth, weights).
"""

NEVER = jnp.iinfo(jnp.int32).max


class State(eqx.Module):
    """Everything that changes during training."""

    model: Operator
    optimizer_state: PyTree
    step: Int[Array, ""]

    @classmethod
    def start(cls, model: Operator, optimizer: optax.GradientTransformation) -> State:
        """The state before the first step. Its arrays are copies, so donating them leaves the model intact."""
        return initial_state(model, optimizer)


@eqx.filter_jit
def initial_state(model: Operator, optimizer: optax.GradientTransformation) -> State:
    """`State.start`, compiled as one program instead of one per array shape."""
    # Strong types from the start: a weakly typed scalar would change type in the first step and compile twice.
    model = jax.tree.map(lambda leaf: leaf.copy().astype(leaf.dtype) if eqx.is_array(leaf) else leaf, model)
    learned = eqx.filter(model, trainable(model))
    return State(model, optimizer.init(learned), jnp.zeros((), jnp.int32))


class Encoded(eqx.Module):
    """Data prepared for one model: encoded input functions, queries, their weights, and standardized outputs."""

    codes: Float[Array, "N ..."]
    queries: Queries
    s: Float[Array, "N P d_s"]
    weights: Float[Array, " P"] | Float[Array, "N P"] | None = None

    @classmethod
    def of(cls, model: Operator, samples: Samples, weights: Float[Array, " M"] | None = None) -> Encoded:
        """Encode samples once, so that no step has to. `weights` has one entry per location in `y.points`."""
        normalization = model.normalization
        normalization.check_input(samples.u, model.inputs)
        normalization.check_output(samples.s, model.outputs)
        codes = encode(model, samples.u)
        s = normalization.at(samples.y).standardize(samples.s)
        return cls(codes, samples.y, s, None if weights is None else weights_at(samples.y, weights))

    def each(self, change: Callable[[Array], Array]) -> Encoded:
        """Apply a function to every array that has one row per input function."""
        weights = self.weights if self.weights is None or self.weights.ndim == 1 else change(self.weights)
        return Encoded(change(self.codes), self.queries.each(change), change(self.s), weights)

    def sharded(self, mesh: Mesh | None) -> Encoded:
        """Split the functions over the devices of a mesh. For use inside a compiled program."""
        return self.each(lambda rows: shard_functions(rows, mesh))

    def take(self, rows: Int[Array, " B"]) -> Encoded:
        """The functions with the given indices, in the given order."""
        return self.each(lambda array: array[rows])

    def batch(self, seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int) -> Encoded:
        """The batch of a training step: a pure function of (seed, step). Each epoch uses every function once."""
        return self.take(batch_rows(seed, step, size, len(self.s)))


@eqx.filter_jit
def encode(model: Operator, u: Input) -> Float[Array, "N ..."]:
    """Encode all input functions. Compiled at module level, so that runs with equal shapes share the program."""
    return jax.lax.map(model.encode, u, batch_size=256)


def weights_at(queries: Queries, weights: Float[Array, " M"]) -> Float[Array, " P"] | Float[Array, "N P"]:
    """The weights of the queries, from one weight per location."""
    if len(weights) != len(queries.points):
        raise ValueError(
            f"expected one weight per location, {len(queries.points)} in total, got {len(weights)}; "
            "pass, for example, loca.domains.area_weights(data.domain, data.y.points)"
        )
    return queries.gather(weights)


def advance(
    state: State,
    batch: Encoded,
    optimizer: optax.GradientTransformation,
    loss: Loss = mean_squared,
    mesh: Mesh | None = None,
) -> tuple[State, Float[Array, ""]]:
    """Take one step, θ ← θ − update(∇_θ loss). Return the new state and the loss before the step.

    The function is pure: compile, scan, map or shard it. It changes only the parameters that `trainable` selects.
    With a mesh, its devices share the work; see `loca.models.shard`.
    """
    learned, given = eqx.partition(state.model, trainable(state.model))

    def objective(learned: PyTree) -> Float[Array, ""]:
        model: Operator = eqx.combine(learned, given)
        weights = () if batch.weights is None else (batch.weights,)
        if mesh is None:
            return model.objective(loss, batch.codes, batch.queries, batch.s, *weights)
        if type(model).objective is not Operator.objective:
            raise ValueError(f"{type(model).__name__} has an objective of its own; train it without a mesh")
        return loss(shard(model, mesh).respond(batch.codes, batch.queries), batch.s, *weights)

    value, gradient = jax.value_and_grad(objective)(learned)
    updates, optimizer_state = optimizer.update(gradient, state.optimizer_state, learned)
    model = eqx.combine(eqx.apply_updates(learned, updates), given)
    return State(model, optimizer_state, state.step + 1), value


class StepConfig(NamedTuple):
    """What every step of a run has in common.

    **Arguments:**

    - `optimizer`, `loss`: as for `advance`.
    - `batch_size`, `seed`: number of functions per step, and what their order depends on.
    - `weights`: one weight per location.
    - `mesh`: devices that share the work.
    - `parameters`: how learned arrays are laid out on the mesh between steps.
    """

    optimizer: optax.GradientTransformation
    loss: Loss
    batch_size: int
    seed: int
    weights: Float[Array, " M"] | None = None
    mesh: Mesh | None = None
    parameters: ShardingRule = replicated

    def advance(self, state: State, batch: Encoded) -> tuple[State, Float[Array, ""]]:
        """Take one step."""
        state, value = advance(state, batch.sharded(self.mesh), self.optimizer, self.loss, self.mesh)
        arrays, rest = eqx.partition(state, eqx.is_array)
        return eqx.combine(constrain(arrays, self.mesh, self.parameters), rest), value


class LossSum(NamedTuple):
    """The sum of the losses so far, and the first step whose loss was not finite.

    Losses are added in the order of the steps, so sums do not depend on how a run is divided into calls. `window` is a
    second sum, which begins at another step. If the run has returned to an earlier state, `returned_to` is the step of
    that state, and `total` its mean loss.
    """

    total: float
    broken_at: int | None
    returned_to: int | None = None
    window: float = 0.0


class InMemoryTrainer:
    """Takes steps on data that is encoded once and stays on the device; a loop of steps is one compiled program."""

    def __init__(self, state: State, data: Samples, config: StepConfig):
        model = local_copy(place(state.model, config.mesh))
        self.encoded = place(Encoded.of(model, data, config.weights), config.mesh)
        self.constant = eqx.filter(state, eqx.is_array, inverse=True)

        @functools.partial(jax.jit, donate_argnums=0)
        def loop(
            variable: PyTree, encoded: Encoded, until: Int[Array, ""], totals: Float[Array, " sums"]
        ) -> tuple[PyTree, Array, Array]:
            def step(carry: tuple[PyTree, Array, Array]) -> tuple[PyTree, Array, Array]:
                variable, totals, _ = carry
                state = eqx.combine(variable, self.constant)
                # Every device computes all row indices; otherwise they would have to communicate to find them.
                rows = constrain(batch_rows(config.seed, state.step, config.batch_size, len(encoded.s)), config.mesh)
                state, value = config.advance(state, encoded.take(rows))
                return eqx.filter(state, eqx.is_array), totals + value, value

            def more(carry: tuple[PyTree, Array, Array]) -> Array:
                variable, _, value = carry
                return (variable.step < until) & jnp.isfinite(value)

            # Without this, the compiler chooses the layout of arrays that no step changes, and the next call would
            # compile again.
            end = jax.lax.while_loop(more, step, (variable, totals, jnp.zeros(())))
            return constrain(end, config.mesh, config.parameters)

        self.loop, self.mesh = loop, config.mesh

    def run(self, state: State, until: int, total: float = 0.0, window: float = 0.0) -> tuple[State, LossSum]:
        """Take all steps before step `until`; add their losses to `total` and `window`. Donates the state."""
        limit: tuple[Array, Array] = jnp.asarray(until, jnp.int32), jnp.asarray((total, window), jnp.float32)
        variable, totals, last = self.loop(eqx.filter(state, eqx.is_array), self.encoded, *place(limit, self.mesh))
        state, (total, window) = eqx.combine(variable, self.constant), totals.tolist()
        return state, LossSum(total, None if jnp.isfinite(last) else int(state.step) - 1, window=window)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class StreamingTrainer:
    """Takes steps on batches that are read ahead from disk and encoded on arrival; each step is a compiled program."""

    def __init__(self, state: State, data: Records, config: StepConfig):
        self.constant = eqx.filter(state, eqx.is_array, inverse=True)
        self.config, part = config, process_part(config.mesh)
        self.open = functools.partial(stream, data, size=config.batch_size, seed=config.seed, process=part)
        self.batches: Stream | None = None

        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def one(variable: PyTree, tally: tuple[Array, Array], batch: Samples) -> tuple[PyTree, tuple[Array, Array]]:
            totals, broken = tally
            state = eqx.combine(variable, self.constant)
            step = state.step
            state, value = config.advance(state, Encoded.of(state.model, batch, config.weights))
            broken = jnp.where(jnp.isfinite(value), broken, jnp.minimum(broken, step))
            return eqx.filter(state, eqx.is_array), (totals + value, broken)

        self.one = one

    def run(self, state: State, until: int, total: float = 0.0, window: float = 0.0) -> tuple[State, LossSum]:
        """Take all steps before step `until`; add their losses to `total` and `window`. Donates the state."""
        step = int(state.step)
        if self.batches is None or self.batches.step != step:
            self.close()
            self.batches = self.open(start=step)
        variable = eqx.filter(state, eqx.is_array)
        tally: tuple[Array, Array] = jnp.asarray((total, window), jnp.float32), jnp.asarray(NEVER)
        tally = place(tally, self.config.mesh)
        for _ in range(step, until):
            batch = global_batch(next(self.batches), self.config.mesh, self.config.batch_size)
            variable, tally = self.one(variable, tally, batch)
        broken, (total, window) = int(tally[1]), tally[0].tolist()
        state = eqx.combine(variable, self.constant)
        return state, LossSum(total, None if broken == NEVER else broken, window=window)

    def close(self) -> None:
        """Stop reading ahead."""
        if self.batches is not None:
            self.batches.close()
            self.batches = None


Trainer = InMemoryTrainer | StreamingTrainer
"""Takes steps on some data."""


def global_batch(batch: Samples, mesh: Mesh | None, size: int) -> Samples:
    """The batch of `size` functions on all devices, from the part that each process has read."""
    if mesh is None:
        return batch

    def joined(rows: PyTree) -> PyTree:
        return from_process_rows(rows, mesh, size)

    parts = joined(batch.u), batch.y.each(joined), joined(batch.s)
    # Replace leaves instead of creating new Samples, which would check values that other processes hold.
    return place(eqx.tree_at(lambda batch: (batch.u, batch.y, batch.s), batch, parts), mesh)
