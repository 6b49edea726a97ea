"""What a check has to say."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["error", "warning", "note"]
"""error: training on this is wasted; warning: look before you train; note: good to know, nothing to do."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing found in the data: how bad, which check, and what, where and what to do about it."""

    level: Level
    name: str
    message: str


@dataclasses.dataclass(frozen=True)
class Report:
    """All findings, the worst first."""

    findings: tuple[Finding, ...]

    @property
    def is_fine(self) -> bool:
        """Whether there is nothing worse than a note."""
        return all(finding.level == "note" for finding in self.findings)

    def names(self, *levels: Level) -> set[str]:
        """The checks that found something of these levels; of any level if none is given."""
        return {finding.name for finding in self.findings if not levels or finding.level in levels}


def sort(findings: Iterator[Finding]) -> tuple[Finding, ...]:
    """The worst first, otherwise in the order found."""
    order: tuple[Level, ...] = ("error", "warning", "note")
    return tuple(sorted(findings, key=lambda finding: order.index(finding.level)))
