"""What a server reports: metrics for Prometheus, and logs as lines of JSON."""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable with the directory in which worker processes keep their metrics."""

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Upper ends of the bins of response times."""

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "loca.serving.metrics.JsonLines"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "loggers": {
        name: {"handlers": ["stderr"], "level": "INFO", "propagate": False} for name in ("loca.serving", "uvicorn")
    },
}
"""The logs of this package and of uvicorn, for `logging.config`."""


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, process, event, and the fields of the event."""

    converter = time.gmtime
    default_time_format, default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        line = {"time": self.formatTime(record), "level": record.levelname.lower(), "process": record.process}
        line |= {"event": record.getMessage(), **getattr(record, "fields", {})}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def report(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    logging.getLogger("loca.serving").log(level, event, extra={"fields": fields})


class Metrics:
    """Counters and histograms of one process, or of all worker processes if they share a directory for them."""

    def __init__(self):
        registry = self._registry = CollectorRegistry()
        self._kept: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        names = ["model", "status"]
        self.requests = Counter("loca_requests_total", "Requests by model and HTTP status", names, registry=registry)
        self.refusals = Counter("loca_refusals_total", "Refused requests by reason", ["reason"], registry=registry)
        self.seconds = Histogram("loca_request_seconds", "Response time", ["model"], buckets=SECONDS, registry=registry)
        sizes = (1, 2, 4, 8, 16, 32, 64, 256)
        self.batch = Histogram("loca_batch_functions", "Functions run together", buckets=sizes, registry=registry)
        self.models = Counter("loca_model_events_total", "Loaded, removed, failed", ["event"], registry=registry)

    def count(self, model: str, status: int, seconds: float) -> None:
        """Count a request; the model is empty if it has none."""
        if (model, status) not in self._kept:  # to look labels up takes time
            self._kept[model, status] = self.requests.labels(model, status), self.seconds.labels(model)
        requests, histogram = self._kept[model, status]
        requests.inc()
        histogram.observe(seconds)

    def write(self) -> tuple[bytes, str]:
        """All metrics as text, and its content type."""
        registry = self._registry
        if os.environ.get(SHARED_METRICS):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
        return generate_latest(registry), CONTENT_TYPE_LATEST
