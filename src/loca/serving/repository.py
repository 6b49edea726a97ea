"""The models that a server has: found in files and directories, loaded, and replaced when their files change."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from loca.models import LEVEL, Operator
from loca.prediction import own_queries, read_points
from loca.saving import MODEL_FILE, Classes, inspect, load
from loca.serving.model import ServedModel
from loca.serving.protocol import RequestError
from loca.uncertainty import Calibrated

Place = tuple[str, int]
"""The name and the version of a model."""

VERSION = re.compile(r"[1-9]\d{0,8}")


def find_models(paths: Sequence[Path], *, is_start: bool = False) -> dict[Place, Path]:
    """The model files of some paths, by name and version; at the start, every path must have some.

    A path is a model file, a run directory, or a directory of models. The latter has a run directory `NAME`, or a run
    directory `NAME/VERSION` with a number for every version, for each model.
    """
    found: dict[Place, Path] = {}
    for path in paths:
        files = models_in(path)
        if is_start and not files:
            raise ValueError(
                f"{path} {'holds no model' if path.exists() else 'does not exist'}; pass a model file, a run "
                f"directory, or a directory with NAME/{MODEL_FILE} or NAME/VERSION/{MODEL_FILE}"
            )
        for place, file in files.items():
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", place[0]):
                raise ValueError(f"{file}: a model cannot be called {place[0]!r}; use letters, digits, '.', '-', '_'")
            if place in found:
                raise ValueError(f"{found[place]} and {file} are both version {place[1]} of {place[0]}; rename one")
            found[place] = file
    return found


def models_in(path: Path) -> dict[Place, Path]:
    """The model files of one path; none if it does not exist."""
    if path.is_file():
        return {(path.stem, 1): path}
    if (path / MODEL_FILE).is_file():
        return {(path.resolve().name, 1): path / MODEL_FILE}
    found: dict[Place, Path] = {}
    for file in [*path.glob(f"*/{MODEL_FILE}"), *path.glob(f"*/*/{MODEL_FILE}")]:
        name, *version = file.relative_to(path).parts[:-1]
        if not version or VERSION.fullmatch(version[0]):
            found[name, int(version[0]) if version else 1] = file
    return found


class Repository:
    """Loaded models by name and version.

    `refresh` loads new and changed files and forgets removed ones. Requests keep the version with which they began: a
    `ServedModel` never changes, and it is deleted after its last request. Events are reported with their names (loaded,
    removed, reload_failed) and what is known of them.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        at: Path | None = None,
        level: float = LEVEL,
        refuse_below: float | None = None,
        classes: Classes = (),
        report: Callable[..., object] = lambda event, **about: None,
    ):
        self.paths, self.at, self.level, self.refuse_below = paths, at, level, refuse_below
        self.classes, self.report = classes, report
        self.models: Mapping[Place, ServedModel] = {}
        self._seen: dict[Place, tuple[int, ...]] = {}

    def load_all(self) -> None:
        """Load and compile all models; raise if one of them cannot be."""
        for place, file in find_models(self.paths, is_start=True).items():
            self._load(place, file)

    def refresh(self) -> None:
        """Load files that are new or have changed; what cannot be loaded is reported once, and the one before stays."""
        found = find_models(self.paths)
        for place, file in found.items():
            try:
                if fingerprint_of(file) != self._seen.get(place):
                    self._load(place, file)
            except Exception as error:  # noqa: BLE001 (one model must not end the reload of the others)
                about = {"model": place[0], "version": place[1]}
                self.report("reload_failed", **about, error=f"{type(error).__name__}: {error}")
        for place in set(self.models) - set(found):
            self.models = {other: model for other, model in self.models.items() if other != place}
            self._seen.pop(place, None)
            self.report("removed", model=place[0], version=place[1])

    def _load(self, place: Place, file: Path) -> None:
        fingerprint = self._seen[place] = fingerprint_of(file)
        operator, header = load(file, classes=self.classes), inspect(file)
        self._check_familiarity(place[0], operator)
        known, queries = operator.signature, None
        if known is not None and (self.at is not None or known.y is not None):
            queries = own_queries(operator) if self.at is None else read_points(self.at, known.query_coordinates)
        model = ServedModel(*place, operator, header, queries, self.level)
        model.compile()
        if fingerprint_of(file) != fingerprint:
            raise ValueError(f"{file} was replaced while it was loaded")  # the next refresh sees another file
        self.models = {**self.models, place: model}  # requests see the old models or the new ones
        self.report("loaded", model=place[0], version=place[1], digest=header.digest, file=str(file))

    def _check_familiarity(self, name: str, operator: Operator) -> None:
        """Raise if unfamiliar inputs cannot be recognized."""
        count = len(operator.familiarity.held) if isinstance(operator, Calibrated) else 0
        if self.refuse_below is not None and self.refuse_below <= 1.0 / (1.0 + count):
            raise ValueError(
                f"{name}: with {count} calibration functions, no p-value is below {self.refuse_below:g}; use a larger "
                "value, or calibrate the model with more functions by `loca calibrate`"
            )

    def versions(self, name: str) -> list[int]:
        """All versions of a model, sorted."""
        return sorted(version for known, version in self.models if known == name)

    def get(self, name: str, version: str | None = None) -> ServedModel:
        """A version of a model, the latest unless given; raise `RequestError` if it does not exist."""
        models = self.models
        known = [number for other, number in models if other == name]
        if version is not None:
            known = [number for number in known if str(number) == version]
        if not known:
            which = f"model {name[:100]!r}" if version is None else f"version {version[:20]!r} of model {name[:100]!r}"
            listed = ", ".join(sorted({name for name, _ in models}))
            raise RequestError(404, f"there is no {which}; the models are {listed}", "unknown_model")
        return models[name, max(known)]


def fingerprint_of(file: Path) -> tuple[int, ...]:
    """What changes when a file is replaced or written to."""
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
