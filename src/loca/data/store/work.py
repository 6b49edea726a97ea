"""Work cut into pieces that may be done twice, by any number of workers, and be killed at any moment."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import IO, TypeVar

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


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file that is there as a whole or not at all, on the disk and not only on its way to it."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")  # nobody else's, not even an orphan's
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file or directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def lock(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Make a directory and hold it alone, or wait until that is possible; the system lets go when this process ends."""
    descriptor = acquire(directory, wait)
    try:
        yield
    finally:
        os.close(descriptor)


def acquire(directory: Path, wait: bool) -> int:
    """The open lock file of a directory that is made if need be."""
    import fcntl  # not on Windows, where everything else can still be imported

    path = directory / "lock"
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # whoever held it has just finished and removed it
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise RuntimeError(
                f"{directory} is being written by another process; wait for it, stop it, or choose another name"
            ) from None
        if same_file(descriptor, path):
            return descriptor
        os.close(descriptor)


def same_file(descriptor: int, path: Path) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
