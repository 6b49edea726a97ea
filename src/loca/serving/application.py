"""The web application: routes, tokens, limits, metrics, errors as JSON, and the processes that serve it."""

import asyncio
import contextlib
import functools
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

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from loca.models import LEVEL
from loca.saving import inspect
from loca.serving.batching import Batcher
from loca.serving.model import LOG, Repository, ServedModel, find_models
from loca.serving.protocol import Reply, parse_request, read_body, reply, write_response

SETTINGS = "LOCA_SERVE"
"""The environment variable with the settings of worker processes, as JSON."""

SHARED = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the directory that worker processes share, for metrics."""

POLL = 1.0
"""Seconds between looks at the files of models and tokens."""

GRACE = 1.0
"""Seconds in which clients that send requests all the time receive their last response on a connection."""

# to find a metric takes longer than to count
REQUESTS = functools.cache(Counter("loca_requests_total", "Requests by model and status", ["model", "status"]).labels)
TIMES = functools.cache(Histogram("loca_request_seconds", "Response time", ["model"]).labels)

MODEL = r"/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>[^/]+))?"
"""The path of a model."""


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
        about = {"name": "loca", "version": version("loca-jax"), "extensions": ["binary_tensor_data"]}
        self.answers = [
            (f"{MODEL}/infer", "POST", self.infer),
            (MODEL, "GET", self.metadata),
            (f"{MODEL}/ready", "GET", lambda scope, receive: reply({"name": self.find_model(scope).name})),
            ("/v2", "GET", lambda scope, receive: reply(about)),
            ("/v2/health/live", "GET", lambda scope, receive: reply({"live": True})),
            ("/v2/health/ready", "GET", self.ready),
            ("/metrics", "GET", write_metrics),
        ]

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count its response.

        The routes, middleware, requests and responses of Starlette would take longer than all else that is done here.
        """
        if scope["type"] == "lifespan":
            await Starlette(lifespan=self.lifespan)(scope, receive, send)
            return
        start = time.perf_counter()
        try:
            found = self.find_answer(scope)(scope, receive)
            status, body, fields = found if isinstance(found, tuple) else await found
        except Exception as error:  # noqa: BLE001 (see `refuse`)
            status, body, fields = refuse(error)
        if self.is_ending:
            fields = [*fields, (b"connection", b"close")]
        model = scope.get("loca.model", "")
        REQUESTS(model, status).inc()
        TIMES(model).observe(time.perf_counter() - start)
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    def find_answer(self, scope: Scope) -> Callable[[Scope, Receive], Reply | Awaitable[Reply]]:
        """What answers a request; raise `HTTPException` if nothing does, or without a token."""
        for path, method, answer in self.answers:
            if found := re.fullmatch(path, scope["path"]):
                if scope["method"].replace("HEAD", "GET") != method:
                    raise HTTPException(405, f"only {method} is allowed", {"allow": method})
                if self.tokens and not path.startswith("/v2/health/"):  # balancers and Kubernetes send no token
                    self.authorize(dict(scope["headers"]).get(b"authorization", b""))
                scope["path_params"] = found.groupdict()
                return answer
        raise HTTPException(404, "nothing has this path")

    def authorize(self, authorization: bytes) -> None:
        """Raise unless a header has a known token; the time does not depend on how much of it is right."""
        scheme, _, token = authorization.partition(b" ")
        matches = [hmac.compare_digest(token.strip(), known) for known in self.tokens]
        if not (scheme.lower() == b"bearer" and any(matches)):
            reason = "a valid token is required: `Authorization: Bearer TOKEN`"
            raise HTTPException(401, reason, {"www-authenticate": "Bearer"})

    def find_model(self, scope: Scope) -> ServedModel:
        """The model of a path; the request keeps this version."""
        found = self.repository.get(**scope["path_params"])
        scope["loca.model"] = found.name  # for metrics
        return found

    async def infer(self, scope: Scope, receive: Receive) -> Reply:
        """Answer an inference request."""
        model, limits = self.find_model(scope), self.settings
        body = await read_body(receive, limits.max_body)
        length = dict(scope["headers"]).get(b"inference-header-content-length")
        plan, inputs = parse_request(body, length, model.plan, limits.max_values)
        if len(inputs.get("y", ())) > limits.max_queries:
            raise HTTPException(413, f"more than {limits.max_queries} queries, the limit")
        results = await self.batcher.run(model, model.work(inputs, frozenset(plan.outputs), limits.max_values))
        about = {"model_name": model.name, "model_version": str(model.version)}
        return write_response(about if plan.name is None else {"id": plan.name, **about}, plan.outputs, results)

    def ready(self, scope: Scope, receive: Receive) -> Reply:
        """Whether requests should be sent here: not while the server ends."""
        is_ready = bool(self.repository.models) and not self.is_ending
        return reply({"ready": is_ready}, 200 if is_ready else 400)

    def metadata(self, scope: Scope, receive: Receive) -> Reply:
        """The metadata of a model."""
        model = self.find_model(scope)
        return reply(model.metadata(sorted(number for name, number in self.repository.models if name == model.name)))


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


def refuse(error: Exception) -> Reply:
    """A refusal as JSON with its reason."""
    if isinstance(error, HTTPException):
        return reply({"error": error.detail}, error.status_code, error.headers)
    LOG.error("a request failed", exc_info=error)  # the client need not know why
    return reply({"error": "an error inside the server; its log has the reason"}, 500)


def write_metrics(scope: Scope, receive: Receive) -> Reply:
    """Metrics for Prometheus, of all worker processes if they share a directory for them."""
    registry = REGISTRY
    if SHARED in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
    return reply(generate_latest(registry), kind=CONTENT_TYPE_LATEST)


def create_application(settings: Settings | None = None) -> ASGIApp:
    """An ASGI application, which loads its models at its start; by default with the settings that `serve` was given."""
    return Server(settings or Settings.model_validate_json(os.environ[SETTINGS]))


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
