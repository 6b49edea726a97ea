"""`solve`: from data to a Gaussian operator, without training."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import tempfile
import textwrap
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from loca.data import Free, Records, Samples, Shared, Trajectories, check_finite, data_digest
from loca.durable import Resumable, write_atomically
from loca.encoders import Encoder
from loca.gaussian.adoption import adopt, is_auto
from loca.gaussian.equation import Accuracy, PreparedData, Ranks, take
from loca.gaussian.features import grid_axes
from loca.gaussian.hyperparameters import Hyperparameters
from loca.gaussian.labels import label_costs
from loca.gaussian.operator import GaussianOperator
from loca.gaussian.progress import Lines
from loca.gaussian.search import Stage, Trial, error_of_the_mean, search
from loca.gaussian.trials import ACCURACY as OF_TRIALS
from loca.gaussian.trials import Fold, amplitudes
from loca.local import CorrectionReport, StepReport, check_correctable, solve_steps
from loca.local import correct as corrected
from loca.models import Operator, Stepper, Uncertain
from loca.symmetries import Symmetries, SymmetryReport

RANKS = Ranks(2048, 1024)
"""The number of features of inputs and of locations, at most, unless given."""

OPERATIONS = 5e10
"""Of an iteration, at most, unless ranks are given: less than a second on two cores."""

TRIAL_OPERATIONS = 2e9, 6e9
"""Of an iteration of a trial in each stage of the search."""

ALL_OPERATIONS = 1e10
"""The same if functions have labels at all locations: the system is then diagonal."""

STAGE_OPERATIONS = 2e12
"""Of the iterations of all trials of a stage: about a minute on one core."""

LEAST = 128
"""Features of locations, at least: with very many functions an iteration takes longer instead."""

LABELS_SHARE = 0.75
"""If labels take a larger share of the operations, fewer features of inputs save little."""

ACCURACY = Accuracy(tolerance=1e-4, limit=300)
"""Of the last solve."""

HELD = 200
"""Functions held out for the search, at most; a fifth of the data if that is less."""

FEW = 100
"""Data with fewer functions than this is split into three folds, each of which is held out once."""

NUGGET_LABELS, NUGGET_MEMORY = 1024, 2**28
"""Labels of a function, at most, with which a nugget is tried, and numbers that it may keep: P² for each function."""

EXAMPLES = 4096
"""Functions of a stream for the search, the normalization, the encoder and the landmarks."""

WIDTH = 79
"""Of a report, in letters."""

MOST = 1000
"""Functions of a trial of the search, at most."""

BETTER = 0.97
"""An operator that is better than the mean of the labels has at most this fraction of its error."""


@dataclasses.dataclass(frozen=True)
class SolveReport:
    """How an operator was found; prints as a short table.

    **Arguments:**

    - `trials`: of the search.
    - `hyperparameters`: the best of them.
    - `mean_error`: that of the mean of the labels on the functions of the trials; None without a search.
    - `iterations`, `residual`: of the last solve.
    - `seconds`, `solve_seconds`: in total, and of the last solve alone.
    - `symmetries`: those that were tried, with the evidence for each; None unless they were asked for.
    - `correction`: what a local correction gains; None unless it was asked for.
    """

    trials: tuple[Trial, ...]
    hyperparameters: Hyperparameters
    mean_error: float | None
    iterations: int
    residual: float
    seconds: float
    solve_seconds: float
    symmetries: SymmetryReport | None = None
    correction: CorrectionReport | None = None

    @property
    def error(self) -> float | None:
        """The error of the best trial of the last stage; None without a search."""
        last = [trial.error for trial in self.trials if trial.stage == self.trials[-1].stage]
        return min(last, default=None)

    @property
    def warning(self) -> str:
        """What is wrong with the operator; empty if nothing is known to be."""
        if self.error is None or self.mean_error is None or self.error < BETTER * self.mean_error:
            return ""
        return (
            f"the operator is not better than the mean of the labels: errors of {100.0 * self.error:.3g} % and "
            f"{100.0 * self.mean_error:.3g} % on held-out functions. Do equal inputs have different outputs? Are the "
            "inputs and outputs in the same order? Do the inputs determine the outputs?"
        )

    def __str__(self) -> str:
        lines = []
        if self.trials:
            lines.append(f"{'stage':>5}{'trials':>8}{'first error':>13}{'best error':>13}{'seconds':>9}")
        for stage in sorted({trial.stage for trial in self.trials}):
            own = [trial for trial in self.trials if trial.stage == stage]
            best, seconds = min(trial.error for trial in own), sum(trial.seconds for trial in own)
            lines.append(f"{stage:>5}{len(own):>8}{own[0].error:>13.5g}{best:>13.5g}{seconds:>9.1f}")
        for field in dataclasses.fields(self.hyperparameters):
            value = getattr(self.hyperparameters, field.name)
            if field.name == "transforms":
                text = ", ".join(f"{transform} of {name}" for name, transform in value) or "none"
            else:
                text = " ".join(f"{each:.3g}" for each in (value if isinstance(value, tuple) else (value,)))
            lines += textwrap.wrap(f"{field.name:<17} {text}", WIDTH, subsequent_indent=18 * " ")
        last = f"solved in {self.solve_seconds:.1f} s, {self.iterations} iterations, residual {self.residual:.1e}"
        lines.append(f"{last}; {self.seconds:.1f} s in total")
        lines += [str(each) for each in (self.symmetries, self.correction) if each is not None]
        return "\n".join([*lines, f"WARNING: {self.warning}"] if self.warning else lines)


@overload
def solve(
    data: Samples | Records, *, symmetries: None = None, correct: Literal[False] = False, **options: Any
) -> tuple[GaussianOperator, SolveReport]: ...
@overload
def solve(
    data: Samples | Records, *, symmetries: str | Sequence[str] | None = None, correct: bool = False, **options: Any
) -> tuple[Uncertain, SolveReport]: ...
@overload
def solve(data: Trajectories, **options: Any) -> tuple[Stepper, StepReport]: ...
def solve(  # pyright: ignore[reportInconsistentOverload]  (options are the other parameters)
    data: Samples | Records | Trajectories,
    *,
    validation: Samples | Trajectories | None = None,
    hyperparameters: Hyperparameters | SolveReport | Operator | Mapping[str, Any] | None = None,
    ranks: tuple[int, int] | None = None,
    encoder: Encoder | None = None,
    symmetries: str | Sequence[str] | None = None,
    correct: bool = False,
    history: int = 1,
    labels: float | None = None,
    seed: int = 0,
    directory: str | os.PathLike[str] | None = None,
    mesh: Mesh | None = None,
    progress: bool = True,
) -> tuple[Uncertain, SolveReport] | tuple[Stepper, StepReport]:
    """Find the Gaussian operator that predicts held-out functions best, or the step of time that trajectories follow.

    Hyperparameters are searched for on few functions with few features first. The last solve uses all functions.

    From trajectories on a grid it finds a `Stepper`: the increment of the fields is a polynomial of the values around
    each point, by ridge regression. Reaches, degree, penalty and noise are chosen on rollouts of held-out trajectories.

    **Arguments:**

    - `data`: trajectories, or training functions in memory or in a file. Those in a file are read block by block, so
      that memory does not grow with their number.
    - `validation`: functions or trajectories to choose by; by default part of the data, which the last solve also uses.
    - `hyperparameters`: those of an earlier report or operator, or as a dictionary; skip the search.
    - `ranks`: the number of features of inputs and of locations. More are more accurate and slower. By default at most
      (2048, 1024), and fewer for much data, so that an iteration takes about a second on two cores.
    - `encoder`: of the inputs; by default their principal components.
    - `symmetries`: names such as `["reflect x", "scale"]`, or `"auto"` for those that hold and lower the error; see
      `loca.symmetries`.
    - `correct`: add a local correction if it lowers the error on held-out functions; see `loca.local`. It takes five
      more solves. The inputs are fields on a grid.
    - `history`: the number of frames that a step of trajectories sees.
    - `labels`: values of each field from which it is solved for, at most; by default 2²⁰. `math.inf` for all of them.
    - `seed`: determines which functions are held out, and which are landmarks.
    - `directory`: where the trials of the search are stored. If the process is killed, the same call resumes.
    - `mesh`: devices that share the functions of the last solve and of the correction.
    - `progress`: whether to show the stages of the search and the last solve on stderr: every trial in a terminal,
      elsewhere a line every few seconds.

    **Returns:**

    The operator or stepper and a report. With symmetries the operator is in a `Symmetric` or a `Homogeneous` one, with
    a correction in a `Corrected` one. A warning says so if the operator is not better than the mean of the labels; if
    it is not finite, because values overflow, `FloatingPointError` is raised.
    """
    start = time.perf_counter()
    show = Lines(progress)
    if isinstance(data, Trajectories):
        given = {"hyperparameters": hyperparameters, "ranks": ranks, "encoder": encoder, "symmetries": symmetries}
        given |= {"correct": correct or None, "directory": directory}
        if wrong := [name for name, value in given.items() if value is not None]:
            raise TypeError(f"a step of trajectories is solved for without {', '.join(wrong)}; leave it out")
        assert validation is None or isinstance(validation, Trajectories)
        return solve_steps(data, validation=validation, history=history, labels=labels, seed=seed, mesh=mesh, show=show)
    assert validation is None or isinstance(validation, Samples)
    show(f"solve: {len(data)} functions", now=True)
    for samples, what in ((data, "the data"), (validation, "the validation data")):
        if isinstance(samples, Samples):
            check_finite(samples, what)
    order = np.random.default_rng(seed).permutation(len(data))
    example = take(data, order) if isinstance(data, Samples) else data.load(np.sort(order[:EXAMPLES]))
    if correct:
        check_correctable(example, len(data))
    is_split = validation is not None or len(example) >= 5
    best = None if hyperparameters is None else Hyperparameters.of(hyperparameters)
    is_compared = is_split and (best is None or (not best.amplitudes and validation is None))
    trials, mean_error, split = list[Trial](), None, list[Fold]()
    own, tried = Symmetries(), None
    with contextlib.ExitStack() as stack:
        work = None
        if directory is not None:
            digests = {"data": data_digest(data), "validation": None if validation is None else data_digest(validation)}
            request = {**digests, "seed": seed, "ranks": ranks and list(ranks)}
            work = stack.enter_context(Resumable(Path(directory), request))
        if symmetries is not None and not is_auto(symmetries):
            own, tried = adopt(symmetries, example, Hyperparameters(), encoder, work)
        if is_compared:
            split = folds(example, validation, own)
        if best is None:
            axes = 1 if example.domain.is_geographic else example.domain.dimension
            best = Hyperparameters(location_lengths=(0.5,) * axes)
            if is_split:
                plan = stages(example, Ranks(*ranks or RANKS), len(data), own)
                best, trials = search(split, best, plan, encoder=encoder, work=work, show=show)
                mean_error = float(np.mean([error_of_the_mean(fold) for fold in split]))
        if symmetries is not None and is_auto(symmetries):
            show("solve: symmetries", now=True)
            own, tried = adopt(symmetries, example, best, encoder, work)
            if own.names and split:
                split = folds(example, validation, own)
            if own.names and trials:  # their best hyperparameters are near those without them
                plan = stages(example, Ranks(*ranks or RANKS), len(data), own)[:1]
                plan = [plan[0]._replace(factors=plan[0].factors[1:])]
                best, more = search(
                    split, best, plan, encoder=encoder, work=work, show=show, first=trials[-1].stage + 1
                )
                trials += more
        if trials and work is not None:
            rows = [json.dumps(each.as_json()).encode() + b"\n" for each in trials]
            write_atomically(work.directory / "trials.jsonl", lambda file: file.writelines(rows))
        begun = time.perf_counter()
        images, count = own.augment(example), len(data) * max(1, len(own.group))
        chosen = Ranks(*ranks or affordable(RANKS, images, count, OPERATIONS))
        stored = None
        if not isinstance(data, Samples):
            stored = own.augment(data), Path(stack.enter_context(tempfile.TemporaryDirectory(dir=directory)))
        prepared = PreparedData.fit(images, *best.of_codes, encoder)
        show(f"solve: {count} functions, {chosen.inputs} × {chosen.locations} features at most", now=True)
        operator, found = prepared.solve(best, chosen, ACCURACY, stored=stored, report=show.iteration, mesh=mesh)
    solved = time.perf_counter()
    if validation is not None:
        best = dataclasses.replace(best, amplitudes=amplitudes(own.wrap(operator), validation))
    elif is_split and not best.amplitudes:
        sizes = np.mean([_amplitudes(fold, best, encoder, chosen) for fold in split], axis=0)
        best = dataclasses.replace(best, amplitudes=tuple(sizes.tolist()))
    operator, correction = _of_size(operator, best), None
    if correct:

        def refit(part: Samples | Records) -> Operator:
            few = Ranks(min(chosen.inputs, len(part)), chosen.locations)
            if isinstance(part, Samples):
                return _of_size(PreparedData.fit(part, *best.of_codes, encoder).solve(best, few, OF_TRIALS)[0], best)
            some = PreparedData.fit(part.load(slice(0, EXAMPLES)), *best.of_codes, encoder)
            with tempfile.TemporaryDirectory(dir=directory) as scratch:
                return _of_size(some.solve(best, few, OF_TRIALS, stored=(part, Path(scratch)), mesh=mesh)[0], best)

        functions = images if isinstance(data, Samples) else own.augment(data)
        operator, correction = corrected(operator, functions, refit=refit, together=max(1, len(own.group)), mesh=mesh)
    seconds = time.perf_counter() - start
    report = SolveReport(
        tuple(trials), best, mean_error, found.iterations, found.residual, seconds, solved - begun, tried, correction
    )
    if report.warning:
        warnings.warn(report.warning, stacklevel=2)
    wrapped = own.wrap(operator)
    assert isinstance(wrapped, Uncertain)
    return wrapped, report


def _of_size(operator: GaussianOperator, hyper: Hyperparameters) -> GaussianOperator:
    """The operator with error bars of the size that was chosen, and with its hyperparameters."""
    variance = np.asarray(hyper.amplitudes or 1.0) * np.asarray(operator.variance)
    variance = jnp.asarray(variance, operator.variance.dtype)
    return dataclasses.replace(operator, variance=variance, numbers=hyper.numbers, transforms=hyper.transforms)


def _amplitudes(fold: Fold, hyper: Hyperparameters, encoder: Encoder | None, ranks: Ranks) -> tuple[float, ...]:
    """The size of error bars with all training functions of a fold and their images."""
    own = fold.own
    if not own.names and (compared := fold.comparison(hyper.of_codes, encoder, len(fold.train))).is_dense(ranks):
        return compared.amplitudes(hyper, ranks)
    train = PreparedData.fit(own.augment(fold.train), *hyper.of_codes, encoder)
    return amplitudes(own.wrap(train.solve(hyper, ranks, ACCURACY)[0]), fold.held)


def folds(data: Samples, validation: Samples | None, own: Symmetries) -> list[Fold]:
    """What the search compares predictions with."""
    most = MOST // 2 if len(own.group) > 1 else None
    if validation is not None:
        return [Fold(data, take(validation, slice(HELD)), own, most)]
    rows = np.arange(len(data))
    held = [rows[i::3] for i in range(3)] if len(data) < FEW else [rows[-min(HELD, len(data) // 5) :]]
    return [Fold(take(data, np.setdiff1d(rows, each)), take(data, each), own, most) for each in held]


def stages(data: Samples, ranks: Ranks, functions: int, own: Symmetries) -> list[Stage]:
    """Many trials with few functions and features, then a few with more; `functions` are those of the last solve.

    With a group, half as many functions have all their images.
    """
    P, images = data.y.count, max(1, len(own.group))
    nugget = P <= NUGGET_LABELS and (isinstance(data.y, Shared) or functions * P**2 <= NUGGET_MEMORY)
    found = []
    sizes = (400, 256, (4.0, 2.0), 50), (MOST, 768, (2.0, 1.5), 14)
    most = ranks.locations if isinstance(data.y, Free) else min(ranks.locations, len(data.y.points))
    limits = (ALL_OPERATIONS,) * 2 if isinstance(data.y, Shared) else TRIAL_OPERATIONS
    for (many, r_y, factors, trials), limit in zip(sizes, limits, strict=True):
        count = min(many if images == 1 else many // 2 * images, len(data) * images)
        few = affordable(Ranks(min(many, count, ranks.inputs), min(r_y, most)), data, count, limit)
        iterations = int(STAGE_OPERATIONS / _operations(few, data, count))
        found.append(Stage(count, few, factors, trials, iterations, nugget))
    if found[0][:2] == found[1][:2]:
        return [found[0]._replace(factors=(4.0, 2.0, 1.5), trials=60)]
    return found


def affordable(ranks: Ranks, data: Samples, functions: int, limit: float) -> Ranks:
    """The largest ranks with which an iteration takes no more than these operations.

    Both become smaller by the same factor, or only that of locations as long as the labels cost most. They stay as they
    are once there are no more than `LEAST` features of locations.
    """
    found = Ranks(min(ranks.inputs, functions), ranks.locations)
    while (all_operations := _operations(found, data, functions)) > limit and found.locations > LEAST:
        of_labels = _operations(found._replace(inputs=0), data, functions)
        inputs = found.inputs if of_labels > LABELS_SHARE * all_operations else int(0.9 * found.inputs)
        found = Ranks(inputs, int(0.9 * found.locations))
    return found


def _operations(ranks: Ranks, data: Samples, functions: int) -> float:
    """Of an iteration, approximately."""
    P, rank, cost = data.y.count, ranks.locations, float(data.y.count * ranks.locations)
    if not isinstance(data.y, Shared):
        is_free = isinstance(data.y, Free)
        axes = [] if is_free else [len(axis) for axis in grid_axes(data.domain, np.asarray(data.y.points))]
        cost = min(label_costs(P, None if is_free else len(data.y.points), rank, axes).values())
    return 4.0 * functions * data.output_size * (ranks.inputs * rank + cost)
