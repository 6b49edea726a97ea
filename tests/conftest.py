"""What all tests share: 32-bit numbers as users have them, reproducible examples, and fresh random keys."""

import itertools

import hypothesis
import jax
import pytest

hypothesis.settings.register_profile("loca", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("loca")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Slow tests come first, so that no worker is left alone with them at the end.

    Tests that share what a module has prepared stay on one worker, so that it is prepared once.
    """
    items.sort(key=lambda item: "slow" not in item.keywords)
    for item in items:
        shared = (definition[-1] for definition in item._fixtureinfo.name2fixturedefs.values())
        if any(definition.scope == "module" for definition in shared):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))


def pytest_runtest_teardown(item, nextitem):
    """Compiled programs are forgotten after each file: with thousands of them alive, the next compile slower."""
    if nextitem is None or nextitem.path != item.path:
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
