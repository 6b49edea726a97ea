"""Shared by all tests: tiers, a compilation cache, single precision, reproducible examples and fresh random keys."""

import collections
import itertools
import os
from importlib.metadata import version
from pathlib import Path

CACHE = Path(__file__).parent / ".jax-cache"
# Tests, and the processes that they start, compile the same small programs again and again: once is enough.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Most time goes into compiling: without optimization it takes a fifth. With XLA_FLAGS= tests compile as users do.
flags = ["--xla_backend_optimization_level=0"]
flags += ["--xla_cpu_use_fusion_emitters=false"] if version("jaxlib").startswith("0.10.") else []
os.environ.setdefault("XLA_FLAGS", " ".join(flags))

import hypothesis
import jax
import jaxtyping
import pytest

examples = 100 if os.environ.get("LOCA_FULL") else 5
hypothesis.settings.register_profile("loca", deadline=None, derandomize=True, print_blob=True, max_examples=examples)
hypothesis.settings.load_profile("loca")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave out tests marked `full` unless LOCA_FULL=1, and give every file to one worker, the longest files first.

    Tests of one file share fixtures and compiled programs. Files with slow tests are long, and then those with many.
    With the full tests, some files take a quarter of the time: there, only tests with common fixtures stay together.
    """
    is_full = bool(os.environ.get("LOCA_FULL"))
    if not is_full:
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    tests = collections.Counter(item.path for item in items)
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (-slow[item.path], -tests[item.path]))
    for item in items:
        definitions = (each[-1] for each in item._fixtureinfo.name2fixturedefs.values())
        if not is_full or any(definition.scope == "module" for definition in definitions):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))


TESTS = itertools.count(1)


def pytest_runtest_teardown():
    """Compiled programs are forgotten after a hundred tests: with thousands of them alive, the next compile slower."""
    if next(TESTS) % 100 == 0:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def _single_precision():
    """Nobody leaves 64-bit mode on for the tests after it."""
    assert not jax.config.jax_enable_x64
    yield
    assert not jax.config.jax_enable_x64, (
        "leave 64-bit mode as found: use the fixture `x64` or `with jax.enable_x64(True)`"
    )


@pytest.fixture
def x64():
    """64-bit numbers for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def getkey():
    """A function that gives another random key at every call, the same ones in every run."""
    counter = itertools.count()
    return lambda: jax.random.key(next(counter))


@pytest.fixture
def unchecked():
    """Annotations are not checked, as when users run the package: arguments may have other types."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
