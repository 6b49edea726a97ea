"""Progress of long commands: a bar in a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from loca.training import Progress, progress_bar

LINE_SECONDS = 10.0
"""The time between lines where there is no terminal."""


@contextlib.contextmanager
def show_progress(what: str, unit: str = "samples") -> Iterator[Callable[[int, int], None]]:
    """Provide a function of (done, total) that shows both."""
    if Console().is_terminal:
        with Bar(TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeRemainingColumn()) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        due = every_few_seconds()

        def show(done: int, total: int) -> None:
            if due(done == total):
                print(f"{what}: {done}/{total} {unit}", flush=True)

        yield show


@contextlib.contextmanager
def show_training() -> Iterator[Callable[[Progress], object]]:
    """Provide a callback for `fit` that shows loss, validation error, steps per second and the time left."""
    if sys.stdout.isatty():
        with progress_bar() as show:
            yield show
        return
    due, shown = every_few_seconds(), 0

    def show_line(progress: Progress) -> None:
        nonlocal shown
        for moment in progress.history.moments[shown:]:
            if moment.returned_to is not None:
                print(moment, flush=True)
        shown = len(progress.history)
        if due(progress.step == progress.steps):
            text = progress.texts
            print(
                f"step {progress.step}/{progress.steps}: loss {text['loss']}, validation {text['validation']}, "
                f"{text['rate']} steps/s, {text['left']} s left",
                flush=True,
            )

    yield show_line


def every_few_seconds() -> Callable[[bool], bool]:
    """A function that returns whether to print now: first, last, and every few seconds between."""
    next_time = 0.0

    def due(is_last: bool) -> bool:
        nonlocal next_time
        now = time.monotonic()
        if now < next_time and not is_last:
            return False
        next_time = now + LINE_SECONDS
        return True

    return due
