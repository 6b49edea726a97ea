"""Durable files: atomic writes, locks, digests and resumable work."""

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import filelock


class CorruptDataError(ValueError):
    """The content of a file is not what was written to it."""


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file, or replace it: it appears under its name only when it is completely on the disk."""
    # a random name, which no other process uses, not even one left over from a killed run
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write a file of JSON atomically; numbers must be finite."""
    text = json.dumps(content, indent=1, allow_nan=False).encode()
    write_atomically(path, lambda file: file.write(text))


def sync(path: Path) -> None:
    """Wait until a file or directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Wait until a directory and everything below it are on the disk."""
    for path in [*directory.rglob("*"), directory]:
        sync(path)


@contextlib.contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Create a directory and lock it by its file `lock`, which the system releases when this process ends.

    Raise if another process holds the lock.
    """
    directory.mkdir(parents=True, exist_ok=True)
    held = filelock.FileLock(directory / "lock", thread_local=False)
    try:
        held.acquire(timeout=0)
    except filelock.Timeout:
        raise RuntimeError(
            f"{directory} is being written by another process; wait for it, stop it, or choose another name"
        ) from None
    try:
        yield
    finally:
        held.release()


MANIFEST = "manifest.json"
"""The last file to be written: a directory without it is incomplete."""


def seal(directory: Path, about: Mapping[str, Any]) -> None:
    """Complete a directory by a manifest: the SHA-256 of every file, and a description that JSON can hold."""
    sync_tree(directory)  # the files must reach the disk before the manifest does
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    files = {path.relative_to(directory).as_posix(): _digest(path) for path in paths}
    write_atomically(directory / MANIFEST, lambda file: file.write(_manifest(about=about, files=files)))
    sync(directory)


def read_sealed(directory: Path) -> dict[str, Any]:
    """The description of a sealed directory; `CorruptDataError` names the first file that is not as it was sealed."""
    path = directory / MANIFEST
    found = path.read_bytes()
    damaged = "is damaged: its content is not what was written to it"
    try:
        manifest = json.loads(found)
        expected = _manifest(about=manifest["about"], files=manifest["files"])
    except (ValueError, RecursionError, TypeError, KeyError):
        raise CorruptDataError(f"{path} {damaged}") from None
    if expected != found:
        raise CorruptDataError(f"{path} {damaged}")
    for name, sealed in manifest["files"].items():
        path = directory / name
        if not path.is_file():
            raise CorruptDataError(f"{path} is missing")
        if _digest(path) != sealed:
            raise CorruptDataError(f"{path} {damaged}")
    return manifest["about"]


def _manifest(**contents: Any) -> bytes:
    """A manifest with the digest of its contents, in its only valid form, so that every changed bit is detected."""
    text = json.dumps(contents, allow_nan=False).encode()
    return json.dumps(contents | {"sha256": hashlib.sha256(text).hexdigest()}, indent=1).encode()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


REQUEST = "request.json"
"""The file with the request."""


class Resumable:
    """Work in a directory that may be killed at any moment, and that the same request resumes.

    Entering the block creates and locks the directory, and stores the request; a directory with another request is
    refused with a message that names the difference. The work consists of pieces, each a file named by its key. A piece
    appears only when it is completely on the disk; then it is `in` the work, and no later call computes it again.

    Only the process that holds the lock looks for missing pieces, but others may write them: a `Resumable` can be sent
    to worker processes, which call `write` without entering the block. A worker may outlive a killed run and compute a
    piece again, so a piece must be a pure function of request and key.

    **Arguments:**

    - `directory`: the directory of this work, and of no other. Pieces are in a subdirectory, so it may also hold files
      of other names, for people to read.
    - `request`: everything that the pieces depend on, in a form that JSON can hold: arguments, digests of data,
      versions of formats. Not what may change between two calls, such as the number of workers. The message names the
      first difference only, so entries that follow from others come after them.
    """

    def __init__(self, directory: Path, request: Mapping[str, Any]):
        self.directory = directory.absolute()  # of workers the working directory may be another
        self.request: dict[str, Any] = json.loads(json.dumps(request))
        # named after the request: a worker of deleted work does not write into that of another request
        self.pieces = self.directory / f"pieces-{json_digest(self.request)}"
        self._held = contextlib.ExitStack()

    def __enter__(self) -> "Resumable":
        with contextlib.ExitStack() as held:
            held.enter_context(lock(self.directory))
            path = self.directory / REQUEST
            if not path.exists():
                write_json(path, self.request)
            elif found := _difference(json.loads(path.read_bytes()), self.request):
                raise FileExistsError(
                    f"{self.directory} was started with other arguments ({found}); pass the same arguments to resume, "
                    "choose another name, or delete it first"
                )
            self.pieces.mkdir(exist_ok=True)  # also when resuming: tools that copy may leave out empty directories
            for leftover in self.pieces.glob(".*"):  # of a killed process
                leftover.unlink(missing_ok=True)
            self._held = held.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Resumable, (self.directory, self.request)  # in another process it does not hold the lock

    def __contains__(self, key: str) -> bool:
        """Whether a piece is complete."""
        return self.path(key).exists()

    def path(self, key: str) -> Path:
        """The file of a piece."""
        return self.pieces / key

    def keys(self) -> set[str]:
        """The keys of all complete pieces."""
        return {path.name for path in self.pieces.glob("[!.]*")}

    def write(self, key: str, write: Callable[[IO[bytes]], object] = lambda file: None) -> None:
        """Write a piece atomically; an empty one unless `write` writes its content to an open file."""
        write_atomically(self.path(key), write)

    def once(self, key: str, compute: Callable[[], Any]) -> Any:
        """The value of a piece, which JSON can hold: read if it is complete, else computed and written."""
        if key not in self:
            content = json.dumps(compute()).encode()
            self.write(key, lambda file: file.write(content))
        return json.loads(self.path(key).read_bytes())


def create(
    path: Path,
    request: Mapping[str, Any],
    read_request: Callable[[Path], Mapping[str, Any]],
    build: Callable[[Resumable], Path],
    *,
    ignore: Collection[str] = (),
) -> None:
    """Create a file or directory by resumable work in `PATH.partial`; return at once if the same request created it.

    It gets its name when it is completely on the disk; then the directory of the work is removed. If it exists and was
    created by another request, `FileExistsError` is raised.

    **Arguments:**

    - `path`, `request`: what to create, and see `Resumable`.
    - `read_request`: returns the request that created a complete file or directory, which it holds as a description.
    - `build`: does the work, and returns the path below `PATH.partial` of the complete file or directory.
    - `ignore`: keys, at any depth, that may differ if the file or directory is complete, such as versions of packages.
    """
    work = Resumable(path.with_name(path.name + ".partial"), request)

    def is_complete() -> bool:
        if not path.exists():
            return False
        if found := _difference(read_request(path), work.request, ignore=ignore):
            raise FileExistsError(
                f"{path} already exists and holds something else ({found}); choose another name, or delete it first"
            )
        return True

    if is_complete() and not work.directory.exists():
        return
    with work:
        if not is_complete():  # otherwise interrupted before the directory of the work was removed
            built = build(work)
            sync_tree(built)
            built.rename(path)
            sync(path.parent)
        shutil.rmtree(work.directory, ignore_errors=True)


def json_digest(value: Any) -> str:
    """The first 16 digits of the SHA-256 of a value as JSON, as a name."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _difference(
    found: Mapping[str, Any], requested: Mapping[str, Any], *, ignore: Collection[str] = (), prefix: str = ""
) -> str:
    """The first difference of two requests in words; empty if there is none."""
    for name in dict.fromkeys([*requested, *found]):
        there, here = found.get(name), requested.get(name)
        if name in ignore or there == here:
            continue
        if not (isinstance(there, dict) and isinstance(here, dict)):
            return f"{prefix}{name} is {json.dumps(there)[:60]}, now requested: {json.dumps(here)[:60]}"
        if inside := _difference(there, here, ignore=ignore, prefix=f"{prefix}{name}."):
            return inside
    return ""
