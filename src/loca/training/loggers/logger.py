"""What every logger of a run does: each step of the record is written once, however often the run is killed."""

from __future__ import annotations

import abc
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from loca.durable import write_atomically
from loca.training.fit import Progress
from loca.training.history import finite


class Logger(abc.ABC):
    """A callback of `fit` that keeps a record of the run in some library's format; a context manager.

    A row of the record is a step with `loss` and `steps_per_second`, and `mean_loss` and `validation` where the step is
    a moment of the history. Numbers that are not finite are left out, as in `history.jsonl`.

    A run that was killed does its last steps again, bit for bit, so what the record has of them stays true: a logger
    asks its own files for the last step they hold and goes on after it. Nothing is opened before the first call, when
    `fit` has made sure that the directory is of this run and of no other process.

    **Arguments:**

    - `directory`: of the run; the record is kept below its folder `logs`.
    - `description`: what JSON can say of the run; recorded once.
    """

    def __init__(self, directory: str | os.PathLike[str], description: Mapping[str, Any] | None = None):
        self.directory = Path(directory).absolute()
        self.description = dict(description or {})
        self._last: int | None = None

    def __call__(self, progress: Progress) -> None:
        """Write every row of the run that the record does not have."""
        if self._last is None:
            self.logs.mkdir(parents=True, exist_ok=True)
            self._last = self._begin()
        for step, scalars in rows(progress, after=self._last):
            self._write(step, scalars)
            self._last = step

    def __enter__(self) -> Logger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)

    def close(self, *, failed: bool = False) -> None:
        """End the record, as that of a run which did its work or did not; another call would go on with it."""
        if self._last is not None:
            self._last = None
            self._end(failed=failed)

    @property
    def logs(self) -> Path:
        """Where all loggers of the run keep their files."""
        return self.directory / "logs"

    @abc.abstractmethod
    def _begin(self) -> int:
        """Open the record, old or new, and say the last step in it; -1 if there is none."""

    @abc.abstractmethod
    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Add a row, all of it or nothing."""

    @abc.abstractmethod
    def _end(self, *, failed: bool) -> None:
        """Close the record."""


def rows(progress: Progress, after: int) -> Iterator[tuple[int, dict[str, float]]]:
    """The rows that a run has to offer after some step, in order."""
    found: dict[int, dict[str, float | None]] = {
        moment.step: {"mean_loss": moment.loss, "validation": moment.validation} for moment in progress.history
    }
    now = {"loss": progress.loss, "steps_per_second": progress.steps_per_second}
    found[progress.step] = {**now, **found.get(progress.step, {})}
    for step in sorted(step for step in found if step > after):
        yield (
            step,
            {name: value for name, value in found[step].items() if value is not None and finite(value) is not None},
        )


def identity(logs: Path) -> str:
    """The name of this run among all runs of the world, made up once and kept in its directory."""
    path = logs / "id"
    if not path.exists():
        made_up = uuid.uuid4().hex.encode()
        write_atomically(path, lambda file: file.write(made_up))
    return path.read_text()
