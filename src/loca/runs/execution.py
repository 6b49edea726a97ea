"""Carry out a run: create or solve its model, train, evaluate and save. A killed run resumes from its directory."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax
import optax

from loca import losses
from loca.choosing import choose, competitor_directory
from loca.configuration import (
    BestConfiguration,
    ConfigurationError,
    GaussianConfiguration,
    ModelConfiguration,
    RunConfiguration,
    TrainingConfiguration,
    check_configuration,
)
from loca.data import Samples
from loca.domains import area_weights
from loca.durable import write_atomically
from loca.evaluation import Report, evaluate
from loca.gaussian import solve
from loca.models import MODELS, Operator, mean_error
from loca.parameters import count
from loca.runs.sources import FileSource, RunData
from loca.saving import MODEL_FILE, save
from loca.training import Progress, default_optimizer, fit, loggers, paper_optimizer

HISTORY_FILE = "history.jsonl"
"""The file of a run directory with the losses and validation errors during training."""


def create_model(configuration: RunConfiguration, data: Samples) -> Operator:
    """Create the untrained model of a configuration, for data with these shapes and this normalization."""
    chosen, key = configuration.model, jax.random.fold_in(jax.random.key(configuration.training.seed), 2)
    assert isinstance(chosen, ModelConfiguration)
    create = MODELS[chosen.kind].create
    assert create is not None
    return create(data, key=key, transforms=configuration.transforms, **chosen.sizes)


def solve_model(
    configuration: RunConfiguration, data: RunData, directory: Path, *, progress: bool
) -> tuple[Operator, dict[str, Any]]:
    """Find the model of a configuration that is not trained, and what was chosen for it, as JSON content.

    Killed at any moment, the same call resumes.
    """
    seed, options = configuration.training.seed, {"directory": directory, "progress": progress}
    if isinstance(configuration.model, GaussianConfiguration):
        operator, report = solve(data.train, validation=data.validation, seed=seed, **options)
        return operator, {"hyperparameters": dataclasses.asdict(report.hyperparameters)}
    assert isinstance(configuration.model, BestConfiguration)
    if not isinstance(data.train, Samples):
        raise ConfigurationError(
            "data.stream: models compete on functions in memory, but these are read from files; use fewer functions or "
            "labels, or a single model"
        )
    minutes = configuration.model.minutes
    operator, report = choose(data.train, minutes=minutes, validation=data.validation, seed=seed, **options)
    history = competitor_directory(directory, report.winner.model) / HISTORY_FILE
    if history.exists():  # of a trained model, for its curves
        write_atomically(directory / HISTORY_FILE, lambda file: file.write(history.read_bytes()))
    return operator, {"chosen": report.winner.model, **report.winner.settings}


RUN_FILE = "run.json"
"""The file of a run directory with the configuration."""

REPORT_FILE = "report.json"
"""The file of a run directory with the errors on test data."""

Callback = AbstractContextManager[Callable[[Progress], object]]
"""A context that provides a callback of `fit`, such as a logger or a progress bar."""


@dataclasses.dataclass(frozen=True, eq=False)
class RunResult:
    """What a run measured.

    **Arguments:**

    - `parameters`: the number of learned parameters; a complex one counts as two.
    - `validation`: the mean relative L2 error on validation functions, by which learning rates are chosen.
    - `seconds`: the duration of training, with validation and checkpoints.
    - `reports`: the errors on each set of test functions, by name.
    """

    parameters: int
    validation: float
    seconds: float
    reports: Mapping[str, Report]


def train_and_evaluate(
    model: Operator,
    data: RunData,
    directory: Path,
    *,
    training: TrainingConfiguration | None,
    provenance: Mapping[str, Any],
    callbacks: Sequence[Callback] = (),
) -> RunResult:
    """Train a model, evaluate it on every set of test functions, and save it in a run directory.

    Killed at any moment, the same call resumes training and ends in the same model.

    **Arguments:**

    - `model`: the untrained model.
    - `data`: the data of the run.
    - `directory`: the run directory, which exists.
    - `training`: the training settings; None for a model that needs no training.
    - `provenance`: what the model depends on, as JSON content; saved in the model file.
    - `callbacks`: contexts that provide a callback of `fit`; they are open while the model trains.
    """
    seconds, validation = 0.0, None
    if training is not None:
        with contextlib.ExitStack() as stack:
            if training.precision != "float32":
                stack.enter_context(jax.default_matmul_precision(training.precision))
            locations = data.example.y.points
            model, history = fit(
                model,
                data.train,
                steps=training.steps,
                optimizer=create_optimizer(training),
                loss=getattr(losses, training.loss),
                batch_size=min(training.batch_size, len(data.train)),
                seed=training.seed,
                weights=area_weights(data.example.domain, locations) if training.weights == "area" else None,
                validate=data.validation,
                every=training.every,
                callbacks=[stack.enter_context(callback) for callback in callbacks],
                progress=False,
                directory=directory,
                checkpoint_seconds=training.checkpoint_seconds,
            )
        seconds, validation = history.moments[-1].seconds, history.moments[-1].validation
    if validation is None:
        validation = mean_error(model, data.validation)
    reports = {name: evaluate(model, test) for name, test in data.tests.items()}
    errors = {"validation_relative_l2": validation}
    errors |= {
        f"{name}_relative_l2": float(report.errors["relative_l2"].mean())
        for name, report in reports.items()
        if "relative_l2" in report.errors
    }
    finite = {name: error for name, error in errors.items() if math.isfinite(error)}  # a model file holds no others
    save(model, directory / MODEL_FILE, data=data.example, metrics=finite, provenance=provenance)
    return RunResult(count(model), validation, seconds, reports)


def create_optimizer(training: TrainingConfiguration) -> optax.GradientTransformation:
    """The optimizer of a run, with its own learning rate unless one is given."""
    rate = {} if training.rate is None else {"rate": training.rate}
    return paper_optimizer(**rate) if training.optimizer == "paper" else default_optimizer(training.steps, **rate)


def execute(
    configuration: RunConfiguration, directory: Path, *, callbacks: Sequence[Callback] = (), progress: bool = False
) -> RunResult:
    """Carry out a run as configured, and keep configuration, model and report in a directory.

    Called again after a kill, it resumes. A run that cannot start leaves nothing behind.

    **Arguments:**

    - `configuration`: the run.
    - `directory`: the run directory: new, or that of the same run.
    - `callbacks`: contexts that provide a callback of `fit`, in addition to the configured loggers.
    - `progress`: whether to show the search of models that are not trained.
    """
    training, description = configuration.training, json.loads(configuration.model_dump_json())
    data = FileSource(configuration.data).load(training.seed)
    is_trained = isinstance(configuration.model, ModelConfiguration)
    model = create_model(configuration, data.example) if is_trained else None
    records = [loggers.create(name, directory, description) for name in training.loggers]
    begin_run(directory, configuration)  # only now: all that can be wrong with a configuration has been found
    if model is None:
        model, found = solve_model(configuration, data, directory, progress=progress)
        training, description = None, {**description, "found": found}
    result = train_and_evaluate(
        model, data, directory, training=training, provenance=description, callbacks=[*records, *callbacks]
    )
    for report in result.reports.values():
        report.save(directory / REPORT_FILE)
    return result


def begin_run(directory: Path, configuration: RunConfiguration) -> None:
    """Write the configuration to the run directory; refuse the directory of another run, unless this one extends it."""
    path = directory / RUN_FILE
    if path.exists() and not is_extension(read_run(directory), configuration):
        raise ValueError(f"{directory} holds another run; choose another directory, or resume that run with --resume")
    directory.mkdir(parents=True, exist_ok=True)
    text = configuration.model_dump_json(indent=1)
    write_atomically(path, lambda file: file.write(text.encode()))


def is_extension(begun: RunConfiguration, requested: RunConfiguration) -> bool:
    """Whether a run is the same as another that has begun, or takes more steps with the same learning rates."""
    longer = requested.training.optimizer == "paper" and requested.training.steps > begun.training.steps
    return requested == (with_steps(begun, requested.training.steps) if longer else begun)


def with_steps(configuration: RunConfiguration, steps: int) -> RunConfiguration:
    """The same run with another number of steps."""
    training = {**configuration.training.model_dump(), "steps": steps}
    return check_configuration({**configuration.model_dump(), "training": training}, "", {("training", "steps")})


def read_run(directory: Path, steps: int | None = None) -> RunConfiguration:
    """Read the configuration of the run in a directory, extended to another number of steps if given."""
    path = directory / RUN_FILE
    if not path.is_file():
        raise ConfigurationError(f"{directory} holds no run to resume: it has no {RUN_FILE}")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    begun = check_configuration(content, f"{path}: ")
    if steps is None or steps == begun.training.steps:
        return begun
    if is_extension(begun, extended := with_steps(begun, steps)):
        return extended
    if steps < begun.training.steps:
        reason = "a run can be extended, but not shortened"
    else:
        reason = (
            "the learning rate of its optimizer falls to zero at the last step, so a longer run is another run. "
            "Start that with --out, or train with the optimizer `paper`, whose runs can be extended"
        )
    raise ConfigurationError(f"the run in {directory} has {begun.training.steps} steps, got --steps {steps}: {reason}")
