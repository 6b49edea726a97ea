"""A run that survives: saved now and then, stopped in order, found again where it was."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from loca.devices import SINGLE_PROCESS, ProcessGroup
from loca.durable import write_atomically
from loca.training.checkpoints import Checkpoints
from loca.training.history import Journal
from loca.training.interrupts import Interrupts
from loca.training.step import State


class StoppedError(Exception):
    """A run was asked to stop, by SIGTERM or Ctrl-C, and has saved where it was; the same call goes on from there."""


class Keeper(abc.ABC):
    """What a run does besides training; a context manager."""

    @abc.abstractmethod
    def __enter__(self) -> Keeper: ...

    @abc.abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abc.abstractmethod
    def resume(self, state: State) -> tuple[State, Journal, float]:
        """Where the run was, what had happened and how many seconds it had taken; if it was nowhere, the beginning."""

    @abc.abstractmethod
    def keep(self, state: State, journal: Journal, seconds: float, *, last: bool) -> None:
        """Save the run if it is time to, or the last state of all; raises `StoppedError` if it was asked to stop."""


class Nowhere(Keeper):
    """Keeps nothing: the run of somebody who waits for it."""

    def __enter__(self) -> Nowhere:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def resume(self, state: State) -> tuple[State, Journal, float]:
        return state, Journal(), 0.0

    def keep(self, state: State, journal: Journal, seconds: float, *, last: bool) -> None:
        pass


class Directory(Keeper):
    """Keeps a run in a directory: `checkpoints/`, and `history.jsonl` with a line for each moment.

    **Arguments:**

    - `directory`: of this run and no other.
    - `request`: what makes the run what it is, as JSON; a directory with another is refused.
    - `every_seconds`: how much time lies between two checkpoints.
    - `crew`: the processes that make this run together.
    """

    def __init__(
        self, directory: Path, request: Mapping[str, Any], every_seconds: float, crew: ProcessGroup = SINGLE_PROCESS
    ):
        self.directory, self.request, self.crew = directory, dict(request), crew
        self.checkpoints = Checkpoints(directory / "checkpoints", every_seconds=every_seconds, crew=crew)
        self.interrupts = Interrupts()
        self.held = contextlib.ExitStack()
        self.told = 0

    def __enter__(self) -> Directory:
        with contextlib.ExitStack() as held:
            held.enter_context(self.checkpoints)
            held.enter_context(self.interrupts)
            self.held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.held.__exit__(kind, error, trace)

    def resume(self, state: State) -> tuple[State, Journal, float]:
        if self.checkpoints.latest() is None:
            return state, Journal(), 0.0
        state, extras = self.checkpoints.restore(state)
        for name, asked in self.request.items():
            if extras["request"].get(name) != asked:
                raise ValueError(
                    f"the run in {self.directory} has {name}={extras['request'].get(name)}, but {name}={asked} was "
                    "asked for; give the same to go on with it, or choose another directory"
                )
        return state, Journal.from_json(extras["journal"]), extras["seconds"]

    def keep(self, state: State, journal: Journal, seconds: float, *, last: bool) -> None:
        stop = self.crew.any(self.interrupts.requested) and not last
        if len(journal.history) != self.told:
            self.told = len(journal.history)
            if self.crew.is_first:
                lines = journal.history.to_lines().encode()
                write_atomically(self.directory / "history.jsonl", lambda file: file.write(lines))
        if last or stop or self.crew.broadcast(self.checkpoints.due):
            moments = journal.history.moments
            extras = {"request": self.request, "journal": journal.to_json(), "seconds": seconds}
            step = int(state.step)
            measured = moments[-1].validation if moments and moments[-1].step == step else None
            self.checkpoints.save(state, step, extras=extras, metric=measured)
        if stop:
            self.checkpoints.wait()
            raise StoppedError(
                f"stopped at step {int(state.step)} and saved in {self.directory}; run the same to go on"
            )
