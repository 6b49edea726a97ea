"""What a server reports: logs as lines of JSON, and metrics for Prometheus."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the directory in which worker processes keep their metrics."""

logger = logging.getLogger("loca.serving")

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
    """Write the logs of this package and of uvicorn to standard error as lines of JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name, level in {"loca.serving": logging.INFO, "uvicorn.error": logging.ERROR}.items():
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

        self._labeled: dict[tuple[str, int], tuple[Any, Any]] = {}

    def count(self, model: str, status: int, seconds: float) -> None:
        """Count a request; the model is empty if it has none."""
        if (model, status) not in self._labeled:  # as many as there are models and kinds of errors
            self._labeled[model, status] = self.requests.labels(model, status), self.seconds.labels(model)
        requests, times = self._labeled[model, status]
        requests.inc()
        times.observe(seconds)

    def write(self) -> tuple[bytes, str]:
        """All metrics as text, and its content type."""
        registry = self.registry
        if os.environ.get(SHARED_METRICS):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # pyright: ignore[reportArgumentType]
        return generate_latest(registry), CONTENT_TYPE_LATEST
