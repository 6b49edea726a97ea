"""Saves under way, as tests see them in a directory of checkpoints."""

import time
from collections.abc import Callable
from pathlib import Path

from zygote import PATIENCE

from loca.durable import MANIFEST


def is_saving(checkpoints: Path) -> bool:
    """Whether a save was begun and has not ended."""
    return any(path.name != "lock" and not (path / MANIFEST).exists() for path in checkpoints.iterdir())


def wait_for_a_save(checkpoints: Path) -> None:
    wait_until(lambda: is_saving(checkpoints))


def wait_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "nothing is saved any more"
        time.sleep(0.001)
