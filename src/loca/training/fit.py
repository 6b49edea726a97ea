"""The training run: from an operator and data to a trained operator."""

import contextlib
import dataclasses
import functools
import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from loca.data import Normalization, Part, Records, Samples, Trajectories, batch_rows, check_finite, not_finite
from loca.devices import FUNCTIONS, ProcessGroup, ShardingRule, local_copy, place, replicated
from loca.gaussian import is_auto, solve
from loca.metrics import relative_l2
from loca.models import Adaptation, Loss, Operator, Predictor, Stepper, adapt, blocks, predict_encoded, shard
from loca.models import around as corrected
from loca.symmetries import Symmetries
from loca.training.checkpoints import Checkpoints, RunDirectory, fingerprint, stop_requests
from loca.training.history import Callback, History, HistoryWriter, Progress, show_training
from loca.training.optimizers import default_optimizer
from loca.training.steppers import pairs_of, with_trained
from loca.training.steps import (
    AT_ONCE,
    Encoded,
    InMemoryLoop,
    Recovery,
    State,
    StepConfig,
    StreamingLoop,
    trained,
)

EXAMPLES = 500
"""Functions from which symmetries are found, and of a stream those from which a scale is measured."""

FOLDS, BLOCK = 5, 100
"""Parts of the functions, each of which is predicted by a map fitted to the others, and functions predicted at once."""

DISPATCH_SECONDS = 0.5
"""Approximate time that the device works before control returns to Python: short enough for a progress bar and
Ctrl-C, long enough to cost nothing."""


def fit(
    model: Operator,
    data: Samples | Records | Trajectories,
    *,
    steps: int = 20_000,
    optimizer: optax.GradientTransformation | None = None,
    loss: Loss | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    weights: Float[Array | np.ndarray, " M"] | None = None,
    validate: Samples | Trajectories | None = None,
    every: int | None = None,
    recover: bool = True,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    directory: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    mesh: Mesh | None = None,
    parameters: ShardingRule = replicated,
    symmetries: str | Sequence[str] | None = None,
    around: Callable[[Samples], Operator] | None = None,
    noise: float = 0.0,
    unroll: int = 1,
) -> tuple[Operator, History]:
    """Minimize the loss over the data; return the trained operator and the history of the run.

    Data whose sensors or channels are in another order than the model's is reordered; see `loca.models.adapt`.

    Data in memory is encoded once and stays on the device, where many steps run without returning to Python. `Records`
    are streamed from disk. The batch of a step depends only on the seed and the number of the step, so both see the
    same functions in the same order.

    **Arguments:**

    - `model`: the operator to start from, from `LOCA.create` or another run.
    - `data`: pairs (u, s) in memory or in a file; or `Trajectories`, for an operator that was created from
      `trajectories.samples(history=k)`, or a stepper. The result is then a `loca.models.Stepper`.
    - `steps`: number of steps.
    - `optimizer`: an Optax transformation; `default_optimizer(steps)` unless given; the paper's is `paper_optimizer()`.
    - `loss`: a function of standardized outputs, after their transforms, from `loca.losses` or your own; by default
      that of `model.recipe`.
    - `batch_size`: number of functions per step; by default that of `model.recipe`, or all if there are fewer.
    - `seed`: determines the order of the functions.
    - `weights`: one weight per location in `data.y.points`, for the loss and the validation error; for example
      `loca.domains.area_weights(data.domain, data.y.points)`.
    - `validate`: pairs for the validation error (mean relative L2); never trained on.
    - `every`: number of steps between two moments of the history; 1000 unless given, or fewer, so that the history
      has at least 20 moments.
    - `recover`: return to the best state, with half the learning rate, if the loss breaks away: if its mean over 100
      steps is more than 10 times the smallest such mean, or if it is not finite. The history then has a moment with
      `returned_to`. It takes memory for a second training state.
    - `callbacks`: called with a `Progress` about twice a second.
    - `progress`: whether to show a progress bar in a terminal or notebook; elsewhere nothing is shown.
    - `directory`: where the run is saved. If the process is killed at any time, the same call resumes from the last
      checkpoint and ends in the same state, bit for bit. On SIGTERM or Ctrl-C the run saves its state and raises
      `StoppedError`. A call with another model, data, optimizer, loss or other settings is refused. A larger `steps`
      extends the run, if the learning rate does not depend on it: not with `default_optimizer`.
    - `checkpoint_seconds`: time between checkpoints, and so about the most work that a kill can cost.
    - `mesh`: devices that share the work. Its axes may be "functions", "queries" and "nodes"; they split the functions
      of a batch, their queries, and the integral of `LOCA`; see `loca.models.shard`. A run may resume on more or fewer
      devices than it was saved from. If the devices belong to several processes, every process makes the same call with
      the same data and directory; only the first process calls the callbacks.
    - `parameters`: how parameters and optimizer state are laid out on the mesh between steps: replicated, or split by
      `loca.devices.shard_large` or a rule of your own for models that fill a device.
    - `symmetries`: names such as `["reflect x", "scale"]`, or `"auto"` for those with which a Gaussian operator is
      better on held-out functions; see `loca.symmetries`. The model is trained with all images of the functions, and
      its predictions are averaged over the group.
    - `around`: fits a map to functions in closed form, such as `loca.models.Proportional.fit`. The model learns what
      that map leaves over, B + γ N, with predictions for each fifth of the functions from a map fitted to the others;
      γ is chosen on `validate`, from 0 to 1. Losses and validation errors of the history are those of what is left.
      For what a solved stepper leaves over pass `lambda pairs: solved.operator`.
    - `noise`, `unroll`: of trajectories. Noise of the frames that the model sees, in standard deviations of each field,
      such as 0.01; and the number of steps of the short rollouts that are trained on.
    """
    if isinstance(data, Trajectories):
        return _fit_stepper(**locals())
    if noise or unroll > 1 or isinstance(validate, Trajectories):
        raise ValueError("`noise`, `unroll` and validation trajectories belong to trajectories; pass them as data")
    if symmetries is not None:
        return _fit_with_symmetries(**locals())
    if around is not None:
        return _fit_around(**locals())
    batch_size = min(model.recipe.batch_size, len(data)) if batch_size is None else batch_size
    loss = model.recipe.loss if loss is None else loss
    every = max(1, min(1000, steps // 20)) if every is None else every
    mesh = None if mesh is None else shard(model, mesh).mesh  # with all axes
    _check(data, validate, steps, every, batch_size, mesh)
    adaptation, given = Adaptation.of(model, data), data
    if adaptation.is_unsolved:
        raise ValueError("this data has no outputs to learn from; pass pairs of input and output functions")
    data, weights = adaptation.apply(data), adaptation.weights(weights)
    validate = None if validate is None else adapt(model, validate)
    optimizer = model.wrap_optimizer(default_optimizer(steps) if optimizer is None else optimizer)
    processes = ProcessGroup.of(mesh)
    weights = None if weights is None else jnp.asarray(weights, jnp.float32)
    config = StepConfig(optimizer, loss, batch_size, seed, weights, mesh, parameters)
    explain = functools.partial(_why_not_finite, given, batch_size, seed)

    with contextlib.ExitStack() as stack:
        requested, run = [], None
        state = place(State.start(model, optimizer), mesh, parameters)
        recovery, writer, seconds = Recovery(state, is_on=recover, explain=explain), HistoryWriter(), 0.0
        if directory is not None:
            requested = stack.enter_context(stop_requests())
            request = {"steps": steps, "recover": recover, **fingerprint(model, data, validate, state, config)}
            checkpoints = Checkpoints(
                Path(directory) / "checkpoints", every_seconds=checkpoint_seconds, processes=processes
            )
            run = RunDirectory(Path(directory), request, stack.enter_context(checkpoints))
            (state, best), saved = run.resume((state, recovery.best))
            if saved is not None:
                recovery.resume(best, saved["recovery"])
                writer, seconds = HistoryWriter(saved["journal"]), saved["seconds"]
        error_of = _validation_error(model, validate, config)
        if isinstance(data, Samples):
            loop = InMemoryLoop(state, data, config)
        else:
            loop = stack.enter_context(contextlib.closing(StreamingLoop(state, data, config)))
        listeners = list(callbacks) if processes.is_first else []
        if progress and processes.is_first:
            listeners.append(stack.enter_context(show_training()))

        began, first, length, reported = time.perf_counter() - seconds, int(state.step), 1, -math.inf
        while (step := int(state.step)) < steps:
            dispatched = time.perf_counter()
            end = min(step + length, steps, (step // every + 1) * every, recovery.until)
            state, losses = loop.run(state, end, recovery.factor)
            now = time.perf_counter()
            state, returned_to = recovery.check(state, losses, loop)
            step, rate = int(state.step), (end - step) / (now - dispatched) if step > first else 0.0
            mean = writer.add(losses) if returned_to is None else writer.restart(recovery.least)
            is_moment = step % every == 0 or step == steps or returned_to is not None
            if is_moment:
                writer.record(step, error_of(trained(state)), now - began, returned_to)
            # the first call also compiles, so its rate is unknown
            length = processes.broadcast(max(1, min(4 * length, round(rate * DISPATCH_SECONDS), AT_ONCE)))
            if not (is_moment or processes.broadcast(now - reported >= DISPATCH_SECONDS)):
                continue
            reported = now
            for callback in listeners:
                callback(Progress(step, steps, mean, rate, writer.history))
            if run is not None:
                last, journal = step == steps, writer.to_json()
                numbers = {"step": step, "seconds": now - began, "journal": journal, "recovery": recovery.to_json()}
                stop = [*requested, signal.SIGTERM][0] if processes.any(bool(requested)) and not last else None
                run.update((state, recovery.best), writer.history, numbers, last=last, stop=stop)
    return local_copy(place(trained(state), mesh)), writer.history


def _fit_stepper(
    model: Operator, data: Trajectories, noise: float, unroll: int, **options: Any
) -> tuple[Stepper, History]:
    """Train what predicts the increment."""
    stepper = model if isinstance(model, Stepper) else Stepper.of(model, data)
    inner, pairs, found = pairs_of(
        stepper, data, options.pop("validate"), noise=noise, unroll=unroll, seed=options["seed"]
    )
    options |= {name: value for name, value in found.items() if options.get(name) is None}
    trained, history = fit(inner, pairs, **options)
    return with_trained(stepper, trained), history


def _fit_with_symmetries(
    model: Operator, data: Samples | Records, symmetries: str | Sequence[str], **options: Any
) -> tuple[Operator, History]:
    """Find the symmetries, and train with all images of the functions."""
    adaptation, validate, directory = Adaptation.of(model, data), options["validate"], options["directory"]
    data, options["weights"] = adaptation.apply(data), adaptation.weights(options["weights"])
    example = data if isinstance(data, Samples) else data.load(slice(EXAMPLES))
    report = None
    if is_auto(symmetries):
        some = example.take(jnp.arange(min(EXAMPLES, len(example))))
        work = None if directory is None else Path(directory) / "symmetries"
        _, found = solve(some, symmetries="auto", seed=options["seed"], directory=work, progress=False)
        report = found.symmetries
        symmetries = () if report is None else report.adopted
    own = Symmetries.of(symmetries, example)
    if own.scale is not None:  # what the model sees has another size
        model = _normalized_for(own.standardize(example), model)
    options["validate"] = None if validate is None else own.standardize(adapt(model, validate))
    train = fit if options["around"] is None else functools.partial(_fit_around, copies=max(1, len(own.group)))
    trained, history = train(model, own.augment(data), **options)
    return own.wrap(trained), dataclasses.replace(history, symmetries=report)


def _fit_around(
    model: Operator, data: Samples | Records, around: Callable[[Samples], Operator], copies: int = 1, **options: Any
) -> tuple[Operator, History]:
    """Train the model on what a map leaves over; images of one function, of which there are `copies`, stay together."""
    if not isinstance(data, Samples) or len(data) < 2 * copies:
        raise ValueError("a map around the model needs at least two functions in memory: records.load()")
    adaptation, validate = Adaptation.of(model, data), options["validate"]
    data, options["weights"] = adaptation.apply(data), adaptation.weights(options["weights"])
    base, fold = around(data), np.arange(len(data)) // copies % FOLDS
    left = np.zeros(data.s.shape, data.s.dtype)
    for rows in (np.flatnonzero(fold == k) for k in range(fold.max() + 1)):
        others = data.take(jnp.asarray(np.setdiff1d(np.arange(len(data)), rows)))
        left[rows] = left_over(around(others), data.take(jnp.asarray(rows))).s
    remaining = dataclasses.replace(data, s=jnp.asarray(left))
    if validate is not None:
        validate = adapt(model, validate)
        options["validate"] = left_over(base, validate)
    network, history = fit(_normalized_for(remaining, model), remaining, **options)
    return corrected(base, network, validate, data), history


def left_over(operator: Operator, data: Samples) -> Samples:
    """The pairs (u, s − F(u))."""
    predict = Predictor(operator, data.y, min(BLOCK, len(data)))
    s = np.concatenate([np.asarray(part.s) - predict(part.u, part.y) for part in blocks(data, BLOCK)])
    return dataclasses.replace(data, s=jnp.asarray(s))


def _normalized_for(data: Samples, model: Operator) -> Operator:
    """The model with its transforms, and scales from other data."""
    before = model.normalization
    named = [*zip(model.inputs, before.u_transforms), *zip(model.outputs, before.s_transforms)]  # noqa: B905
    normalization = Normalization.fit(data, {variable.name: each.name for variable, each in named})
    return jax.tree.map(
        lambda part: normalization if isinstance(part, Normalization) else part,
        model,
        is_leaf=lambda part: isinstance(part, Normalization),
    )


def _check(
    data: Samples | Records, validate: Samples | None, steps: int, every: int, batch_size: int, mesh: Mesh | None
) -> None:
    """Raise `ValueError` if numbers of steps, functions and devices do not fit, or if data in memory is not finite."""
    if steps < 1 or every < 1 or not 0 < batch_size <= len(data):
        raise ValueError(
            f"expected steps ≥ 1, every ≥ 1 and 1 ≤ batch_size ≤ {len(data)} functions, "
            f"got steps={steps}, every={every}, batch_size={batch_size}"
        )
    if mesh is not None and batch_size % mesh.shape[FUNCTIONS]:
        raise ValueError(
            f"a batch of {batch_size} functions cannot be split evenly over {mesh.shape[FUNCTIONS]} devices; "
            "choose a multiple as batch_size, or fewer devices"
        )
    for samples, what in ((data, "the data"), (validate, "the validation data")):
        if isinstance(samples, Samples):
            check_finite(samples, what)


def _why_not_finite(data: Samples | Records, batch_size: int, seed: int, step: int) -> str:
    """The functions of the batch that are to blame for a loss that is not finite; otherwise what to do."""
    rows = np.asarray(batch_rows(seed, step, batch_size, len(data)))
    if isinstance(data, Records):
        samples = data.load(rows)
        while isinstance(data, Part):  # whose functions have other numbers than in the file
            data, rows = data.whole, data.rows[rows]
        if found := not_finite(samples, rows):
            return f"the loss is not finite from step {step} on, because the data is not: {found}"
    return (
        f"the loss is not finite from step {step} on. Inspect the data with loca.checks.check, lower the learning "
        "rate, or clip gradients as default_optimizer does"
    )


def _validation_error(model: Operator, data: Samples | None, config: StepConfig) -> Callable[[Operator], float | None]:
    """The mean relative L2 error on some data, as a function of an operator that differs in learned arrays only.

    Data is encoded once, as for training. The function is compiled once and predicts a batch at a time. Without data
    the function returns None.
    """
    if data is None:
        return lambda model: None
    mesh = config.mesh
    encoded = place(Encoded.of(model, data, config.weights), mesh)
    devices = 1 if mesh is None else mesh.shape[FUNCTIONS]
    count = -(-min(config.batch_size, len(data)) // devices) * devices
    # the last block is filled up with functions from the beginning
    blocks = (jnp.arange(-(-len(data) // count) * count) % len(data)).reshape(-1, count)

    @eqx.filter_jit
    def error(model: Operator, encoded: Encoded) -> Float[Array, ""]:
        def of_block(rows: Int[Array, " B"]) -> Float[Array, "B d_s"]:
            block = encoded.take(rows).sharded(mesh)
            prediction = predict_encoded(model, block.codes, block.queries, mesh)
            truth = model.normalization.at(block.queries).restore(block.s)
            return jnp.asarray(relative_l2(prediction, truth, block.weights))

        errors = jax.lax.map(of_block, blocks)
        return errors.reshape(-1, errors.shape[-1])[: len(encoded.s)].mean()

    return lambda model: float(error(model, encoded))
