"""A logger: a callback of `fit` that records a run for TensorBoard, Weights & Biases or MLflow in its directory."""

import importlib.util
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from loca.durable import write_atomically
from loca.training.history import Progress

Row = dict[str, Any]
"""A step and its numbers, or `{"finished": …}` where a record was closed."""

Record = tuple[Callable[[int, Mapping[str, float]], object], Callable[[bool], object]]
"""An open record of a tracking library: how to write the numbers of a step, and how to end it if it failed or not."""


class Logger:
    """A callback of `fit` that records the run in the format of a tracking library; a context manager.

    A row of the record is a step with `loss` and `steps_per_second`, and with `validation` if the step is a moment of
    the history. Numbers that are not finite are left out. Every row is also a line of JSON in `logs/NAME.jsonl`. A
    killed run repeats its last steps bit for bit, so rows already recorded remain valid: a resumed logger continues
    after the last step of that file. Nothing is opened before the first call, when `fit` has checked that the directory
    belongs to this run and no other process uses it.

    For other libraries, a callback is enough: `callbacks=[lambda now: run.log({"loss": now.loss}, step=now.step)]`.

    **Arguments:**

    - `name`: tensorboard, wandb or mlflow.
    - `directory`: the run directory; the record is written to its subdirectory `logs`.
    - `description`: a JSON description of the run, recorded once.
    """

    def __init__(self, name: str, directory: str | os.PathLike[str], description: Mapping[str, Any] | None = None):
        if name not in LOGGERS:
            raise ValueError(f"unknown logger {name!r}; choose one of {', '.join(LOGGERS)}")
        self._open, *modules = LOGGERS[name]
        if missing := [module for module in modules if importlib.util.find_spec(module) is None]:
            raise ImportError(f"the logger {name} requires {', '.join(missing)}: pip install loca-jax[{name}]")
        self._logs, self._description = Path(directory).absolute() / "logs", dict(description or {})
        self._rows = self._logs / f"{name}.jsonl"
        self._record: Record | None = None
        self._last = -1

    def __call__(self, progress: Progress) -> None:
        """Write all rows that the record lacks."""
        if self._record is None:
            self._logs.mkdir(parents=True, exist_ok=True)
            self._rows.touch()
            content = self._rows.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]  # without a last line that was cut off
            os.truncate(self._rows, len(whole))
            rows = [json.loads(line) for line in whole.splitlines()]
            self._record = self._open(self._logs, self._description, rows)
            self._last = max((int(row["step"]) for row in rows if "step" in row), default=-1)
        for step, scalars in progress.rows(after=self._last):
            self._record[0](step, scalars)
            self._append({"step": step, **scalars})
            self._last = step

    def __enter__(self) -> "Logger":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the record and mark the run as finished or failed. Another call reopens it."""
        if self._record is not None:
            (_, end), self._record = self._record, None
            end(error is not None)
            self._append({"finished": error is None})

    def _append(self, row: Row) -> None:
        with self._rows.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _tensorboard(logs: Path, description: Mapping[str, Any], rows: Sequence[Row]) -> Record:
    """Event files in `logs/tensorboard`, with the description under Text."""
    from tensorboardX import RecordWriter  # `SummaryWriter` writes in another thread, and a kill loses rows
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] (generated)
    from tensorboardX.summary import text

    folder = logs / "tensorboard"
    folder.mkdir(exist_ok=True)
    # the number makes names unique: two files opened within one second would otherwise overwrite each other
    files = len(list(folder.glob("events.out.tfevents.*")))
    writer = RecordWriter(str(folder / f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{files}"))

    def add(**fields: Any) -> None:
        writer.write(Event(wall_time=time.time(), **fields).SerializeToString())
        writer.flush()

    def write(step: int, scalars: Mapping[str, float]) -> None:
        add(step=step, summary={"value": [{"tag": name, "simple_value": scalars[name]} for name in scalars]})

    add(file_version="brain.Event:2")
    if description and not rows:
        described = json.dumps(description, indent=2).replace("\n", "\n    ")
        add(step=0, summary=text("description", f"    {described}"))
    return write, lambda failed: writer.close()


def _wandb(logs: Path, description: Mapping[str, Any], rows: Sequence[Row]) -> Record:
    """Offline runs with one id in `logs/wandb`, a new one whenever the run resumes.

    The process of wandb buffers rows, and a kill loses them; wandb has no interface to find out which. So a run that
    resumes after a kill logs all rows of the killed process again. No row is lost, but some may appear twice, with the
    same step and values. After an orderly end, including SIGTERM, Ctrl-C and errors, every row appears once.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would upload its own errors, even offline
    import wandb

    (logs / "wandb").mkdir(exist_ok=True)
    name = logs / "id"
    if not name.exists():
        write_atomically(name, lambda file: file.write(uuid.uuid4().hex.encode()))
    run = wandb.init(
        dir=logs,
        id=name.read_text(),
        project="loca",
        name=logs.parent.name,
        config=dict(description),
        mode="offline",
        reinit="create_new",  # other runs of this process continue
        settings=wandb.Settings(console="off", silent=True),
    )
    closed = max((i for i, row in enumerate(rows) if "finished" in row), default=-1)
    for row in rows[closed + 1 :]:
        run.log({name: value for name, value in row.items() if name != "step"}, step=row["step"])
    return lambda step, scalars: run.log(dict(scalars), step=step), lambda failed: run.finish(exit_code=int(failed))


def _mlflow(logs: Path, description: Mapping[str, Any], rows: Sequence[Row]) -> Record:
    """A run of the experiment `loca` in `logs/mlflow.db`, where a row is one transaction.

    The description gives the parameters of the run; names of nested ones are joined by dots.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use to its developers
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient(tracking_uri=f"sqlite:///{quote(str(logs / 'mlflow.db'))}")
    found = client.get_experiment_by_name("loca")
    # artifacts that the user adds to the run go beside the store, not into the working directory
    experiment = found.experiment_id if found else client.create_experiment("loca", (logs / "mlflow").as_uri())
    runs = client.search_runs([experiment])  # the store has one run
    run = runs[0] if runs else client.create_run(experiment, run_name=logs.parent.name)
    number = run.info.run_id
    client.update_run(number, status="RUNNING")
    missing = [Param(name, value) for name, value in _flat(description) if name not in run.data.params]
    for start in range(0, len(missing), 100):  # MLflow accepts no more in one call
        client.log_batch(number, params=missing[start : start + 100])

    def write(step: int, scalars: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        client.log_batch(number, metrics=[Metric(name, scalars[name], now, step) for name in scalars])

    return write, lambda failed: client.set_terminated(number, "FAILED" if failed else "FINISHED")


def _flat(description: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values, with {"a": {"b": 1}} as a.b = 1. Values other than strings become JSON."""
    for name, value in description.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value if isinstance(value, str) else json.dumps(value)


LOGGERS: dict[str, tuple[Callable[..., Record], *tuple[str, ...]]] = {
    "mlflow": (_mlflow, "alembic", "mlflow", "sqlalchemy"),
    "tensorboard": (_tensorboard, "tensorboardX"),
    "wandb": (_wandb, "wandb"),
}
"""How to open the record of a library, and the modules that it consists of. Its name is also that of an extra."""
