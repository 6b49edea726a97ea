"""The logger for Weights & Biases: offline runs, until `wandb sync` uploads them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from loca.training.loggers.logger import Logger, run_id


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
        description: Mapping[str, Any] | None = None,
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
