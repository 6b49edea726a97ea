"""Progress of long work: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_SECONDS = 10.0
"""How long a log waits for its next line."""


@contextlib.contextmanager
def shown(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function of (done, total) that shows both."""
    if Console().is_terminal:
        with Progress(
            TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("samples"), TimeRemainingColumn()
        ) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield lines(what)


def lines(what: str) -> Callable[[int, int], None]:
    """Print the first and the last state, and one every few seconds between."""
    due = 0.0

    def show(done: int, total: int) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due or done == total:
            due = now + LINE_SECONDS
            print(f"{what}: {done}/{total} samples", flush=True)

    return show
