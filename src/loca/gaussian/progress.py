"""Lines of progress on stderr."""

from __future__ import annotations

import sys
import time

SECONDS = 5.0
"""Between lines that need not be printed now; the first of them is."""


class Lines:
    """Print lines on stderr if `on`."""

    def __init__(self, on: bool):
        self.on, self.is_terminal, self.due = on, sys.stderr.isatty(), 0.0

    def __call__(self, text: str, *, now: bool = False) -> None:
        """Print a line if the last one is old, or if it is to be printed `now`."""
        moment = time.monotonic()
        if self.on and (now or moment >= self.due):
            self.due = self.due if now else moment + SECONDS
            print(text, file=sys.stderr, flush=True)  # noqa: T201

    def iteration(self, count: int, residual: float) -> None:
        """Print how far an iteration is."""
        self(f"iteration {count}, residual {residual:.1e}")
