"""The server process, and a supervisor of several that share an address and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn

from loca.serving.application import Application
from loca.serving.connection import Connection
from loca.serving.telemetry import SHARED_METRICS, report

FAILURES = 3
"""Consecutive times that workers may end before they listen."""

COMPILED = {
    "JAX_COMPILATION_CACHE_DIR": "",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
"""Environment variables with which a worker that is started again finds the programs of the earlier one."""

SHORTEST_TOKEN = 16
"""Characters of a token, at least."""

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


KEEP_ALIVE = 75
"""Seconds that a connection may be idle between requests."""

GRACE = 2.0
"""Seconds in which clients that send requests all the time receive their last response on a connection."""

POLL = 1.0
"""Seconds between looks at the files of models."""


class Server(uvicorn.Server):
    """A server that answers every request it has accepted before it ends, and reloads models.

    **Arguments:**

    - `config`: of uvicorn.
    - `application`: the application.
    - `line`: the connection to the supervisor of several workers; None for a single process.
    """

    def __init__(self, config: uvicorn.Config, application: Application, line: socket.socket | None = None):
        super().__init__(config)
        self.application, self.line = application, line
        self._reload_now = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """SIGTERM and Ctrl-C end the server after the last response, SIGHUP looks for changed models now."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        loop.add_signal_handler(signal.SIGHUP, self._reload_now.set)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and say so."""
        self.application.start()
        await super().startup(sockets)
        self._watcher = asyncio.create_task(self._watch())
        host, port = (sockets or self.servers[0].sockets)[0].getsockname()[:2]
        scheme = "https" if self.config.is_ssl else "http"
        report("listening", address=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        if self.line is not None:
            self.line.setblocking(False)
            self.line.send(b"1")
            asyncio.get_running_loop().add_reader(self.line, self._supervisor_ended)

    def _supervisor_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self.line)  # pyright: ignore[reportArgumentType]
        self.should_exit = True

    async def _watch(self) -> None:
        """Refresh the models now and then, in another thread."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reload_now.wait(), POLL)
            self._reload_now.clear()
            await asyncio.to_thread(self.application.repository.refresh)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, answer requests on open ones for a moment, and end.

        A connection that is idle may be about to receive a request, which would be lost if it were closed. So its next
        response says that it is the last one, and only connections that are idle all the time are closed.
        """
        report("draining", connections=len(self.server_state.connections))
        self.application.is_draining = True
        for server in self.servers:
            server.close()
        end = time.monotonic() + GRACE
        while self.server_state.connections and time.monotonic() < end and not self.force_exit:
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)
        self._watcher.cancel()
        self.application.stop()
        if self.application.tracing is not None:
            self.application.tracing.stop()
        report("stopped")


def serve(
    application: Application,
    listener: socket.socket,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    line: socket.socket | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    **Arguments:**

    - `application`: the application, with all its models loaded.
    - `listener`: a bound socket, see `bind`.
    - `certificate`, `key`: files for TLS; without them, connections are not encrypted.
    - `line`: the connection to a supervisor.
    """
    config = uvicorn.Config(
        application,
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=int(application.limits.timeout) + 5,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    Server(config, application, line).run(sockets=[listener])


def bind(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A socket at an address.

    **Arguments:**

    - `host`, `port`: the address; port 0 for any that is free.
    - `is_shared`: whether several processes may bind the same address, and the system distributes connections.
    """
    found = None
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(address)
    except OSError as error:
        if found is not None:
            found.close()
        raise ValueError(f"cannot listen at {host}:{port}: {error.strerror}; choose another --host or --port") from None
    return found


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """The tokens of a file, one per line; lines that start with # are comments."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    tokens = tuple(line.encode() for line in lines if line and not line.startswith("#"))
    if not tokens or min(map(len, tokens)) < SHORTEST_TOKEN:
        raise ValueError(
            f"{path} must hold one token of at least {SHORTEST_TOKEN} characters per line; make one with "
            '`python -c "import secrets; print(secrets.token_urlsafe(32))"`'
        )
    return tokens


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(entry[4][0]).partition("%")[0]).is_loopback for entry in found)


def line_of(descriptor: int) -> socket.socket:
    """The connection of a worker process to its supervisor, from the number of its file."""
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)
