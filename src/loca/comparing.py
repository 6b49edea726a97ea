"""`compare`: every model on the same data, with its error, its time and its error bars."""

import dataclasses
import functools
import itertools
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.choosing import (
    COMBINATION,
    COMPETITORS,
    MAPS,
    ChoiceEntry,
    Compete,
    Competition,
    Task,
    Trained,
    combination,
    gaussian,
    hold_out,
    megabytes,
    num_solved,
    run,
    settings_of,
)
from loca.data import Indexed, Samples, Shared, check_finite, data_digest
from loca.durable import Resumable, json_digest, write_json
from loca.evaluation import evaluate
from loca.metrics import relative_l2
from loca.models import Operator, Predictor, mean_error
from loca.saving import load, save
from loca.uncertainty import calibrate

__all__ = ["Comparison", "ComparisonEntry", "compare"]

COMPARISON_FILE = "comparison.json"
"""The file with the comparison, in its directory."""

PREDICTED = ("validation_s", "test_s")
"""What another program writes: predictions at all locations for the validation and test functions."""

TIMED = 20
"""Predictions of one function that are timed; their median counts."""


@dataclasses.dataclass(frozen=True)
class ComparisonEntry:
    """One model, fitted once.

    **Arguments:**

    - `model`: its name.
    - `seed`: of its initial weights and batches, or of its search.
    - `minutes`: that it was given, if it is trained; 0 otherwise.
    - `error`: the mean relative L2 error on the test functions; None without a result.
    - `validation`: the same on the validation functions.
    - `core_seconds`: seconds of all cores to fit it, including the choice of its settings.
    - `coverage`: the share of test values inside bands of 90 %, calibrated on the validation functions.
    - `parameters`, `megabytes`: the number of values that were trained or solved for, and the size of all arrays.
    - `milliseconds`: to predict one function at all test locations.
    - `settings`: what was chosen for it.
    - `reason`: why it has no result.
    """

    model: str
    seed: int = 0
    minutes: float = 0.0
    error: float | None = None
    validation: float | None = None
    core_seconds: float = 0.0
    coverage: float | None = None
    parameters: int = 0
    megabytes: float = 0.0
    milliseconds: float | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    reason: str = ""


HEADER = (
    f"{'model':<20} {'error':>9} {'spread':>9} {'core min':>9} {'coverage':>8} {'parameters':>11} {'MB':>8} {'ms':>7}"
)

TEST_SEED = 10**6
"""Determines which functions are set aside for the test, whatever the seeds of the models."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The entries of all models and seeds; prints as a table, one line per model and budget.

    **Arguments:**

    - `entries`: one for every model, budget and seed.
    - `functions`, `validation`, `test`: the numbers of functions that models were fitted to, chosen on and tested on.
    - `about`: names of the data and of the machine.
    """

    entries: tuple[ComparisonEntry, ...]
    functions: int
    validation: int
    test: int
    about: dict[str, str] = dataclasses.field(default_factory=dict)

    def groups(self) -> dict[tuple[str, float], list[ComparisonEntry]]:
        """The entries with a result by model and budget, which differ in their seeds; the smallest error first."""
        found: dict[tuple[str, float], list[ComparisonEntry]] = {}
        for entry in self.entries:
            if entry.error is not None:
                found.setdefault((entry.model, entry.minutes), []).append(entry)
        return dict(sorted(found.items(), key=lambda each: mean_of(each[1], "error")))

    @property
    def best(self) -> str | None:
        """The model with the smallest error on the validation functions, whatever its errors on the test functions.

        None if no model has a result; the entries have the reasons.
        """
        known = {key: group for key, group in self.groups().items() if group[0].validation is not None}
        return min(known, key=lambda key: mean_of(known[key], "validation"))[0] if known else None

    def __str__(self) -> str:
        several = len({entry.minutes for entry in self.entries if entry.minutes}) > 1
        about = (
            f"mean relative L2 error on {self.test} test functions, from {self.functions} functions and "
            f"{self.validation} validation functions, which prefer: {self.best or 'none, since no model has a result'}"
        )
        failed = [f"{entry.model:<20} {entry.reason}" for entry in self.entries if entry.error is None]
        return "\n".join([HEADER, *(_line(group, several) for group in self.groups().values()), *failed, about])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the comparison as JSON, atomically."""
        write_json(Path(path), dataclasses.asdict(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Comparison":
        """Read a comparison that `save` wrote."""
        content = json.loads(Path(path).read_bytes())
        return cls(**content | {"entries": tuple(ComparisonEntry(**entry) for entry in content["entries"])})


def mean_of(group: Sequence[ComparisonEntry], name: str) -> float:
    """The mean of a number over entries; infinite if one does not have it."""
    values = [getattr(entry, name) for entry in group]
    return math.inf if None in values else statistics.mean(values)


def _line(group: Sequence[ComparisonEntry], with_minutes: bool = True) -> str:
    """The line of a table for entries that differ in their seeds."""
    first = group[0]
    name = f"{first.model}, {first.minutes:g} min" if first.minutes and with_minutes else first.model
    if first.error is None:
        return f"{name:<20} {first.reason}"
    errors = [100.0 * (entry.error or 0.0) for entry in group]
    coverage, time_of_one = mean_of(group, "coverage"), mean_of(group, "milliseconds")
    return (
        f"{name:<20} {statistics.mean(errors):>7.3g} % {max(errors) - min(errors):>7.2g} % "
        f"{mean_of(group, 'core_seconds') / 60.0:>9.2f} {'' if coverage == math.inf else f'{coverage:.0%}':>8} "
        f"{first.parameters:>11,} {first.megabytes:>8.2f} {'' if time_of_one == math.inf else f'{time_of_one:.2g}':>7}"
    )


def compare(
    train: Samples,
    test: Samples | None = None,
    *,
    minutes: Sequence[float] = (1.0,),
    seeds: int = 1,
    validation: Samples | None = None,
    labels: int | None = None,
    symmetries: str | Sequence[str] | None = None,
    others: Mapping[str, Sequence[str]] | None = None,
    directory: str | os.PathLike[str] | None = None,
    about: Mapping[str, str] | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Fit every model to the same functions, and measure all of them on test functions.

    The models of `choose` take part, with the settings and transforms that are best on validation functions: the mean
    field, ridge regression, the Gaussian operator, FNO, LOCA and DeepONet. So does persistence, s = u, where inputs and
    outputs are the same variables at the same locations, and the weighted mean of all models where it is better than
    each of them on validation functions, by cross-validation. Test functions choose nothing.

    **Arguments:**

    - `train`: functions to fit models to.
    - `test`: functions to measure errors on; by default a fifth of `train`, at most 200, is set aside.
    - `minutes`: the time budgets of each model that is trained. With several, it is trained once for each.
    - `seeds`: how often every model is fitted, with other initial weights and batches and, without `validation`, other
      validation functions.
    - `validation`: functions to choose settings on; by default a part of `train`, as in `choose`.
    - `labels`: the number of output values per function to fit models to; by default all. Validation and test functions
      keep all.
    - `symmetries`: names, or `"auto"` for those that are found; see `loca.symmetries`. The Gaussian operator and every
      trained model are fitted a second time with them, as "FNO, symmetric".
    - `others`: programs that fit models of other packages, by name. A program is called with its arguments, the name of
      an `.npz` file to read and the name of one to write; see docs/compare.md.
    - `directory`: keeps every result, so that the same call resumes if the process is killed.
    - `about`: kept in the comparison, such as the name of the data.
    - `progress`: print a line for every result; by default in a terminal.
    """
    if not isinstance(train, Samples):
        raise TypeError(f"expected Samples, got {type(train).__name__}; load functions into memory: records.load()")
    if not minutes or not min(minutes) > 0.0 or seeds < 1 or len(train) < 4:
        raise ValueError(
            f"expected minutes > 0, at least one seed and at least 4 functions, got minutes={tuple(minutes)}, "
            f"seeds={seeds} and {len(train)} functions"
        )
    known = [symmetries] if isinstance(symmetries, str) else symmetries
    request: dict[str, Any] = {"labels": labels}
    for name, samples in (("data", train), ("test", test), ("validation", validation)):
        if samples is not None:
            check_finite(samples, f"the {name}")
        request[name] = None if samples is None else data_digest(samples)
    if test is None:
        train, test = hold_out(train, TEST_SEED)
    show = sys.stderr.isatty() if progress is None else progress
    entries: list[ComparisonEntry] = []
    fitted = judged = train
    with tempfile.TemporaryDirectory() as scratch, Resumable(Path(directory or scratch), request) as work:
        for seed in range(seeds):
            fitted, judged = (train, validation) if validation is not None else hold_out(train, seed)
            fitted = fitted if labels is None else fitted.observe(jax.random.key(seed), labels)
            task = Task("", fitted, judged, {}, 0.0, seed, show, None, symmetries=known)
            for entry in _entries(task, test, minutes, others or {}, work):
                if show:
                    print(*([] if entries else [HEADER]), _line([entry]), sep="\n", file=sys.stderr)  # noqa: T201
                entries.append(entry)
        comparison = Comparison(tuple(entries), len(fitted), len(judged), len(test), dict(about or {}))
        if directory is not None:
            comparison.save(Path(directory) / COMPARISON_FILE)
    return comparison


def _entries(
    task: Task, test: Samples, minutes: Sequence[float], others: Mapping[str, Sequence[str]], work: Resumable
) -> Iterator[ComparisonEntry]:
    """The entries of all models for one seed; finished ones are read."""
    if (error := _persistence(test)) is not None:
        validation = _persistence(task.validation)
        yield ComparisonEntry("persistence", task.seed, error=error, validation=validation, milliseconds=0.0)
    entries, files = dict[tuple[str, float], ComparisonEntry](), dict[tuple[str, float], Path]()
    known, models = task.symmetries, [(name, compete, False) for name, compete in COMPETITORS.items()]
    if known:
        able = [each for each in models if isinstance(each[1], Trained) or each[1] is gaussian]
        models += [(f"{name}, symmetric", compete, True) for name, compete, _ in able]
    for name, compete, is_symmetric in models:
        if is_symmetric and not known:
            break  # none were found
        task = task._replace(symmetries=known if is_symmetric else None)
        for budget in minutes if isinstance(compete, Trained) else (0.0,):
            given = task._replace(model=name, seconds=60.0 * budget)
            key = key_of(given, budget)
            files[name, budget] = path = work.path(f"{key}.safetensors")
            fitted = [each for each in entries if each[0] in MAPS and entries[each].error is not None]
            maps = {each[0]: (entries[each], files[each]) for each in fitted}
            found = work.once(key, functools.partial(_measure, compete, given, test, maps, path))
            entries[name, budget] = entry = ComparisonEntry(**found)
            yield entry
            transforms = found["settings"].get("hyperparameters", {}).get("transforms")
            task = task if transforms is None else task._replace(transforms=transforms)
            known = found["settings"].get("symmetries", known)
    for budget in minutes:
        results = {key: each for key, each in entries.items() if key[1] in (0.0, budget) and each.error is not None}
        members = {key[0]: (each, files[key]) for key, each in results.items()}
        given = task._replace(model=COMBINATION, seconds=60.0 * budget)
        measure = functools.partial(_measure_combination, members, given, test)
        yield ComparisonEntry(**work.once(key_of(given, budget), measure))
    for (name, command), budget in itertools.product(others.items(), minutes):
        given = task._replace(model=name, seconds=60.0 * budget)
        key = json_digest([name, task.seed, budget, [str(part) for part in command]])
        yield ComparisonEntry(**work.once(key, functools.partial(_measure_other, command, given, test)))


def _persistence(data: Samples) -> float | None:
    """The error of s = u; None if inputs and outputs are not the same variables at the same locations."""
    if data.inputs != data.outputs or not isinstance(data.y, Shared):
        return None
    if not isinstance(data.u, jax.Array) or not isinstance(data.x, jax.Array):
        return None
    if data.x.shape != data.y.points.shape or not jnp.allclose(data.x, data.y.points):
        return None
    return float(jnp.mean(relative_l2(data.u, data.s)))


def key_of(task: Task, budget: float) -> str:
    """The key of a result."""
    given = [list(task.symmetries)] if task.symmetries else []
    return json_digest([task.model, task.seed, budget, *given])


def _measure(
    compete: Compete, task: Task, test: Samples, maps: Mapping[str, tuple[ComparisonEntry, Path]], path: Path
) -> dict[str, Any]:
    """Fit a model, alone or around a map, keep it, and measure it; the entry as JSON content."""
    begun = time.process_time()
    operators: list[Operator] = []
    if isinstance(compete, Trained):
        competition = Competition(task._replace(show=False))
        for name, (each, place) in maps.items():
            competition.entries[name] = ChoiceEntry(name, each.validation, settings=each.settings)
            competition.operators[name] = load(place)
        competition.train({task.model: compete}, task.seconds)
        chosen = competition.entries[task.model]
        operators += [competition.operators[task.model]] if chosen.error is not None else []
    else:
        chosen = run(compete, task, operators)
    entry = ComparisonEntry(
        task.model, task.seed, task.seconds / 60.0, core_seconds=time.process_time() - begun, reason=chosen.reason
    )
    for operator in operators:
        save(operator, path, data=task.train)
        entry = _measured(entry, operator, task, test, chosen.error, chosen.settings)
    return dataclasses.asdict(entry)


def _measure_combination(
    members: Mapping[str, tuple[ComparisonEntry, Path]], task: Task, test: Samples
) -> dict[str, Any]:
    """Combine fitted models, and measure the result; the entry as JSON content."""
    begun = time.process_time()
    errors = {name: each.validation or 0.0 for name, (each, _) in members.items()}
    found, reason = combination(errors, lambda name: load(members[name][1]), task.validation)
    seconds = time.process_time() - begun + sum(each.core_seconds for each, _ in members.values())
    entry = ComparisonEntry(task.model, task.seed, task.seconds / 60.0, core_seconds=seconds, reason=reason)
    if found is not None:
        entry = _measured(entry, found.operator, task, test, found.error, settings_of(found.operator))
    return dataclasses.asdict(entry)


def _measured(
    entry: ComparisonEntry, operator: Operator, task: Task, test: Samples, validation: float | None,
    settings: dict[str, Any],
) -> ComparisonEntry:  # fmt: skip
    """The entry with the errors of an operator on test functions, and what it costs."""
    try:
        error = mean_error(operator, test)
        if not math.isfinite(error):
            raise ArithmeticError("its error on the test functions is not finite")
        return dataclasses.replace(
            entry,
            error=error,
            validation=validation,
            coverage=_coverage(operator, task.validation, test),
            parameters=num_solved(operator),
            megabytes=megabytes(operator),
            milliseconds=_milliseconds(operator, test),
            settings=settings,
        )
    except (ValueError, ArithmeticError) as problem:  # a test function that has no logarithm, for example
        return dataclasses.replace(entry, reason=f"failed on the test functions: {problem}".partition("\n")[0])


def _coverage(operator: Operator, validation: Samples, test: Samples) -> float | None:
    """The share of test values inside bands of 90 % that are calibrated on validation functions; None if too few."""
    try:
        calibrated = calibrate(operator, validation)
    except ValueError:  # needs ten functions
        return None
    return float(evaluate(calibrated, test, metrics=["coverage"], level=0.9).errors["coverage"].mean())


def _milliseconds(operator: Operator, test: Samples) -> float:
    """The median time to predict one function where the test data has outputs."""
    one = test.take(jnp.arange(1))
    predict = Predictor(operator, one.y, 1)
    times = []
    for _ in range(TIMED + 1):  # the first one compiles
        begun = time.perf_counter()
        predict(one.u, one.y)
        times.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(times[1:])


def _measure_other(command: Sequence[str], task: Task, test: Samples) -> dict[str, Any]:
    """Let another program fit a model and predict; the entry as JSON content."""
    entry, judged = {"model": task.model, "seed": task.seed, "minutes": task.seconds / 60.0}, (task.validation, test)
    begun = _children_seconds()
    try:
        found = _run_other(command, task, test)
        predictions = (_prediction(found[name], data, name) for name, data in zip(PREDICTED, judged, strict=True))
        errors = [float(np.mean(relative_l2(s, data.s))) for s, data in zip(predictions, judged, strict=True)]
        if not np.isfinite(errors).all():
            raise ValueError("its predictions are not finite")
    except (ValueError, KeyError, OSError, RuntimeError) as problem:
        reason = f"failed: {problem}".partition("\n")[0]
        return entry | {"core_seconds": _children_seconds() - begun, "reason": reason}
    told = {name: found[name].item() for name in ("parameters", "megabytes", "milliseconds") if name in found}
    entry |= {"validation": errors[0], "error": errors[1], "core_seconds": _children_seconds() - begun}
    return entry | told


def _run_other(command: Sequence[str], task: Task, test: Samples) -> dict[str, np.ndarray]:
    """What another program wrote for these functions."""
    parts = {"train": task.train, "validation": task.validation, "test": test}
    arrays: dict[str, Any] = {
        f"{part}_{name}": values for part, data in parts.items() for name, values in _arrays(data).items()
    }
    del arrays["test_s"]  # truth that must not be seen
    arrays |= {"y": np.asarray(test.y.points)} | ({} if test.x is None else {"x": np.asarray(test.x)})
    arrays |= {"seed": np.asarray(task.seed), "seconds": np.asarray(task.seconds)}
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "data.npz"), Path(directory, "predictions.npz")
        np.savez(source, **arrays)
        ended = subprocess.run(
            [*command, source, target], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False
        )
        if ended.returncode != 0:
            last = ended.stderr.decode(errors="replace").strip().splitlines()
            raise RuntimeError(f"exit code {ended.returncode}: {last[-1] if last else 'no message'}")
        with np.load(target) as found:
            return dict(found)


def _arrays(data: Samples) -> dict[str, np.ndarray]:
    """Inputs, and outputs at all locations with NaN where a function has no label."""
    if not isinstance(data.u, jax.Array) or not isinstance(data.y, Shared | Indexed):
        raise ValueError("other programs get functions with common sensors and common locations")
    s = np.asarray(data.s)
    if isinstance(data.y, Indexed):
        dense = np.full((len(data), len(data.y.points), s.shape[2]), np.nan, s.dtype)
        np.put_along_axis(dense, np.asarray(data.y.index)[..., None], s, axis=1)
        s = dense
    return {"u": np.asarray(data.u), "s": s}


def _prediction(found: Float[np.ndarray, "N M d_s"], data: Samples, name: str) -> Float[np.ndarray, "N P d_s"]:
    """What another program predicted at all locations, at those where the data has outputs."""
    shape = (len(data), len(data.y.points), data.s.shape[2])
    if found.shape != shape:
        raise ValueError(f"{name} has shape {found.shape}, expected {shape}")
    return np.take_along_axis(found, np.asarray(data.y.index)[..., None], 1) if isinstance(data.y, Indexed) else found


def _children_seconds() -> float:
    """Seconds of all cores that programs started by this process have taken, once they have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
