"""Loggers: callbacks of `fit` that record a run for TensorBoard, Weights & Biases or MLflow in its directory."""

from __future__ import annotations

import abc
import json
import os
import socket
import struct
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from loca.durable import write_atomically
from loca.training.history import Progress

__all__ = ["LOGGERS", "Logger", "MLflow", "TensorBoard", "Wandb", "create"]

Description = Mapping[str, Any] | None
"""A JSON description of a run."""


class Logger(abc.ABC):
    """A callback of `fit` that records the run in the format of a tracking library; a context manager.

    A row of the record is a step with `loss` and `steps_per_second`, and with `validation` if the step is a moment of
    the history. The loss is that of `Progress` and of the history. Numbers that are not finite are left out, as in
    `history.jsonl`.

    A killed run repeats its last steps bit for bit, so rows already recorded remain valid: a resumed logger continues
    after the last step of its record. Nothing is opened before the first call, when `fit` has checked that the
    directory belongs to this run and no other process uses it.

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

    def __init__(self, directory: str | os.PathLike[str], description: Description = None):
        self.directory = Path(directory).absolute()
        self.description = dict(description or {})
        self._last: int | None = None

    def __call__(self, progress: Progress) -> None:
        """Write all rows that the record lacks."""
        if self._last is None:
            self.logs.mkdir(parents=True, exist_ok=True)
            self._last = self._begin()
        for step, scalars in progress.rows(after=self._last):
            self._write(step, scalars)
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

    @property
    def logs(self) -> Path:
        """The directory with the files of all loggers of the run."""
        return self.directory / "logs"

    @abc.abstractmethod
    def _begin(self) -> int:
        """Open or create the record; return its last step, or -1 if it has none."""

    @abc.abstractmethod
    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Append a row atomically."""

    @abc.abstractmethod
    def _end(self, *, failed: bool) -> None:
        """Close the record."""


def run_id(logs: Path) -> str:
    """A globally unique id of the run, created once and stored in its directory."""
    path = logs / "id"
    if not path.exists():
        created = uuid.uuid4().hex.encode()
        write_atomically(path, lambda file: file.write(created))
    return path.read_text()


class TensorBoard(Logger):
    """Writes event files to `logs/tensorboard` with tensorboardX; view them with `tensorboard --logdir`.

    A row is one event, and is flushed when the call returns. No row is lost or written twice if the process is killed.

    **Arguments:**

    - `directory`: the run directory.
    - `description`: a JSON description of the run, shown under Text.
    """

    def __init__(self, directory: str | os.PathLike[str], description: Description = None):
        super().__init__(directory, description)
        try:
            import tensorboardX  # noqa: F401
        except ImportError as error:
            raise ImportError("TensorBoard requires tensorboardX: pip install loca-jax[tensorboard]") from error
        self._writer: Any = None

    def _begin(self) -> int:
        from tensorboardX import RecordWriter
        from tensorboardX.summary import text

        folder = self.logs / "tensorboard"
        folder.mkdir(exist_ok=True)
        files = sorted(folder.glob("events.out.tfevents.*"))
        events = [event for path in files for event in read_events(path)]
        # The number makes names unique: two files opened within one second would otherwise overwrite each other.
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{len(files)}"
        self._writer = RecordWriter(str(folder / name))
        self._add(file_version="brain.Event:2")
        described = text("description", "    " + json.dumps(self.description, indent=2).replace("\n", "\n    "))
        tags = {value.tag for event in events for value in event.summary.value}
        if self.description and described.value[0].tag not in tags:
            self._add(step=0, summary=described)
        return max((event.step for event in events if event.summary.value), default=-1)

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._add(step=step, summary={"value": [{"tag": name, "simple_value": scalars[name]} for name in scalars]})

    def _add(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] (generated)

        self._writer.write(Event(wall_time=time.time(), **fields).SerializeToString())
        self._writer.flush()

    def _end(self, *, failed: bool) -> None:
        self._writer.close()


def read_events(path: Path) -> Iterator[Any]:
    """The events of a TFRecord file, except a last one that was cut off.

    A record is a length (8 bytes), its checksum (4), an event (length) and its checksum (4).
    """
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] (generated)

    contents, start = path.read_bytes(), 0
    while start + 12 <= len(contents):
        (length,) = struct.unpack_from("<Q", contents, start)
        stop = start + 12 + length
        if stop + 4 > len(contents):
            return
        yield Event.FromString(contents[start + 12 : stop])
        start = stop + 4


class Wandb(Logger):
    """Writes offline runs with one id to `logs/wandb`, a new one whenever the run resumes.

    `wandb sync --append run/logs/wandb/offline-run-*` uploads all of them as one run.

    The process of wandb buffers rows, and a kill loses them; wandb has no interface to find out which. So every row is
    first written to `logs/wandb/rows.jsonl`, and a run that resumes after a kill logs all rows of the killed process
    again. No row is lost, but some may appear twice, with the same step and values. After an orderly end, including
    SIGTERM, Ctrl-C and errors, every row appears once.

    **Arguments:**

    - `directory`: the run directory.
    - `description`: the config of the run.
    - `mode`: `"offline"`, or `"online"` to upload every row at once.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        description: Description = None,
        *,
        mode: Literal["offline", "online"] = "offline",
    ):
        super().__init__(directory, description)
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would upload its own errors, even offline
        try:
            import wandb
        except ImportError as error:
            raise ImportError("Weights & Biases requires wandb: pip install loca-jax[wandb]") from error
        self.mode, self._wandb = mode, wandb
        self._rows = self.logs / "wandb/rows.jsonl"
        self._run: Any = None

    def _begin(self) -> int:
        self._rows.parent.mkdir(exist_ok=True)
        self._run = self._wandb.init(
            dir=self.logs,
            id=run_id(self.logs),
            project="loca",
            name=self.directory.name,
            config=self.description,
            mode=self.mode,
            resume="allow" if self.mode == "online" else None,
            reinit="create_new",  # other runs of this process continue
            settings=self._wandb.Settings(console="off", silent=True),
        )
        rows = list(read_rows(self._rows))
        ends = [number for number, row in enumerate(rows) if "finished" in row]
        for row in rows[ends[-1] + 1 if ends else 0 :]:
            self._log(row)
        return max((row["step"] for row in rows if "step" in row), default=-1)

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        row = {"step": step, **scalars}
        self._append(row)
        self._log(row)

    def _end(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))
        self._append({"finished": not failed})

    def _log(self, row: Mapping[str, Any]) -> None:
        self._run.log({name: value for name, value in row.items() if name != "step"}, step=row["step"])

    def _append(self, row: Mapping[str, Any]) -> None:
        with self._rows.open("a") as file:
            file.write(json.dumps(row) + "\n")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file with one JSON object per line; remove a last line that was cut off."""
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        os.truncate(path, sum(map(len, lines[:-1])))
        del lines[-1]
    yield from map(json.loads, lines)


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

    def __init__(self, directory: str | os.PathLike[str], description: Description = None, *, uri: str | None = None):
        super().__init__(directory, description)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use to its developers
        try:
            import alembic  # noqa: F401
            import sqlalchemy  # noqa: F401
            from mlflow import MlflowClient
        except ImportError as error:
            raise ImportError("MLflow requires mlflow-skinny and a database: pip install loca-jax[mlflow]") from error
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


LOGGERS: dict[str, type[Logger]] = {"mlflow": MLflow, "tensorboard": TensorBoard, "wandb": Wandb}
"""Loggers by name, on the command line and of the extra that installs the library."""


def create(name: str, directory: str | os.PathLike[str], description: Description = None) -> Logger:
    """Create the logger with the given name.

    **Arguments:**

    - `name`: one of `LOGGERS`.
    - `directory`: the run directory; the record is written to its subdirectory `logs`.
    - `description`: a JSON description of the run, recorded once.
    """
    if name not in LOGGERS:
        raise ValueError(f"unknown logger {name!r}; choose one of {', '.join(LOGGERS)}")
    return LOGGERS[name](directory, description)
