"""The processes that serve an application, which uvicorn starts and keeps alive."""

from __future__ import annotations

import copy
import os
import signal
import sys
import tempfile

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from loca.saving import inspect
from loca.serving.application import SETTINGS, Settings, Tokens
from loca.serving.repository import find_models


def serve(settings: Settings, host: str = "127.0.0.1", port: int = 8000, workers: int = 1) -> None:
    """Serve until SIGTERM or Ctrl-C, and exit.

    **Arguments:**

    - `settings`: what is served.
    - `host`, `port`: where to listen; port 0 for any that is free.
    - `workers`: processes that share the address and the cores, and nothing else; one that dies is started again.
    """
    for file in find_models(settings.models, is_start=True).values():
        inspect(file)
    Tokens(settings.tokens)
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
