"""Progress of long work: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from loca.training import Progress

LINE_SECONDS = 10.0
"""How long a log waits for its next line."""


@contextlib.contextmanager
def shown(what: str, unit: str = "samples") -> Iterator[Callable[[int, int], None]]:
    """A function of (done, total) that shows both."""
    if Console().is_terminal:
        with Bar(TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn()) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield lines(what, unit)


def lines(what: str, unit: str) -> Callable[[int, int], None]:
    """Print the first and the last state, and one every few seconds between."""
    due = 0.0

    def show(done: int, total: int) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due or done == total:
            due = now + LINE_SECONDS
            print(f"{what}: {done}/{total} {unit}", flush=True)

    return show


@contextlib.contextmanager
def training_shown() -> Iterator[Callable[[Progress], None]]:
    """A callback for `fit`: a bar with loss, validation error, steps per second and time left, or lines of the same."""
    if not Console().is_terminal:
        yield training_lines()
        return
    fields = "loss {task.fields[loss]}  validation {task.fields[validation]}  {task.fields[rate]} steps/s"
    with Bar(
        TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn(fields), TimeRemainingColumn()
    ) as bar:
        task = bar.add_task("training", total=None, loss="", validation="", rate="")

        def show(progress: Progress) -> None:
            said = numbers(progress)
            bar.update(
                task,
                completed=progress.step,
                total=progress.steps,
                loss=said["loss"],
                validation=said["validation"],
                rate=said["rate"],
            )

        yield show


def training_lines() -> Callable[[Progress], None]:
    """Print a line every few seconds, and at the end."""
    due = 0.0

    def show(progress: Progress) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due or progress.step == progress.steps:
            due = now + LINE_SECONDS
            said = numbers(progress)
            print(
                f"step {progress.step}/{progress.steps}: loss {said['loss']}, validation {said['validation']}, "
                f"{said['rate']} steps/s, {said['left']} s left",
                flush=True,
            )

    return show


def numbers(progress: Progress) -> dict[str, str]:
    """What is shown of a run, as text."""
    measured = [moment.validation for moment in progress.history if moment.validation is not None]
    return {
        "loss": f"{progress.loss:.2e}",
        "validation": f"{measured[-1]:.4f}" if measured else "-",
        "rate": f"{progress.steps_per_second:.0f}" if progress.steps_per_second else "-",
        "left": f"{progress.seconds_left:.0f}" if progress.steps_per_second else "-",
    }
