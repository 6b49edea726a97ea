"""One thread for many small matrices."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threadpoolctl


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
