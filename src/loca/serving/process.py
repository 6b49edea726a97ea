"""The process that serves an application, or several that share an address."""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

import jax
import uvicorn
from starlette.applications import Starlette

from loca.serving.application import Settings, Tokens, create_application
from loca.serving.metrics import LOGGING, SHARED_METRICS, report
from loca.serving.repository import find_models

SETTINGS = "LOCA_SERVE"
"""The environment variable with the settings of worker processes, as JSON."""

CANNOT_START = 3
"""The exit code with which uvicorn ends all workers instead of starting another one."""


def serve(settings: Settings, host: str = "127.0.0.1", port: int = 8000, workers: int = 1) -> None:
    """Serve until SIGTERM or Ctrl-C.

    **Arguments:**

    - `settings`: what is served.
    - `host`, `port`: where to listen; port 0 for any that is free.
    - `workers`: processes that share the address and the cores, and nothing else; one that dies is started again.
    """
    find_models(settings.models, is_start=True)
    Tokens(settings.tokens)
    os.environ[SETTINGS] = settings.model_dump_json()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # after the last response
    with tempfile.TemporaryDirectory(prefix="loca-serve-") as directory:
        keep_programs(f"{directory}/compiled")
        if workers > 1:
            os.environ[SHARED_METRICS] = f"{directory}/metrics"
            Path(directory, "metrics").mkdir()
            os.environ.setdefault("NPROC", str(max(1, (os.cpu_count() or 1) // workers)))  # threads of XLA
        uvicorn.run(
            "loca.serving.process:from_environment",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=LOGGING,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=1000,  # connections of a process
            timeout_keep_alive=75,  # longer than a proxy keeps connections: it might use one that is being closed
            timeout_graceful_shutdown=int(settings.timeout) + 5,
            timeout_worker_healthcheck=30,
        )


def keep_programs(directory: str) -> None:
    """Keep compiled programs in a directory, unless the environment names one.

    A worker that is started again finds the programs of the earlier one, and a model those of its previous version.
    """
    kept = {
        "jax_compilation_cache_dir": directory,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in kept.items():
        if name.upper() not in os.environ:
            os.environ[name.upper()] = str(value)  # for workers
            jax.config.update(name, value)


def from_environment() -> Starlette:
    """The application of a process, with the settings of its environment."""
    try:
        return create_application(Settings.model_validate_json(os.environ[SETTINGS]))
    except (ValueError, TypeError, OSError) as error:
        report("cannot_start", level=logging.ERROR, error=str(error))
        sys.exit(CANNOT_START)
