"""The server process: sockets, deadlines of connections, reloads, and an end that loses no request."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from loca.serving.application import Application
from loca.serving.telemetry import report

HEADER_BYTES = 2**15
"""Bytes of a request before its body, at most."""

KEEP_ALIVE = 75
"""Seconds that a connection may be idle between requests."""

GRACE = 2.0
"""Seconds in which clients that send requests all the time receive their last response on a connection."""

POLL = 1.0
"""Seconds between looks at the files of models."""


class Connection(HttpToolsProtocol):
    """A connection whose requests must be complete in time, and whose headers must be short."""

    def connection_made(self, transport: Any) -> None:
        """Begin, or refuse to, if too many connections are open."""
        super().connection_made(transport)
        assert isinstance(self.config.app, Application)
        self.application, self.limits = self.config.app, self.config.app.limits
        self._is_in_headers, self._header_bytes = True, 0
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(self.limits.timeout, self._expire)
        if len(self.connections) > self.limits.connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, but no headers without end."""
        super().data_received(data)
        if self._is_in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES:
                self._refuse(431, f"the header has more than {HEADER_BYTES} bytes", "header")

    def on_message_begin(self) -> None:
        """A request begins; its headers must be complete in time."""
        super().on_message_begin()
        self._is_in_headers, self._header_bytes = True, 0
        self._stop_timer()
        self._timer = self.loop.call_later(self.limits.timeout, self._expire)

    def on_headers_complete(self) -> None:
        """A body may follow, which must be complete at the same time."""
        super().on_headers_complete()
        self._is_in_headers = False

    def on_message_complete(self) -> None:
        """The request is complete."""
        super().on_message_complete()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """The request is not complete in time: it is refused, and the application learns that it ended."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_started and not self._is_in_headers:
            self._refuse(408, f"the body did not arrive within {self.limits.timeout:g} s", "slow_body")
            cycle.disconnected = True
            cycle.message_event.set()
        elif self._is_in_headers and self._header_bytes:
            self._refuse(408, f"the header did not arrive within {self.limits.timeout:g} s", "slow_header")
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: int, reason: str, kind: str) -> None:
        if self.transport.is_closing():
            return
        self.application.metrics.refusals.labels(kind).inc()
        self.application.metrics.count("", status, 0.0)
        body = to_json({"error": reason})
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        self.transport.close()


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
