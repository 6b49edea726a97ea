"""What a run does if its loss breaks away: it returns to its best state, with half the learning rate."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loca.training.history import add_in_order
from loca.training.steps import InMemoryLoop, State, StreamingLoop
from loca.typing import PyTree

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

    The run returns to it if the mean loss of `WINDOW` steps has broken away or is not finite. The number of the step
    never decreases, and neither do the optimizer's: schedules of the learning rate end with the run, and every batch is
    used once. When the run returns depends on losses only, not on how the run is divided into calls.

    Optax has `apply_if_finite`, which leaves out updates that are not finite. Most runs that break down stay finite.

    **Arguments:**

    - `state`: the first state.
    - `is_on`: whether to return at all; otherwise no best state is kept.
    - `explain`: the message for a loss that is not finite from some step on, and which the learning rate did not cause.
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
