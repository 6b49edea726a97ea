"""The server process: sockets, reloads, and an end that loses no request."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from loca.serving.application import Application
from loca.serving.connection import Connection
from loca.serving.telemetry import report

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
        self.application.batcher.start()
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
        self.application.batcher.stop()
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
