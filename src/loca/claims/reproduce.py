"""A claim put to the test: measured, judged, written down."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loca.claims.claim import Claim, Finding, Preset, Verdict
from loca.claims.example import Example
from loca.claims.machine import commit, hardware
from loca.claims.workshop import Workshop
from loca.data.store import versions
from loca.durable import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRESETS: tuple[Preset, ...] = ("quick", "paper")
"""Sizes: seconds, to show that a study works; and the paper's, as far as they go."""

RESULT, PAGE = "result.json", "result.md"
"""What a study leaves beside its pictures: its numbers and verdict, and a table to read."""


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """A claim, what was found, and the verdict."""

    claim: Claim
    preset: Preset
    numbers: Mapping[str, Any]
    verdict: Verdict
    made: Mapping[str, Any]
    """By what command, from which commit, on what hardware, in how many seconds: what may differ between runs."""

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "claim": self.claim.name,
            "preset": self.preset,
            "verdict": self.verdict._asdict(),
            "numbers": self.numbers,
            "made": self.made,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], claims: Mapping[str, Claim]) -> Reproduction:
        """What `to_json` gave."""
        claim = claims[content["claim"]]
        return cls(claim, content["preset"], content["numbers"], Verdict(**content["verdict"]), content["made"])

    def table(self) -> list[list[str]]:
        """A heading and rows of text."""
        return self.claim.table(Finding(self.numbers, self.made["seconds"]))

    def pictures(self) -> dict[str, Figure]:
        """The numbers, and where there is an example, its fields."""
        fields = {"fields": Example.from_json(self.numbers["example"]).figure()} if "example" in self.numbers else {}
        return {"result": self.claim.figure(self.numbers), **fields}

    def page(self) -> str:
        """Markdown: what the paper says, what we found, and the verdict."""
        heading, *rows = self.table()
        lines = [heading, ["---"] * len(heading), *rows]
        minutes = sum(self.made["seconds"].values()) / 60.0
        time = f", {minutes:.1f} minutes of training" if minutes >= 0.1 else ""
        return "\n\n".join(
            [
                f"## {self.claim.name}. {self.claim.title}",
                f"**The paper:** {self.claim.paper}",
                f"**The rule:** {self.claim.rule}",
                "\n".join(f"| {' | '.join(line)} |" for line in lines),
                f"**Verdict: {self.verdict.answer}.** {self.verdict.because}",
                f"`{self.made['command']}`, commit {self.made['commit'][:9]}{self.made['commit'][40:]}, "
                f"{self.made['hardware']}{time}.\n",
            ]
        )

    def write(self, directory: Path) -> None:
        """JSON, Markdown and the figure."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        text = re.sub(r"(?<=[\d\[,])\n\s+(?=[-\d\]])", "", text)  # lists of numbers on one line
        write_atomically(directory / RESULT, lambda file: file.write(text.encode()))
        (directory / PAGE).write_text(self.page(), encoding="utf-8")
        for name, figure in self.pictures().items():
            figure.savefig(directory / f"{name}.png", dpi=200)


def reproduce(
    claim: Claim, preset: Preset, workshop: Workshop, directory: Path, seeds: int | None = None
) -> Reproduction:
    """Carry out a study, or what is left of it, and judge; what was found is written to the directory."""
    finding = claim.measure(preset, seeds, workshop)
    asked = "" if seeds is None else f" --seeds {seeds}"
    asked += "" if workshop.workers == 1 else f" --workers {workshop.workers}"
    made = {
        "command": f"loca reproduce {claim.name} --preset {preset}{asked}",
        "commit": commit(),
        "hardware": hardware(),
        "versions": versions(),
        "seconds": {name: round(value, 1) for name, value in finding.seconds.items()},
    }
    found = Reproduction(claim, preset, finding.numbers, claim.judge(finding.numbers), made)
    directory.mkdir(parents=True, exist_ok=True)
    found.write(directory)
    return found


def expected_verdict(claim: str, preset: str) -> str | None:
    """The answer that this version of the package was released with, if there is one."""
    text = (importlib.resources.files("loca.claims") / "verdicts.json").read_text(encoding="utf-8")
    return json.loads(text).get(claim, {}).get(preset)
