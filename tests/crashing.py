"""The end of a process at any change that it makes to the disk."""

import shutil
from pathlib import Path


class Crash(BaseException):
    """The power is gone: nothing after it is done, and nobody catches it."""


def crash_at(monkeypatch, moment, *places):
    """Whatever changes the disk, and what `places` name besides, does so `moment` times, and then never again.

    Gives a function that tells how often it was done.
    """
    changes = 0

    def counted(change):
        def wrapper(*args, **kwargs):
            nonlocal changes
            changes += 1
            if changes > moment:
                raise Crash
            return change(*args, **kwargs)

        return wrapper

    for place, name in [(Path, "replace"), (Path, "rename"), (Path, "unlink"), (shutil, "rmtree"), *places]:
        monkeypatch.setattr(place, name, counted(getattr(place, name)))
    return lambda: changes
