"""The web application: routes, tokens, limits, metrics, errors as JSON, and the processes that serve it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hmac
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from loca.models import LEVEL
from loca.saving import inspect
from loca.serving.batching import Batcher
from loca.serving.model import LOG, Repository, ServedModel, find_models
from loca.serving.protocol import document, parse_request, write_response

SETTINGS = "LOCA_SERVE"
"""The environment variable with the settings of worker processes, as JSON."""

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the directory that worker processes share, for metrics."""

POLL = 1.0
"""Seconds between looks at the files of models and tokens."""

GRACE = 1.0
"""Seconds in which clients that send requests all the time receive their last response on a connection."""

REQUESTS = Counter("loca_requests_total", "Requests by model and HTTP status", ["model", "status"])
TIMES = Histogram("loca_request_seconds", "Response time", ["model"])


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


class Server:
    """The models of an application, and its answers."""

    def __init__(self, settings: Settings):
        self.settings, self.tokens, self.is_ending = settings, list[bytes](), False
        self.refresh_tokens()
        classes = list(map(resolve_name, settings.classes))
        self.repository = Repository(settings.models, at=settings.at, level=settings.level, classes=classes)
        self.batcher = Batcher(settings.max_queue, settings.timeout)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Load all models, and look for changed files until the last response."""
        self.repository.refresh(is_start=True)
        gc.freeze()  # what was loaded stays; to look for garbage in it takes a tenth of a second
        watchers = [asyncio.create_task(watch(each)) for each in (self.repository.refresh, self.refresh_tokens)]
        loop, is_main = asyncio.get_running_loop(), threading.current_thread() is threading.main_thread()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number, handler in handlers.items():
            if is_main and callable(handler):  # that of whatever runs this application
                loop.add_signal_handler(number, self.end, number, handler)
        if SHARED in os.environ:
            Path(os.environ[SHARED], "started").touch()
        yield
        for watcher in watchers:
            watcher.cancel()
        for number in handlers:  # uvicorn sends itself the signal that it has received
            loop.remove_signal_handler(number)

    def end(self, number: int, handler: Callable[..., object]) -> None:
        """Let each response be the last of its connection for a moment before the process ends.

        A connection that is idle may be about to receive a request, which would be lost if it were closed at once.
        """
        LOG.info("%s: the server ends after the requests that it has", signal.Signals(number).name)
        asyncio.get_running_loop().call_later(0.0 if self.is_ending else GRACE, handler, number, None)
        self.is_ending = True

    def refresh_tokens(self) -> None:
        """Read the file of tokens, one per line; those before stay if it has none. Lines with # are comments."""
        if (path := self.settings.tokens) is None:
            return
        lines = [line.strip().encode() for line in path.read_text(encoding="utf-8").splitlines()]
        tokens = [line for line in lines if line and not line.startswith(b"#")]
        if not tokens or min(map(len, tokens)) < 16:
            how = "such as those of `openssl rand -hex 32`"
            raise ValueError(f"{path} must hold one token of at least 16 characters per line, {how}")
        self.tokens = tokens

    def accepts(self, authorization: bytes) -> bool:
        """Whether a header has a known token; the time does not depend on how much of it is right."""
        scheme, _, token = authorization.partition(b" ")
        matches = [hmac.compare_digest(token.strip(), known) for known in self.tokens]
        return not self.tokens or (scheme.lower() == b"bearer" and any(matches))

    def endpoint(
        self, answer: Callable[[Request], Any], *, is_open: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint for requests that have a token; `answer` returns a response or JSON. Responses are counted."""

        async def respond(request: Request) -> Response:
            start = time.perf_counter()
            try:
                if not is_open and not self.accepts(dict(request.scope["headers"]).get(b"authorization", b"")):
                    reason = "a valid token is required: `Authorization: Bearer TOKEN`"
                    raise HTTPException(401, reason, {"www-authenticate": "Bearer"})
                found = answer(request)
                found = await found if asyncio.iscoroutine(found) else found
                response = found if isinstance(found, Response) else document(found)
            except HTTPException as error:
                response = await refuse(request, error)
            except ClientDisconnect:
                response = document({"error": "the connection was closed before the end of the body"}, 400)
            except Exception:  # noqa: BLE001 (the log has it, and the client need not know it)
                LOG.exception("a request failed")
                response = document({"error": "an error inside the server; its log has the reason"}, 500)
            if self.is_ending:
                response.headers["connection"] = "close"
            model = request.scope.get("loca.model", "")
            REQUESTS.labels(model, response.status_code).inc()
            TIMES.labels(model).observe(time.perf_counter() - start)
            return response

        return respond

    def find_model(self, request: Request) -> ServedModel:
        """The model of a path; the request keeps this version."""
        found = self.repository.get(**request.path_params)
        request.scope["loca.model"] = found.name  # for metrics
        return found

    async def infer(self, request: Request) -> Response:
        """Answer an inference request."""
        model, limits, body = self.find_model(request), self.settings, bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limits.max_body:
                raise HTTPException(413, f"the body has more than {limits.max_body} bytes, the limit")
        length = dict(request.scope["headers"]).get(b"inference-header-content-length")
        name, inputs, outputs = parse_request(bytes(body), length, model.inputs, model.outputs, limits.max_values)
        if len(inputs.get("y", ())) > limits.max_queries:
            raise HTTPException(413, f"more than {limits.max_queries} queries, the limit")
        results = await self.batcher.run(model, model.work(inputs, frozenset(outputs), limits.max_values))
        about = {"model_name": model.name, "model_version": str(model.version)}
        return write_response(about if name is None else {"id": name, **about}, outputs, results)

    def ready(self, request: Request) -> Response:
        """Whether requests should be sent here: not while the server ends."""
        is_ready = bool(self.repository.models) and not self.is_ending
        return document({"ready": is_ready}, 200 if is_ready else 400)

    def metadata(self, request: Request) -> dict[str, Any]:
        """The metadata of a model."""
        model = self.find_model(request)
        return model.metadata(sorted(number for name, number in self.repository.models if name == model.name))


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


async def refuse(request: Request, error: Exception) -> Response:
    """A refusal as JSON with its reason."""
    assert isinstance(error, HTTPException)
    return document({"error": error.detail}, error.status_code, error.headers)


def write_metrics(request: Request) -> Response:
    """Metrics for Prometheus, of all worker processes if they share a directory for them."""
    registry = REGISTRY
    if SHARED in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


INFER = re.compile(r"/v2/models/(?P<name>[^/]+)(/versions/(?P<version>[^/]+))?/infer")
"""The path of inference requests."""


def create_application(settings: Settings | None = None) -> ASGIApp:
    """The server as an ASGI application, which loads its models at its start; any ASGI server can run it.

    Without settings, it takes those that `serve` has put into the environment for its processes.
    """
    server = Server(settings or Settings.model_validate_json(os.environ[SETTINGS]))
    about = {"name": "loca", "version": version("loca-jax"), "extensions": ["binary_tensor_data"]}
    infer = server.endpoint(server.infer)
    routes = [
        Route("/v2", server.endpoint(lambda request: about)),
        # balancers and Kubernetes send no token
        Route("/v2/health/live", server.endpoint(lambda request: {"live": True}, is_open=True)),
        Route("/v2/health/ready", server.endpoint(server.ready, is_open=True)),
        Route("/metrics", server.endpoint(write_metrics)),
    ]
    for place in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            Route(f"{place}/infer", infer, methods=["POST"]),
            Route(place, server.endpoint(server.metadata)),
            Route(f"{place}/ready", server.endpoint(lambda request: {"name": server.find_model(request).name})),
        ]
    found = Starlette(routes=routes, exception_handlers={HTTPException: refuse}, lifespan=server.lifespan)
    found.router.redirect_slashes = False

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        answer: ASGIApp = found
        # the router and the middleware of Starlette would take as long as all else that a request needs
        if scope["type"] == "http" and scope["method"] == "POST" and (path := INFER.fullmatch(scope["path"])):
            scope["path_params"] = path.groupdict()
            answer = await infer(Request(scope, receive, send))
        await answer(scope, receive, send)

    return application


def serve(settings: Settings, host: str = "127.0.0.1", port: int = 8000, workers: int = 1) -> None:
    """Serve until SIGTERM or Ctrl-C, and exit.

    **Arguments:**

    - `settings`: what is served.
    - `host`, `port`: where to listen; port 0 for any that is free.
    - `workers`: processes that share the address and the cores, and nothing else; one that dies is started again.
    """
    Server(settings)  # raises if tokens or classes are wrong
    for file in find_models(settings.models, is_start=True).values():
        inspect(file)
    for number in (signal.SIGTERM, signal.SIGINT):  # after uvicorn's own handler, which waits for the last response
        signal.signal(number, lambda number, frame: sys.exit(0))
    os.environ[SETTINGS] = settings.model_dump_json()  # for the processes
    with tempfile.TemporaryDirectory(prefix="loca-serve-") as shared:
        if workers > 1:
            os.environ[SHARED] = shared
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
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=1000,  # connections
            timeout_keep_alive=75,  # longer than a proxy keeps connections: it might use one that is being closed
            timeout_graceful_shutdown=int(settings.timeout) + 5,
            timeout_worker_healthcheck=20,  # a worker on a busy machine may not answer for a while
        )
        if workers > 1 and not Path(shared, "started").exists():  # uvicorn returns if no worker can start
            raise RuntimeError("no worker could start; the log has the reason")
