"""The logger for MLflow: a store in an SQLite file, without a server."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from loca.training.loggers.logger import Logger, run_id

BATCH = 100
"""The largest number of parameters that MLflow accepts in one call."""


class MLflow(Logger):
    """Writes a run of the experiment `loca` to `logs/mlflow.db`, or to another store.

    A row is one transaction. View the store with `mlflow ui --backend-store-uri sqlite:///run/logs/mlflow.db`.

    **Arguments:**

    - `directory`: the run directory.
    - `description`: the parameters of the run; names of nested ones are joined by dots.
    - `uri`: the URI of another store. A resumed run is found there by its tag `loca.run`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        description: Mapping[str, Any] | None = None,
        *,
        uri: str | None = None,
    ):
        super().__init__(directory, description)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use to its developers
        try:
            import alembic  # noqa: F401
            import sqlalchemy  # noqa: F401
            from mlflow import MlflowClient
        except ImportError as error:
            raise ImportError(
                "MLflow requires mlflow-skinny, sqlalchemy and alembic: pip install loca-jax[mlflow]"
            ) from error
        self.uri = f"sqlite:///{quote(str(self.logs / 'mlflow.db'))}" if uri is None else uri
        self._files = (self.logs / "mlflow").as_uri() if uri is None else None
        self._client_of = MlflowClient
        self._client: Any = None
        self._run = ""

    def _begin(self) -> int:
        from mlflow.entities import Param

        self._client = self._client_of(tracking_uri=self.uri)
        self._run = self._find() or self._create()
        run = self._client.get_run(self._run)
        if run.info.status != "RUNNING":
            self._client.update_run(self._run, status="RUNNING")
        missing = [Param(name, value) for name, value in flat(self.description) if name not in run.data.params]
        for start in range(0, len(missing), BATCH):
            self._client.log_batch(self._run, params=missing[start : start + BATCH])
        written = self._client.get_metric_history(self._run, "loss")
        return max((metric.step for metric in written), default=-1)

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name("loca")
        if found is not None:
            return found.experiment_id
        # artifacts that the user adds to the run go beside the store, not into the working directory
        return self._client.create_experiment("loca", artifact_location=self._files)

    def _find(self) -> str | None:
        """The id of the run of this directory, or None if the store lacks it."""
        found = self._client.search_runs([self._experiment()], f"tags.`loca.run` = '{run_id(self.logs)}'")
        return found[0].info.run_id if found else None

    def _create(self) -> str:
        tags = {"loca.run": run_id(self.logs)}
        return self._client.create_run(self._experiment(), tags=tags, run_name=self.directory.name).info.run_id

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._run, metrics=[Metric(name, scalars[name], now, step) for name in scalars])

    def _end(self, *, failed: bool) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


def flat(description: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values, with {"a": {"b": 1}} as a.b = 1. Values other than strings become JSON."""
    for name, value in description.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value if isinstance(value, str) else json.dumps(value)
