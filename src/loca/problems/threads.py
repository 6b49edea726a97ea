"""One thread for many small matrices."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within, OpenBLAS works with the calling thread alone; afterwards with as many as before.

    OpenBLAS wakes all its threads for matrices that take microseconds, and they wait for each other by spinning: with
    another process on the same cores, a banded Cholesky factor has been measured to take 10 to 40 times as long. Work
    is spread over processes instead. Without OpenBLAS nothing happens.
    """
    controls = _controls()
    before = [get() for get, _ in controls]
    try:
        for _, put in controls:
            put(1)
        yield
    finally:
        for (_, put), count in zip(controls, before, strict=True):
            put(count)


@functools.cache
def _controls() -> tuple[tuple[Callable[[], int], Callable[[int], None]], ...]:
    """How to ask for and set the number of threads of the OpenBLAS that NumPy has loaded, and of SciPy's."""
    import numpy.linalg._umath_linalg as numpy_linalg
    import scipy.linalg._flapack as scipy_linalg

    found = []
    for module in (numpy_linalg, scipy_linalg):
        # a symbol is looked up in the libraries that the module is linked to as well
        library = ctypes.CDLL(module.__file__)
        for prefix, suffix in itertools.product(("scipy_", ""), ("64_", "")):
            get = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
            put = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
            if get is not None and put is not None:
                put.argtypes, put.restype = [ctypes.c_int], None
                found.append((get, put))
                break
    return tuple(found)
