"""Processes that start in a moment: forked from one that has imported everything and has touched no device.

Run as a program, this is that process: it reads lines such as `["train", "DIRECTORY", 100]`, calls the function of
`lives` of that name in a fork of itself, and answers with the fork's number and, in the end, its exit status.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATIENCE = 300.0
"""Seconds after which a process that says nothing must hang."""


class Zygote:
    """Starts the functions of `lives`, one at a time."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process

    def start(self, name: str, directory: Path, *more: Any) -> "Life":
        log(directory).unlink(missing_ok=True)
        self._write(json.dumps([name, str(directory), *more]))
        return Life(self, int(self.read()), directory)

    def do(self, name: str, directory: Path, *more: Any) -> list[dict[str, Any]]:
        """Start it, see it end well, and return what it told."""
        life = self.start(name, directory, *more)
        assert life.status() == 0, log(directory).read_text()
        return life.told()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _write(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()


class Life:
    """A process that lives, and what it tells in the file beside its directory."""

    def __init__(self, zygote: Zygote, pid: int, directory: Path):
        self.zygote, self.pid, self.directory = zygote, pid, directory

    def told(self) -> list[dict[str, Any]]:
        """What it has reported so far."""
        if not log(self.directory).exists():
            return []
        whole, _, _ = log(self.directory).read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def until(self, enough: Any) -> list[dict[str, Any]]:
        """What it has told when that is enough."""
        deadline = time.monotonic() + PATIENCE
        while not enough(told := self.told()):
            assert not (told and "error" in told[-1]), told[-1]["error"]
            assert time.monotonic() < deadline, f"{self.directory} tells nothing new"
            time.sleep(0.005)
        return told

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        assert self.status() == signal.SIGKILL, log(self.directory).read_text()

    def status(self) -> int:
        """Wait until it has ended: 0, the signal that killed it, or else an error."""
        return int(self.zygote.read())


def log(directory: Path) -> Path:
    return Path(f"{directory}.log")


@contextlib.contextmanager
def zygote(environment: dict[str, str] | None = None) -> Iterator[Zygote]:
    """Start the process that others are forked from."""
    line = [sys.executable, "-W", "ignore", __file__]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | (environment or {})
    ) as process:
        yield Zygote(process)
        assert process.stdin is not None
        process.stdin.close()


def serve() -> None:
    import lives
    from jax._src import xla_bridge

    assert not xla_bridge.backends_are_initialized(), "importing loca has touched a device: its forks would hang"
    for line in sys.stdin:
        name, directory, *more = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(live(getattr(lives, name), Path(directory), more))
        say(pid)
        say(os.waitpid(pid, 0)[1])


def say(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def live(function: Any, directory: Path, arguments: list[Any]) -> int:
    """Call a function with a way to report, and without a way back; tell of its errors."""
    file = os.open(log(directory), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def report(**facts: Any) -> None:
        os.write(file, json.dumps(facts).encode() + b"\n")

    try:
        function(report, directory, *arguments)
    except BaseException:  # noqa: BLE001
        report(error=traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    serve()
