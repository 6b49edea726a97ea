"""What a model file says of itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from loca.data import Variable
from loca.domains import Domain
from loca.saving.entries import Entry

FORMAT = 1
"""Version of the format, to be raised when an older reader would misread a newer file."""


@dataclasses.dataclass(frozen=True)
class Header:
    """What a model file says of itself, read without its weights.

    **Arguments:**

    - `format`: version of the format.
    - `model`: the class of the model, such as `LOCA`.
    - `structure`: what the model is made of, as described in the documentation of the file.
    - `arrays`: kind and shape of every array, by its place in the model.
    - `parameters`: how many real numbers training may change.
    - `domain`: Y, where it is known.
    - `normalization`: shift and scale of each channel of u and s.
    - `inputs`, `outputs`: names and units of the channels.
    - `provenance`: where the model comes from, as whoever saved it told.
    - `metrics`: what it is worth, by name.
    - `versions`: of the packages that wrote it.
    - `digest`: SHA-256 of the file.
    - `size`: bytes of the file.
    """

    format: int
    model: str
    structure: Mapping[str, Any]
    arrays: Mapping[str, Entry]
    parameters: int
    domain: Domain | None
    normalization: Mapping[str, tuple[float, ...]]
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    provenance: Mapping[str, Any]
    metrics: Mapping[str, float]
    versions: Mapping[str, str]
    digest: str
    size: int
