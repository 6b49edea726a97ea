"""The models that a server has: found in files and directories, loaded, and replaced when their files change."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from starlette.exceptions import HTTPException

from loca.models import LEVEL
from loca.prediction import read_points
from loca.saving import MODEL_FILE, Classes, inspect, load
from loca.serving.model import ServedModel

Place = tuple[str, int]
"""The name and the version of a model."""

VERSION = re.compile(r"[1-9]\d{0,8}")

LOG = logging.getLogger("loca.serving")


def find_models(paths: Sequence[Path], *, is_start: bool = False) -> dict[Place, Path]:
    """The model files of some paths, by name and version; at the start, every path must have some.

    A path is a model file, a run directory, or a directory of models. The latter has a run directory `NAME`, or a run
    directory `NAME/VERSION` with a number for every version, for each model.
    """
    found: dict[Place, Path] = {}
    for path in paths:
        files = [((path.stem, 1), path)] if path.is_file() else []
        if (path / MODEL_FILE).is_file():
            files = [((path.resolve().name, 1), path / MODEL_FILE)]
        elif path.is_dir():
            for file in [*path.glob(f"*/{MODEL_FILE}"), *path.glob(f"*/*/{MODEL_FILE}")]:
                name, *version = file.relative_to(path).parts[:-1]
                if not version or VERSION.fullmatch(version[0]):
                    files.append(((name, int(version[0]) if version else 1), file))
        if is_start and not files:
            raise ValueError(
                f"{path} {'holds no model' if path.exists() else 'does not exist'}; pass a model file, a run "
                f"directory, or a directory with NAME/{MODEL_FILE} or NAME/VERSION/{MODEL_FILE}"
            )
        for place, file in files:
            if place in found:
                raise ValueError(f"{found[place]} and {file} are both version {place[1]} of {place[0]}; rename one")
            found[place] = file
    return found


class Repository:
    """Loaded models by name and version.

    `refresh` loads new and changed files and forgets removed ones. Requests keep the version with which they began: a
    `ServedModel` never changes, and it is deleted after its last request.
    """

    def __init__(self, paths: Sequence[Path], *, at: Path | None = None, level: float = LEVEL, classes: Classes = ()):
        self.paths, self.at, self.level, self.classes = paths, at, level, classes
        self.models: Mapping[Place, ServedModel] = {}
        self._seen: dict[Place, tuple[int, ...]] = {}

    def load_all(self) -> None:
        """Load and compile all models; raise if one of them cannot be."""
        for place, file in find_models(self.paths, is_start=True).items():
            self._load(place, file)

    def refresh(self) -> None:
        """Load files that are new or have changed; what cannot be loaded is logged once, and the one before stays."""
        found = find_models(self.paths)
        for place, file in found.items():
            try:
                if fingerprint_of(file) != self._seen.get(place):
                    self._load(place, file)
            except Exception as error:  # noqa: BLE001 (one model must not end the reload of the others)
                LOG.warning("version %d of %s is not loaded: %s: %s", *place[::-1], type(error).__name__, error)
        for place in set(self.models) - set(found):
            self.models = {other: model for other, model in self.models.items() if other != place}
            self._seen.pop(place, None)
            LOG.info("removed version %d of %s", *place[::-1])

    def _load(self, place: Place, file: Path) -> None:
        self._seen[place] = fingerprint_of(file)  # a file that is replaced meanwhile is loaded at the next look
        operator, header = load(file, classes=self.classes), inspect(file)
        known = operator.signature
        y = None if known is None or known.y is None else np.asarray(known.y)
        if known is not None and self.at is not None:
            points = read_points(self.at, known.query_coordinates)
            y = points.points(tuple(slice(0, size) for size in points.shape))
        model = ServedModel(*place, operator, header, y, self.level)
        model.compile()
        self.models = {**self.models, place: model}  # requests see the old models or the new ones
        LOG.info("loaded version %d of %s from %s", *place[::-1], file)

    def versions(self, name: str) -> list[int]:
        """All versions of a model, sorted."""
        return sorted(version for known, version in self.models if known == name)

    def get(self, name: str, version: str | None = None) -> ServedModel:
        """A version of a model, the latest unless given; raise `HTTPException` if it does not exist."""
        models = self.models
        known = [number for other, number in models if other == name and version in (None, str(number))]
        if not known:
            which = f"model {name[:100]!r}" if version is None else f"version {version[:20]!r} of model {name[:100]!r}"
            listed = ", ".join(sorted({name for name, _ in models}))
            raise HTTPException(404, f"there is no {which}; the models are {listed}")
        return models[name, max(known)]


def fingerprint_of(file: Path) -> tuple[int, ...]:
    """What changes when a file is replaced or written to."""
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
