"""A claim of the paper: what it says, how it is put to the test, and when it is said to hold."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from loca.claims.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Preset = Literal["quick", "paper"]
Answer = Literal["holds", "holds in part", "fails"]


class Verdict(NamedTuple):
    """The answer, and the figures that it rests on in one sentence."""

    answer: Answer
    because: str


class Finding(NamedTuple):
    """What was measured: numbers that the same machine finds again, and those of its clock."""

    numbers: Mapping[str, Any]
    seconds: Mapping[str, float]


class Claim(abc.ABC):
    """One claim; all that decides the answer is in its file, and was before any test error was known."""

    name: str
    """Such as R1."""
    paper: str
    """What the paper says, with its figures."""
    rule: str
    """When the claim is said to hold."""

    @property
    def title(self) -> str:
        """In one line, as its class says it."""
        return (type(self).__doc__ or "").rstrip(".")

    @abc.abstractmethod
    def measure(self, preset: Preset, seeds: int | None, workshop: Workshop) -> Finding:
        """The numbers of the study; with so many seeds, or as many as the preset has."""

    @abc.abstractmethod
    def judge(self, numbers: Mapping[str, Any]) -> Verdict:
        """The rule, applied."""

    @abc.abstractmethod
    def table(self, finding: Finding) -> list[list[str]]:
        """A heading and rows of text."""

    @abc.abstractmethod
    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        """The numbers as a picture."""
