"""Work cut into pieces that may be done twice, by any number of workers, and be killed at any moment."""

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

P = TypeVar("P")

DEATHS = 3
"""How often in a row a pool of workers may die before it has finished one piece."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NPROC": "1",
}
"""What keeps the libraries in each of several worker processes to one core.

NPROC is XLA's: how many threads it starts. By their number it splits sums: with one, they don't depend on the cores.
"""


def carry_out(
    work: Callable[[P], object], pieces: Sequence[P], *, workers: int = 1, executor: Executor | None = None
) -> Iterator[P]:
    """Do every piece of some work and give each back as it is done.

    **Arguments:**

    - `work`: does one piece; it must be harmless to do a piece twice, and at once.
    - `workers`: how many processes of our own; with 1 the work is done in this one.
    - `executor`: who is to do the work instead; its workers must see the same files.
    """
    if executor is not None:
        yield from by_executor(executor, work, pieces)
    elif workers == 1:
        for piece in pieces:
            work(piece)
            yield piece
    else:
        yield from by_processes(workers, work, pieces)


def by_executor(executor: Executor, work: Callable[[P], object], pieces: Sequence[P]) -> Iterator[P]:
    """Hand all pieces to an executor; should one fail, do not begin those that wait."""
    futures = {executor.submit(work, piece): piece for piece in pieces}
    try:
        for future in as_completed(futures):
            future.result()
            yield futures[future]
    finally:
        for future in futures:
            future.cancel()


def by_processes(workers: int, work: Callable[[P], object], pieces: Sequence[P]) -> Iterator[P]:
    """Hand all pieces to new processes, and what they leave undone when one is killed to other new ones."""
    waiting = dict.fromkeys(range(len(pieces)))
    deaths = 0
    while waiting:
        # JAX has threads, and a forked process inherits the locks they hold: processes are started afresh
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(min(workers, len(waiting)), context, initializer=begin_worker)
        try:
            with environment(ONE_THREAD):  # read by the libraries when they are loaded
                futures = {pool.submit(work, pieces[i]): i for i in waiting}
            for future in as_completed(futures):
                future.result()
                del waiting[futures[future]]
                deaths = 0
                yield pieces[futures[future]]
        except BrokenProcessPool as error:
            deaths += 1
            if deaths == DEATHS:
                raise RuntimeError(
                    f"worker processes died {DEATHS} times before they had done anything: killed, or out of memory? "
                    "Run the same again with fewer workers to go on; nothing that was done is lost. "
                    "In a script of your own, call this under `if __name__ == '__main__':`"
                ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def begin_worker() -> None:
    """End this process when its parent is gone, however that ended; leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for the processes started meanwhile, unless the user has set them."""
    missing = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within, linear algebra works with the calling thread alone; afterwards with as many as before.

    OpenBLAS wakes all its threads for matrices that take microseconds, and they wait for each other by spinning: with
    another process on the same cores, a banded Cholesky factor has been measured to take 10 to 40 times as long. Work
    is spread over processes instead.
    """
    with controller().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def controller() -> threadpoolctl.ThreadpoolController:
    """What knows the libraries of this process; it sees those that are loaded, so SciPy's has to be."""
    import scipy.linalg  # noqa: F401
    import threadpoolctl

    return threadpoolctl.ThreadpoolController()
