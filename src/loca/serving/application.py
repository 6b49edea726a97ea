"""The web application: routes, tokens, limits, and errors as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hmac
import logging
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loca.models import LEVEL
from loca.serving.batching import Batcher, Results
from loca.serving.datasets import DATASET, description, parse_dataset, write_dataset
from loca.serving.metrics import Metrics, report
from loca.serving.model import ServedModel
from loca.serving.protocol import RequestError, parse_json, parse_request, to_json, write_response
from loca.serving.repository import Repository, fingerprint_of

POLL = 1.0
"""Seconds between looks at the files of models and tokens."""

GRACE = 1.0
"""Seconds in which clients that send requests all the time receive their last response on a connection."""

SHORTEST_TOKEN = 16
"""Characters of a token, at least."""

INFER = re.compile(r"/v2/models/(?P<model>[^/]+)(/versions/(?P<version>[^/]+))?/infer")
"""The paths of inference requests."""

JSON, BINARY = b"application/json", b"application/octet-stream"

OPEN = ("/v2/health/live", "/v2/health/ready")
"""Paths that need no token: balancers and Kubernetes send none."""

EXTENSIONS = ["binary_tensor_data", "model_repository(index)"]
"""Extensions of the protocol; of the last one, only the list of models."""


class Settings(BaseModel):
    """What a server serves, to whom, and what a request may cost.

    **Arguments:**

    - `models`: run directories, model files, or directories with NAME/ or NAME/VERSION/ inside.
    - `at`: a file with the fixed queries of all models; by default those that their training data shared.
    - `level`: of bands.
    - `refuse_unfamiliar`: the p-value below which inputs are refused; None if they never are.
    - `tokens`: a file with tokens, one per line, one of which must come with every request except for health checks.
    - `classes`: your own classes that models are made of, as MODULE:CLASS.
    - `max_body`: bytes of a request.
    - `max_values`: numbers in an input, or in all outputs of a response together.
    - `max_queries`: locations in a request.
    - `max_queue`: input functions that wait or run.
    - `timeout`: seconds from the header of a request to its response.
    """

    models: list[Path]
    at: Path | None = None
    level: float = LEVEL
    refuse_unfamiliar: float | None = None
    tokens: Path | None = None
    classes: list[str] = []
    max_body: int = 2**22
    max_values: int = 2**22
    max_queries: int = 2**14
    max_queue: int = 1024
    timeout: float = 10.0


class Tokens:
    """The tokens in a file, one per line; lines that start with # are comments. Without a file, none is needed."""

    def __init__(self, path: Path | None):
        self.path, self._known, self._seen = path, [], ()
        self.refresh()

    def refresh(self) -> None:
        """Read the file if it has changed; raise `ValueError` if it holds no tokens, and keep those before."""
        if self.path is None or (seen := fingerprint_of(self.path)) == self._seen:
            return
        self._seen: tuple[int, ...] = seen
        lines = [line.strip().encode() for line in self.path.read_text(encoding="utf-8").splitlines()]
        tokens = [line for line in lines if line and not line.startswith(b"#")]
        if not tokens or min(map(len, tokens)) < SHORTEST_TOKEN:
            raise ValueError(
                f"{self.path} must hold one token of at least {SHORTEST_TOKEN} characters per line; make one with "
                '`python -c "import secrets; print(secrets.token_urlsafe(32))"`'
            )
        self._known: list[bytes] = tokens

    def check(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raise unless a request has a known token, in a time that does not depend on how much of it is right."""
        if self.path is None:
            return
        scheme, _, token = dict(headers).get(b"authorization", b"").partition(b" ")
        matches = [hmac.compare_digest(token.strip(), known) for known in self._known]
        if scheme.lower() != b"bearer" or not any(matches):
            reason = "a valid token is required: `Authorization: Bearer TOKEN`"
            raise RequestError(401, reason, "token", {"www-authenticate": "Bearer"})


class Server:
    """The models of an application, and its answers."""

    def __init__(self, settings: Settings):
        self.settings, self.metrics, self.tokens = settings, Metrics(), Tokens(settings.tokens)
        self.repository = Repository(
            settings.models,
            at=settings.at,
            level=settings.level,
            refuse_below=settings.refuse_unfamiliar,
            classes=[getattr(import_module(name), own) for name, own in (each.split(":") for each in settings.classes)],
            report=self.report,
        )
        self.repository.load_all()
        self.batcher = Batcher(settings.max_queue, settings.timeout, self.metrics.batch.observe)
        self.reader = ThreadPoolExecutor(1, "datasets")
        self.is_ending = False

    def report(self, event: str, **about: Any) -> None:
        """Count and log what happens to models and tokens."""
        self.metrics.models.labels(event).inc()
        report(event, level=logging.WARNING if event == "reload_failed" else logging.INFO, **about)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Look for changed files from the first request to the last response."""
        watcher = asyncio.create_task(self.watch())
        caught = self.catch_signals()
        gc.freeze()  # what was loaded stays; to look for garbage in it takes a tenth of a second
        report("ready")
        yield
        watcher.cancel()
        for number in caught:
            asyncio.get_running_loop().remove_signal_handler(number)
        self.batcher.close()
        report("stopped")

    async def watch(self) -> None:
        """Load what has changed, now and then, in another thread; what fails is reported once."""
        complaints: dict[object, str] = {}
        while True:
            await asyncio.sleep(POLL)
            for part in (self.repository, self.tokens):
                complaint = ""
                try:
                    await asyncio.to_thread(part.refresh)
                except Exception as error:  # noqa: BLE001 (the next look may succeed)
                    complaint = f"{type(error).__name__}: {error}"
                if complaint and complaint != complaints.get(part):
                    self.report("reload_failed", error=complaint)
                complaints[part] = complaint

    def catch_signals(self) -> list[int]:
        """At a signal to end, let each response be the last of its connection for a moment before the process ends.

        A connection that is idle may be about to receive a request, which would be lost if it were closed at once.
        """
        loop, caught = asyncio.get_running_loop(), []

        def end(number: int, handler: Any) -> None:
            delay, self.is_ending = 0.0 if self.is_ending else GRACE, True
            report("draining", signal=signal.Signals(number).name)
            loop.call_later(delay, handler, number, None)

        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)  # of whatever runs this application
            if callable(handler) and threading.current_thread() is threading.main_thread():
                loop.add_signal_handler(number, end, number, handler)
                caught.append(number)
        return caught

    def find_model(self, scope: Scope) -> ServedModel:
        """The model of a path; the request keeps this version."""
        found = self.repository.get(scope["path_params"]["model"], scope["path_params"].get("version"))
        scope["loca.model"] = found.name  # for metrics
        return found

    async def read_body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """The body of a request; nothing of one that is too large is kept."""
        limit, stated, chunks = self.settings.max_body, headers.get(b"content-length", b"0"), []
        size = 0 if stated.isdigit() and float(stated) <= limit else limit + 1
        while size <= limit:
            message = await receive()
            if message["type"] != "http.request":
                raise ClientDisconnect
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if not message.get("more_body", False):
                return b"".join(chunks)
        raise RequestError(413, f"the body has more than {limit} bytes, the limit", "body")

    async def run(
        self, model: ServedModel, inputs: Mapping[str, np.ndarray], wanted: frozenset[str]
    ) -> tuple[Results, dict[str, Any]]:
        """The results of a request, if its inputs are familiar or need not be, and what to report besides."""
        y, threshold = inputs.get("y"), self.settings.refuse_unfamiliar
        if y is not None and len(y) > self.settings.max_queries:
            raise RequestError(413, f"{len(y)} queries, at most {self.settings.max_queries} are allowed", "queries")
        if threshold is not None:
            wanted |= {"in_distribution"}
        results = await self.batcher.run(model, model.work(inputs, wanted, self.settings.max_values))
        if threshold is not None and (results["in_distribution"] < threshold).any():
            p_values = results["in_distribution"][:1000]
            reason = f"inputs are unlike the training data: p-value {p_values.min():.2g} < {threshold:g}"
            raise RequestError(422, reason, "unfamiliar", in_distribution=p_values)
        count = 0 if y is None else model.num_outside(y)
        return results, {"queries_outside_the_domain": count} if count else {}

    async def infer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an inference request."""
        model, headers, limits = self.find_model(scope), dict(scope["headers"]), self.settings
        length = headers.get(b"inference-header-content-length")
        if length is not None and not (length.isdigit() and len(length) < 12):
            raise RequestError(400, "Inference-Header-Content-Length must be the number of bytes of the JSON")
        body, size = await self.read_body(headers, receive), None if length is None else int(length)
        given = parse_request(body, size, model.inputs, model.outputs, limits.max_values)
        results, notes = await self.run(model, given.inputs, frozenset(given.outputs))
        about = {"model_name": model.name, "model_version": str(model.version)}
        text, size = write_response(given, {**about, "parameters": notes} if notes else about, results)
        fields = [(b"content-length", b"%d" % len(text)), (b"content-type", JSON if size is None else BINARY)]
        if size is not None:
            fields.append((b"inference-header-content-length", b"%d" % size))
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": text})

    async def predict(self, request: Request) -> Response:
        """Answer a data set with a data set."""
        model, in_thread = self.find_model(request.scope), asyncio.get_running_loop().run_in_executor
        body = await self.read_body(dict(request.scope["headers"]), request.receive)
        given = await in_thread(self.reader, lambda: parse_dataset(parse_json(body, DATASET), model))
        results, notes = await self.run(model, given.inputs, frozenset(given.outputs))
        text = await in_thread(self.reader, write_dataset, given, model, results, notes)
        return Response(text, media_type="application/json")

    async def ready(self, request: Request) -> Response:
        """Whether requests should be sent here: not while the server ends."""
        is_ready = bool(self.repository.models) and not self.is_ending
        return document({"ready": is_ready}, 200 if is_ready else 400)

    async def write_metrics(self, request: Request) -> Response:
        """Metrics for Prometheus."""
        text, kind = self.metrics.write()
        return Response(text, media_type=kind)

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Every error is JSON with a reason; no traceback reaches a client."""
        if isinstance(error, ClientDisconnect):
            error = RequestError(499, "the client closed the connection", "closed")
        if not isinstance(error, HTTPException):
            error = RequestError(500, "an error inside the server; its log has the reason", "defect")
        self.metrics.refusals.labels(error.kind if isinstance(error, RequestError) else "http").inc()
        details = error.details if isinstance(error, RequestError) else {}
        about = {"method": request.method, "path": request.url.path[:200], "status": error.status_code}
        report("request", **about, client=request.client and request.client.host, error=error.detail[:300])
        return document({"error": error.detail, **details}, error.status_code, error.headers)


class Guard:
    """Around every request: its token, its metrics, errors as JSON, and the end of its connection if the server ends.

    Inference requests, of which there are most, take a short way: they are bare ASGI and pass by the router.
    """

    def __init__(self, app: ASGIApp, server: Server):
        self.app, self.server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        server, start, status, app = self.server, time.perf_counter(), 0, self.app

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if server.is_ending:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        if scope["method"] == "POST" and (place := INFER.fullmatch(scope["path"])):
            scope["path_params"], app = place.groupdict(), server.infer
        try:
            if scope["path"] not in OPEN:
                server.tokens.check(scope["headers"])
            await app(scope, receive, respond)
        except Exception as error:
            if status:
                raise
            await (await server.refuse(Request(scope), error))(scope, receive, respond)
            if status == HTTPStatus.INTERNAL_SERVER_ERROR:
                raise  # to the log
        finally:
            server.metrics.count(scope.get("loca.model", ""), status, time.perf_counter() - start)


def document(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(to_json(value), status, headers, "application/json")


def create_application(settings: Settings) -> Starlette:
    """The server as an ASGI application, with all its models loaded; any ASGI server can run it."""
    server = Server(settings)
    about = {"name": "loca", "version": version("loca-jax"), "extensions": EXTENSIONS}

    def reading(path: str, value: Callable[[Request], Any], method: str = "GET") -> Route:
        async def endpoint(request: Request) -> Response:
            return document(value(request))

        return Route(path, endpoint, methods=[method])

    def metadata(request: Request) -> dict[str, Any]:
        model = server.find_model(request.scope)
        return model.metadata(server.repository.versions(model.name))

    def index(request: Request) -> list[dict[str, Any]]:
        places = sorted(server.repository.models)
        return [{"name": name, "version": str(v), "state": "READY", "reason": ""} for name, v in places]

    routes = []
    for place in ("{model}", "{model}/versions/{version}"):
        routes += [
            Route(f"/v2/models/{place}/infer", server.ready, methods=["POST"]),  # whose requests pass by
            Route(f"/models/{place}/predict", server.predict, methods=["POST"]),
            reading(f"/v2/models/{place}", metadata),
            reading(f"/v2/models/{place}/ready", lambda request: {"name": server.find_model(request.scope).name}),
            reading(f"/models/{place}", lambda request: description(server.find_model(request.scope))),
        ]
    routes += [
        reading("/v2", lambda request: about),
        reading("/v2/health/live", lambda request: {"live": True}),
        Route("/v2/health/ready", server.ready),
        reading("/v2/repository/index", index, "POST"),
        Route("/metrics", server.write_metrics),
    ]
    found = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, server=server)],
        exception_handlers={HTTPException: server.refuse},
        lifespan=server.lifespan,
    )
    found.router.redirect_slashes = False
    return found
