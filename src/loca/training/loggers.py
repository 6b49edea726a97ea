"""Loggers: callbacks of `fit` that record a run for TensorBoard, Weights & Biases or MLflow in its directory."""

from __future__ import annotations

import abc
import importlib.util
import json
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from loca.durable import write_atomically
from loca.training.history import Progress

__all__ = ["MLflow", "TensorBoard", "Wandb", "create"]

Description = Mapping[str, Any] | None
"""A JSON description of a run."""

Row = dict[str, Any]
"""A step and its numbers, or `{"finished": …}` where a record was closed."""


class Logger(abc.ABC):
    """A callback of `fit` that records the run in the format of a tracking library; a context manager.

    A row of the record is a step with `loss` and `steps_per_second`, and with `validation` if the step is a moment of
    the history. The loss is that of `Progress` and of the history. Numbers that are not finite are left out, as in
    `history.jsonl`.

    Every row is also a line of JSON in `logs/NAME.jsonl`. A killed run repeats its last steps bit for bit, so rows
    already recorded remain valid: a resumed logger continues after the last step of that file. Nothing is opened before
    the first call, when `fit` has checked that the directory belongs to this run and no other process uses it.

    For other libraries, write a callback:

    ```python
    run = tracker.start()

    def log(progress: loca.training.Progress) -> None:
        run.log({"loss": progress.loss}, step=progress.step)

    loca.fit(model, data, callbacks=[log])
    ```

    **Arguments:**

    - `directory`: the run directory; the record is written to its subdirectory `logs`.
    - `description`: a JSON description of the run, recorded once.
    """

    modules: ClassVar[tuple[str, ...]]
    """What the library consists of."""

    def __init__(self, directory: str | os.PathLike[str], description: Description = None):
        name = type(self).__name__
        if missing := [module for module in self.modules if importlib.util.find_spec(module) is None]:
            raise ImportError(f"{name} requires {', '.join(missing)}: pip install loca-jax[{name.lower()}]")
        self.directory = Path(directory).absolute()
        self.description = dict(description or {})
        self.logs = self.directory / "logs"
        self._rows = self.logs / f"{name.lower()}.jsonl"
        self._last: int | None = None

    def __call__(self, progress: Progress) -> None:
        """Write all rows that the record lacks."""
        if self._last is None:
            self.logs.mkdir(parents=True, exist_ok=True)
            rows = _read_rows(self._rows)
            self._begin(rows)
            self._last = max((int(row["step"]) for row in rows if "step" in row), default=-1)
        for step, scalars in progress.rows(after=self._last):
            self._write(step, scalars)
            self._append({"step": step, **scalars})
            self._last = step

    def __enter__(self) -> Logger:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(failed=error is not None)

    def close(self, *, failed: bool = False) -> None:
        """Close the record and mark the run as finished or failed. Another call reopens it."""
        if self._last is not None:
            self._last = None
            self._end(failed=failed)
            self._append({"finished": not failed})

    def _append(self, row: Row) -> None:
        with self._rows.open("a") as file:
            file.write(json.dumps(row) + "\n")

    @abc.abstractmethod
    def _begin(self, rows: Sequence[Row]) -> None:
        """Open or create the record, which may lack the last of these rows if the process was killed."""

    @abc.abstractmethod
    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Append a row."""

    @abc.abstractmethod
    def _end(self, *, failed: bool) -> None:
        """Close the record."""


def _read_rows(path: Path) -> list[Row]:
    """The rows of a file with one JSON object per line; remove a last line that was cut off."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        os.truncate(path, sum(map(len, lines[:-1])))
        del lines[-1]
    return [json.loads(line) for line in lines]


def _run_id(logs: Path) -> str:
    """A globally unique id of the run, created once and stored in its directory."""
    path = logs / "id"
    if not path.exists():
        created = uuid.uuid4().hex.encode()
        write_atomically(path, lambda file: file.write(created))
    return path.read_text()


class TensorBoard(Logger):
    """Writes event files to `logs/tensorboard` with tensorboardX; view them with `tensorboard --logdir`.

    Rows are flushed when the call returns. The description is shown under Text.
    """

    modules = ("tensorboardX",)
    _writer: Any

    def _begin(self, rows: Sequence[Row]) -> None:
        from tensorboardX import RecordWriter  # `SummaryWriter` writes in another thread, and a kill loses rows
        from tensorboardX.summary import text

        folder = self.logs / "tensorboard"
        folder.mkdir(exist_ok=True)
        # the number makes names unique: two files opened within one second would otherwise overwrite each other
        files = len(list(folder.glob("events.out.tfevents.*")))
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{files}"
        self._writer = RecordWriter(str(folder / name))
        self._add(file_version="brain.Event:2")
        if self.description and not rows:
            described = json.dumps(self.description, indent=2).replace("\n", "\n    ")
            self._add(step=0, summary=text("description", f"    {described}"))

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._add(step=step, summary={"value": [{"tag": name, "simple_value": scalars[name]} for name in scalars]})

    def _add(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] (generated)

        self._writer.write(Event(wall_time=time.time(), **fields).SerializeToString())
        self._writer.flush()

    def _end(self, *, failed: bool) -> None:
        self._writer.close()


class Wandb(Logger):
    """Writes offline runs with one id to `logs/wandb`, a new one whenever the run resumes.

    `wandb sync --append run/logs/wandb/offline-run-*` uploads all of them as one run.

    The process of wandb buffers rows, and a kill loses them; wandb has no interface to find out which. So a run that
    resumes after a kill logs all rows of the killed process again. No row is lost, but some may appear twice, with the
    same step and values. After an orderly end, including SIGTERM, Ctrl-C and errors, every row appears once.
    The description is the config of the run.
    """

    modules = ("wandb",)
    _run: Any

    def _begin(self, rows: Sequence[Row]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would upload its own errors, even offline
        import wandb

        (self.logs / "wandb").mkdir(exist_ok=True)
        self._run = wandb.init(
            dir=self.logs,
            id=_run_id(self.logs),
            project="loca",
            name=self.directory.name,
            config=self.description,
            mode="offline",
            reinit="create_new",  # other runs of this process continue
            settings=wandb.Settings(console="off", silent=True),
        )
        closed = max((i for i, row in enumerate(rows) if "finished" in row), default=-1)
        for row in rows[closed + 1 :]:
            self._write(row["step"], {name: value for name, value in row.items() if name != "step"})

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=step)

    def _end(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


BATCH = 100
"""The largest number of parameters that MLflow accepts in one call."""


class MLflow(Logger):
    """Writes a run of the experiment `loca` to `logs/mlflow.db`.

    A row is one transaction. View the store with `mlflow ui --backend-store-uri sqlite:///run/logs/mlflow.db`.
    The description gives the parameters of the run; names of nested ones are joined by dots.
    """

    modules = ("alembic", "mlflow", "sqlalchemy")
    _client: Any
    _run: str

    def _begin(self, rows: Sequence[Row]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use to its developers
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient(tracking_uri=f"sqlite:///{quote(str(self.logs / 'mlflow.db'))}")
        found = self._client.get_experiment_by_name("loca")
        # artifacts that the user adds to the run go beside the store, not into the working directory
        experiment = (
            found.experiment_id if found else self._client.create_experiment("loca", (self.logs / "mlflow").as_uri())
        )
        tags = {"loca.run": _run_id(self.logs)}
        runs = self._client.search_runs([experiment], f"tags.`loca.run` = '{tags['loca.run']}'")
        run = runs[0] if runs else self._client.create_run(experiment, tags=tags, run_name=self.directory.name)
        self._run = run.info.run_id
        self._client.update_run(self._run, status="RUNNING")
        missing = [Param(name, value) for name, value in _flat(self.description) if name not in run.data.params]
        for start in range(0, len(missing), BATCH):
            self._client.log_batch(self._run, params=missing[start : start + BATCH])

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._run, metrics=[Metric(name, scalars[name], now, step) for name in scalars])

    def _end(self, *, failed: bool) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


def _flat(description: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values, with {"a": {"b": 1}} as a.b = 1. Values other than strings become JSON."""
    for name, value in description.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value if isinstance(value, str) else json.dumps(value)


LOGGERS: dict[str, type[Logger]] = {"mlflow": MLflow, "tensorboard": TensorBoard, "wandb": Wandb}
"""Loggers by name, on the command line and of the extra that installs the library."""


def create(name: str, directory: str | os.PathLike[str], description: Description = None) -> Logger:
    """Create the logger with a name in `LOGGERS`; see `Logger` for the other arguments."""
    if name not in LOGGERS:
        raise ValueError(f"unknown logger {name!r}; choose one of {', '.join(LOGGERS)}")
    return LOGGERS[name](directory, description)
