"""The process that serves an application, or several that share an address."""

from __future__ import annotations

import logging
import logging.config
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

import jax
import uvicorn

from loca.serving.application import Settings, Tokens, create_application
from loca.serving.metrics import LOGGING, SHARED_METRICS, report
from loca.serving.repository import find_models

CANNOT_START = 3
"""The exit code of a worker that would fail again."""


def serve(settings: Settings, host: str = "127.0.0.1", port: int = 8000, workers: int = 1) -> None:
    """Serve until SIGTERM or Ctrl-C, and exit.

    **Arguments:**

    - `settings`: what is served.
    - `host`, `port`: where to listen; port 0 for any that is free.
    - `workers`: processes that share the address and the cores, and nothing else; one that dies is started again.
    """
    find_models(settings.models, is_start=True)
    Tokens(settings.tokens)
    bind(host, port).close()  # an address that another program uses is refused
    logging.config.dictConfig(LOGGING)
    with (
        tempfile.TemporaryDirectory(prefix="loca-serve-") as directory,
        bind(host, port, is_shared=workers > 1) as listener,
    ):
        address = listener.getsockname()[:2]
        report("starting", address="http://{}:{}".format(*address), workers=workers)
        keep_programs(f"{directory}/compiled")
        if workers == 1:
            run(settings, listener)
        os.environ[SHARED_METRICS] = f"{directory}/metrics"
        Path(directory, "metrics").mkdir()
        os.environ.setdefault("NPROC", str(max(1, (os.cpu_count() or 1) // workers)))  # threads of XLA
        sys.exit(supervise(settings, address, workers))


def bind(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """A socket at an address; if processes share it, the system distributes connections evenly among them.

    Workers of uvicorn share one socket instead, from which the first one that wakes up takes all that waits.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT if is_shared else socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ValueError(f"cannot listen at {host}:{port}: {error.strerror}; choose another --host or --port") from None
    return listener


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


def run(settings: Settings, listener: socket.socket) -> None:
    """Serve in this process, and exit."""
    for number in (signal.SIGTERM, signal.SIGINT):  # after uvicorn's own handler, which waits for the last response
        signal.signal(number, lambda number, frame: sys.exit(0))
    try:
        application = create_application(settings)
    except (ValueError, TypeError, OSError) as error:
        report("cannot_start", level=logging.ERROR, error=str(error))
        sys.exit(CANNOT_START)
    config = uvicorn.Config(
        application,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=LOGGING,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=1000,  # connections
        timeout_keep_alive=75,  # longer than a proxy keeps connections: it might use one that is being closed
        timeout_graceful_shutdown=int(settings.timeout) + 5,
    )
    uvicorn.Server(config).run(sockets=[listener])
    sys.exit(0)


def work(settings: Settings, address: tuple[str, int]) -> None:
    """Serve in a worker process, until it is told to end or the first process has ended."""
    parent = multiprocessing.parent_process()

    def end_with_parent() -> None:
        if parent is not None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.config.dictConfig(LOGGING)
    run(settings, bind(*address, is_shared=True))


def supervise(settings: Settings, address: tuple[str, int], workers: int) -> int:
    """Keep workers alive until SIGTERM or Ctrl-C; the exit code is 1 if they cannot start."""
    ending: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: ending.append(0))
    context, processes = multiprocessing.get_context("spawn"), []
    while not ending:
        while len(processes) < workers:
            processes.append(context.Process(target=work, args=(settings, address)))
            processes[-1].start()
        multiprocessing.connection.wait([process.sentinel for process in processes], timeout=0.2)
        for process in processes:
            if process.exitcode is not None:
                report("worker_ended", worker=process.pid, code=process.exitcode)
                ending += [1] * (process.exitcode == CANNOT_START)
        processes = [process for process in processes if process.exitcode is None]
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
    return ending[0]
