"""Training steps: one as a pure function, many on data in memory or in a stream, and the return to the best state."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from loca.data import Queries, Records, Samples, Stream, batch_rows
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
from loca.models import Loss, Operator, shard
from loca.parameters import trainable
from loca.training.history import add_in_order
from loca.training.optimizers import Averaged, slowed
from loca.typing import Input, PyTree


class State(eqx.Module):
    """Everything that changes during training."""

    model: Operator
    optimizer_state: PyTree
    step: Int[Array, ""]

    @staticmethod
    @eqx.filter_jit
    def start(model: Operator, optimizer: optax.GradientTransformation) -> State:
        """The state before the first step. Its arrays are copies, so donating them leaves the model intact."""
        # Strong types from the start: a weakly typed scalar would change type in the first step and compile twice.
        model = jax.tree.map(lambda leaf: leaf.copy().astype(leaf.dtype) if eqx.is_array(leaf) else leaf, model)
        learned = eqx.filter(model, trainable(model))
        return State(model, optimizer.init(learned), jnp.zeros((), jnp.int32))


def trained(state: State) -> Operator:
    """The operator of a training state, with averaged weights if its optimizer tracks them."""
    if not isinstance(state.optimizer_state, Averaged):
        return state.model
    given = eqx.filter(state.model, trainable(state.model), inverse=True)
    return eqx.combine(state.optimizer_state.average, given)


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
        locations = len(samples.y.points)
        if weights is not None and len(weights) != locations:
            raise ValueError(
                f"expected one weight per location, {locations} in total, got {len(weights)}; pass, for example, "
                "loca.domains.area_weights(data.domain, data.y.points)"
            )
        codes = _encode(model, samples.u)
        s = normalization.at(samples.y).standardize(samples.s)
        return cls(codes, samples.y, s, None if weights is None else samples.y.gather(weights))

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
def _encode(model: Operator, u: Input) -> Float[Array, "N ..."]:
    """Encode all input functions. Compiled at module level, so that runs with equal shapes share the program."""
    return jax.lax.map(model.encode, u, batch_size=256)


def advance(
    state: State,
    batch: Encoded,
    optimizer: optax.GradientTransformation,
    loss: Loss = mean_squared,
    mesh: Mesh | None = None,
    parameters: ShardingRule = replicated,
) -> tuple[State, Float[Array, ""]]:
    """Take one step, θ ← θ − update(∇_θ loss). Return the new state and the loss before the step.

    The function is pure: compile, scan, map or shard it. It changes only the parameters that `trainable` selects.
    With a mesh, its devices share the work; see `loca.models.shard`. `parameters` is how they lay out the new state.
    """
    batch = batch.sharded(mesh)
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
    arrays, rest = eqx.partition(State(model, optimizer_state, state.step + 1), eqx.is_array)
    return eqx.combine(constrain(arrays, mesh, parameters), rest), value


class StepConfig(NamedTuple):
    """What every step of a run has in common; see `fit`."""

    optimizer: optax.GradientTransformation
    loss: Loss
    batch_size: int
    seed: int
    weights: Float[Array, " M"] | None = None
    mesh: Mesh | None = None
    parameters: ShardingRule = replicated


AT_ONCE = 100
"""The largest number of steps of one call of a loop."""


class InMemoryLoop:
    """Takes steps on data that is encoded once and stays on the device; the loop is one compiled program."""

    def __init__(self, state: State, data: Samples, config: StepConfig):
        model = local_copy(place(state.model, config.mesh))
        self.encoded = place(Encoded.of(model, data, config.weights), config.mesh)
        self.constant, self.mesh = eqx.filter(state, eqx.is_array, inverse=True), config.mesh
        optimizer, loss, size, seed, _, mesh, parameters = config

        @functools.partial(jax.jit, donate_argnums=0)
        def loop(
            variable: PyTree, encoded: Encoded, until: Int[Array, ""], factor: Float[Array, ""]
        ) -> tuple[PyTree, Float[Array, " steps"]]:
            first = variable.step

            def step(carry: tuple[PyTree, Array]) -> tuple[PyTree, Array]:
                state, losses = eqx.combine(carry[0], self.constant), carry[1]
                # every device computes all row indices; otherwise they would have to communicate to find them
                batch = encoded.take(constrain(batch_rows(seed, state.step, size, len(encoded.s)), mesh))
                after, value = advance(state, batch, slowed(optimizer, factor), loss, mesh, parameters)
                return eqx.filter(after, eqx.is_array), losses.at[state.step - first].set(value)

            variable, losses = jax.lax.while_loop(
                lambda carry: carry[0].step < until, step, (variable, jnp.zeros(AT_ONCE))
            )
            # otherwise the compiler chooses the layout of arrays that no step changes, and the next call compiles again
            return constrain(variable, mesh, parameters), constrain(losses, mesh)

        self.loop = loop

    def run(self, state: State, until: int, factor: float = 1.0) -> tuple[State, np.ndarray]:
        """Take all steps before step `until`, at most `AT_ONCE`, and return the loss of each. Donates the state.

        All updates are multiplied by a factor.
        """
        count = until - int(state.step)
        limits = place((jnp.asarray(until, jnp.int32), jnp.asarray(factor, jnp.float32)), self.mesh)
        variable, losses = self.loop(eqx.filter(state, eqx.is_array), self.encoded, *limits)
        return eqx.combine(variable, self.constant), np.asarray(losses)[:count]


class StreamingLoop:
    """Takes steps on batches that are read ahead from disk and encoded on arrival; each step is a compiled program."""

    def __init__(self, state: State, data: Records, config: StepConfig):
        self.constant = eqx.filter(state, eqx.is_array, inverse=True)
        self.config, part = config, process_part(config.mesh)
        self.open = functools.partial(Stream, data, size=config.batch_size, seed=config.seed, process=part)
        self.batches: Stream | None = None
        optimizer, loss, _, _, weights, mesh, parameters = config

        @functools.partial(jax.jit, donate_argnums=0)
        def one(variable: PyTree, batch: Samples, factor: Float[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
            state = eqx.combine(variable, self.constant)
            encoded = Encoded.of(state.model, batch, weights)
            state, value = advance(state, encoded, slowed(optimizer, factor), loss, mesh, parameters)
            return eqx.filter(state, eqx.is_array), constrain(value, mesh)

        self.one = one

    def run(self, state: State, until: int, factor: float = 1.0) -> tuple[State, np.ndarray]:
        """As `InMemoryLoop.run`."""
        step, mesh = int(state.step), self.config.mesh
        if self.batches is None or self.batches.step != step:
            self.close()
            self.batches = self.open(start=step)
        variable, losses = eqx.filter(state, eqx.is_array), []
        slower = place(jnp.asarray(factor, jnp.float32), mesh)
        for _ in range(step, until):
            batch = _global_batch(next(self.batches), mesh, self.config.batch_size)
            variable, loss = self.one(variable, batch, slower)
            losses.append(loss)
        return eqx.combine(variable, self.constant), np.array([float(loss) for loss in losses])

    def close(self) -> None:
        """Stop reading ahead."""
        if self.batches is not None:
            self.batches.close()
            self.batches = None


def _global_batch(batch: Samples, mesh: Mesh | None, size: int) -> Samples:
    """The batch of `size` functions on all devices, from the part that each process has read."""
    if mesh is None:
        return batch
    joined = functools.partial(from_process_rows, mesh=mesh, size=size)
    parts = joined(batch.u), batch.y.each(joined), joined(batch.s)
    # Replace leaves instead of creating new Samples, which would check values that other processes hold.
    return place(eqx.tree_at(lambda batch: (batch.u, batch.y, batch.s), batch, parts), mesh)


# ---- recovery ------------------------------------------------------------------------------------------------------

WINDOW = 100
"""Steps over which losses are averaged. Single batches differ too much to be compared."""

BREAKAWAY = 10.0
"""A mean loss this many times above the smallest has broken away. Learning rates at the edge of stability raise it to
two or three times the smallest for a while, and runs that break down to hundreds or thousands."""

RETURNS = 10
"""The largest number of returns; the learning rate is then a thousandth."""


class BrokenLossError(ArithmeticError):
    """The loss is no longer finite."""


class Recovery:
    """The best state of a run: that after the `WINDOW` steps with the smallest mean loss.

    The run returns to it if the mean loss of `WINDOW` steps has broken away or is not finite, which depends on losses
    only, not on how the run is divided into calls. The number of the step never decreases, and neither do the
    optimizer's: schedules of the learning rate end with the run, and every batch is used once. `explain` is the message
    for a loss that is not finite from some step on, and which the learning rate did not cause.

    Optax has `apply_if_finite`, which leaves out updates that are not finite. Most runs that break down stay finite.
    """

    def __init__(self, state: State, *, is_on: bool, explain: Callable[[int], str]):
        self.best, self.explain = _copied(state) if is_on else None, explain
        self.least, self.since, self.total, self.returns = math.inf, int(state.step), 0.0, 0

    @property
    def factor(self) -> float:
        """The factor of all updates."""
        return 0.5**self.returns

    @property
    def until(self) -> int:
        """The step at which `check` must be called: the end of the current window."""
        return self.since + WINDOW if self.best is not None else sys.maxsize

    def check(self, state: State, losses: np.ndarray, loop: InMemoryLoop | StreamingLoop) -> tuple[State, int | None]:
        """The state to continue from after some steps of the loop and, if that is the best state, its step."""
        step = int(state.step)
        wrong = np.flatnonzero(~np.isfinite(losses))
        if wrong.size:
            broken = step - len(losses) + int(wrong[0])
            if not (self.can_return and np.isfinite(loop.run(self.best_at(broken), broken + 1)[1]).all()):
                raise BrokenLossError(self.explain(broken))
            return self._return(broken + 1)
        self.total = add_in_order(self.total, losses)
        if step == self.until:
            mean, self.total, self.since = self.total / WINDOW, 0.0, step
            if mean < self.least:
                self.best, self.least = _copied(state), mean
            elif mean > BREAKAWAY * self.least and self.can_return:
                return self._return(step)
        return state, None

    @property
    def can_return(self) -> bool:
        """Whether there is a best state, and few enough returns so far."""
        return self.best is not None and math.isfinite(self.least) and self.returns < RETURNS

    def best_at(self, step: int) -> State:
        """The best state at a later step: the numbers of steps that its optimizer has counted move on."""
        assert self.best is not None
        return moved_on(self.best, self.best.step * 0 + step)

    def _return(self, step: int) -> tuple[State, int]:
        assert self.best is not None
        self.since, self.total, self.returns = step, 0.0, self.returns + 1
        return self.best_at(step), int(self.best.step)

    def to_json(self) -> dict[str, Any]:
        """Everything that a resumed run needs besides the best state."""
        least = self.least if math.isfinite(self.least) else None
        return {"least": least, "since": self.since, "total": self.total, "returns": self.returns}

    def resume(self, best: State | None, numbers: Mapping[str, Any]) -> None:
        """Continue with a best state and with what `to_json` returned."""
        self.best, self.least = best, math.inf if numbers["least"] is None else numbers["least"]
        self.since, self.total, self.returns = numbers["since"], numbers["total"], numbers["returns"]


@eqx.filter_jit
def _copied(state: State) -> State:
    """The state in arrays of its own, which steps do not donate."""
    return jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, state)


@eqx.filter_jit
def moved_on(state: State, step: jax.Array) -> State:
    """A copy of a state at a later step; Optax calls the number of steps in the state of an optimizer `count`."""
    passed = step - state.step

    def later(path: tuple[Any, ...], leaf: PyTree) -> PyTree:
        is_count = eqx.is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.integer)
        return leaf + passed.astype(leaf.dtype) if is_count and getattr(path[-1], "name", "") == "count" else leaf

    optimizer_state = jax.tree_util.tree_map_with_path(later, state.optimizer_state)
    return _copied(State(state.model, optimizer_state, step))
