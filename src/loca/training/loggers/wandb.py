"""A run as Weights & Biases reads it: on this disk alone, until somebody says `wandb sync`."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from loca.training.loggers.logger import Logger, identity

PATIENCE = 10.0
"""Seconds to wait for the service to have written what it was given."""


class Wandb(Logger):
    """Offline runs of one id in `logs/wandb`, a new one for each time that the run goes on.

    `wandb sync --append run/logs/wandb/offline-run-*` sends all of them as one run.

    The service of wandb keeps up to 32 kB of rows in memory, which a kill takes away. So every row is in `rows.jsonl`
    first, from where a run that goes on writes again what was lost.

    **Arguments:**

    - `directory`: of the run.
    - `description`: becomes the config of the run.
    - `mode`: `"offline"`, or `"online"` to send every row at once.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        description: Mapping[str, Any] | None = None,
        *,
        mode: Literal["offline", "online"] = "offline",
    ):
        super().__init__(directory, description)
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # it would send its own errors home, even offline
        try:
            import wandb
        except ImportError as error:
            raise ImportError("Weights & Biases needs a further library: pip install loca-jax[wandb]") from error
        self.mode, self._wandb = mode, wandb
        self._run: Any = None
        self._sent = -1

    def _begin(self) -> int:
        folder = self.logs / "wandb"
        folder.mkdir(exist_ok=True)
        # latest-run is a link to one of the others
        files = [path for path in folder.glob("*run-*/run-*.wandb") if not path.parent.is_symlink()]
        written = max((step for path in files for step in read_steps(path)), default=-1)
        self._run = self._wandb.init(
            dir=self.logs,
            id=identity(self.logs),
            project="loca",
            name=self.directory.name,
            config=self.description,
            mode=self.mode,
            resume="allow" if self.mode == "online" else None,
            reinit="create_new",  # whatever else is logged in this process goes on
            settings=self._wandb.Settings(console="off", silent=True),
        )
        self._rows = folder / "rows.jsonl"
        kept = list(read_rows(self._rows))
        for row in kept:
            if row["step"] > written:
                self._send(row)
        return max((row["step"] for row in kept), default=-1)

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        row = {"step": step, **scalars}
        with self._rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        self._send(row)

    def _send(self, row: Mapping[str, Any]) -> None:
        self._run.log({name: value for name, value in row.items() if name != "step"}, step=row["step"])
        self._sent = row["step"]

    def _end(self, *, failed: bool) -> None:
        file, until = Path(self._run.settings.sync_file), time.monotonic() + PATIENCE
        self._run.finish(exit_code=int(failed))
        # the service closes its file a little later; a run that went on before that would not find its last rows
        while self._sent not in read_steps(file) and time.monotonic() < until:
            time.sleep(0.05)


def read_steps(path: Path) -> Iterator[int]:
    """The steps in a file of wandb, as far as it goes: the last row may have been cut off."""
    from wandb.proto.wandb_internal_pb2 import Record  # pyright: ignore[reportAttributeAccessIssue] (made when imported)
    from wandb.sdk.internal.datastore import DataStore

    with contextlib.closing(DataStore()) as store, contextlib.suppress(AssertionError):  # so it says: cut off here
        store.open_for_scan(path)
        while (found := store.scan_data()) is not None:
            record = Record.FromString(found)
            if record.HasField("history"):
                yield record.history.step.num


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of lines; one that was cut off is made whole by taking it away."""
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        os.truncate(path, sum(map(len, lines[:-1])))
        del lines[-1]
    yield from map(json.loads, lines)
