"""One request and its response, and what is kept of it for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from loca.serving.protocol import Limits, RequestError
from loca.serving.repository import Repository
from loca.serving.served_model import ServedModel

Response = tuple[int, Mapping[bytes, bytes], bytes]
"""Status, headers and body."""


MOST_HEADERS = 256
"""Headers of requests that are kept."""


class Disconnected(Exception):  # noqa: N818 (no error: clients may)
    """The client has closed the connection."""


class Exchange:
    """One request and its response.

    **Arguments:**

    - `scope`, `receive`: of ASGI.
    - `repository`: the models.
    - `limits`: of the request.
    """

    def __init__(self, scope: Scope, receive: Receive, repository: Repository, limits: Limits):
        self.scope, self.receive, self.repository = scope, receive, repository
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.deadline = asyncio.get_running_loop().time() + limits.timeout
        self.model: ServedModel | None = None
        self.is_broken = False
        """Whether the rest of the request will not be read, so that the connection must be closed."""
        self.response: Response = 500, {}, b""

    def find_model(self) -> ServedModel:
        """The model of the path; the request keeps this version."""
        parameters = self.scope["path_params"]
        self.model = self.repository.get(parameters["model"], parameters.get("version"))
        return self.model

    def header_length(self) -> int | None:
        """The length of the JSON before the bytes of tensors; None if there are none."""
        given = self.headers.get(b"inference-header-content-length")
        if given is None:
            return None
        if not given.isdigit() or len(given) > 12:
            raise RequestError(400, "Inference-Header-Content-Length must be the number of bytes of the JSON")
        return int(given)


class Known(NamedTuple):
    """What the header of an inference request says, if its bytes were accepted before.

    **Arguments:**

    - `model`, `version`: of the path.
    - `path`: for logs.
    - `body`: bytes of the body.
    - `length`: bytes of the JSON; None if all is JSON.
    """

    model: str
    version: str | None
    path: str
    body: int
    length: int | None


class KnownHeaders(dict[bytes, Known]):
    """Headers of inference requests that succeeded. The next request with the same bytes needs no parsing."""

    def remember(self, exchange: Exchange, body: int, length: int | None) -> None:
        """Keep the header of a request, unless it says more than where it goes and how long it is."""
        header, place = exchange.scope.get("header"), exchange.scope["path_params"]
        if header is None or not is_plain(exchange.scope, body):
            return
        if len(self) >= MOST_HEADERS:
            self.clear()
        self[header] = Known(place["model"], place.get("version"), exchange.scope["path"], body, length)


def is_plain(scope: Scope, body: int) -> bool:
    """Whether a header says no more than where a request goes and how long its body is."""
    fields: dict[bytes, bytes] = dict(scope["headers"])
    return (
        fields.get(b"content-length") == str(body).encode()
        and fields.get(b"connection", b"keep-alive").lower() == b"keep-alive"
        and not fields.keys() & {b"transfer-encoding", b"expect", b"upgrade"}
        and len(fields) == len(scope["headers"])  # none is given twice
        and scope["http_version"] == "1.1"
    )


class Endpoint:
    """A function of the application as the end of a route."""

    def __init__(self, function: Callable[[Exchange], Awaitable[Response]]):
        self.function = function

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Keep the response for the application, which sends it."""
        exchange = scope["exchange"]
        exchange.response = await self.function(exchange)


def document(value: Any, status: int = 200) -> Response:
    """A JSON response."""
    return status, {}, to_json(value)


def extra_headers(status: int) -> dict[bytes, bytes]:
    """The headers that a status needs."""
    if status == HTTPStatus.UNAUTHORIZED:
        return {b"www-authenticate": b"Bearer"}
    return {b"retry-after": b"1"} if status == HTTPStatus.TOO_MANY_REQUESTS else {}
