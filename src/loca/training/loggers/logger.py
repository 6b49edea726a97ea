"""The base class of loggers, which write every step of a run to its record, however often the run is killed."""

from __future__ import annotations

import abc
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loca.durable import write_atomically
from loca.training.history import Progress, finite


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

    def __init__(self, directory: str | os.PathLike[str], description: Mapping[str, Any] | None = None):
        self.directory = Path(directory).absolute()
        self.description = dict(description or {})
        self._last: int | None = None

    def __call__(self, progress: Progress) -> None:
        """Write all rows that the record lacks."""
        if self._last is None:
            self.logs.mkdir(parents=True, exist_ok=True)
            self._last = self._begin()
        for step, scalars in rows(progress, after=self._last):
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


def rows(progress: Progress, after: int) -> Iterator[tuple[int, dict[str, float]]]:
    """The rows of a run after a step, in order."""
    found: dict[int, dict[str, float | None]] = {
        moment.step: {"loss": moment.loss, "validation": moment.validation} for moment in progress.history
    }
    now = {"loss": progress.loss, "steps_per_second": progress.steps_per_second}
    found[progress.step] = {**now, **found.get(progress.step, {})}
    for step in sorted(step for step in found if step > after):
        yield (
            step,
            {name: value for name, value in found[step].items() if value is not None and finite(value) is not None},
        )


def run_id(logs: Path) -> str:
    """A globally unique id of the run, created once and stored in its directory."""
    path = logs / "id"
    if not path.exists():
        created = uuid.uuid4().hex.encode()
        write_atomically(path, lambda file: file.write(created))
    return path.read_text()
