"""What a directory holds, file by file, with digests: proof that what is read is what was written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from loca.durable.files import CorruptDataError, sync, write_atomically

NAME = "manifest.json"
"""The last file to be written: a directory without it is not finished."""

VERSION = 1
"""Of the manifest and of what lies around it."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """SHA-256 of every file in a directory, and some JSON about them.

    The manifest vouches for itself as well: it holds the digest of its own contents.

    **Arguments:**

    - `about`: anything JSON can say.
    - `files`: digests in hexadecimal digits, by path below the directory.
    """

    about: dict[str, Any]
    files: dict[str, str]
    version: int = VERSION

    @classmethod
    def seal(cls, directory: Path, about: dict[str, Any]) -> Manifest:
        """Write the manifest of a directory that is otherwise finished, and see everything onto the disk."""
        paths = sorted(directory.rglob("*"))
        for path in paths:
            sync(path)  # what the manifest vouches for must not reach the disk later than the manifest
        files = {path.relative_to(directory).as_posix(): digest(path) for path in paths if path.is_file()}
        manifest = cls(about, files)
        write_atomically(directory / NAME, lambda file: file.write(manifest.encoded()))
        sync(directory)
        return manifest

    @classmethod
    def read(cls, directory: Path) -> Manifest:
        """The manifest of a directory, itself checked; the files are not, see `verify`."""
        path = directory / NAME
        found = path.read_bytes()
        try:
            parsed = json.loads(found)
            manifest = cls(parsed["about"], parsed["files"], parsed["version"])
            respelled = manifest.encoded()
        except (ValueError, RecursionError, TypeError, KeyError):
            raise damaged(path) from None
        if respelled != found:
            raise damaged(path)
        if manifest.version != VERSION:
            raise ValueError(
                f"{path} is of version {manifest.version}, and this loca reads version {VERSION}; "
                "go on with the loca that has written it"
            )
        return manifest

    def encoded(self) -> bytes:
        """The only spelling of this manifest, so that no bit of it can change unseen."""
        contents = {"version": self.version, "about": self.about, "files": self.files}
        spelled = json.dumps(contents, allow_nan=False).encode()
        return json.dumps(contents | {"sha256": hashlib.sha256(spelled).hexdigest()}, indent=1).encode()

    def verify(self, directory: Path) -> None:
        """Read every file and compare; raise `CorruptDataError` that names the first that differs."""
        for name, expected in self.files.items():
            path = directory / name
            if not path.is_file():
                raise CorruptDataError(f"{path} is missing")
            if digest(path) != expected:
                raise damaged(path)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def damaged(path: Path) -> CorruptDataError:
    """The error for a file that has changed since it was written."""
    return CorruptDataError(f"{path} is not what was written to it: some of its bits have changed")
