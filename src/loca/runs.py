"""Runs: data, a model and training settings become a model with its errors, in a directory of its own.

A run is described by a `RunConfiguration`, which `loca train` reads from options and TOML files, and carried out by
`execute`. A killed run resumes from its directory.
"""

import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from loca import losses
from loca.choosing import HISTORY_FILE as HISTORY_FILE
from loca.choosing import choose, competitor_directory
from loca.configuration import (
    BestConfiguration,
    ConfigurationError,
    DataConfiguration,
    GaussianConfiguration,
    ModelConfiguration,
    RunConfiguration,
    check_configuration,
)
from loca.configuration import read_configuration as read_configuration
from loca.data import Part, Records, Samples, Trajectories, check_finite
from loca.data import open as open_data
from loca.domains import area_weights
from loca.durable import write_atomically, write_json
from loca.evaluation import LeadTimes, Report, evaluate
from loca.gaussian import solve
from loca.models import MODELS, Operator, Stepper, mean_error, rollout_error
from loca.saving import MODEL_FILE, save
from loca.training import Logger, Progress, default_optimizer, fit, paper_optimizer, show_training

__all__ = ["ConfigurationError", "RunConfiguration", "RunResult", "execute"]

RUN_FILE = "run.json"
"""The file of a run directory with the configuration."""

MAX_VALIDATION = 1000
"""The largest number of functions that are set aside from a file for validation."""

PIECES = 10
"""Of a single trajectory that is cut."""

EXAMPLES = 1000
"""The number of functions from which a model takes shapes and normalization if its data is streamed."""

Listener = AbstractContextManager[Callable[[Progress], object]]
"""A context that provides a callback of `fit`, such as a logger or a progress bar."""


class RunResult(NamedTuple):
    """What came of a run: a model, its mean relative L2 error on validation data, and its errors on test data.

    Of a stepper the first is the geometric mean over the steps of rollouts.
    """

    model: Operator
    validation: float
    report: Report | LeadTimes | None


class RunData(NamedTuple):
    """The data of a run; `train` is in memory or read from files batch by batch.

    A model takes shapes and normalization from `example`: all training functions in memory, or the first of a stream.
    """

    train: Samples | Records | Trajectories
    validation: Samples | Trajectories
    test: Records | Trajectories | None
    example: Samples

    def __str__(self) -> str:
        u, s = (", ".join(each.name for each in names) for names in (self.example.inputs, self.example.outputs))
        along = ", ".join(each.name for each in self.example.query_coordinates)
        labels = f"{self.example.s.shape[1]} labels{along and f' along {along}'}"
        if isinstance(self.train, Trajectories):
            return f"{self.train!r}, and {len(self.validation)} for validation"
        return f"{len(self.train)} functions {u} → {s} with {labels}, and {len(self.validation)} for validation"


def execute(configuration: RunConfiguration, directory: Path, *, progress: bool = False) -> RunResult:
    """Carry out a run as configured, and keep configuration, model and report in a directory.

    Called again after a kill, it resumes. A run that cannot start leaves nothing behind.

    **Arguments:**

    - `configuration`: the run.
    - `directory`: the run directory: new, or that of the same run.
    - `progress`: whether to show training, or the search of models that are not trained, as a bar or as lines.
    """
    training, description = configuration.training, json.loads(configuration.model_dump_json())
    if configuration.data.time is None:
        data = load_data(configuration.data, training.seed)
    else:
        data = load_trajectories(configuration.data, training.seed, training.history)
    if progress:
        print(f"{directory}: {data}", file=sys.stderr, flush=True)  # noqa: T201
    listeners: list[Listener] = [Logger(name, directory, description) for name in training.loggers]
    listeners += [show_training(lines=True)] if progress else []
    if isinstance(configuration.model, ModelConfiguration):
        create, key = MODELS[configuration.model.kind].create, jax.random.fold_in(jax.random.key(training.seed), 2)
        assert create is not None
        model = create(data.example, key=key, transforms=configuration.transforms, **configuration.model.sizes)
        _begin_run(directory, configuration)  # only now: all that can be wrong with a configuration has been found
        model = _train_model(model, data, directory, configuration, listeners)
    else:
        _begin_run(directory, configuration)
        model, description["found"] = _solve_model(configuration, data, directory, progress=progress)
    if isinstance(data.validation, Trajectories):
        assert isinstance(model, Stepper)
        validation, given = rollout_error(model, data.validation), None
    else:
        validation, given = mean_error(model, data.validation), data.example
    report = None if data.test is None else evaluate(model, data.test)  # pyright: ignore[reportCallIssue, reportArgumentType]
    errors = {"validation_relative_l2": validation}
    if report is not None:
        report.save(directory / "report.json")
        found = report.of("relative_l2") if isinstance(report, LeadTimes) else report.errors["relative_l2"]
        errors["test_relative_l2"] = float(found.mean())
    finite = {name: error for name, error in errors.items() if math.isfinite(error)}  # a model file holds no others
    save(model, directory / MODEL_FILE, data=given, metrics=finite, provenance=description)
    return RunResult(model, validation, report)


def load_trajectories(files: DataConfiguration, seed: int, history: int) -> RunData:
    """Load the trajectories of a run; a single one is cut into pieces, the last of which are for validation."""
    roles = files.model_dump(include={"time", "sample", "static", "forcing", "cycles", "format"})
    if files.inputs is not None or files.labels is not None:
        raise ConfigurationError("data.time: trajectories have no inputs and labels; name the fields as outputs")

    def read(path: str) -> Trajectories:
        return Trajectories.open(path, files.outputs, **roles)

    data = read(files.path)
    is_single = len(data) == 1
    if files.validation is not None:
        train, validation = data, read(files.validation)
    else:
        data = data.cut(max(data.frames // PIECES, history + 1)) if is_single else data
        count = max(1, round(files.validation_fraction * len(data)))
        if count >= len(data):
            raise ValueError(
                f"{files.path} has {len(data)} trajectories, too few to set one aside: give validation=FILE"
            )
        order = np.arange(len(data)) if is_single else np.random.default_rng(seed).permutation(len(data))
        train, validation = data.take(np.sort(order[:-count])), data.take(np.sort(order[-count:]))
    test = None if files.test is None else read(files.test)
    num_bytes = 4 * (history + 1) * math.prod(train.s.shape)
    if not (num_bytes > physical_memory() / 4 if files.stream is None else files.stream):
        train = train.load()
    return RunData(train, validation.load(), test, train.steps(history).load(slice(EXAMPLES)))


def load_data(files: DataConfiguration, seed: int) -> RunData:
    """Load the functions of a run; the seed determines validation functions and the labels that are kept."""
    key, roles = jax.random.key(seed), files.model_dump(include={"inputs", "outputs", "sample", "format"})
    records = open_data(files.path, **roles)
    order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), len(records)))
    if files.validation is not None:
        others = open_data(files.validation, **roles)
        validation = _load_finite(files.validation, others, np.arange(min(len(others), MAX_VALIDATION)))
    else:
        count = min(max(1, round(files.validation_fraction * len(records))), MAX_VALIDATION)
        if count >= len(records):
            raise ValueError(
                f"{files.path} has {len(records)} functions, too few to set one aside for validation; "
                "give more functions, or a file with validation data: validation=FILE"
            )
        order, validation = order[:-count], _load_finite(files.path, records, order[-count:])
    labels = {} if files.labels is None else {"key": jax.random.fold_in(key, 1), "labels": files.labels}
    test = None if files.test is None else open_data(files.test, **roles)
    part = Part(records, order, **labels)
    one = part.load(slice(0, 1))
    num_bytes = len(part) * sum(array.nbytes for array in jax.tree.leaves((one.u, one.s)))
    if num_bytes > physical_memory() / 2 if files.stream is None else files.stream:
        return RunData(part, validation, test, part.load(slice(EXAMPLES)))
    train = _load_finite(files.path, records, order, **labels)
    return RunData(train, validation, test, train)


def _load_finite(path: str, records: Records, rows: np.ndarray, **labels: Any) -> Samples:
    """Load some functions; an error names those with values that are not finite by their numbers in the file."""
    samples = Part(records, rows, **labels).load()
    check_finite(samples, path, rows)
    return samples


def physical_memory() -> int:
    """The memory of the machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _train_model(
    model: Operator, data: RunData, directory: Path, configuration: RunConfiguration, listeners: list[Listener]
) -> Operator:
    """Train a model as configured. Killed at any moment, the same call resumes and ends in the same model."""
    training = configuration.training
    rate = {} if training.rate is None else {"rate": training.rate}
    optimizer = paper_optimizer(**rate) if training.optimizer == "paper" else default_optimizer(training.steps, **rate)
    of_time = {"noise": training.noise, "unroll": training.unroll} if isinstance(data.train, Trajectories) else {}
    size = len(data.train.steps(training.history)) if isinstance(data.train, Trajectories) else len(data.train)
    domain, locations = data.example.domain, data.example.y.points
    with contextlib.ExitStack() as stack:
        if training.precision != "float32":
            stack.enter_context(jax.default_matmul_precision(training.precision))
        model, _ = fit(
            model,
            data.train,
            steps=training.steps,
            optimizer=optimizer,
            loss=None if training.loss is None else getattr(losses, training.loss),
            batch_size=None if training.batch_size is None else min(training.batch_size, size),
            seed=training.seed,
            weights=area_weights(domain, locations) if training.weights == "area" else None,
            validate=data.validation,
            every=training.every,
            callbacks=[stack.enter_context(listener) for listener in listeners],
            progress=False,
            directory=directory,
            checkpoint_seconds=training.checkpoint_seconds,
            symmetries=configuration.symmetries,
            **of_time,
        )
    return model


def _solve_model(
    configuration: RunConfiguration, data: RunData, directory: Path, *, progress: bool
) -> tuple[Operator, dict[str, Any]]:
    """Find the model of a configuration that is not trained, and what was chosen for it, as JSON content.

    Killed at any moment, the same call resumes.
    """
    options = {"seed": configuration.training.seed, "directory": directory, "progress": progress}
    options |= {"symmetries": configuration.symmetries}
    if isinstance(data.train, Trajectories):
        if not isinstance(configuration.model, GaussianConfiguration):
            raise ConfigurationError("model.kind: a step of trajectories is solved for or trained: gaussian, fno, …")
        stepper, report = solve(data.train, validation=data.validation, progress=progress)  # pyright: ignore
        return stepper, {"report": str(report)}
    assert isinstance(data.validation, Samples)
    if isinstance(configuration.model, GaussianConfiguration):
        operator, report = solve(data.train, validation=data.validation, **options)
        evidence = {} if report.symmetries is None else {"symmetries": report.symmetries.as_json()}
        return operator, {"hyperparameters": dataclasses.asdict(report.hyperparameters), **evidence}
    assert isinstance(configuration.model, BestConfiguration)
    if not isinstance(data.train, Samples):
        raise ConfigurationError(
            "data.stream: models compete on functions in memory, but these are read from files; use fewer functions or "
            "labels, or a single model"
        )
    operator, report = choose(data.train, minutes=configuration.model.minutes, validation=data.validation, **options)
    history = competitor_directory(directory, report.winner.model) / HISTORY_FILE
    if history.exists():  # of a trained model, for its curves
        write_atomically(directory / HISTORY_FILE, lambda file: file.write(history.read_bytes()))
    return operator, {"chosen": report.winner.model, **report.winner.settings}


def _begin_run(directory: Path, configuration: RunConfiguration) -> None:
    """Write the configuration to the run directory; refuse the directory of another run, unless this one extends it."""
    path, training = directory / RUN_FILE, configuration.training
    begun = read_run(directory) if path.exists() else configuration
    if begun != configuration:
        steps = {"training": begun.training.model_copy(update={"steps": training.steps})}
        if begun.model_copy(update=steps) != configuration:
            raise ValueError(f"{directory} holds another run; choose another directory, or resume that with --resume")
        given = f"the run in {directory} has {begun.training.steps} steps, got --steps {training.steps}"
        if training.steps < begun.training.steps:
            raise ConfigurationError(f"{given}: a run can be extended, but not shortened")
        if training.optimizer != "paper":
            raise ConfigurationError(
                f"{given}: the learning rate of its optimizer falls to zero at the last step, so a longer run is "
                "another run. Start that with --out, or train with the optimizer `paper`, whose runs can be extended"
            )
    directory.mkdir(parents=True, exist_ok=True)
    write_json(path, configuration.model_dump(mode="json"))


def read_run(directory: Path) -> RunConfiguration:
    """Read the configuration of the run in a directory."""
    path = directory / RUN_FILE
    if not path.is_file():
        raise ConfigurationError(f"{directory} holds no run to resume: it has no {RUN_FILE}")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return check_configuration(content, f"{path}: ")


def with_steps(configuration: RunConfiguration, steps: int) -> RunConfiguration:
    """The same run with another number of steps."""
    training = {**configuration.training.model_dump(), "steps": steps}
    return check_configuration({**configuration.model_dump(), "training": training}, "", {("training", "steps")})
