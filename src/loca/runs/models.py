"""The models of runs: by configuration for the command line, by the names of the paper's tables for its claims."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax

from loca.attention import Uncoupled
from loca.data import Samples
from loca.evaluation import evaluate
from loca.models import FNO, LOCA, SETTINGS, DeepONet, Operator, Proportional, Regression, Setting
from loca.runs.configuration import RunConfiguration
from loca.runs.sources import RunData
from loca.typing import Key, values_of

COMPONENTS, STRENGTHS = (10, 40, 150), (1e-6, 1e-4, 1e-2, 1.0)
"""The numbers of components and the penalties from which ridge regression is chosen, on validation functions."""


def create_model(configuration: RunConfiguration, data: Samples) -> Operator:
    """Create the untrained model of a configuration, for data with these shapes and this normalization."""
    chosen, key = configuration.model, jax.random.fold_in(jax.random.key(configuration.training.seed), 2)
    if chosen.setting is not None:
        return getattr(SETTINGS[chosen.setting], chosen.kind)(data, key=key, transforms=configuration.transforms)
    kinds = {"loca": LOCA, "deeponet": DeepONet, "fno": FNO}
    return kinds[chosen.kind].create(data, key=key, transforms=configuration.transforms, **chosen.sizes)


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
    train = data.example
    values = sum(each[0].size for each in values_of(train.u))
    possible = [k for k in COMPONENTS if k <= min(len(train), values)]
    choices = [Regression.fit(train, k, strength) for k in possible for strength in STRENGTHS]
    return min(choices, key=lambda model: mean_error(model, data.validation))


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
