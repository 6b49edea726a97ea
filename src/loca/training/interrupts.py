"""Being asked to stop: by the system (SIGTERM) or by the user (Ctrl-C)."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """Turns SIGTERM and Ctrl-C into a flag, so that a loop can end in order; a second Ctrl-C ends it at once.

    `with Interrupts() as interrupts:` and ask `interrupts.requested` between steps. Leaving gives the signals back to
    whoever had them. Outside the main thread, where Python allows no signals, the flag is never set.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._before:
            number, handler = self._before.popitem()
            # None: whoever it was is not of Python and cannot be named
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
