"""A connection: deadlines, limits of headers, and a short way for requests that are sent again with other numbers."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from loca.serving.application import Application
from loca.serving.batching import Job, Results
from loca.serving.exchange import Response
from loca.serving.protocol import Plan, RequestError, raw_values

HEADER_BYTES = 2**15
"""Bytes of a request before its body, at most."""

LONGEST_HEADER = 2**11
"""Bytes of a header that can be known."""

END = b"\r\n\r\n"
"""Between the header of a request and its body."""


class Connection(HttpToolsProtocol):
    """A connection whose requests must be complete in time, and whose headers must be short.

    Programs send the same header again and again, with other numbers in the body. If a header is known to the
    application, its requests are answered without parsing it and without a task of their own. All others are left to
    uvicorn and to the application, and so are those with a defective body.
    """

    def connection_made(self, transport: Any) -> None:
        """Begin, or refuse to, if too many connections are open."""
        super().connection_made(transport)
        assert isinstance(self.config.app, Application)
        self.application, self.limits = self.config.app, self.config.app.limits
        self._is_in_headers, self._header_bytes = True, 0
        self._is_between = True  # requests
        self._header: bytes | None = None  # of the request that is parsed, if it came in one piece
        self._first = b""  # a known header whose body has not arrived
        self._job: Job | None = None
        self._early: list[bytes] = []  # what arrived before the response
        self._used = 0.0  # the time of the last response
        self._default_headers: list[tuple[bytes, bytes]] = []
        self._first_lines = b""  # of a response, with these headers
        self._timer: asyncio.TimerHandle | None = self.loop.call_later(self.limits.timeout, self._expire)
        if len(self.connections) > self.limits.connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_timer()
        if self._job is not None:
            self.application.batcher.cancel(self._job)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Answer a request whose header is known, or parse it."""
        if self._job is not None:
            self._early.append(data)
            self.flow.pause_reading()
            return
        if self._is_between and (self.cycle is None or self.cycle.response_complete):
            data, self._first = self._first + data, b""
            if self._answer(data):
                return
        self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse bytes, but no headers without end."""
        super().data_received(data)
        if self._is_in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES:
                self._refuse(431, f"the header has more than {HEADER_BYTES} bytes", "header")

    def _answer(self, data: bytes) -> bool:
        """Whether bytes are a request with a known header, or begin one. If so, it is answered."""
        end = data.find(END, 0, LONGEST_HEADER)
        header = self._header = None if end < 0 else data[:end]
        known = None if header is None else self.application.known_headers.get(header)
        if known is None or self.flow.write_paused:
            return False
        start = end + len(END)
        if len(data) == start:  # some programs send the body by itself
            self._first = data
            self._unset_keepalive_if_required()
            self._start_timer()
            return True
        if len(data) != start + known.body:
            return False
        began, deadline = time.perf_counter(), self.loop.time() + self.limits.timeout
        try:
            model = self.application.repository.get(known.model, known.version)
            request, work = self.application.prepare(model, data[start:], known.length)
            respond = functools.partial(self._respond, request.plan, known.path, began)
            self._job = self.application.batcher.submit(model, work, deadline, respond)
        except RequestError:
            return False  # the application refuses it again, and says why
        self._stop_timer()
        return True

    def _respond(self, plan: Plan, path: str, began: float, outcome: Results | Exception) -> None:
        """Send the results of a job, or its error."""
        job, self._job = self._job, None
        if job is None or self.transport.is_closing():
            return
        status, error, is_last = 200, "", self.application.is_draining
        is_plain = not (is_last or job.work.notes)
        try:
            if isinstance(outcome, Exception):
                raise outcome
            if is_plain and plan.start is not None:
                self.transport.write(b"".join([self._ok(), plan.start, *raw_values(plan, outcome).values()]))
            else:
                response = self.application.complete(plan, job.model, job.work, outcome)
                plan.start = start_of(plan, self.application.fields(response), response) if is_plain else None
                self._send(response, is_last=is_last)
        except Exception as failure:  # noqa: BLE001 (no traceback may reach a client)
            response, error = self.application.failed(failure, path)
            status = response[0]
            self._send(response, is_last=is_last)
        about = {"method": "POST", "path": path, "client": self.client}
        self.application.record(job.model, status, time.perf_counter() - began, error, about)
        self._used = self.loop.time()
        if self.timeout_keep_alive_task is None or self._early:
            self.on_response_complete()
        early, self._early = b"".join(self._early), []
        if early and not self.transport.is_closing():
            self.data_received(early)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was not used. Requests with known headers leave the timer as it is."""
        idle = 0.0 if self._job is not None else self.loop.time() - self._used
        if idle >= self.timeout_keep_alive:
            super().timeout_keep_alive_handler()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive - idle, self.timeout_keep_alive_handler
            )

    def _ok(self) -> bytes:
        """The first lines of a response that is no error; they contain the date and change every second."""
        if self._default_headers is not self.server_state.default_headers:
            self._default_headers = self.server_state.default_headers
            self._first_lines = STATUS_LINE[200] + lines_of(self._default_headers)
        return self._first_lines

    def _send(self, response: Response, *, is_last: bool) -> None:
        """Write a response at once."""
        fields = [*self.server_state.default_headers, *self.application.fields(response, is_last=is_last)]
        self.transport.write(b"".join([STATUS_LINE[response[0]], lines_of(fields), b"\r\n", response[2]]))
        if is_last:
            self.transport.close()

    def shutdown(self) -> None:
        """End, after the response to a request that has begun."""
        if self._job is None and not self._first:
            super().shutdown()

    def on_message_begin(self) -> None:
        """A request begins; its headers must be complete in time."""
        super().on_message_begin()
        self._is_between, self._is_in_headers, self._header_bytes = False, True, 0
        self._start_timer()

    def on_headers_complete(self) -> None:
        """A body may follow, which must be complete at the same time."""
        super().on_headers_complete()
        self._is_in_headers = False
        self.scope["header"], self._header = self._header, None  # pyright: ignore[reportGeneralTypeIssues]

    def on_message_complete(self) -> None:
        """The request is complete."""
        super().on_message_complete()
        self._is_between = True
        self._stop_timer()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.limits.timeout, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """The request is not complete in time: it is refused, and the application learns that it ended."""
        cycle = self.cycle
        is_body_missing = cycle is not None and not cycle.response_started and not self._is_in_headers
        if is_body_missing or self._first:
            self._refuse(408, f"the body did not arrive within {self.limits.timeout:g} s", "slow_body")
            if is_body_missing:
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
        self._send((status, {}, to_json({"error": reason})), is_last=True)


def lines_of(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Fields of a header as they are sent."""
    return b"".join([b"%b: %b\r\n" % field for field in fields])


def start_of(plan: Plan, fields: Iterable[tuple[bytes, bytes]], response: Response) -> bytes | None:
    """What the responses to a plan have in common; None if values are part of the JSON."""
    if not all(plan.outputs.values()):
        return None
    _, headers, body = response
    return b"".join([lines_of(fields), b"\r\n", body[: int(headers[b"inference-header-content-length"])]])
