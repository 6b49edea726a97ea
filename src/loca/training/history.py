"""What a run says of itself, line by line."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Moment:
    """A run at one step: the mean loss since the last moment, and the validation error if it was measured.

    `seconds` is the time the run has taken so far, over all parts of one that was stopped and went on.
    """

    step: int
    loss: float
    validation: float | None
    seconds: float


@dataclasses.dataclass(frozen=True)
class History:
    """The moments of a run, in order."""

    moments: tuple[Moment, ...] = ()

    def __iter__(self) -> Iterator[Moment]:
        return iter(self.moments)

    def __len__(self) -> int:
        return len(self.moments)

    @property
    def best(self) -> Moment | None:
        """The moment with the smallest validation error, if any was measured."""
        measured = [moment for moment in self.moments if moment.validation is not None]
        return min(measured, key=lambda moment: moment.validation or 0.0, default=None)

    def to_lines(self) -> str:
        """One line of JSON for each moment."""
        return "".join(json.dumps(row) + "\n" for row in self.to_json())

    @classmethod
    def read(cls, path: Path) -> History:
        """From a file of such lines, as `fit` leaves it in its directory."""
        return cls.from_json([json.loads(line) for line in path.read_text().splitlines()])

    def to_json(self) -> list[dict[str, Any]]:
        """A list of objects; an error that is not finite is null, since JSON has no other number for it."""
        return [{**vars(moment), "validation": finite(moment.validation)} for moment in self.moments]

    @classmethod
    def from_json(cls, rows: list[dict[str, Any]]) -> History:
        """What `to_json` gave."""
        return cls(tuple(Moment(**row) for row in rows))


class Journal:
    """A history that is being written: past moments, and the losses since the last one."""

    def __init__(self, history: History | None = None, total: float = 0.0, count: int = 0):
        self.history = history or History()
        self.total, self.count = total, count

    def note(self, total: float, steps: int) -> float:
        """So many more steps, after which the sum of the losses is this; gives their mean loss."""
        loss = (total - self.total) / steps
        self.total = total
        self.count += steps
        return loss

    def mark(self, step: int, validation: float | None, seconds: float) -> None:
        """A moment: the mean of the losses noted since the last."""
        moment = Moment(step, self.total / self.count, validation, seconds)
        self.history = History((*self.history.moments, moment))
        self.total, self.count = 0.0, 0

    def to_json(self) -> dict[str, Any]:
        """All of it, for a run to go on with."""
        return {"moments": self.history.to_json(), "total": self.total, "count": self.count}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Journal:
        """What `to_json` gave."""
        return cls(History.from_json(saved["moments"]), saved["total"], saved["count"])


def finite(value: float | None) -> float | None:
    """The number, or None in place of NaN and infinity."""
    return value if value is None or math.isfinite(value) else None
