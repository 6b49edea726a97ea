"""What a server reports: logs as lines of JSON, metrics for Prometheus, and spans for OpenTelemetry."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the directory in which worker processes keep their metrics."""

logger = logging.getLogger("loca.serving")

LEVELS = {"loca.serving": logging.INFO, "uvicorn.error": logging.ERROR, "opentelemetry": logging.WARNING}
"""The least severe messages that are logged."""

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper ends of the bins of response times."""


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, process, event, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        fields = getattr(record, "fields", {})
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "process": record.process,
            "event": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def start_logging() -> None:
    """Write the logs of this package, of uvicorn and of OpenTelemetry to standard error as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in LEVELS.items():
        chosen = logging.getLogger(name)
        chosen.handlers, chosen.propagate = [handler], False
        chosen.setLevel(level)


def report(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    logger.log(level, event, extra={"fields": fields})


class Metrics:
    """Counters and histograms of one process, or of all worker processes if they share a directory for them."""

    def __init__(self):
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter(
            "loca_requests_total", "Requests by model and HTTP status", ["model", "status"], registry=registry
        )
        self.refusals = Counter("loca_refusals_total", "Refused requests by reason", ["reason"], registry=registry)
        self.seconds = Histogram(
            "loca_request_seconds", "Time from header to response", ["model"], buckets=SECONDS, registry=registry
        )
        self.batch = Histogram(
            "loca_batch_functions", "Functions run together", buckets=(1, 2, 4, 8, 16, 32, 64, 256), registry=registry
        )
        self.waiting = Gauge(
            "loca_waiting_functions", "Functions that wait or run", registry=registry, multiprocess_mode="livesum"
        )
        self.models = Counter("loca_model_events_total", "Loaded, removed, failed", ["event"], registry=registry)

        self._recent: dict[tuple[str, int], list[float]] = {}

    def count(self, model: str, status: int, seconds: float) -> None:
        """Count a request with the next `flush`; the model is empty if it has none."""
        self._recent.setdefault((model, status), []).append(seconds)

    def flush(self) -> None:
        """Make what was counted visible to all processes, which takes longer than to count it."""
        recent, self._recent = self._recent, {}
        for (model, status), times in recent.items():
            self.requests.labels(model, status).inc(len(times))
            histogram = self.seconds.labels(model)
            for seconds in times:
                histogram.observe(seconds)

    def write(self) -> tuple[bytes, str]:
        """All metrics as text, and its content type."""
        self.flush()
        registry = self.registry
        if os.environ.get(SHARED_METRICS):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # pyright: ignore[reportArgumentType]
        return generate_latest(registry), CONTENT_TYPE_LATEST


class Tracing:
    """Spans of requests for a collector of OpenTelemetry.

    The environment variables of OpenTelemetry say where the collector is (OTEL_EXPORTER_OTLP_ENDPOINT), how the service
    is called (OTEL_SERVICE_NAME) and how many requests are traced (OTEL_TRACES_SAMPLER). A span continues the trace of
    its client if the request has a header `traceparent`.
    """

    def __init__(self):
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError:
            raise ValueError("traces need OpenTelemetry: pip install 'loca-jax[serve,traces]'") from None
        os.environ.setdefault("OTEL_SERVICE_NAME", "loca")
        self.provider = TracerProvider(resource=Resource.create())
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.tracer = self.provider.get_tracer("loca.serving")

    def span(self, scope: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """The span of a request."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        sent = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        attributes = {"http.request.method": scope["method"], "url.path": scope["path"][:200]}
        return self.tracer.start_as_current_span(
            scope["method"], context=extract(sent), kind=SpanKind.SERVER, attributes=attributes
        )

    def describe(self, span: Any, scope: Mapping[str, Any], status: int, model: tuple[str, int] | None) -> None:
        """Add what is known after the response; a span has the name of its route, which few spans differ in."""
        from opentelemetry.trace import StatusCode

        span.set_attribute("http.response.status_code", status)
        if model is not None:
            span.set_attributes({"loca.model": model[0], "loca.version": model[1]})
            path, names = str(scope["path"]), dict[str, str](scope["path_params"])
            parameters = {value: f"{{{name}}}" for name, value in names.items()}
            route = "/".join(parameters.get(part, part) for part in path.split("/"))
            span.update_name(f"{scope['method']} {route}")
            span.set_attribute("http.route", route)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            span.set_status(StatusCode.ERROR)

    def stop(self) -> None:
        """Send what is left."""
        self.provider.shutdown()
