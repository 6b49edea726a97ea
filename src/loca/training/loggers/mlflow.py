"""A run as MLflow reads it: a store of its own in an SQLite file, without a server."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from loca.training.loggers.logger import Logger, identity

BATCH = 100
"""How many parameters MLflow takes at once."""


class MLflow(Logger):
    """One run of the experiment `loca`, in `logs/mlflow.db` unless said otherwise.

    A row is one transaction. `mlflow ui --backend-store-uri sqlite:///run/logs/mlflow.db` shows the store.

    **Arguments:**

    - `directory`: of the run.
    - `description`: becomes the parameters of the run, those inside others with a dot in their names.
    - `uri`: of another store, where the run is found again by its tag `loca.run`.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        description: Mapping[str, Any] | None = None,
        *,
        uri: str | None = None,
    ):
        super().__init__(directory, description)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would tell its makers what is called
        try:
            import alembic  # noqa: F401
            import sqlalchemy  # noqa: F401
            from mlflow import MlflowClient
        except ImportError as error:
            raise ImportError("MLflow needs further libraries: pip install loca-jax[mlflow]") from error
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
        written = [self._client.get_metric_history(self._run, name) for name in ("loss", "mean_loss")]
        return max((metric.step for metrics in written for metric in metrics), default=-1)

    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name("loca")
        if found is not None:
            return found.experiment_id
        # files that somebody adds to a run by hand stay beside the store too, and not where the process was started
        return self._client.create_experiment("loca", artifact_location=self._files)

    def _find(self) -> str | None:
        """The run of this directory, if the store has it."""
        found = self._client.search_runs([self._experiment()], f"tags.`loca.run` = '{identity(self.logs)}'")
        return found[0].info.run_id if found else None

    def _create(self) -> str:
        tags = {"loca.run": identity(self.logs)}
        return self._client.create_run(self._experiment(), tags=tags, run_name=self.directory.name).info.run_id

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._run, metrics=[Metric(name, scalars[name], now, step) for name in scalars])

    def _end(self, *, failed: bool) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


def flat(description: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values, {"a": {"b": 1}} as a.b = 1; what is not a string is spelled as JSON."""
    for name, value in description.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value if isinstance(value, str) else json.dumps(value)
