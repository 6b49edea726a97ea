"""The history of a run, one line of JSON per moment, and its progress, shown as a bar in a terminal or notebook."""

import contextlib
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from loca.symmetries import SymmetryReport


@dataclasses.dataclass(frozen=True)
class Moment:
    """A run at one step: the mean loss since the previous moment, and the validation error if it was measured.

    `seconds` is the duration of the run so far, summed over all its parts if it was interrupted and resumed.

    If the loss broke away, the run has returned to its state after step `returned_to`, with half the learning rate. The
    loss is then that of this state, and the validation error too.
    """

    step: int
    loss: float
    validation: float | None
    seconds: float
    returned_to: int | None = None


@dataclasses.dataclass(frozen=True)
class History:
    """The moments of a run, in order, and the evidence for symmetries if these were to be found."""

    moments: tuple[Moment, ...] = ()
    symmetries: SymmetryReport | None = None

    def __iter__(self) -> Iterator[Moment]:
        return iter(self.moments)

    def __len__(self) -> int:
        return len(self.moments)

    def to_lines(self) -> str:
        """One line of JSON per moment, as in the file `history.jsonl` of a run directory."""
        return "".join(json.dumps(row) + "\n" for row in self.to_json())

    @classmethod
    def read(cls, path: Path) -> "History":
        """Read a file of such lines."""
        return cls.from_json([json.loads(line) for line in path.read_text().splitlines()])

    def to_json(self) -> list[dict[str, Any]]:
        """One object per moment. Validation errors that are not finite become null, since JSON cannot hold them."""
        rows = [{**vars(moment), "validation": _finite(moment.validation)} for moment in self.moments]
        return [{name: row[name] for name in row if name != "returned_to" or row[name] is not None} for row in rows]

    @classmethod
    def from_json(cls, rows: list[dict[str, Any]]) -> "History":
        """The inverse of `to_json`."""
        return cls(tuple(Moment(**row) for row in rows))


class HistoryWriter:
    """A history under construction: the moments so far, and the sum and number of the losses since the last."""

    def __init__(self, saved: Mapping[str, Any] | None = None):
        saved = saved or {"moments": [], "total": 0.0, "count": 0}
        self.history = History.from_json(saved["moments"])
        self.total, self.count = saved["total"], saved["count"]

    def add(self, losses: np.ndarray) -> float:
        """Add the losses of some steps; return the mean loss since the last moment."""
        self.total, self.count = add_in_order(self.total, losses), self.count + len(losses)
        return self.total / self.count

    def restart(self, loss: float) -> float:
        """Forget the losses since the last moment: the run has returned to a state with this loss."""
        self.total, self.count = loss, 1
        return loss

    def record(self, step: int, validation: float | None, seconds: float, returned_to: int | None = None) -> None:
        """Append a moment with the mean of the losses since the previous one."""
        moment = Moment(step, self.total / self.count, validation, seconds, returned_to)
        self.history = History((*self.history.moments, moment))
        self.total, self.count = 0.0, 0

    def to_json(self) -> dict[str, Any]:
        """Everything that a resumed run needs."""
        return {"moments": self.history.to_json(), "total": self.total, "count": self.count}


def add_in_order(total: float, losses: np.ndarray) -> float:
    """A sum of losses, added one after the other, so that it does not depend on how a run is divided into calls."""
    return float(np.cumsum([total, *losses], dtype=np.float64)[-1])


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a run.

    `loss` is the mean loss since the last moment of the history; at a moment it is the loss of that moment.
    `steps_per_second` is 0 until it is known.
    """

    step: int
    steps: int
    loss: float
    steps_per_second: float
    history: History

    @property
    def texts(self) -> dict[str, str]:
        """Loss, validation error, steps per second and seconds left as text, "-" where unknown."""
        measured = [moment.validation for moment in self.history if moment.validation is not None]
        rate = self.steps_per_second
        return {
            "loss": f"{self.loss:.2e}",
            "validation": f"{measured[-1]:.4f}" if measured else "-",
            "rate": f"{rate:.0f}" if rate else "-",
            "left": f"{(self.steps - self.step) / rate:.0f}" if rate else "-",
        }

    def rows(self, after: int) -> Iterator[tuple[int, dict[str, float]]]:
        """Steps after a given one with their finite numbers, in order: the moments of the history, and this step."""
        found: dict[int, dict[str, float | None]] = {
            moment.step: {"loss": moment.loss, "validation": moment.validation} for moment in self.history
        }
        now = {"loss": self.loss, "steps_per_second": self.steps_per_second}
        found[self.step] = {**now, **found.get(self.step, {})}
        for step in sorted(step for step in found if step > after):
            yield step, {name: x for name, x in found[step].items() if x is not None and math.isfinite(x)}


LINE_SECONDS = 10.0
"""Seconds between two lines of progress."""

Callback = Callable[[Progress], object]
"""Called with the progress of the run about twice a second; its result is ignored."""


@contextlib.contextmanager
def show_training(*, lines: bool = False) -> Iterator[Callback]:
    """Provide a callback that shows the run as a bar; without a terminal or notebook, as `lines` or not at all."""
    shown = 0

    def update(progress: Progress) -> None:
        nonlocal shown
        for moment in progress.history.moments[shown:]:
            if moment.returned_to is not None:
                what = f"training returned to the state after step {moment.returned_to} with half the learning rate"
                print(f"step {moment.step}: the loss broke away; {what}", flush=True)  # noqa: T201
        shown = len(progress.history)
        step, texts = (progress.step, progress.steps), progress.texts
        line = "step {}/{}: loss {loss}, validation {validation}, {rate} steps/s, {left} s left".format(*step, **texts)
        show(*step, "loss {loss}  validation {validation}  {rate} steps/s".format(**texts), line)

    with show_progress("training", "", lines=lines) as show:
        yield update if show is not nothing else lambda progress: None


def nothing(done: int, total: int, text: str = "", line: str = "") -> None:
    """Show no progress."""


@contextlib.contextmanager
def show_progress(what: str, unit: str = "samples", *, lines: bool = True) -> Iterator[Callable[..., None]]:
    """Provide a function of (done, total) that shows both: as a bar in a terminal or notebook, else as `lines`, if any.

    It also takes a text for the bar, and a whole line.
    """
    from rich.console import Console
    from rich.errors import LiveError
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console()
    columns = TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}")
    bar = Bar(*columns, TimeRemainingColumn(), console=console)
    task, next_time = bar.add_task(what, total=None, text=unit), 0.0

    def move(done: int, total: int, text: str = unit, line: str = "") -> None:
        bar.update(task, completed=done, total=total, text=text)

    def say(done: int, total: int, text: str = unit, line: str = "") -> None:
        nonlocal next_time
        if done == total or time.monotonic() >= next_time:
            print(line or f"{what}: {done}/{total} {text}", flush=True)  # noqa: T201
            next_time = time.monotonic() + LINE_SECONDS

    # not `is_terminal`, which environment variables of continuous integration set for log files as well
    if not (console.is_jupyter or console.file.isatty()):
        yield say if lines else nothing
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(LiveError):  # the caller shows another bar, and a terminal shows one at a time
            stack.enter_context(bar)
        yield move
