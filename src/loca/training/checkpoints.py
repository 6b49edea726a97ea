"""States of a training run on the disk: written beside the training, whole or not at all, checked before use."""

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
from types import TracebackType
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loca.devices import SINGLE_PROCESS, ProcessGroup
from loca.durable import CorruptDataError, lock, manifest, sync
from loca.durable.manifest import Manifest
from loca.models import Signature
from loca.typing import Array, PyTree

T = TypeVar("T", bound=PyTree)

ARRAYS = "arrays"
"""The directory, inside that of a step, which Orbax writes."""


class Checkpoints:
    """The newest few states of a run, and the best one, each in its own directory `<directory>/<step>`.

    Anybody may read. To save, enter it (`with Checkpoints(directory) as checkpoints:`): this makes the directory and
    holds it alone, and removes what a killed process has left half done. Leaving waits for the last save.

    **Arguments:**

    - `keep`: how many of the newest states stay on the disk; the best one stays besides.
    - `every_seconds`: how much time lies between two saves, for `due`.
    - `crew`: the processes that save and restore together, each of which must then do both. Each writes its part of
      the arrays; all else that happens to the directory the first does.
    """

    def __init__(
        self, directory: str | Path, *, keep: int = 3, every_seconds: float = 30.0, crew: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep} would keep no checkpoint; keep at least 1")
        self.directory = Path(directory).absolute()
        self.keep = keep
        self.every_seconds = every_seconds
        self.crew = crew
        self._held: contextlib.ExitStack | None = None
        self._writer: ThreadPoolExecutor | None = None
        self._saving: tuple[int, Future[None]] | None = None
        self._began = time.monotonic()

    def __enter__(self) -> Checkpoints:
        from orbax.checkpoint import v1  # noqa: F401  # takes a second: here, not in the first save

        with contextlib.ExitStack() as held:
            if self.crew.is_first:
                held.enter_context(lock(self.directory))
                self._tidy()
            self.crew.barrier()
            held.enter_context(without_raised_errors(logging.getLogger("absl")))
            self._writer = held.enter_context(ThreadPoolExecutor(1, "checkpoints"))
            self._held = held.pop_all()
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                self.crew.barrier()  # nobody leaves before the first has put the last save in its place

    @property
    def due(self) -> bool:
        """Whether `every_seconds` have passed since the last save began and a new one need not wait for it."""
        busy = self._saving is not None and not self._saving[1].done()
        return not busy and time.monotonic() - self._began >= self.every_seconds

    def save(
        self, state: PyTree, step: int, *, extras: Mapping[str, Any] | None = None, metric: float | None = None
    ) -> None:
        """Copy the arrays of a state and write them in the background; what is there already for `step` is replaced.

        An earlier save is waited for, and raises here if it failed: nothing of the new one is then written. Calling
        again is all it needs once there is room on the disk.

        **Arguments:**

        - `state`: only its JAX arrays are written; everything else is given again to `restore`.
        - `extras`: a little JSON to come back with the state, such as the history of the run.
        - `metric`: decides which state is the best: the lowest. One that is not finite does not count.
        """
        if self._writer is None:
            raise RuntimeError("to save, hold the directory first: `with Checkpoints(directory) as checkpoints: ...`")
        from orbax.checkpoint import v1 as orbax

        self.wait()
        plain = orbax.Context()
        plain.array.saving.use_compression = False  # five times the work, for a tenth of the room
        arrays = arrays_of(state)
        if not stored(arrays):
            raise ValueError("the state has no JAX arrays: there is nothing to save; give the state of a training run")
        about = {
            "step": step,
            "metric": None if metric is None or not math.isfinite(metric) else float(metric),
            "extras": as_json(extras or {}),
            "arrays": {name: kind_of(array) for name, array in arrays.items()},
        }
        self._began = time.monotonic()
        unfinished = self._hidden(step)
        try:
            if self.crew.is_first:
                shutil.rmtree(unfinished, ignore_errors=True)
            with plain:
                # Orbax copies before it returns, so the state may be donated to the next step of training
                written = orbax.save_async(str(unfinished / ARRAYS), stored(arrays))
        except Exception as error:
            raise self._failure(step, error) from error

        def finish() -> None:
            written.result()
            if self.crew.is_first:
                Manifest.seal(unfinished, about)
                self._publish(step)
                self._retire()

        self._saving = step, self._writer.submit(finish)

    def wait(self) -> None:
        """Return when the last save is on the disk; raise `OSError` if it failed, once."""
        if self._saving is None:
            return
        step, saving = self._saving
        error = saving.exception()  # not forgotten before this returns: Ctrl-C may come meanwhile
        self._saving = None
        if error is not None:
            raise self._failure(step, error) from error

    def steps(self) -> list[int]:
        """The steps that are on the disk as a whole, oldest first."""
        if not self.directory.is_dir():
            return []
        names = [path.name for path in self.directory.iterdir() if (path / manifest.NAME).is_file()]
        return sorted(int(name) for name in names if re.fullmatch("[0-9]+", name))

    def latest(self) -> int | None:
        """The newest step that is on the disk as a whole."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """The step with the lowest metric, the newest of several; a step without a metric is never it."""
        metrics = {step: Manifest.read(self._path(step)).about["metric"] for step in self.steps()}
        return lowest(metrics)

    def restore(self, like: T, step: int | None = None) -> tuple[T, dict[str, Any]]:
        """A saved state and its extras, after every bit on the disk was checked.

        Should anything have changed there, `CorruptDataError` names the file; no other step is taken instead.

        **Arguments:**

        - `like`: a state of the same run, such as its first: gives everything that is not an array, and the devices
          and shardings of the arrays, which may be others than those they were saved from.
        - `step`: one of `steps`; the newest when not given.
        """
        from orbax.checkpoint import v1 as orbax

        self.wait()
        self.crew.barrier()
        steps = self.steps()
        if not steps:
            raise FileNotFoundError(f"there is no finished checkpoint in {self.directory}; start the run anew")
        step = steps[-1] if step is None else step
        if step not in steps:
            raise FileNotFoundError(f"there is no checkpoint of step {step} in {self.directory}; there are {steps}")
        path = self._path(step)
        try:
            checked = Manifest.read(path)
            checked.verify(path)
        except CorruptDataError as error:
            earlier = [other for other in steps if other < step]
            on = f"to go on from step {earlier[-1]}" if earlier else "and start anew: there is no earlier one"
            raise CorruptDataError(f"{error}. Restore {path} from a copy, or remove it {on}") from None

        wanted = arrays_of(like)
        difference = first_difference(checked.about["arrays"], {name: kind_of(wanted[name]) for name in wanted})
        if difference:
            raise ValueError(
                f"{path} does not fit this run: {difference}. Resume with the model and the optimizer it was saved "
                "with, or choose another directory"
            )
        targets = {
            name: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)
            for name, array in stored(wanted).items()
        }
        loaded = orbax.load(str(path / ARRAYS), targets)
        placed = {name: bound_like(wanted[name], array) for name, array in loaded.items()}
        return with_arrays(like, wanted | placed), checked.about["extras"]

    def _path(self, step: int) -> Path:
        return self.directory / str(step)

    def _hidden(self, step: int) -> Path:
        return self.directory / f".{step}"

    def _replaced(self, step: int) -> Path:
        return self.directory / f".{step}.old"

    def _publish(self, step: int) -> None:
        """Let a finished directory take its place, and that of an older one of the same step."""
        if step in self.steps():
            self._set_aside(step)
        self._hidden(step).rename(self._path(step))
        sync(self.directory)
        shutil.rmtree(self._replaced(step), ignore_errors=True)

    def _set_aside(self, step: int) -> None:
        """Take away a step at once; what is left of it is for `_tidy` should this process be killed."""
        shutil.rmtree(self._replaced(step), ignore_errors=True)
        self._path(step).rename(self._replaced(step))

    def _retire(self) -> None:
        """Remove what is neither among the newest nor the best; what is damaged stays, for somebody to look at."""
        metrics = {}
        for step in self.steps():
            with contextlib.suppress(CorruptDataError):
                metrics[step] = Manifest.read(self._path(step)).about["metric"]
        for step in sorted(metrics)[: -self.keep]:
            if step != lowest(metrics):
                self._set_aside(step)
                shutil.rmtree(self._replaced(step), ignore_errors=True)

    def _tidy(self) -> None:
        """Remove what a killed process left unfinished; publish what it had finished."""
        for path in sorted(self.directory.iterdir()):  # .7 comes before .7.old
            if named := re.fullmatch(r"\.([0-9]+)(\.old)?", path.name):
                if not named[2] and (path / manifest.NAME).is_file():
                    self._publish(int(named[1]))
                else:
                    shutil.rmtree(path, ignore_errors=True)

    def _failure(self, step: int, error: BaseException) -> OSError:
        """Remove what was begun, and say what is left."""
        if self.crew.is_first:
            shutil.rmtree(self._hidden(step), ignore_errors=True)
        latest = self.latest()
        intact = "there is no earlier one" if latest is None else f"that of step {latest} is intact"
        return OSError(
            f"the checkpoint of step {step} could not be written to {self.directory}; {intact}. "
            f"Make room there, or make it writable, and save again. The cause: {error}"
        )


def arrays_of(state: PyTree) -> dict[str, Array]:
    """The JAX arrays of a tree by their paths in it, except those of a model's signature, which never change."""
    arrays = eqx.filter(state, eqx.is_array)
    leaves, _ = jax.tree_util.tree_flatten_with_path(arrays, is_leaf=lambda part: isinstance(part, Signature))
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves if not isinstance(leaf, Signature)}


def with_arrays(like: T, arrays: Mapping[str, Array]) -> T:
    """The same tree with other arrays."""
    old, rest = eqx.partition(like, eqx.is_array)
    new = jax.tree_util.tree_map_with_path(lambda path, array: arrays.get(jax.tree_util.keystr(path), array), old)
    return eqx.combine(new, rest)


def stored(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Those with numbers in them; Orbax refuses the others, and nothing is to be known of them but the shape."""
    return {name: array for name, array in arrays.items() if array.size}


def bound_like(like: Array, array: Array) -> Array:
    """The same array, bound to its device only if `like` is: for JAX these are two types, each with its own program."""
    if like.committed or not array.committed:
        return array
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        kind = jax.random.key_impl(array)
        return jax.random.wrap_key_data(bound_like(like, jax.random.key_data(array)), impl=kind)
    return jax.device_put(np.asarray(array), may_alias=False)


def kind_of(array: Array) -> str:
    """The type and shape of an array, such as float32[3, 4]."""
    return f"{array.dtype}{list(array.shape)}"


def first_difference(saved: Mapping[str, str], wanted: Mapping[str, str]) -> str | None:
    """Where the arrays of a checkpoint are not those of a state, in words."""
    for name in [*wanted, *saved]:
        if saved.get(name) != wanted.get(name):
            return f"{name} is {saved.get(name, 'not')} in it, and {wanted.get(name, 'not')} in the run"
    return None


def lowest(metrics: Mapping[int, float | None]) -> int | None:
    """The step with the lowest metric, the newest of several."""
    known = [(metric, -step) for step, metric in metrics.items() if metric is not None]
    return -min(known)[1] if known else None


def as_json(extras: Mapping[str, Any]) -> dict[str, Any]:
    """The extras as they will come back, no matter what happens to them in the meantime."""
    try:
        return json.loads(json.dumps(dict(extras), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"extras must be JSON, with finite numbers only: {error}") from error


@contextlib.contextmanager
def without_raised_errors(logger: logging.Logger) -> Iterator[None]:
    """Keep Orbax from printing, page after page, the errors of its threads: they are raised as well."""

    def wanted(record: logging.LogRecord) -> bool:
        return record.exc_info is None or "orbax" not in Path(record.pathname).parts

    logger.addFilter(wanted)
    try:
        yield
    finally:
        logger.removeFilter(wanted)
