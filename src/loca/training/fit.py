"""The run: from an operator and data to a better operator."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from loca.data import Records, Samples
from loca.devices import FUNCTIONS, ProcessGroup, ShardingRule, local_copy, place, replicated
from loca.losses import mean_squared
from loca.models import Operator, shard
from loca.training.averaging import trained
from loca.training.feeds import InMemory, Recipe, Streamed
from loca.training.history import History
from loca.training.keeping import Directory, Nowhere
from loca.training.schedules import default_optimizer
from loca.training.step import Loss, State
from loca.training.validation import validation

DISPATCH_SECONDS = 0.5
"""About how long the device works before Python is asked what to do next: often enough for a progress bar and for
Ctrl-C, rarely enough to cost nothing."""

EVERY = 1000
"""Steps between moments of a history, unless said otherwise."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a run is; `steps_per_second` is 0 as long as there is none to tell."""

    step: int
    steps: int
    loss: float
    steps_per_second: float
    history: History

    @property
    def seconds_left(self) -> float:
        """If it goes on at this speed."""
        return (self.steps - self.step) / self.steps_per_second if self.steps_per_second else float("inf")


Callback = Callable[[Progress], object]
"""Called with where the run is about twice a second; what it returns is ignored."""


class BrokenLossError(ArithmeticError):
    """The loss is not a finite number any more."""


def checked(mesh: Mesh | None, model: Operator, batch_size: int) -> Mesh | None:
    """The mesh with all axes; raises if it cannot split this model's work on a batch."""
    if mesh is None:
        return None
    mesh = shard(model, mesh).mesh
    if batch_size % mesh.shape[FUNCTIONS]:
        raise ValueError(f"batches of {batch_size} cannot be split evenly over {mesh.shape[FUNCTIONS]} devices")
    return mesh


def fit(
    model: Operator,
    data: Samples | Records,
    *,
    steps: int = 20_000,
    optimizer: optax.GradientTransformation | None = None,
    loss: Loss = mean_squared,
    batch_size: int = 100,
    seed: int = 0,
    weights: Float[Array | np.ndarray, " M"] | None = None,
    validate: Samples | None = None,
    every: int = EVERY,
    callbacks: Sequence[Callback] = (),
    directory: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    mesh: Mesh | None = None,
    parameters: ShardingRule = replicated,
) -> tuple[Operator, History]:
    """θ ← argmin of the loss over the data, by so many steps; and the history of the run.

    Data in memory is encoded once and stays on the device, where steps follow each other without returning to Python;
    `Records` stream by. The batch of a step depends on the seed and the number of the step alone, so both ways see the
    same functions in the same order.

    **Arguments:**

    - `model`: where to start, from `LOCA.create` or another run.
    - `data`: pairs in memory, or in a file.
    - `steps`: how many.
    - `optimizer`: any Optax transformation; by default `default_optimizer(steps)`. `paper_optimizer()` is the paper's.
    - `loss`: of standardized values, from `loca.losses` or your own.
    - `batch_size`: functions per step.
    - `seed`: what the order of functions depends on.
    - `weights`: how much each of the locations `data.y.points` counts, in the loss and in the validation error, such as
      `loca.domains.area_weights(data.domain, data.y.points)`.
    - `validate`: pairs for a mean relative L2 error every so often; never trained on.
    - `every`: steps between the moments of the history.
    - `callbacks`: called about twice a second with a `Progress`.
    - `directory`: where the run is kept. Killed at any moment, the same call goes on from the last checkpoint and ends
      in the same state, bit for bit; asked to stop by SIGTERM or Ctrl-C, it saves and raises `StoppedError`. The
      caller sees to it that model, data, optimizer and loss are the same.
    - `checkpoint_seconds`: between checkpoints; the most that a kill can cost.
    - `mesh`: devices that share the work, with any of the axes "functions", "queries" and "nodes", over which the
      functions of a batch, their queries and the integral of `LOCA` are split; see `loca.models.shard`. A run may go
      on with more or fewer devices than it was saved with. With devices of several processes, each makes this same
      call, on the same data and directory; callbacks are called in the first.
    - `parameters`: how parameters and the optimizer's state lie on the mesh between steps: whole on each device, or by
      `loca.training.shard_large` or a rule of your own in parts, for models that fill a device.
    """
    chosen = default_optimizer(steps) if optimizer is None else optimizer
    if steps < 1 or every < 1 or not 0 < batch_size <= len(data):
        raise ValueError(
            f"expected steps ≥ 1, every ≥ 1 and 1 ≤ batch_size ≤ {len(data)} functions, "
            f"got steps={steps}, every={every}, batch_size={batch_size}"
        )
    mesh = checked(mesh, model, batch_size)
    crew = ProcessGroup.of(mesh)
    weights = None if weights is None else jnp.asarray(weights, jnp.float32)
    state = place(State.start(model, chosen), mesh, parameters)
    recipe = Recipe(chosen, loss, batch_size, seed, weights, mesh, parameters)
    request = {"steps": steps, "batch_size": batch_size, "seed": seed, "functions": len(data)}
    error_of = validation(model, validate, batch_size, weights, mesh)
    with (
        Nowhere() if directory is None else Directory(Path(directory), request, checkpoint_seconds, crew) as keeper,
        contextlib.closing(
            InMemory(state, data, recipe) if isinstance(data, Samples) else Streamed(state, data, recipe)
        ) as feed,
    ):
        state, journal, before = keeper.resume(state)
        began, first, length = time.perf_counter() - before, int(state.step), 1
        while (step := int(state.step)) < steps:
            stop = min(step + length, steps, (step // every + 1) * every)
            dispatched = time.perf_counter()
            state, stretch = feed.run(state, stop, journal.total)
            now = time.perf_counter()
            if stretch.broken_at is not None:
                raise BrokenLossError(
                    f"the loss is not finite from step {stretch.broken_at} on. Look at the data with "
                    "loca.checks.check, take a smaller learning rate, or clip gradients as default_optimizer does"
                )
            rate = (stop - step) / (now - dispatched) if step > first else 0.0  # the first one was compiled besides
            length = crew.broadcast(max(1, min(4 * length, round(rate * DISPATCH_SECONDS))))
            recent = journal.note(stretch.total, stop - step)
            if stop % every == 0 or stop == steps:
                journal.mark(stop, error_of(trained(state)), now - began)
            for callback in callbacks if crew.is_first else ():
                callback(Progress(stop, steps, recent, rate, journal.history))
            keeper.keep(state, journal, now - began, last=stop == steps)
    return local_copy(place(trained(state), mesh)), journal.history
