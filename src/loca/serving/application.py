"""The web application: routes, tokens, limits, metrics, errors as JSON, and the processes that serve it."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import hmac
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import LOGGING_CONFIG

from loca.models import LEVEL
from loca.saving import inspect
from loca.serving.batching import Batcher
from loca.serving.model import ServedModel
from loca.serving.protocol import parse_request, to_json, write_response
from loca.serving.repository import Repository, find_models

SETTINGS = "LOCA_SERVE"
"""The environment variable with the settings of worker processes, as JSON."""

POLL = 1.0
"""Seconds between looks at the files of models and tokens."""

GRACE = 1.0
"""Seconds in which clients that send requests all the time receive their last response on a connection."""

SHORTEST_TOKEN = 16
"""Characters of a token, at least."""

OPEN = ("/v2/health/live", "/v2/health/ready")
"""Paths that need no token: balancers and Kubernetes send none."""

REQUESTS = Counter("loca_requests_total", "Requests by model and HTTP status", ["model", "status"])
TIMES = Histogram("loca_request_seconds", "Response time", ["model"])
BATCHES = Histogram("loca_batch_functions", "Functions run together", buckets=(1, 2, 4, 8, 16, 32, 64, 256))

LOG = logging.getLogger("loca.serving")


class Settings(BaseModel):
    """What a server serves, to whom, and what a request may cost.

    **Arguments:**

    - `models`: run directories, model files, or directories with NAME/ or NAME/VERSION/ inside.
    - `at`: a file with the fixed queries of all models; by default those that their training data shared.
    - `level`: of bands.
    - `tokens`: a file with tokens, one per line, one of which must come with every request except for health checks.
    - `classes`: your own classes that models are made of, as MODULE:CLASS.
    - `max_body`: bytes of a request.
    - `max_values`: numbers in an input, or in all outputs of a response together.
    - `max_queries`: locations in a request.
    - `max_queue`: input functions that wait or run.
    - `timeout`: seconds that a request may wait for its result.
    """

    models: list[Path]
    at: Path | None = None
    level: float = LEVEL
    tokens: Path | None = None
    classes: list[str] = []
    max_body: int = 2**22
    max_values: int = 2**22
    max_queries: int = 2**14
    max_queue: int = 1024
    timeout: float = 10.0


def read_tokens(path: Path) -> list[bytes]:
    """The tokens in a file, one per line; lines that start with # are comments."""
    lines = [line.strip().encode() for line in path.read_text(encoding="utf-8").splitlines()]
    tokens = [line for line in lines if line and not line.startswith(b"#")]
    if not tokens or min(map(len, tokens)) < SHORTEST_TOKEN:
        raise ValueError(
            f"{path} must hold one token of at least {SHORTEST_TOKEN} characters per line; make one with "
            '`python -c "import secrets; print(secrets.token_urlsafe(32))"`'
        )
    return tokens


class Server:
    """The models of an application, and its answers."""

    def __init__(self, settings: Settings):
        self.settings, self.tokens = settings, list[bytes]()
        self.refresh_tokens()
        classes = [getattr(import_module(name), own) for name, own in (each.split(":") for each in settings.classes)]
        self.repository = Repository(settings.models, at=settings.at, level=settings.level, classes=classes)
        self.batcher = Batcher(settings.max_queue, settings.timeout, BATCHES.observe)
        self.is_ending = False

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Load all models, and look for changed files until the last response."""
        self.repository.load_all()
        gc.freeze()  # what was loaded stays; to look for garbage in it takes a tenth of a second
        watchers = [asyncio.create_task(watch(each)) for each in (self.repository.refresh, self.refresh_tokens)]
        if threading.current_thread() is threading.main_thread():
            self.delay_signals()
        yield
        for watcher in watchers:
            watcher.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn sends itself the signal that it has received
            asyncio.get_running_loop().remove_signal_handler(number)
        self.batcher.close()

    def refresh_tokens(self) -> None:
        """Read the file of tokens; those before stay if it has none."""
        if self.settings.tokens is not None:
            self.tokens = read_tokens(self.settings.tokens)

    def accepts(self, authorization: bytes) -> bool:
        """Whether a header has a known token; the time does not depend on how much of it is right."""
        scheme, _, token = authorization.partition(b" ")
        matches = [hmac.compare_digest(token.strip(), known) for known in self.tokens]
        return not self.tokens or (scheme.lower() == b"bearer" and any(matches))

    def delay_signals(self) -> None:
        """At a signal to end, let each response be the last of its connection for a moment before the process ends.

        A connection that is idle may be about to receive a request, which would be lost if it were closed at once.
        """
        loop = asyncio.get_running_loop()

        def end(number: int, handler: Any) -> None:
            LOG.info("%s: the server ends after the requests that it has", signal.Signals(number).name)
            loop.call_later(0.0 if self.is_ending else GRACE, handler, number, None)
            self.is_ending = True

        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)  # of whatever runs this application
            if callable(handler):
                loop.add_signal_handler(number, end, number, handler)

    def find_model(self, request: Request) -> ServedModel:
        """The model of a path; the request keeps this version."""
        found = self.repository.get(**request.path_params)
        request.scope["loca.model"] = found.name  # for metrics
        return found

    async def read_body(self, request: Request) -> bytes:
        """The body of a request; nothing of one that is too large is kept."""
        limit, body = self.settings.max_body, bytearray()
        too_large = HTTPException(413, f"the body has more than {limit} bytes, the limit")
        if int(request.headers.get("content-length", 0)) > limit:
            raise too_large
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large
        except ClientDisconnect:
            raise HTTPException(400, "the connection was closed before the end of the body") from None
        return bytes(body)

    async def infer(self, request: Request) -> Response:
        """Answer an inference request."""
        model, limits = self.find_model(request), self.settings
        length = request.headers.get("inference-header-content-length")
        if length is not None and not (length.isdecimal() and len(length) < 12):
            raise HTTPException(400, "Inference-Header-Content-Length must be the number of bytes of the JSON")
        body, size = await self.read_body(request), None if length is None else int(length)
        given = parse_request(body, size, model.inputs, model.outputs, limits.max_values)
        y = given.inputs.get("y")
        if y is not None and len(y) > limits.max_queries:
            raise HTTPException(413, f"{len(y)} queries, at most {limits.max_queries} are allowed")
        work = model.work(given.inputs, frozenset(given.outputs), limits.max_values)
        results = await self.batcher.run(model, work)
        about = {"model_name": model.name, "model_version": str(model.version)}
        text, size = write_response(given, about, results)
        if size is None:
            return Response(text, media_type="application/json")
        return Response(text, 200, {"inference-header-content-length": str(size)}, "application/octet-stream")

    async def ready(self, request: Request) -> Response:
        """Whether requests should be sent here: not while the server ends."""
        is_ready = bool(self.repository.models) and not self.is_ending
        return document({"ready": is_ready}, 200 if is_ready else 400)

    def index(self, request: Request) -> list[dict[str, Any]]:
        """All models and their versions."""
        places = sorted(self.repository.models)
        return [{"name": name, "version": str(v), "state": "READY", "reason": ""} for name, v in places]

    def metadata(self, request: Request) -> dict[str, Any]:
        """The metadata of a model."""
        model = self.find_model(request)
        return model.metadata(self.repository.versions(model.name))


async def watch(refresh: Callable[[], None]) -> None:
    """Load what has changed, now and then, in another thread; what fails is logged once."""
    complaint = ""
    while True:
        await asyncio.sleep(POLL)
        try:
            await asyncio.to_thread(refresh)
            complaint = ""
        except Exception as error:  # noqa: BLE001 (the next look may succeed)
            if str(error) != complaint:
                LOG.warning("not loaded again: %s", error)
            complaint = str(error)


class Guard:
    """Around every request: its token, its metrics, and the end of its connection if the server ends."""

    def __init__(self, app: ASGIApp, server: Server):
        self.app, self.server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status, app = time.perf_counter(), 500, self.app

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.server.is_ending:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        authorization = dict(scope["headers"]).get(b"authorization", b"")
        if scope["path"] not in OPEN and not self.server.accepts(authorization):
            reason = "a valid token is required: `Authorization: Bearer TOKEN`"
            app = document({"error": reason}, 401, {"www-authenticate": "Bearer"})
        try:
            await app(scope, receive, respond)
        finally:
            model = scope.get("loca.model", "")
            REQUESTS.labels(model, status).inc()
            TIMES.labels(model).observe(time.perf_counter() - start)


def document(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(to_json(value), status, headers, "application/json")


async def refuse(request: Request, error: Exception) -> Response:
    """Every error is JSON with a reason; no traceback reaches a client."""
    if isinstance(error, HTTPException):
        return document({"error": error.detail}, error.status_code, error.headers)
    return document({"error": "an error inside the server; its log has the reason"}, 500)


async def write_metrics(request: Request) -> Response:
    """Metrics for Prometheus, of all worker processes if they share a directory for them."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def create_application(settings: Settings | None = None) -> Starlette:
    """The server as an ASGI application, which loads its models at its start; any ASGI server can run it.

    Without settings, it takes those that `serve` has put into the environment for its processes.
    """
    server = Server(settings or Settings.model_validate_json(os.environ[SETTINGS]))
    extensions = ["binary_tensor_data", "model_repository(index)"]  # of the last one, only the list of models
    about = {"name": "loca", "version": version("loca-jax"), "extensions": extensions}

    def answer(path: str, value: Callable[[Request], Any], method: str = "GET") -> Route:
        async def endpoint(request: Request) -> Response:
            return document(value(request))

        return Route(path, endpoint, methods=[method])

    routes = []
    for place in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            Route(f"{place}/infer", server.infer, methods=["POST"]),
            answer(place, server.metadata),
            answer(f"{place}/ready", lambda request: {"name": server.find_model(request).name}),
        ]
    routes += [
        answer("/v2", lambda request: about),
        answer("/v2/health/live", lambda request: {"live": True}),
        Route("/v2/health/ready", server.ready),
        answer("/v2/repository/index", server.index, "POST"),
        Route("/metrics", write_metrics),
    ]
    found = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, server=server)],
        exception_handlers={HTTPException: refuse, Exception: refuse},
        lifespan=server.lifespan,
    )
    found.router.redirect_slashes = False
    return found


def serve(settings: Settings, host: str = "127.0.0.1", port: int = 8000, workers: int = 1) -> None:
    """Serve until SIGTERM or Ctrl-C, and exit.

    **Arguments:**

    - `settings`: what is served.
    - `host`, `port`: where to listen; port 0 for any that is free.
    - `workers`: processes that share the address and the cores, and nothing else; one that dies is started again.
    """
    for file in find_models(settings.models, is_start=True).values():
        inspect(file)
    if settings.tokens is not None:
        read_tokens(settings.tokens)
    for number in (signal.SIGTERM, signal.SIGINT):  # after uvicorn's own handler, which waits for the last response
        signal.signal(number, lambda number, frame: sys.exit(0))
    logs = copy.deepcopy(LOGGING_CONFIG)
    logs["loggers"]["loca.serving"] = {"handlers": ["default"], "level": "INFO"}
    os.environ[SETTINGS] = settings.model_dump_json()  # for the processes
    with tempfile.TemporaryDirectory(prefix="loca-serve-") as metrics:
        if workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = metrics
            os.environ.setdefault("NPROC", str(max(1, (os.cpu_count() or 1) // workers)))  # threads of XLA
        uvicorn.run(
            "loca.serving.application:create_application",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=logs,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=1000,  # connections
            timeout_keep_alive=75,  # longer than a proxy keeps connections: it might use one that is being closed
            timeout_graceful_shutdown=int(settings.timeout) + 5,
            timeout_worker_healthcheck=60,  # a worker that compiles may not answer for a while
        )
