"""A run as it was described, carried out: data, model, training, model file, report."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca.cli.progress import training_shown

if TYPE_CHECKING:
    import optax

    from loca.cli.configuration import RunConfiguration
    from loca.data import Records, Samples
    from loca.evaluation import Report
    from loca.models import Operator
    from loca.training.loggers import Logger

MODEL, REPORT = "model.safetensors", "report.json"
"""What comes of a run: the model, and its errors on test data."""

VALIDATION_MAX, LOOKED_AT = 1000, 1000
"""Functions that validation takes at most, and those from which a model for streamed data learns what data is like."""


class RunData:
    """The data of a run: functions to learn from, in memory or in their file, to validate on, and to test with."""

    def __init__(self, configuration: RunConfiguration):
        import jax
        import numpy as np

        from loca.data import Part
        from loca.data import open as open_data

        asked, key = configuration.data, jax.random.key(configuration.training.seed)
        roles = {"inputs": asked.inputs, "outputs": asked.outputs, "sample": asked.sample, "format": asked.format}
        whole = open_data(asked.path, **roles)
        order = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), len(whole)))
        if asked.validation is not None:
            validation = open_data(asked.validation, **roles)
            held = Part(validation, np.arange(min(len(validation), VALIDATION_MAX)))
        else:
            count = min(max(1, round(asked.validation_fraction * len(whole))), VALIDATION_MAX)
            if count >= len(whole):
                raise ValueError(f"{asked.path} has {len(whole)} functions, too few to set some aside for validation")
            order, held = order[:-count], Part(whole, order[-count:])
        labels = {} if asked.labels is None else {"key": jax.random.fold_in(key, 1), "labels": asked.labels}
        part = Part(whole, order, **labels)
        self.test = None if asked.test is None else open_data(asked.test, **roles)
        self.validation = held.load()
        is_large = bytes_of(part) > physical_memory() / 2
        self.is_streamed = is_large if asked.stream is None else asked.stream
        self.training: Samples | Records = part if self.is_streamed else part.load()
        self.example: Samples = part.load(slice(LOOKED_AT)) if isinstance(self.training, Part) else self.training


def bytes_of(records: Records) -> int:
    """How much memory all functions would take."""
    import jax

    one = records.load(slice(0, 1))
    return len(records) * sum(array.nbytes for array in jax.tree.leaves((one.u, one.s)))


def physical_memory() -> int:
    """Bytes of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def carry_out(
    configuration: RunConfiguration, directory: Path, data: RunData, model: Operator, loggers: Sequence[Logger]
) -> tuple[float, Report | None]:
    """Train, save the model, and give its validation error, and its report on test data if there are any."""
    import jax

    from loca import losses
    from loca.domains import area_weights
    from loca.evaluation import evaluate
    from loca.saving import save
    from loca.training import fit

    asked, example = configuration.training, data.example
    with contextlib.ExitStack() as stack:
        if asked.precision != "float32":
            stack.enter_context(jax.default_matmul_precision(asked.precision))
        told = [stack.enter_context(logger) for logger in loggers]
        model, history = fit(
            model,
            data.training,
            steps=asked.steps,
            optimizer=optimizer_of(configuration),
            loss=getattr(losses, asked.loss),
            batch_size=min(asked.batch_size, len(data.training)),
            seed=asked.seed,
            weights=area_weights(example.domain, example.y.points) if asked.weights == "area" else None,
            validate=data.validation,
            every=asked.every,
            callbacks=[stack.enter_context(training_shown()), *told],
            directory=directory,
            checkpoint_seconds=asked.checkpoint_seconds,
        )
    error = history.moments[-1].validation
    assert error is not None, "the last moment of a run with validation data has an error"
    report = None if data.test is None else evaluate(model, data.test)
    metrics = {"validation_relative_l2": error}
    if report is not None:
        report.save(directory / REPORT)
        metrics["test_relative_l2"] = float(report.errors["relative_l2"].mean())
    save(model, directory / MODEL, data=example, metrics=metrics, provenance=description_of(configuration))
    return error, report


def description_of(configuration: RunConfiguration) -> dict[str, Any]:
    """What was asked for, as JSON can hold it."""
    return json.loads(configuration.model_dump_json())


def loggers_of(configuration: RunConfiguration, directory: Path) -> list[Logger]:
    """Those asked for; nothing is written before the run begins."""
    from loca.training import loggers

    description = description_of(configuration)
    return [loggers.create(name, directory, description) for name in configuration.training.loggers]


def create(configuration: RunConfiguration, data: Samples) -> Operator:
    """The model before its first step."""
    import jax

    from loca.models import FNO, LOCA, SETTINGS, DeepONet

    asked, key = configuration.model, jax.random.fold_in(jax.random.key(configuration.training.seed), 2)
    if asked.setting is not None:
        return getattr(SETTINGS[asked.setting], asked.kind)(data, key=key)
    kinds = {"loca": LOCA, "deeponet": DeepONet, "fno": FNO}
    return kinds[asked.kind].create(data, key=key, **asked.sizes)


def optimizer_of(configuration: RunConfiguration) -> optax.GradientTransformation:
    """The optimizer by its name, with another rate if one is given."""
    from loca.training import default_optimizer, paper_optimizer

    asked = configuration.training
    rate = {} if asked.rate is None else {"rate": asked.rate}
    return paper_optimizer(**rate) if asked.optimizer == "paper" else default_optimizer(asked.steps, **rate)
