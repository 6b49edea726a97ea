"""The findings that checks report."""

import dataclasses
import textwrap
from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Bool

Level: TypeAlias = Literal["error", "warning", "note"]
"""error: training on this data is wasted; warning: look before you train; note: nothing to do."""

FEW = 10
"""Fewer functions than this do not determine an operator, and what they have in common may be chance."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One finding: its level, the name of the check, and a message with the place, the problem and what to do."""

    level: Level
    name: str
    message: str


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """All findings, the most serious first; prints one paragraph for each."""

    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> "CheckReport":
        """A report of these findings, in the given order within each level."""
        order: tuple[Level, ...] = ("error", "warning", "note")
        return cls(tuple(sorted(findings, key=lambda finding: order.index(finding.level))))

    def __str__(self) -> str:
        lines = (f"{found.level}: {found.name}: {found.message}" for found in self.findings)
        return "\n".join(textwrap.fill(line, 100, subsequent_indent="  ") for line in lines) or "nothing found"

    @property
    def is_fine(self) -> bool:
        """Whether all findings are notes."""
        return all(finding.level == "note" for finding in self.findings)

    def names(self, *levels: Level) -> set[str]:
        """The names of the checks with findings of these levels, by default of any level."""
        return {finding.name for finding in self.findings if not levels or finding.level in levels}


def rows(wrong: Bool[np.ndarray, " N"]) -> str:
    """`3 of 100 functions (the first is number 17)`."""
    return f"{int(wrong.sum())} of {len(wrong)} functions (the first is number {int(np.argmax(wrong))})"
