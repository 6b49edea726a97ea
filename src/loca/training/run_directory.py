"""The directory of a run, which is saved from time to time, stops on request, and resumes where it was."""

from __future__ import annotations

import contextlib
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
from loca.training.history import HistoryWriter
from loca.training.recovery import Saved
from loca.training.steps import State

S = TypeVar("S", bound=Saved | State)


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

    - `directory`: the directory, for this run only. With None nothing is saved and signals are left alone.
    - `request`: the steps and the fingerprint of the run; a directory with another run is refused.
    - `every_seconds`: time between two checkpoints.
    - `processes`: the processes that carry out the run together.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        request: Mapping[str, Any],
        every_seconds: float,
        processes: ProcessGroup = SINGLE_PROCESS,
    ):
        self.directory = None if directory is None else Path(directory)
        self.request, self.processes = dict(request), processes
        self.checkpoints = None
        if self.directory is not None:
            self.checkpoints = Checkpoints(
                self.directory / "checkpoints", every_seconds=every_seconds, processes=processes
            )
        self._interrupts = Interrupts()
        self._held = contextlib.ExitStack()
        self._written = 0

    def __enter__(self) -> RunDirectory:
        with contextlib.ExitStack() as held:
            if self.checkpoints is not None:
                held.enter_context(self.checkpoints)
                held.enter_context(self._interrupts)
            self._held = held.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._held.__exit__(*error)

    def resume(self, state: S) -> tuple[S, HistoryWriter, float, dict[str, Any] | None]:
        """The last saved state, the history, the seconds spent so far, and the numbers that `update` was given.

        For a new run the given state, and no numbers.
        """
        if self.checkpoints is None or self.checkpoints.latest() is None:
            return state, HistoryWriter(), 0.0, None
        state, extras = self.checkpoints.restore(state)
        if other := difference(extras["request"], self.request, int(state.step)):
            raise ValueError(
                f"the run in {self.directory} {other}; pass the same to resume it, or choose another directory"
            )
        return state, HistoryWriter.from_json(extras["journal"]), extras["seconds"], extras.get("recovery")

    def update(
        self,
        state: Saved | State,
        writer: HistoryWriter,
        seconds: float,
        recovery: Mapping[str, Any] | None = None,
        *,
        last: bool,
    ) -> None:
        """Write new moments, and a checkpoint with the numbers of `recovery` if one is due or this is the last state.

        If a stop was requested, save the state and raise `StoppedError`.
        """
        if self.directory is None or self.checkpoints is None:
            return
        stop = self.processes.any(self._interrupts.requested) and not last
        history, step = writer.history, int(state.step)
        if len(history) != self._written:
            self._written = len(history)
            if self.processes.is_first:
                lines = history.to_lines().encode()
                write_atomically(self.directory / "history.jsonl", lambda file: file.write(lines))
        if last or stop or self.processes.broadcast(self.checkpoints.due):
            journal = writer.to_json()
            extras = {"request": self.request, "journal": journal, "seconds": seconds, "recovery": recovery}
            measured = history.moments[-1].validation if history and history.moments[-1].step == step else None
            self.checkpoints.save(state, step, extras=extras, metric=measured)
        if stop:
            self.checkpoints.wait()
            raise StoppedError(
                f"stopped at step {step} and saved in {self.directory}; repeat the same call to resume",
                self._interrupts.signal or signal.SIGTERM,
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
