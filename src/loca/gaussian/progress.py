"""Lines of progress on stderr."""

from __future__ import annotations

import sys
import time

SECONDS = 5.0
"""Between lines that need not be printed now; the first of them is."""


class Lines:
    """Print lines on stderr if `on`."""

    def __init__(self, on: bool):
        self.on, self.is_terminal, self.due, self.last = on, sys.stderr.isatty(), 0.0, ""

    def __call__(self, text: str, *, now: bool = False) -> None:
        """Print a line if the last one is old, or if it is to be printed `now`; the same one only once."""
        moment = time.monotonic()
        if self.on and text != self.last and (now or moment >= self.due):
            self.due, self.last = self.due if now else moment + SECONDS, text
            print(text, file=sys.stderr, flush=True)  # noqa: T201

    def iteration(self, count: int, residual: float) -> None:
        """Print how far an iteration is."""
        self(f"iteration {count}, residual {residual:.1e}")
