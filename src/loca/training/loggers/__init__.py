"""Loggers: callbacks that keep a record of a run for TensorBoard, Weights & Biases or MLflow, in its directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from loca.training.loggers.logger import Logger as Logger
from loca.training.loggers.mlflow import MLflow as MLflow
from loca.training.loggers.tensorboard import TensorBoard as TensorBoard
from loca.training.loggers.wandb import Wandb as Wandb

__all__ = ["LOGGERS", "Logger", "MLflow", "TensorBoard", "Wandb", "create"]

LOGGERS: dict[str, type[Logger]] = {"mlflow": MLflow, "tensorboard": TensorBoard, "wandb": Wandb}
"""By the names that the command line knows them by, which are also those of the extras that install their libraries."""


def create(name: str, directory: str | os.PathLike[str], description: Mapping[str, Any] | None = None) -> Logger:
    """The logger of some name, for the run in a directory.

    **Arguments:**

    - `name`: one of `LOGGERS`.
    - `directory`: of the run; the record is kept below its folder `logs`.
    - `description`: what JSON can say of the run; recorded once.
    """
    if name not in LOGGERS:
        raise ValueError(f"there is no logger {name!r}; choose one of {', '.join(LOGGERS)}")
    return LOGGERS[name](directory, description)
