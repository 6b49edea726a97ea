"""The directory of a run, which is saved from time to time, stops on request, and resumes where it was."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from loca.devices import SINGLE_PROCESS, ProcessGroup
from loca.durable import write_atomically
from loca.training.checkpoints import Checkpoints
from loca.training.fingerprint import difference
from loca.training.history import History
from loca.typing import PyTree

S = TypeVar("S", bound=PyTree)


class StoppedError(Exception):
    """A run was stopped by SIGTERM or Ctrl-C after saving its state. The same call resumes it.

    **Arguments:**

    - `message`: the step, and where the state is saved.
    - `signal`: the number of the signal.
    """

    def __init__(self, message: str, signal: int = signal.SIGTERM):
        super().__init__(message)
        self.signal = signal


class RunDirectory:
    """Saves a run in `checkpoints/` and its history in `history.jsonl`, one line per moment.

    **Arguments:**

    - `directory`: the directory, for this run only.
    - `request`: the steps and the fingerprint of the run; a directory with another run is refused.
    - `every_seconds`: time between two checkpoints.
    - `processes`: the processes that carry out the run together.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        request: Mapping[str, Any],
        every_seconds: float,
        processes: ProcessGroup = SINGLE_PROCESS,
    ):
        self.directory, self.request, self.processes = Path(directory), dict(request), processes
        self.checkpoints = Checkpoints(self.directory / "checkpoints", every_seconds=every_seconds, processes=processes)
        self._written = 0

    def __enter__(self) -> RunDirectory:
        self.checkpoints.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.checkpoints.__exit__(*error)

    def resume(self, like: S) -> tuple[S, dict[str, Any] | None]:
        """The last saved state, and what `update` was given with it; `like` and None for a new run."""
        extras = self.checkpoints.extras()
        if extras is None:
            return like, None
        if other := difference(extras.pop("request"), self.request, extras["step"]):
            raise ValueError(
                f"the run in {self.directory} {other}; pass the same to resume it, or choose another directory"
            )
        return self.checkpoints.restore(like), extras

    def update(
        self, state: PyTree, history: History, extras: Mapping[str, Any], *, last: bool, stop: Interrupts | None
    ) -> None:
        """Write new moments, and a checkpoint if one is due or this is the last state.

        **Arguments:**

        - `state`: the arrays to save.
        - `extras`: what else to save, with the number of the step as `step`.
        - `last`: whether the run ends here.
        - `stop`: the request to save at once and raise `StoppedError`, if there is one.
        """
        if len(history) != self._written and self.processes.is_first:
            lines = history.to_lines().encode()
            write_atomically(self.directory / "history.jsonl", lambda file: file.write(lines))
        self._written = len(history)
        if last or stop is not None or self.processes.broadcast(self.checkpoints.due):
            self.checkpoints.save(state, extras["step"], extras={"request": self.request, **extras})
        if stop is not None:
            self.checkpoints.wait()
            raise StoppedError(
                f"stopped at step {extras['step']} and saved in {self.directory}; repeat the same call to resume",
                stop.signal or signal.SIGTERM,
            )


class Interrupts:
    """Turns SIGTERM and Ctrl-C into a flag, so that a loop can finish its step; a second Ctrl-C interrupts at once.

    Use `with Interrupts() as interrupts:` and check `interrupts.requested` between steps; `interrupts.signal` is the
    number of the first signal. Previous signal handlers are restored on exit. Outside the main thread, where Python
    allows no signal handlers, the flag is never set.
    """

    def __init__(self) -> None:
        self.requested = False
        self.signal: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *error: Any) -> None:
        while self._before:
            number, handler = self._before.popitem()
            # None: the handler was not installed by Python, so it cannot be restored
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = self.signal or number
        self.requested = True
