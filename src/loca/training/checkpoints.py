"""Checkpoints: states of a training run, written atomically in the background and verified before use."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loca.devices import SINGLE_PROCESS, ProcessGroup
from loca.durable import MANIFEST, CorruptDataError, Manifest, lock, sync
from loca.parameters import Fixed
from loca.typing import Array, PyTree

T = TypeVar("T", bound=PyTree)

ARRAYS = "arrays"
"""The subdirectory of a step that Orbax writes."""


class Checkpoints:
    """The newest states of a run and the best one, each in a directory `<directory>/<step>`.

    Reading needs no lock. To save, use `with Checkpoints(directory) as checkpoints:`. This creates and locks the
    directory, and removes what a killed process left unfinished. Leaving the block waits for the last save.

    **Arguments:**

    - `keep`: number of the newest states to keep, in addition to the best one.
    - `every_seconds`: time between two saves, for `due`.
    - `processes`: the processes that save and restore together; all of them must make the same calls. Each writes its
      part of the arrays, and the first does everything else.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        keep: int = 3,
        every_seconds: float = 30.0,
        processes: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep} keeps no checkpoint; pass at least 1")
        self.directory = Path(directory).absolute()
        self.keep = keep
        self.every_seconds = every_seconds
        self.processes = processes
        self._held: contextlib.ExitStack | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._saving: tuple[int, Future[None]] | None = None
        self._began = time.monotonic()

    def __enter__(self) -> Checkpoints:
        from orbax.checkpoint import v1  # noqa: F401  # takes a second: import here, not in the first save

        with contextlib.ExitStack() as held:
            if self.processes.is_first:
                held.enter_context(lock(self.directory))
                self._tidy()
            self.processes.barrier()
            held.enter_context(without_duplicate_errors(logging.getLogger("absl")))
            self._writer = held.enter_context(ThreadPoolExecutor(1, "checkpoints"))
            self._held = held.pop_all()
        self._began = time.monotonic()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._held is not None
        with self._held:
            self._held = self._writer = None
            try:
                self.wait()
            except OSError as late:
                if error is None:
                    raise
                error.add_note(str(late))
            if error is None:
                self.processes.barrier()  # wait until the first process has published the last save
                if self.processes.is_first:
                    self._tidy()  # a failed save may have written on while it was removed

    @property
    def due(self) -> bool:
        """Whether `every_seconds` have passed since the last save began, and that save has ended."""
        busy = self._saving is not None and not self._saving[1].done()
        return not busy and time.monotonic() - self._began >= self.every_seconds

    def save(
        self, state: PyTree, step: int, *, extras: Mapping[str, Any] | None = None, metric: float | None = None
    ) -> None:
        """Copy the arrays of a state and write them in the background, replacing an earlier save of the same step.

        Wait for the previous save first. If that failed, raise its error and write nothing; call again to retry.

        **Arguments:**

        - `state`: a tree, of which only JAX arrays are written; `restore` takes everything else from its argument.
        - `extras`: a small JSON object to restore with the state, such as the history of the run.
        - `metric`: the state with the lowest metric is the best. Metrics that are not finite are ignored.
        """
        if self._writer is None:
            raise RuntimeError("saving requires a lock; use `with Checkpoints(directory) as checkpoints: ...`")
        from orbax.checkpoint import v1 as orbax

        self.wait()
        plain = orbax.Context()
        plain.array.saving.use_compression = False  # takes five times as long to save a tenth of the space
        arrays = arrays_of(state)
        if not stored(arrays):
            raise ValueError("the state has no JAX arrays, so nothing to save; pass the state of a training run")
        about = {
            "step": step,
            "metric": None if metric is None or not math.isfinite(metric) else float(metric),
            "extras": as_json(extras or {}),
            "arrays": {name: kind_of(array) for name, array in arrays.items()},
        }
        self._began = time.monotonic()
        unfinished = self._hidden(step)
        try:
            if self.processes.is_first:
                shutil.rmtree(unfinished, ignore_errors=True)
            with plain:
                # Orbax copies before it returns, so the next training step may donate the state
                written = orbax.save_async(str(unfinished / ARRAYS), stored(arrays))
        except Exception as error:
            raise self._failure(step, error) from error

        def finish() -> None:
            written.result()
            if self.processes.is_first:
                Manifest.seal(unfinished, about)
                self._publish(step)
                self._retire()

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
        """The steps with a complete checkpoint, oldest first."""
        if not self.directory.is_dir():
            return []
        names = [path.name for path in self.directory.iterdir() if (path / MANIFEST).is_file()]
        return sorted(int(name) for name in names if re.fullmatch("[0-9]+", name))

    def latest(self) -> int | None:
        """The newest step with a complete checkpoint."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """The step with the lowest metric, and the newest of these; None if no step has a metric."""
        metrics = {step: Manifest.read(self._path(step)).about["metric"] for step in self.steps()}
        return lowest(metrics)

    def restore(self, like: T, step: int | None = None) -> tuple[T, dict[str, Any]]:
        """Load a state and its extras, and verify every bit on disk.

        Raises `CorruptDataError` with the name of the file if anything has changed; does not fall back to another step.

        **Arguments:**

        - `like`: a state of the same run, such as its first. Provides everything that is not an array, the devices and
          shardings of the arrays, which may differ from those they were saved from, and arrays of `Fixed` parts that
          the checkpoint lacks because the model has gained them since.
        - `step`: one of `steps`; the newest unless given.
        """
        from orbax.checkpoint import v1 as orbax

        self.wait()
        self.processes.barrier()
        steps = self.steps()
        if not steps:
            raise FileNotFoundError(f"no complete checkpoint in {self.directory}; start a new run")
        step = steps[-1] if step is None else step
        if step not in steps:
            raise FileNotFoundError(f"no checkpoint of step {step} in {self.directory}; choose one of {steps}")
        path = self._path(step)
        try:
            checked = Manifest.read(path)
            checked.verify(path)
        except CorruptDataError as error:
            earlier = [other for other in steps if other < step]
            then = f"resume from step {earlier[-1]}" if earlier else "start again, as there is no earlier one"
            raise CorruptDataError(f"{error}. Restore {path} from a copy, or delete it to {then}") from None

        saved, arrays = checked.about["arrays"], arrays_of(like)
        gained = {name for name in names_of_fixed(like) if name not in saved}
        wanted = {name: array for name, array in arrays.items() if name not in gained}
        difference = first_difference(saved, {name: kind_of(wanted[name]) for name in wanted})
        if difference:
            raise ValueError(
                f"{path} does not match this run: {difference}. Resume with the model and optimizer that it was saved "
                "with, or choose another directory"
            )
        targets = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)
            for name, array in stored(wanted).items()
        }
        loaded = orbax.load(str(path / ARRAYS), targets)
        placed = {name: commit_like(wanted[name], array) for name, array in loaded.items()}
        return with_arrays(like, arrays | placed), checked.about["extras"]

    def _path(self, step: int) -> Path:
        return self.directory / str(step)

    def _hidden(self, step: int, suffix: str = "") -> Path:
        return self.directory / f".{step}{suffix}"

    def _publish(self, step: int) -> None:
        """Move a finished directory into place, replacing an older one of the same step."""
        if step in self.steps():
            self._set_aside(step)
        self._hidden(step).rename(self._path(step))
        sync(self.directory)
        shutil.rmtree(self._hidden(step, ".old"), ignore_errors=True)

    def _set_aside(self, step: int) -> None:
        """Hide a step atomically; if this process is killed, `_tidy` removes what is left of it."""
        shutil.rmtree(self._hidden(step, ".old"), ignore_errors=True)
        self._path(step).rename(self._hidden(step, ".old"))

    def _retire(self) -> None:
        """Remove steps that are neither among the newest nor the best; keep damaged ones for inspection."""
        metrics = {}
        for step in self.steps():
            with contextlib.suppress(CorruptDataError):
                metrics[step] = Manifest.read(self._path(step)).about["metric"]
        for step in sorted(metrics)[: -self.keep]:
            if step != lowest(metrics):
                self._set_aside(step)
                shutil.rmtree(self._hidden(step, ".old"), ignore_errors=True)

    def _tidy(self) -> None:
        """Remove what a killed process left unfinished; publish what it had finished."""
        for path in sorted(self.directory.iterdir()):  # .7 sorts before .7.old
            if named := re.fullmatch(r"\.([0-9]+)(\.old)?", path.name):
                if not named[2] and (path / MANIFEST).is_file():
                    self._publish(int(named[1]))
                else:
                    shutil.rmtree(path, ignore_errors=True)

    def _failure(self, step: int, error: BaseException) -> OSError:
        """Remove a failed save, and describe what is left."""
        if self.processes.is_first:
            shutil.rmtree(self._hidden(step), ignore_errors=True)
        latest = self.latest()
        intact = "there is no earlier one" if latest is None else f"the one of step {latest} is intact"
        return OSError(
            f"the checkpoint of step {step} could not be written to {self.directory}; {intact}. "
            f"Free some space there, or make it writable, and save again. Cause: {error}"
        )


def arrays_of(state: PyTree) -> dict[str, Array]:
    """The JAX arrays of a tree by name, which is their path in the tree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(eqx.filter(state, eqx.is_array))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def names_of_fixed(state: PyTree) -> set[str]:
    """The names of the arrays in `Fixed` parts, which no step changes."""
    others = jax.tree.map(
        lambda part: None if isinstance(part, Fixed) else part, state, is_leaf=lambda part: isinstance(part, Fixed)
    )
    return arrays_of(state).keys() - arrays_of(others).keys()


def with_arrays(like: T, arrays: Mapping[str, Array]) -> T:
    """The tree with its arrays replaced."""
    old, rest = eqx.partition(like, eqx.is_array)
    new = jax.tree_util.tree_map_with_path(lambda path, _: arrays[jax.tree_util.keystr(path)], old)
    return eqx.combine(new, rest)


def stored(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The arrays that are not empty; Orbax refuses empty ones, and their shape is all there is to them."""
    return {name: array for name, array in arrays.items() if array.size}


def commit_like(like: Array, array: Array) -> Array:
    """The array, committed to its device only if `like` is: JAX compiles another program for committed arrays."""
    if like.committed or not array.committed:
        return array
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        kind = jax.random.key_impl(array)
        return jax.random.wrap_key_data(commit_like(like, jax.random.key_data(array)), impl=kind)
    return jax.device_put(np.asarray(array), may_alias=False)


def kind_of(array: Array) -> str:
    """The type and shape of an array, such as float32[3, 4]."""
    return f"{array.dtype}{list(array.shape)}"


def first_difference(saved: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """Describe the first array that differs between a checkpoint and a state; None if none does."""
    for name in [*wanted, *saved]:
        if saved.get(name) != wanted.get(name):
            return f"{name} is {saved.get(name, 'missing')} there, but {wanted.get(name, 'missing')} in this run"
    return None


def lowest(metrics: Mapping[int, float | None]) -> int | None:
    """The step with the lowest metric, and the newest of these."""
    known = [(metric, -step) for step, metric in metrics.items() if metric is not None]
    return -min(known)[1] if known else None


def as_json(extras: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the extras as `restore` will return them, unaffected by later changes."""
    try:
        return json.loads(json.dumps(dict(extras), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"extras must be JSON with finite numbers: {error}") from error


@contextlib.contextmanager
def without_duplicate_errors(logger: logging.Logger) -> Iterator[None]:
    """Keep Orbax from printing the tracebacks of its threads: the errors are raised as well."""

    def wanted(record: logging.LogRecord) -> bool:
        return record.exc_info is None or "orbax" not in Path(record.pathname).parts

    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)
