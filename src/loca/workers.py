"""Independent tasks run by any number of workers, which may be killed at any moment."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import threadpoolctl

T = TypeVar("T")

DEATHS = 3
"""Number of consecutive times that a pool of workers may die without completing a task."""


def run_tasks(
    run: Callable[[T], object], tasks: Sequence[T], *, workers: int = 1, executor: Executor | None = None
) -> Iterator[T]:
    """Run all tasks and yield each one when it is complete.

    **Arguments:**

    - `run`: runs one task; running a task twice, even concurrently, must be harmless.
    - `tasks`: the tasks, in the order in which they are started.
    - `workers`: number of processes to start; with 1 the tasks run in this process.
    - `executor`: runs the tasks instead; its workers must see the same files.
    """
    if executor is not None:
        futures = {executor.submit(run, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        finally:  # if one has failed, those that have not started are left out
            for future in futures:
                future.cancel()
    elif workers == 1:
        for task in tasks:
            run(task)
            yield task
    else:
        yield from _run_in_processes(workers, run, tasks)


def _run_in_processes(workers: int, run: Callable[[T], object], tasks: Sequence[T]) -> Iterator[T]:
    """Run all tasks in new processes; if one is killed, start new processes for the remaining tasks."""
    waiting, deaths = dict.fromkeys(range(len(tasks))), 0
    # JAX has threads, and a forked process would inherit the locks they hold: spawn instead
    context = multiprocessing.get_context("spawn")
    while waiting:
        pool = ProcessPoolExecutor(min(workers, len(waiting)), context, initializer=_start_worker)
        try:
            futures = {pool.submit(run, tasks[i]): i for i in waiting}
            for future in as_completed(futures):
                future.result()
                del waiting[futures[future]]
                deaths = 0
                yield tasks[futures[future]]
        except BrokenProcessPool as error:
            deaths += 1
            if deaths == DEATHS:
                raise RuntimeError(
                    f"worker processes died {DEATHS} times without completing a task: killed, or out of memory? "
                    "Completed work is kept; run the same command with fewer workers to resume. "
                    "In a script of your own, call this under `if __name__ == '__main__':`"
                ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    """End this process when its parent has ended for any reason; leave Ctrl-C to the parent.

    XLA has one thread: it splits sums among threads, and results would depend on the number of cores.
    """
    os.environ.setdefault("NPROC", "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit linear algebra to the calling thread inside the context.

    OpenBLAS wakes all its threads even for matrices that take microseconds, and they wait for each other by spinning:
    with another process on the same cores, a banded Cholesky factorization took 10 to 40 times as long. Work is
    distributed over processes instead.
    """
    with _controller().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _controller() -> threadpoolctl.ThreadpoolController:
    """The controller of the linear algebra libraries of this process; SciPy's must be loaded before to be found."""
    import scipy.linalg  # noqa: F401
    import threadpoolctl

    return threadpoolctl.ThreadpoolController()
