"""Several worker processes that share an address and nothing else; those that die are started again."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence

from loca.serving.telemetry import SHARED_METRICS, report

FAILURES = 3
"""Consecutive times that workers may end before they listen."""

COMPILED = {
    "JAX_COMPILATION_CACHE_DIR": "",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""Environment variables with which a worker that is started again finds the programs of the earlier one."""


THREADS = "NPROC"
"""The environment variable with the number of threads of XLA."""


@dataclasses.dataclass(eq=False)
class Worker:
    """A worker process, the connection on which it says that it listens, and whether it has."""

    process: subprocess.Popen[bytes]
    line: socket.socket
    is_listening: bool = False


class Supervisor:
    """Keeps a number of worker processes alive until SIGTERM or Ctrl-C.

    **Arguments:**

    - `command`: starts a worker; `--line` and a number are added to it, see `line_of`.
    - `count`: the number of workers.
    """

    def __init__(self, command: Sequence[str], count: int):
        self.command, self.count = list(command), count
        self.workers: list[Worker] = []
        self.failures, self.is_ending = 0, False

    def run(self) -> int:
        """Run until the end; the exit code is 0 if all workers ended as they should."""
        with tempfile.TemporaryDirectory(prefix="loca-serve-") as directory, self._signals() as awake:
            self.environment = environment_in(directory, self.count)
            while not self.is_ending and self.failures < FAILURES:
                while len(self.workers) < self.count:
                    self.workers.append(self._start())
                lines = [worker.line for worker in self.workers]
                readable, _, _ = select.select([awake, *lines], [], [], 1.0)
                if awake in readable:
                    awake.recv(1024)
                self._look(readable)
            is_complete = self.is_ending
            self._signal(signal.SIGTERM)
            codes = [worker.process.wait() for worker in self.workers]
        return 0 if is_complete and all(code in (0, -signal.SIGTERM) for code in codes) else 1

    def _start(self) -> Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [*self.command, "--line", str(theirs.fileno())], pass_fds=[theirs.fileno()], env=self.environment
            )
        report("worker_started", worker=process.pid)
        return Worker(process, ours)

    def _look(self, readable: Sequence[socket.socket]) -> None:
        """Learn which workers listen and which have ended."""
        for worker in list(self.workers):
            if worker.line in readable and worker.line.recv(1):
                worker.is_listening, self.failures = True, 0
            code = worker.process.poll()
            if code is None:
                continue
            report("worker_ended", worker=worker.process.pid, code=code)
            forget_metrics(worker.process.pid)
            self.failures += not worker.is_listening
            worker.line.close()
            self.workers.remove(worker)

    def _signal(self, number: int) -> None:
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(number)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[socket.socket]:
        """A socket that becomes readable when a signal arrives."""
        awake, waker = socket.socketpair()
        waker.setblocking(False)

        def end(number: int, frame: object) -> None:
            self.is_ending = True

        previous = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
        previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda number, frame: self._signal(number))
        old = signal.set_wakeup_fd(waker.fileno())
        try:
            yield awake
        finally:
            signal.set_wakeup_fd(old)
            for number, handler in previous.items():
                signal.signal(number, handler)
            awake.close()
            waker.close()


def environment_in(directory: str, workers: int) -> dict[str, str]:
    """The environment of workers, which share the cores, and keep compiled programs and metrics in a directory."""
    compiled = {name: os.environ.get(name, value or f"{directory}/compiled") for name, value in COMPILED.items()}
    os.environ[SHARED_METRICS] = f"{directory}/metrics"
    os.mkdir(os.environ[SHARED_METRICS])  # noqa: PTH102 (a string for the environment)
    threads = str(max(1, (os.cpu_count() or 1) // workers))
    return {THREADS: threads, **os.environ, **compiled}


def forget_metrics(worker: int) -> None:
    """Remove what a worker that has ended reported of its present state; its counters stay."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker)
