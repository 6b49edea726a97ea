"""The directory of a run: checkpoints, written in the background and verified before use, and the history.

A run stops on request and resumes if it is the same run. What its result depends on is its fingerprint, so that no
other run is resumed in its directory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from loca.data import Records, Samples, Shared, arrays_digest, data_digest
from loca.devices import SINGLE_PROCESS, ProcessGroup
from loca.durable import MANIFEST, CorruptDataError, lock, read_sealed, seal, write_atomically
from loca.models import Operator, Signature
from loca.parameters import trainable
from loca.training.history import History
from loca.training.steps import State, StepConfig
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
    process left unfinished. Leaving the block waits for the last save. All `processes` make the same calls; each writes
    its part of the arrays, and the first does everything else.
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

        Extras are a small JSON object to restore with the state, such as the history of the run.
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
        """Load the newest state into a state of the same run, and verify every bit on disk.

        Everything that is no array comes from `like`, and so do the devices and shardings of the arrays, which may
        differ from those they were saved from. If a file has changed, `CorruptDataError` names it.
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


class StoppedError(Exception):
    """A run was stopped by a signal, SIGTERM or Ctrl-C, after saving its state. The same call resumes it."""

    def __init__(self, message: str, signal: int = signal.SIGTERM):
        super().__init__(message)
        self.signal = signal


class RunDirectory:
    """Saves a run in its open checkpoints, and its history in `history.jsonl`, one line per moment.

    The request is the number of steps and the fingerprint of the run; a directory with another run is refused.
    """

    def __init__(self, directory: Path, request: Mapping[str, Any], checkpoints: Checkpoints):
        self.directory, self.request, self.checkpoints = directory, dict(request), checkpoints
        self.processes, self._written = checkpoints.processes, 0

    def resume(self, like: T) -> tuple[T, dict[str, Any] | None]:
        """The last saved state, and what `update` was given with it; `like` and None for a new run."""
        extras = self.checkpoints.extras()
        if extras is None:
            return like, None
        if other := _difference(extras.pop("request"), self.request, extras["step"]):
            raise ValueError(
                f"the run in {self.directory} {other}; pass the same to resume it, or choose another directory"
            )
        return self.checkpoints.restore(like), extras

    def update(
        self, state: PyTree, history: History, extras: Mapping[str, Any], *, last: bool, stop: int | None
    ) -> None:
        """Write new moments, and a checkpoint with extras, among them `step`, if one is due or this is the last state.

        If a signal requests to `stop`, save at once and raise `StoppedError`.
        """
        if len(history) != self._written and self.processes.is_first:
            lines = history.to_lines().encode()
            write_atomically(self.directory / "history.jsonl", lambda file: file.write(lines))
        self._written = len(history)
        if last or stop is not None or self.processes.broadcast(self.checkpoints.due):
            self.checkpoints.save(state, extras["step"], extras={"request": self.request, **extras})
        if stop is not None:
            self.checkpoints.wait()
            what = f"stopped at step {extras['step']} and saved in {self.directory}"
            raise StoppedError(f"{what}; repeat the same call to resume", stop)


@contextlib.contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Turn SIGTERM and Ctrl-C into entries of a list, so that a loop can finish its step; a second Ctrl-C interrupts.

    Previous signal handlers are restored at the end. Outside the main thread, where Python allows no signal handlers,
    the list stays empty.
    """
    requested: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        requested.append(number)

    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT) if is_main}
    try:
        yield requested
    finally:
        for number, handler in before.items():
            # None: the handler was not installed by Python, so it cannot be restored
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


# ---- fingerprint -----------------------------------------------------------------------------------------------------

NAMES = {
    "data": "other data",
    "validation": "other validation data",
    "weights": "other weights of locations",
    "loss": "another loss",
    "optimizer": "another optimizer",
    "model": "another model",
    "parameters": "other initial parameters",
}
"""What differs, for messages; other entries are settings."""


def fingerprint(
    model: Operator, data: Samples | Records, validate: Samples | None, state: State, config: StepConfig
) -> dict[str, Any]:
    """Everything that the result of a run depends on besides the number of steps, as JSON content.

    Data and weights are digests, the model its classes and settings with two numbers per array, loss and optimizer
    digests of the programs that JAX traces from them, which hold all constants, such as those of a schedule.
    """
    learned, optimizer_state = jax.tree.map(  # without devices: a run may resume on others
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf,
        (eqx.filter(model, trainable(model)), state.optimizer_state),
    )
    one = data if isinstance(data, Samples) else data.load(slice(0, 1))
    batch = jax.ShapeDtypeStruct((config.batch_size, one.y.count, one.output_size), one.s.dtype)
    each = jax.ShapeDtypeStruct(batch.shape[1:2] if isinstance(one.y, Shared) else batch.shape[:2], jnp.float32)
    weights = () if config.weights is None else (each,)
    return {
        "batch_size": config.batch_size,
        "seed": config.seed,
        "functions": len(data),
        "precision": jax.config.jax_default_matmul_precision,  # pyright: ignore[reportAttributeAccessIssue]
        "data": data_digest(data),
        "validation": "none" if validate is None else data_digest(validate),
        "weights": "none" if config.weights is None else f"arrays {arrays_digest(config.weights)}",
        "model": dict(_structure(model)),
        "parameters": {name: _summary(array) for name, array in arrays_of(model).items()},
        "loss": _program_digest(config.loss, batch, batch, *weights),
        "optimizer": _program_digest(config.optimizer.update, learned, optimizer_state, learned),
    }


def _difference(saved: Mapping[str, Any], request: Mapping[str, Any], step: int) -> str | None:
    """What makes a saved run another one than the requested; None if the request resumes or extends it."""
    if saved["steps"] != request["steps"] and saved["optimizer"] != request["optimizer"]:
        return (
            f"has steps={saved['steps']}, but got steps={request['steps']}. The learning rate may depend on the number "
            "of steps, so this is another run; only a run with the same optimizer, such as paper_optimizer(), can be "
            "extended"
        )
    for name, wanted in request.items():
        there, here = (each if isinstance(each, dict) else {name: each} for each in (saved[name], wanted))
        for part in [*here, *there]:
            if name != "steps" and not _are_same(there.get(part), here.get(part)):
                what = NAMES.get(name, "another setting")
                return f"has {what} ({part} is {there.get(part)}; got {here.get(part)})"
    if request["steps"] < step:
        return f"has taken {step} steps already, but got steps={request['steps']}"
    return None


def _are_same(saved: Any, requested: Any) -> bool:
    """Whether entries of two fingerprints are the same; summaries up to round-off, and digests if they are of one kind.

    Data that was in memory may be streamed when a run resumes, and another version of JAX traces other programs.
    """
    if isinstance(saved, list) and isinstance(requested, list):
        return bool(np.allclose(saved, requested, rtol=0.0, atol=1e-4 * max(*saved, *requested)))
    kinds = [re.findall("^(.+) [0-9a-f]{32}$", str(value)) for value in (saved, requested)]
    return saved == requested or (all(kinds) and kinds[0] != kinds[1])


def _structure(part: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The class of every part and the value of every setting of a model, by path; arrays are left out.

    So are signatures, on which predictions do not depend.
    """
    match part:
        case None | Signature() | jax.Array() | np.ndarray():
            return
        case eqx.Module():
            yield path or "the operator", type(part).__name__
            for field in dataclasses.fields(part):  # pyright: ignore[reportArgumentType]
                yield from _structure(getattr(part, field.name), f"{path}.{field.name}")
        case list() | tuple() if not all(isinstance(each, int | float | str) for each in part):
            for i, each in enumerate(part):
                yield from _structure(each, f"{path}[{i}]")
        case int() | float() | str() | list() | tuple():
            text = repr(part)
            yield path, text if len(text) < 60 else hashlib.sha256(text.encode()).hexdigest()[:32]
        case _:
            yield path, getattr(part, "__qualname__", type(part).__name__)


def _summary(array: Array) -> list[float]:
    """Σᵢ aᵢ sin(i) and the norm: two numbers that differ between arrays, and vary little with round-off."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    values = np.asarray(array).reshape(-1)
    values = np.nan_to_num(np.concatenate([np.real(values), np.imag(values)], dtype=float))
    return [float(values @ np.sin(np.arange(1.0, len(values) + 1))), float(np.linalg.norm(values))]


def _program_digest(function: Callable[..., Any], *arguments: PyTree) -> str:
    """The versions of JAX and Optax, and the SHA-256 of the program that JAX traces from a function."""
    program = eqx.filter_make_jaxpr(function)(*arguments)[0]
    text = re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr))  # addresses of Python objects differ between processes
    digest = hashlib.sha256(f"{text} {arrays_digest(program.consts)}".encode()).hexdigest()[:32]
    return f"program of jax {version('jax')} and optax {version('optax')} {digest}"
