"""The web application: routes, tokens, limits, and errors as JSON."""

from __future__ import annotations

import asyncio
import functools
import hmac
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from importlib.metadata import version as version_of
from typing import Any

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from loca.serving.batching import Batcher, Results
from loca.serving.datasets import description, parse_dataset, write_dataset
from loca.serving.exchange import Disconnected, Endpoint, Exchange, KnownHeaders, Response, document, extra_headers
from loca.serving.protocol import InferRequest, Limits, Plan, RequestError, parse_json, parse_request, write_response
from loca.serving.repository import Repository
from loca.serving.served_model import ServedModel, Work
from loca.serving.telemetry import Metrics, Tracing, report

BODIES = 16
"""Bodies of the largest size that may be in memory at the same time."""

DISCARDED = 2**26
"""Bytes of a body beyond the limit that are read and discarded, so that the client reads the response."""

SWEEP = 0.1
"""Seconds between looks for requests that have waited too long."""

MOST_PATHS = 1000
"""Paths that are known without a search."""

EXTENSIONS = ["binary_tensor_data", "model_repository(index)"]
"""Extensions of the protocol; of the last one, only the list of models."""

CLOSED = 499
"""The status of a request whose client left before the response, in spans."""

JSON, BINARY = b"application/json", b"application/octet-stream"
OPEN = ("/v2/health/live", "/v2/health/ready")
"""Paths that need no token: balancers and Kubernetes send none."""


class Application:
    """The server as an ASGI application.

    **Arguments:**

    - `repository`: the models.
    - `limits`: what a request may cost.
    - `tokens`: one of them must come with every request, except for health checks; none for a server without tokens.
    - `logs_all`: whether requests that succeed are logged, too.
    - `tracing`: where spans of requests are sent; None if they are not.
    """

    def __init__(
        self,
        repository: Repository,
        *,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        tokens: Sequence[bytes] = (),
        logs_all: bool = False,
        tracing: Tracing | None = None,
    ):
        self.repository, self.limits, self.tokens, self.logs_all = repository, limits, tuple(tokens), logs_all
        self.metrics, self.tracing = Metrics(), tracing
        self.batcher = Batcher(limits, self.observe_batch)
        repository.report = self.report_model
        self.version = version_of("loca-jax")
        self.is_draining = False
        self._body_bytes = 0
        self.known_headers = KnownHeaders()
        self._known_paths: dict[tuple[str, str], tuple[Endpoint, dict[str, str]]] = {}
        self._reader = ThreadPoolExecutor(1, "datasets")
        model, named = "/v2/models/{model}", "/v2/models/{model}/versions/{version}"
        routes = {
            "GET": {
                "/v2": self.server_metadata,
                "/v2/health/live": self.live,
                "/v2/health/ready": self.ready,
                model: self.model_metadata,
                named: self.model_metadata,
                f"{model}/ready": self.model_ready,
                f"{named}/ready": self.model_ready,
                "/models/{model}": self.describe,
                "/metrics": self.write_metrics,
            },
            "POST": {
                f"{model}/infer": self.infer,
                f"{named}/infer": self.infer,
                "/models/{model}/predict": self.predict,
                "/models/{model}/versions/{version}/predict": self.predict,
                "/v2/repository/index": self.index,
            },
        }
        listed = [
            Route(path, Endpoint(function), methods=[method])
            for method, functions in reversed(routes.items())
            for path, function in functions.items()
        ]
        self.router = Router(listed, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; every error becomes a response."""
        if scope["type"] != "http":
            return
        if self.tracing is None:
            await self.answer(scope, receive, send)
            return
        with self.tracing.span(scope) as span:
            status, model = await self.answer(scope, receive, send)
            self.tracing.describe(span, scope, status, model and (model.name, model.version))

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> tuple[int, ServedModel | None]:
        """Send a response, and return its status and the model that was asked."""
        start = time.perf_counter()
        exchange = Exchange(scope, receive, self.repository, self.limits)
        scope["app"], scope["exchange"] = self, exchange
        error = ""
        try:
            if self.tokens and scope["path"] not in OPEN:
                self.check_token(exchange.headers.get(b"authorization", b""))
            await self.route(scope, receive, send)
            response = exchange.response
        except Disconnected:
            return CLOSED, exchange.model
        except Exception as failure:  # noqa: BLE001 (no traceback may reach a client)
            response, error = self.failed(failure, scope["path"])
        status, _, body = response
        fields = self.fields(response, is_last=exchange.is_broken)
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})
        about = {"method": scope["method"], "path": scope["path"], "client": scope.get("client")}
        self.record(exchange.model, status, time.perf_counter() - start, error, about)
        return status, exchange.model

    def failed(self, failure: Exception, path: str) -> tuple[Response, str]:
        """The response to a request that failed, and the reason for the log."""
        if isinstance(failure, RequestError):
            self.metrics.refusals.labels(failure.kind).inc()
            body = to_json({"error": failure.reason, **failure.details})
            return (failure.status, extra_headers(failure.status), body), failure.reason
        if isinstance(failure, HTTPException):
            error = HTTPStatus(failure.status_code).phrase
            headers = {name.lower().encode(): value.encode() for name, value in (failure.headers or {}).items()}
            return (failure.status_code, headers, to_json({"error": error})), error
        error = f"{type(failure).__name__}: {failure}"
        report("defect", level=logging.ERROR, path=path[:200], error=error[:1000])
        logging.getLogger("loca.serving").error("traceback", exc_info=failure)
        return (500, {}, to_json({"error": "an error inside the server; its log has the reason"})), error

    async def route(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find the function of a path; paths that had a response before are known."""
        key = scope["method"], scope["path"]
        if key in self._known_paths:
            endpoint, scope["path_params"] = self._known_paths[key]
            await endpoint(scope, receive, send)
            return
        await self.router(scope, receive, send)
        if len(self._known_paths) < MOST_PATHS:
            self._known_paths[key] = scope["endpoint"], scope["path_params"]

    def fields(self, response: Response, *, is_last: bool = False) -> list[tuple[bytes, bytes]]:
        """The header of a response; the last one of a connection says so."""
        _, headers, body = response
        fields = {b"content-type": JSON, **headers, b"content-length": str(len(body)).encode()}
        if is_last or self.is_draining:
            fields[b"connection"] = b"close"
        return list(fields.items())

    def record(
        self, model: ServedModel | None, status: int, seconds: float, error: str, about: Mapping[str, Any]
    ) -> None:
        """Count a request and log it, if it failed or all are logged."""
        self.metrics.count(model.name if model else "", status, seconds)
        if error or self.logs_all:
            client = about["client"][0] if about["client"] else None
            fields: dict[str, Any] = {"method": about["method"], "path": about["path"][:200], "client": client}
            fields |= {"status": status, "ms": round(1e3 * seconds, 2)}
            fields |= {"model": model.name, "version": model.version} if model else {}
            fields |= {"error": error[:300]} if error else {}
            report("request", **fields)

    def start(self) -> None:
        """Start the thread that runs the models; call this in the event loop."""
        self.batcher.start()
        self._sweep()

    def stop(self) -> None:
        """End it after the last response."""
        self.batcher.stop()
        self.metrics.flush()

    def _sweep(self) -> None:
        """End requests that have waited too long, and publish metrics, now and then."""
        asyncio.get_running_loop().call_later(SWEEP, self._sweep)  # also if metrics cannot be written
        self.batcher.expire()
        self.metrics.flush()

    def observe_batch(self, functions: int) -> None:
        """Count a batch, and the functions that wait at its end."""
        self.metrics.batch.observe(functions)
        self.metrics.waiting.set(self.batcher.waiting)

    def report_model(self, event: str, **about: Any) -> None:
        """Count and log what happens to a model."""
        self.metrics.models.labels(event).inc()
        report(event, level=logging.WARNING if event == "reload_failed" else logging.INFO, **about)

    def check_token(self, given: bytes) -> None:
        """Raise unless a token is right, in a time that does not depend on how much of it is right."""
        scheme, _, token = given.partition(b" ")
        matches = [hmac.compare_digest(token.strip(), known) for known in self.tokens]
        if scheme.lower() != b"bearer" or not any(matches):
            raise RequestError(401, "a valid token is required: `Authorization: Bearer TOKEN`", "token")

    async def read_body(self, exchange: Exchange) -> bytes:
        """The body of a request, within the limits of its size and time."""
        length = exchange.headers.get(b"content-length", b"0")
        is_large = not length.isdigit() or int(length) > self.limits.body
        if exchange.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise RequestError(415, "compressed bodies are not accepted", "encoding")
        chunks, size, reserved, more = [], 0, 0, True
        try:
            while more and size <= self.limits.body + DISCARDED:
                message = await exchange.receive()  # until the deadline of the connection
                if message["type"] != "http.request":
                    raise Disconnected
                chunk, more = message["body"], message["more_body"]
                size += len(chunk)
                if is_large or size > self.limits.body:
                    chunks.clear()
                    continue
                chunks.append(chunk)
                if more:  # parts of a body that wait for the rest
                    reserved += len(chunk)
                    self._body_bytes += len(chunk)
                    if self._body_bytes > BODIES * self.limits.body:
                        exchange.is_broken = True
                        raise RequestError(429, "too many large requests at the same time; try again later", "bodies")
        finally:
            self._body_bytes -= reserved
        if is_large or size > self.limits.body:
            exchange.is_broken = more
            raise RequestError(413, f"the body has more than {self.limits.body} bytes, the limit", "body")
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def run(self, exchange: Exchange, model: ServedModel, work: Work) -> Results:
        """The results of some work, if the inputs are familiar or need not be."""
        threshold = self.repository.refuse_below
        if threshold is not None:
            work = work._replace(wanted=work.wanted | {"in_distribution"})
        results = await self.batcher.run(model, work, exchange.deadline)
        if threshold is not None and (results["in_distribution"] < threshold).any():
            p_values = [round(float(p), 6) for p in results["in_distribution"][:1000]]
            reason = f"inputs are unlike the training data: p-value {min(p_values):.2g} < {threshold:g}"
            raise RequestError(422, reason, "unfamiliar", in_distribution=p_values)
        return results

    async def infer(self, exchange: Exchange) -> Response:
        """Answer an inference request of the protocol."""
        model = exchange.find_model()
        body = await self.read_body(exchange)
        length = exchange.header_length()
        request, work = self.prepare(model, body, length)
        results = await self.run(exchange, model, work)
        if not (self.logs_all or self.tracing or self.repository.refuse_below):
            self.known_headers.remember(exchange, len(body), length)
        return self.complete(request.plan, model, work, results)

    def prepare(self, model: ServedModel, body: bytes, length: int | None) -> tuple[InferRequest, Work]:
        """Parse an inference request; `length` is that of its JSON if tensors follow as bytes."""
        request = parse_request(body, length, model.plans, self.limits)
        return request, model.work(request.inputs, request.plan.wanted, self.limits)

    def complete(self, plan: Plan, model: ServedModel, work: Work, results: Results) -> Response:
        """The response to an inference request."""
        text, header = write_response(plan, model.name, str(model.version), results, work.notes)
        if header is None:
            return 200, {}, text
        return 200, {b"content-type": BINARY, b"inference-header-content-length": str(header).encode()}, text

    async def predict(self, exchange: Exchange) -> Response:
        """Answer a data set with a data set."""
        model = exchange.find_model()
        body = await self.read_body(exchange)
        in_thread = functools.partial(asyncio.get_running_loop().run_in_executor, self._reader)
        request = await in_thread(lambda: parse_dataset(parse_json(body), model))
        work = model.work(request.inputs, frozenset(request.outputs), self.limits)
        results = await self.run(exchange, model, work)
        return 200, {}, await in_thread(lambda: write_dataset(request, model, results, work.notes))

    async def server_metadata(self, exchange: Exchange) -> Response:
        """Name, version and extensions of the server."""
        return document({"name": "loca", "version": self.version, "extensions": EXTENSIONS})

    async def live(self, exchange: Exchange) -> Response:
        """Whether the process responds."""
        return document({"live": True})

    async def ready(self, exchange: Exchange) -> Response:
        """Whether requests should be sent here: not while the server drains."""
        is_ready = bool(self.repository.models) and not self.is_draining
        return document({"ready": is_ready}, 200 if is_ready else 400)

    async def model_ready(self, exchange: Exchange) -> Response:
        """Whether a model exists; all models that exist are ready."""
        model = exchange.find_model()
        return document({"name": model.name, "ready": True})

    async def model_metadata(self, exchange: Exchange) -> Response:
        """Versions, inputs and outputs of a model."""
        model = exchange.find_model()
        return document(model.metadata(self.repository.versions(model.name)))

    async def describe(self, exchange: Exchange) -> Response:
        """The model as `predict` knows it: variables, sensors and queries."""
        return document(description(exchange.find_model()))

    async def index(self, exchange: Exchange) -> Response:
        """All models and versions."""
        return document(self.repository.index())

    async def write_metrics(self, exchange: Exchange) -> Response:
        """Metrics for Prometheus."""
        body, kind = self.metrics.write()
        return 200, {b"content-type": kind.encode()}, body
