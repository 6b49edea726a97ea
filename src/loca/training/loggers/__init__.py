"""Loggers: callbacks of `fit` that record a run for TensorBoard, Weights & Biases or MLflow in its directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from loca.training.loggers.logger import Logger as Logger
from loca.training.loggers.services import MLflow as MLflow
from loca.training.loggers.services import TensorBoard as TensorBoard
from loca.training.loggers.services import Wandb as Wandb

__all__ = ["LOGGERS", "Logger", "MLflow", "TensorBoard", "Wandb", "create"]

LOGGERS: dict[str, type[Logger]] = {"mlflow": MLflow, "tensorboard": TensorBoard, "wandb": Wandb}
"""Loggers by name, on the command line and of the extra that installs the library."""


def create(name: str, directory: str | os.PathLike[str], description: Mapping[str, Any] | None = None) -> Logger:
    """Create the logger with the given name.

    **Arguments:**

    - `name`: one of `LOGGERS`.
    - `directory`: the run directory; the record is written to its subdirectory `logs`.
    - `description`: a JSON description of the run, recorded once.
    """
    if name not in LOGGERS:
        raise ValueError(f"unknown logger {name!r}; choose one of {', '.join(LOGGERS)}")
    return LOGGERS[name](directory, description)
