"""Checkpoints: states of a training run, written atomically in the background and verified before use."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loca.devices import SINGLE_PROCESS, ProcessGroup
from loca.durable import MANIFEST, CorruptDataError, lock, read_sealed, seal
from loca.typing import Array, PyTree

if TYPE_CHECKING:
    import orbax.checkpoint as ocp

T = TypeVar("T", bound=PyTree)

KEEP = 3
"""The number of states that are kept, the newest ones."""


class Checkpoints:
    """The newest states of a run, each in a directory `<directory>/<step>`.

    Orbax writes them in the background. Once a state is completely on the disk, it gets a manifest with the SHA-256 of
    each of its files, without which it does not count: Orbax detects few of the bits that may change on a disk.

    Use `with Checkpoints(directory) as checkpoints:`. This creates and locks the directory, and removes what a killed
    process left unfinished. Leaving the block waits for the last save.

    **Arguments:**

    - `directory`: for the checkpoints of this run only.
    - `every_seconds`: time between two saves, for `due`.
    - `processes`: the processes that save and restore together; all of them must make the same calls. Each writes its
      part of the arrays, and the first does everything else.
    """

    _manager: ocp.CheckpointManager
    _writer: ThreadPoolExecutor
    _held: contextlib.ExitStack

    def __init__(
        self, directory: str | Path, *, every_seconds: float = 30.0, processes: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        self.directory = Path(directory).absolute()
        self.every_seconds, self.processes = every_seconds, processes
        self._began = time.monotonic()
        self._saving: tuple[int, Future[None]] | None = None

    def __enter__(self) -> Checkpoints:
        import orbax.checkpoint as ocp  # takes a second

        with contextlib.ExitStack() as held:
            if self.processes.is_first:
                held.enter_context(lock(self.directory))
                for path in self.directory.glob("[0-9]*"):
                    if not (path / MANIFEST).is_file():  # unfinished
                        shutil.rmtree(path)
            self.processes.barrier()
            options = ocp.CheckpointManagerOptions(max_to_keep=KEEP, save_root_metadata=False)
            self._manager = ocp.CheckpointManager(self.directory, options=options)
            logging.getLogger("absl").addFilter(_is_not_raised)
            held.callback(logging.getLogger("absl").removeFilter, _is_not_raised)
            held.callback(self._close)
            self._writer = held.enter_context(ThreadPoolExecutor(1, "checkpoints"))
            self._held = held.pop_all()
        self._began = time.monotonic()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._held:
            try:
                self.wait()
            except OSError as late:
                if error is None:
                    raise
                error.add_note(str(late))
            if error is None:
                self.processes.barrier()  # wait until the first process has sealed the last save

    def _close(self) -> None:
        with contextlib.suppress(Exception):  # errors of a save, which `wait` has raised
            self._manager.close()

    @property
    def due(self) -> bool:
        """Whether `every_seconds` have passed since the last save began, and that save has ended."""
        busy = self._saving is not None and not self._saving[1].done()
        return not busy and time.monotonic() - self._began >= self.every_seconds

    def save(self, state: PyTree, step: int, *, extras: Mapping[str, Any] | None = None) -> None:
        """Copy the arrays of a state and write them in the background; `OSError` if that or the previous save failed.

        **Arguments:**

        - `state`: a tree, of which only JAX arrays are written; `restore` takes everything else from its argument.
        - `step`: the number of the step, larger than that of any checkpoint.
        - `extras`: a small JSON object to restore with the state, such as the history of the run.
        """
        import orbax.checkpoint as ocp

        self.wait()
        arrays = arrays_of(state)
        about = {"extras": dict(extras or {}), "arrays": _kinds(arrays)}
        about = json.loads(json.dumps(about, allow_nan=False))  # a copy: the caller may change the extras
        self._began = time.monotonic()
        try:
            # Orbax copies before it returns, so the next training step may donate the state
            self._manager.save(step, args=ocp.args.StandardSave(_stored(arrays)))
        except Exception as error:
            raise self._failure(step, error) from error

        def finish() -> None:
            self._manager.wait_until_finished()
            if self.processes.is_first:
                seal(self.directory / str(step), about)

        self._saving = step, self._writer.submit(finish)

    def wait(self) -> None:
        """Wait until the last save is on disk; raise `OSError` once if it failed."""
        if self._saving is None:
            return
        step, saving = self._saving
        error = saving.exception()  # keep `_saving` until this returns: Ctrl-C may interrupt it
        self._saving = None
        if error is not None:
            raise self._failure(step, error) from error

    def steps(self) -> list[int]:
        """The steps with a complete checkpoint, oldest first; reading them needs no lock."""
        if not self.directory.is_dir():
            return []
        names = [path.name for path in self.directory.iterdir() if (path / MANIFEST).is_file()]
        return sorted(int(name) for name in names if re.fullmatch("[0-9]+", name))

    def extras(self) -> dict[str, Any] | None:
        """The extras of the newest checkpoint, verified; None if there is no checkpoint."""
        self.processes.barrier()
        steps = self.steps()
        return self._about(steps[-1])["extras"] if steps else None

    def restore(self, like: T) -> T:
        """Load the newest state, and verify every bit on disk.

        Raises `CorruptDataError` with the name of the file if anything has changed; does not fall back to another step.

        **Arguments:**

        - `like`: a state of the same run, such as its first. Provides everything that is not an array, and the devices
          and shardings of the arrays, which may differ from those they were saved from.
        """
        import orbax.checkpoint as ocp

        self.wait()
        step = self.steps()[-1]
        saved, arrays = self._about(step)["arrays"], arrays_of(like)
        for name, wanted in (dict.fromkeys(saved, "missing") | _kinds(arrays)).items():
            if (there := saved.get(name, "missing")) != wanted:
                raise ValueError(
                    f"{self.directory / str(step)} does not match this run: {name} is {there} there, but {wanted} in "
                    "this run. Resume with the model and optimizer that it was saved with, or choose another directory"
                )
        targets = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)
            for name, array in _stored(arrays).items()
        }
        loaded = self._manager.restore(step, args=ocp.args.StandardRestore(targets))
        new = arrays | {name: _commit_like(arrays[name], array) for name, array in loaded.items()}
        old, rest = eqx.partition(like, eqx.is_array)
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(old), new.values()), rest)

    def _about(self, step: int) -> dict[str, Any]:
        """What is known about a step, after a check of all its files."""
        path = self.directory / str(step)
        try:
            return read_sealed(path)
        except CorruptDataError as error:
            earlier = [other for other in self.steps() if other < step]
            then = f"resume from step {earlier[-1]}" if earlier else "start again, as there is no earlier one"
            raise CorruptDataError(f"{error}. Restore {path} from a copy, or delete it to {then}") from None

    def _failure(self, step: int, error: BaseException) -> OSError:
        """Describe what is left after a save that failed."""
        steps = self.steps()
        intact = f"the one of step {steps[-1]} is intact" if steps else "there is no earlier one"
        return OSError(
            f"the checkpoint of step {step} could not be written to {self.directory}; {intact}. "
            f"Free some space there, or make it writable, and repeat the same call. Cause: {error}"
        )


def arrays_of(state: PyTree) -> dict[str, Array]:
    """The JAX arrays of a tree by name, which is their path in the tree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(state, eqx.is_array))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _stored(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays that are not empty; Orbax refuses empty ones, and their shape is all there is to them."""
    return {name: array for name, array in arrays.items() if array.size}


def _commit_like(like: Array, array: Array) -> Array:
    """The array, committed to its device only if `like` is: JAX compiles another program for committed arrays."""
    if like.committed or not array.committed:
        return array
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        kind = jax.random.key_impl(array)
        return jax.random.wrap_key_data(_commit_like(like, jax.random.key_data(array)), impl=kind)
    return jax.device_put(np.asarray(array), may_alias=False)


def _kinds(arrays: Mapping[str, Array]) -> dict[str, str]:
    """The type and shape of each array, such as float32[3, 4]."""
    return {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items()}


def _is_not_raised(record: logging.LogRecord) -> bool:
    """Whether a record is no traceback of a thread of Orbax: the errors are raised as well."""
    return record.exc_info is None or "orbax" not in Path(record.pathname).parts
