"""The models of runs: by configuration for the command line, by the names of the paper's tables for its claims."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from loca.attention import Uncoupled
from loca.data import Samples
from loca.durable import write_atomically
from loca.evaluation import evaluate
from loca.models import FNO, LOCA, SETTINGS, DeepONet, Operator, Proportional, Regression, Setting
from loca.runs.configuration import (
    BestConfiguration,
    ConfigurationError,
    GaussianConfiguration,
    ModelConfiguration,
    RunConfiguration,
)
from loca.runs.sources import RunData
from loca.solving import choose, competitor_directory, fit_ridge, solve
from loca.typing import Key

HISTORY_FILE = "history.jsonl"
"""The file of a run directory with the losses and validation errors during training."""


def create_model(configuration: RunConfiguration, data: Samples) -> Operator:
    """Create the untrained model of a configuration, for data with these shapes and this normalization."""
    chosen, key = configuration.model, jax.random.fold_in(jax.random.key(configuration.training.seed), 2)
    assert isinstance(chosen, ModelConfiguration)
    if chosen.setting is not None:
        return getattr(SETTINGS[chosen.setting], chosen.kind)(data, key=key, transforms=configuration.transforms)
    kinds = {"loca": LOCA, "deeponet": DeepONet, "fno": FNO}
    return kinds[chosen.kind].create(data, key=key, transforms=configuration.transforms, **chosen.sizes)


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


def without_coupling(setting: Setting, data: Samples, *, key: Key) -> Operator:
    """LOCA with φ = softmax(g(q(y))): the paper defines this ablation only in the table that reports it."""
    return dataclasses.replace(setting.loca(data, key=key), attention=Uncoupled())


LEARNED: dict[str, Callable[..., Operator]] = {
    "LOCA": Setting.loca,
    "LOCA without coupling": without_coupling,
    "DeepONet": Setting.deeponet,
    "FNO": Setting.fno,
}
"""Trained models by their names in tables; each is created from a setting, data and a key."""


def mean_field(data: RunData) -> Operator:
    """The mean of the training outputs, whatever the input."""
    return Regression.fit(data.example, components=0)


def ridge(data: RunData) -> Operator:
    """Ridge regression; validation functions choose the number of components and the penalty."""
    return fit_ridge(data.example, data.validation)[0]


def proportional(data: RunData) -> Operator:
    """s = c·u."""
    return Proportional.fit(data.example)


BASELINES: dict[str, Callable[[RunData], Operator]] = {
    "mean field": mean_field,
    "ridge": ridge,
    "s = c·u": proportional,
}
"""Models that need no training, by their names in tables."""


def mean_error(model: Operator, data: Samples) -> float:
    """The mean relative L2 error over functions and channels."""
    return float(evaluate(model, data, metrics=["relative_l2"]).errors["relative_l2"].mean())
