"""The end of a process at any change that it makes to the disk, and what a power failure would lose."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
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


def find_unsynced(monkeypatch, move):
    """What a power failure may lose below the directory of a file or directory that gets its name by `Path.<move>`.

    Gives a dictionary that is filled from now on: for each new name, the paths that were not synced since they changed.
    """
    synced, unsynced = {}, {}
    sync, rename = os.fsync, getattr(Path, move)

    def recorded_sync(descriptor):
        sync(descriptor)
        status = os.fstat(descriptor)
        synced[status.st_ino] = status.st_mtime_ns

    def recorded_rename(path, target):
        tree = path if path.is_dir() else path.parent
        found = ((each, each.stat()) for each in tree.rglob("*"))
        unsynced[Path(target)] = [each for each, status in found if synced.get(status.st_ino) != status.st_mtime_ns]
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(Path, move, recorded_rename)
    return unsynced


DRIVER = """
import json, os, sys
import loca.prediction, loca.problems, loca.runs, rich.progress, xarray, zarr  # once: it takes long
from loca.cli import main
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.argv = ["loca", *json.loads(line)]
        main()
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@contextlib.contextmanager
def forked(log):
    """Start commands in a moment: forked from a process that has imported everything; what they say is in a file.

    Gives a function that starts a command and returns its number, and one that waits for its end and gives its status.
    """
    line = [sys.executable, "-W", "ignore", "-c", DRIVER, str(log)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:

        def status_of():
            return int(driver.stdout.readline())

        def start(command):
            driver.stdin.write(json.dumps(command) + "\n")
            driver.stdin.flush()
            return int(driver.stdout.readline())

        yield start, status_of
