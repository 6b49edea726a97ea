"""The progress of a training run, and a bar that shows it in a terminal or a notebook."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from loca.training.history import History


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
    def seconds_left(self) -> float:
        """The remaining time at the current speed."""
        return (self.steps - self.step) / self.steps_per_second if self.steps_per_second else float("inf")

    @property
    def texts(self) -> dict[str, str]:
        """Loss, validation error, steps per second and seconds left as text, "-" where unknown."""
        measured = [moment.validation for moment in self.history if moment.validation is not None]
        return {
            "loss": f"{self.loss:.2e}",
            "validation": f"{measured[-1]:.4f}" if measured else "-",
            "rate": f"{self.steps_per_second:.0f}" if self.steps_per_second else "-",
            "left": f"{self.seconds_left:.0f}" if self.steps_per_second else "-",
        }


Callback = Callable[[Progress], object]
"""Called with the progress of the run about twice a second; its result is ignored."""


@contextlib.contextmanager
def progress_bar() -> Iterator[Callback]:
    """Provide a callback that shows the run as a bar; without a terminal or notebook it does nothing."""
    from rich.console import Console
    from rich.errors import LiveError
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console()
    # not `is_terminal`, which environment variables of continuous integration set for log files as well
    if not (console.is_jupyter or console.file.isatty()):
        yield lambda progress: None
        return
    fields = "loss {task.fields[loss]}  validation {task.fields[validation]}  {task.fields[rate]} steps/s"
    columns = TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn(fields), TimeRemainingColumn()
    bar = Bar(*columns, console=console)
    task = bar.add_task("training", total=None, loss="", validation="", rate="")

    shown = 0

    def show(progress: Progress) -> None:
        nonlocal shown
        for moment in progress.history.moments[shown:]:
            if moment.returned_to is not None:
                bar.console.print(str(moment))
        shown = len(progress.history)
        texts: dict[str, Any] = dict(progress.texts)
        bar.update(task, completed=progress.step, total=progress.steps, **texts)

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(LiveError):  # the caller shows another bar, and a terminal shows one at a time
            stack.enter_context(bar)
        yield show
