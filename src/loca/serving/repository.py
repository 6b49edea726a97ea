"""The models that a server has: found in files and directories, loaded, and replaced when their files change."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loca.models import LEVEL, Operator
from loca.prediction import QueryGrid, QueryPoints, own_queries, read_points
from loca.saving import MODEL_FILE, Classes, ModelFileError, inspect, load
from loca.serving.protocol import RequestError
from loca.serving.served_model import ServedModel
from loca.uncertainty import Calibrated

Place = tuple[str, int]
"""The name and the version of a model."""

Fingerprint = tuple[int, int, int]
"""What changes when a file is replaced."""

Report = Callable[..., object]
"""Called with the name of an event, and what is known of it by name."""


def find_models(paths: Sequence[Path]) -> dict[Place, Path]:
    """The model files of some paths, by name and version.

    A path is a model file, a run directory, or a directory of models. The latter has a run directory `NAME`, or a run
    directory `NAME/VERSION` with a number for every version, for each model.
    """
    found: dict[Place, Path] = {}
    for path in paths:
        for place, file in models_in(path).items():
            if place in found:
                raise ValueError(f"{found[place]} and {file} are both version {place[1]} of {place[0]}; rename one")
            found[place] = file
    return found


def models_in(path: Path) -> dict[Place, Path]:
    """The model files of one path."""
    if path.is_file():
        return {(checked_name(path.stem, path), 1): path}
    if not path.is_dir():
        raise ValueError(f"{path} does not exist; pass a model file, a run directory or a directory of models")
    if (path / MODEL_FILE).is_file():
        return {(checked_name(path.resolve().name, path), 1): path / MODEL_FILE}
    found: dict[Place, Path] = {}
    for file in sorted([*path.glob(f"*/{MODEL_FILE}"), *path.glob(f"*/*/{MODEL_FILE}")]):
        name, *version = file.relative_to(path).parts[:-1]
        if not version:
            found[checked_name(name, file), 1] = file
        elif re.fullmatch(r"[1-9]\d{0,8}", version[0]):
            found[checked_name(name, file), int(version[0])] = file
    if not found:
        raise ValueError(f"{path} holds no model: neither {MODEL_FILE} nor NAME/{MODEL_FILE} nor NAME/1/{MODEL_FILE}")
    return found


def checked_name(name: str, path: Path) -> str:
    """The name of a model, if it can be part of an address."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise ValueError(f"{path}: a model cannot be called {name!r}; use letters, digits, '.', '-' and '_'")
    return name


class Repository:
    """Loaded models by name and version.

    `refresh` loads new and changed files and forgets removed ones. Requests keep the version with which they began: a
    `ServedModel` never changes, and it is deleted after its last request.

    **Arguments:**

    - `paths`: see `find_models`.
    - `at`: a file with the fixed queries of all models; by default those that the training data shared.
    - `level`: of bands.
    - `refuse_below`: the p-value below which inputs will be refused; None if they never are.
    - `classes`: classes of the caller that the models are made of.
    - `report`: told about models that are loaded, removed or defective.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        at: Path | None = None,
        level: float = LEVEL,
        refuse_below: float | None = None,
        classes: Classes = (),
        report: Report = lambda event, **about: None,
    ):
        self.paths, self.at, self.level, self.refuse_below = tuple(paths), at, level, refuse_below
        self.classes, self.report = classes, report
        self.models: Mapping[Place, ServedModel] = {}
        self._latest: Mapping[str, ServedModel] = {}
        self._fingerprints: dict[Place, Fingerprint] = {}
        self._failed: dict[Place, Fingerprint] = {}
        self._complaint = ""

    def load_all(self) -> None:
        """Load and compile all models; raise if one of them cannot be."""
        for place, file in find_models(self.paths).items():
            self._load(place, file, fingerprint_of(file))

    def refresh(self) -> None:
        """Load files that are new or have changed, and forget models whose files are gone.

        A defective file is reported, and the model that it should replace stays. This takes as long as compiling does;
        call it in a thread of its own.
        """
        try:
            found = find_models(self.paths)
        except (ValueError, OSError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                self.report("reload_failed", error=str(error))
            return
        self._complaint = ""
        for place, file in found.items():
            try:
                now = fingerprint_of(file)
                if now in (self._fingerprints.get(place), self._failed.get(place)):
                    continue
                self._failed[place] = now
                self._load(place, file, now)
                del self._failed[place]
            except (ModelFileError, ValueError, TypeError, OSError) as error:
                self.report("reload_failed", model=place[0], version=place[1], error=str(error))
        for place in set(self.models) - set(found):
            self._replace({other: model for other, model in self.models.items() if other != place})
            self._fingerprints.pop(place, None)
            self.report("removed", model=place[0], version=place[1])

    def _load(self, place: Place, file: Path, fingerprint: Fingerprint) -> None:
        operator, header = load(file, classes=self.classes), inspect(file)
        self._check_familiarity(place[0], operator)
        model = ServedModel(*place, operator, header, self._queries(operator), self.level)
        model.compile()
        if fingerprint_of(file) != fingerprint:
            raise ValueError(f"{file} was replaced while it was loaded")  # the next refresh sees another file
        self._replace({**self.models, place: model})
        self._fingerprints[place] = fingerprint
        self.report("loaded", model=place[0], version=place[1], digest=header.digest, file=str(file))

    def _replace(self, models: Mapping[Place, ServedModel]) -> None:
        """Requests see the old models or the new ones."""
        self.models = models
        self._latest = {name: models[name, version] for name, version in sorted(models)}

    def _queries(self, operator: Operator) -> QueryGrid | QueryPoints | None:
        if self.at is not None:
            if operator.signature is None:
                raise ValueError("the model does not know the names of its coordinates, so --at cannot be used with it")
            return read_points(self.at, operator.signature.query_coordinates)
        known = operator.signature
        return None if known is None or known.y is None else own_queries(operator)

    def _check_familiarity(self, name: str, operator: Operator) -> None:
        """Raise if unfamiliar inputs cannot be recognized."""
        if self.refuse_below is None:
            return
        if not isinstance(operator, Calibrated):
            raise ValueError(
                f"{name}: unfamiliar inputs can only be refused by a calibrated model; use `loca calibrate` first"
            )
        least = 1.0 / (1.0 + len(operator.familiarity.held))
        if self.refuse_below <= least:
            raise ValueError(
                f"{name}: p-values are at least {least:.2g} with {len(operator.familiarity.held)} calibration "
                f"functions, so none is below {self.refuse_below:g}; use a larger value, or calibrate with more"
            )

    def versions(self, name: str) -> list[int]:
        """All versions of a model, sorted."""
        return sorted(version for known, version in self.models if known == name)

    def get(self, name: str, version: str | None = None) -> ServedModel:
        """A version of a model, the latest unless given; raise `RequestError` if it does not exist."""
        if version is None:
            found = self._latest.get(name)
        else:
            found = self.models.get((name, int(version) if re.fullmatch(r"[1-9]\d{0,8}", version) else 0))
        if found is None:
            which = f"model {name[:100]!r}" if version is None else f"version {version[:20]!r} of model {name[:100]!r}"
            listed = ", ".join(sorted(self._latest))
            raise RequestError(404, f"there is no {which}; the models are {listed}", "unknown_model")
        return found

    def index(self) -> list[dict[str, Any]]:
        """Name, version and state of all models."""
        return [{"name": name, "version": str(v), "state": "READY", "reason": ""} for name, v in sorted(self.models)]


def fingerprint_of(file: Path) -> Fingerprint:
    """What changes when a file is replaced or written to."""
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
