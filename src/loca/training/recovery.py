"""What a run does if its loss breaks away: it returns to its best state, with half the learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from loca.parameters import Fixed
from loca.training.optimizers import slowed
from loca.training.steps import LossSum, State, StepConfig, Trainer
from loca.typing import Array, PyTree

WINDOW = 100
"""Steps over which losses are averaged. Single batches differ too much to be compared."""

BREAKAWAY = 10.0
"""A mean loss this many times above the smallest has broken away. Learning rates at the edge of stability raise it to
two or three times the smallest for a while, and runs that break down to hundreds or thousands."""

RETURNS = 10
"""The largest number of returns; the learning rate is then a thousandth."""


class Best(Fixed):
    """The state with the smallest mean loss; no step changes it."""

    state: State


class Saved(eqx.Module):
    """What a checkpoint holds: the fields of a `State`, and the best one. Earlier checkpoints hold the first only."""

    model: PyTree
    optimizer_state: PyTree
    step: Array
    best: Best | None

    @property
    def state(self) -> State:
        """The state alone."""
        return State(self.model, self.optimizer_state, self.step)


class RecoveringTrainer:
    """Takes steps, and returns to the best state if the mean loss of `WINDOW` steps has broken away or is not finite.

    The best state is that after the `WINDOW` steps with the smallest mean loss. The number of the step never decreases,
    and neither do the optimizer's: schedules of the learning rate end with the run, and every batch is used once. When
    the run returns depends on losses only, not on how the run is divided into calls.

    **Arguments:**

    - `create`: makes the trainer for steps of some configuration from a state, which it does not donate.
    - `config`: the configuration before the first return.
    - `state`: the first state.
    - `limit`: the largest number of returns; with 0 no best state is kept.
    """

    def __init__(
        self, create: Callable[[State, StepConfig], Trainer], config: StepConfig, state: State, limit: int = RETURNS
    ):
        self.create, self.config, self.limit = create, config, limit
        self.best, self.least = copied(state) if limit else state, math.inf
        self.since, self.total, self.returns = int(state.step), 0.0, 0
        self.trainer = create(state, config)

    def to_json(self) -> dict[str, Any]:
        """Everything that a resumed run needs besides the best state."""
        least = self.least if math.isfinite(self.least) else None
        return {"least": least, "since": self.since, "total": self.total, "returns": self.returns}

    def saved(self, state: State) -> Saved:
        """What to save of a run in some state."""
        return Saved(state.model, state.optimizer_state, state.step, Best(self.best) if self.limit else None)

    def resume(self, saved: Saved, numbers: Mapping[str, Any] | None) -> None:
        """Continue with what was saved, and with what `to_json` returned; earlier checkpoints have no numbers."""
        self.since = int(saved.step)
        if saved.best is not None and numbers is not None:
            self.best, self.least = saved.best.state, math.inf if numbers["least"] is None else numbers["least"]
            self.since, self.total = numbers["since"], numbers["total"]
            self._slow(numbers["returns"])

    def run(self, state: State, until: int, total: float = 0.0) -> tuple[State, LossSum]:
        """Take all steps before step `until`, or those before a return. Donates the state."""
        if not self.limit:
            return self.trainer.run(state, until, total)
        while int(state.step) < until:
            stop = min(until, self.since + WINDOW)
            state, losses = self.trainer.run(state, stop, total, self.total)
            if losses.broken_at is not None:
                if self._is_rate_to_blame(losses.broken_at):
                    return self._return(state, losses.broken_at + 1)
                return state, LossSum(math.nan, losses.broken_at)
            total, self.total = losses.total, losses.window
            if stop == self.since + WINDOW:
                mean, self.total, self.since = self.total / WINDOW, 0.0, stop
                if mean < self.least:
                    self.best, self.least = copied(state), mean
                elif mean > BREAKAWAY * self.least and self.returns < self.limit:
                    return self._return(state, stop)
        return state, LossSum(total, None)

    def close(self) -> None:
        """Release what the steps need."""
        self.trainer.close()

    def _is_rate_to_blame(self, step: int) -> bool:
        """Whether the best state has a finite loss at the step that broke; otherwise the data is to blame."""
        if self.returns == self.limit or math.isinf(self.least):
            return False
        again = eqx.tree_at(lambda state: state.step, copied(self.best), like(self.best.step, step))
        return self.trainer.run(again, step + 1)[1].broken_at is None

    def _return(self, state: State, step: int) -> tuple[State, LossSum]:
        self.since, self.total = step, 0.0
        self._slow(self.returns + 1)
        return continued(self.best, state, step), LossSum(self.least, None, int(self.best.step))

    def _slow(self, returns: int) -> None:
        if returns == self.returns:
            return
        self.returns = returns
        self.trainer.close()
        optimizer = slowed(self.config.optimizer, 0.5**returns)
        self.trainer = self.create(self.best, self.config._replace(optimizer=optimizer))


@eqx.filter_jit
def copied(state: State) -> State:
    """The state in arrays of its own, which steps do not donate."""
    return jax.tree.map(lambda leaf: leaf.copy() if eqx.is_array(leaf) else leaf, state)


def continued(best: State, last: State, step: int) -> State:
    """The best state at a later step.

    Integers that count steps, such as those of schedules, are those of the later step. They are recognized by having
    grown as the number of the step has, from the best state to the last one.
    """
    return advanced(best, last, like(best.step, step))


@eqx.filter_jit
def advanced(best: State, last: State, step: Array) -> State:
    """`continued`, compiled as one program."""
    passed, ahead = last.step - best.step, step - best.step

    def advance(then: Any, now: Any) -> Any:
        if not eqx.is_array(then):
            return then
        if then.ndim or not jnp.issubdtype(then.dtype, jnp.signedinteger):
            return then.copy()
        return jnp.where(now - then == passed, then + ahead, then).astype(then.dtype)

    return jax.tree.map(advance, best, last)


def like(array: Array, value: int) -> Array:
    """A number, placed as another one is."""
    return array * 0 + value
