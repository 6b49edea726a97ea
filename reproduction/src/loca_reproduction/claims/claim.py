"""A claim of the paper: what it says, how it is tested, when it holds, and the record of a test."""

from __future__ import annotations

import abc
import dataclasses
import importlib.resources
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from loca_reproduction.claims.results import Example
from loca_reproduction.machine import commit, hardware, versions, write
from loca_reproduction.runs import RunPool

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Preset = Literal["quick", "paper"]
"""The size of an experiment: `quick` takes seconds and shows that it works, `paper` has the paper's sizes."""

PRESETS: tuple[Preset, ...] = ("quick", "paper")
"""All presets."""

Answer = Literal["holds", "holds in part", "fails"]
"""The possible answers of a verdict."""

RESULT_FILE, PAGE_FILE = "result.json", "result.md"
"""Files of a reproduction besides its figures: numbers and verdict, and a page with the table."""


class Verdict(NamedTuple):
    """Whether a claim holds, and in one sentence the numbers that this rests on."""

    answer: Answer
    because: str


class Finding(NamedTuple):
    """What was measured: numbers that the same machine reproduces, and durations that vary."""

    numbers: Mapping[str, Any]
    seconds: Mapping[str, float]


class Claim(abc.ABC):
    """A claim of the paper.

    Everything that decides the verdict is in the file of the claim, and was before any test error was known. The
    docstring of a subclass is its title in tables.
    """

    name: str
    """The name, such as R1."""
    paper: str
    """What the paper says, with its numbers."""
    rule: str
    """The rule for the verdict."""

    @property
    def title(self) -> str:
        """The claim in one line."""
        return (type(self).__doc__ or "").rstrip(".")

    @abc.abstractmethod
    def measure(self, preset: Preset, seeds: int | None, pool: RunPool) -> Finding:
        """Carry out the experiment; `seeds` replaces the number of seeds of the preset."""

    @abc.abstractmethod
    def judge(self, numbers: Mapping[str, Any]) -> Verdict:
        """Apply the rule."""

    @abc.abstractmethod
    def table(self, finding: Finding) -> list[list[str]]:
        """A header and rows of text."""

    @abc.abstractmethod
    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        """A figure of the numbers."""


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """A claim with the numbers that were measured and the verdict.

    **Arguments:**

    - `claim`, `preset`: what was tested, and at which size.
    - `numbers`: what was measured.
    - `verdict`: the rule applied to the numbers.
    - `made`: the command, commit, hardware, versions and seconds: all that may differ between repetitions.
    """

    claim: Claim
    preset: Preset
    numbers: Mapping[str, Any]
    verdict: Verdict
    made: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The reproduction as JSON content."""
        return {
            "claim": self.claim.name,
            "preset": self.preset,
            "verdict": self.verdict._asdict(),
            "numbers": self.numbers,
            "made": self.made,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], claims: Mapping[str, Claim]) -> Reproduction:
        """The reproduction that `to_json` described, of one of the `claims`."""
        claim = claims[content["claim"]]
        return cls(claim, content["preset"], content["numbers"], Verdict(**content["verdict"]), content["made"])

    def table(self) -> list[list[str]]:
        """A header and rows of text."""
        return self.claim.table(Finding(self.numbers, self.made["seconds"]))

    def figures(self) -> dict[str, Figure]:
        """The figure of the numbers, and that of the example's fields if there is one."""
        fields = {"fields": Example.from_json(self.numbers["example"]).figure()} if "example" in self.numbers else {}
        return {"result": self.claim.figure(self.numbers), **fields}

    def page(self) -> str:
        """A Markdown section: what the paper says, the rule, what was measured, and the verdict."""
        header, *rows = self.table()
        numeric = [all(re.match(r"-?\d|$", cell) for cell in column) for column in zip(*rows, strict=True)]
        lines = [header, ["---:" if each else "---" for each in numeric], *rows]
        minutes = sum(self.made["seconds"].values()) / 60.0
        command = self.made["command"].replace("loca reproduce", "loca-reproduce")  # of records made before
        time = f", {minutes:.1f} minutes of training" if minutes >= 0.1 else ""
        return "\n\n".join(
            [
                f"## {self.claim.name}. {self.claim.title}",
                f"**The paper:** {self.claim.paper}",
                f"**The rule:** {self.claim.rule}",
                "\n".join(f"| {' | '.join(line)} |" for line in lines),
                f"**Verdict: {self.verdict.answer}.** {self.verdict.because}",
                f"`{command}`, commit {self.made['commit'][:9]}{self.made['commit'][40:]}, "
                f"{self.made['hardware']}{time}.\n",
            ]
        )

    def write(self, directory: Path) -> None:
        """Write JSON, the Markdown page and the figures to a directory."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        text = re.sub(r"(?<=[\d\[,])\n\s+(?=[-\d\]])", "", text)  # lists of numbers on one line
        write(directory / RESULT_FILE, text)
        (directory / PAGE_FILE).write_text(self.page(), encoding="utf-8")
        for name, figure in self.figures().items():
            figure.savefig(directory / f"{name}.png", dpi=200)


def reproduce(claim: Claim, preset: Preset, pool: RunPool, directory: Path, seeds: int | None = None) -> Reproduction:
    """Test a claim, judge it, and write the reproduction to a directory.

    **Arguments:**

    - `claim`, `preset`: what to test, and at which size.
    - `pool`: where runs are kept, and how they are carried out; finished ones are not repeated.
    - `directory`: where to write.
    - `seeds`: the number of seeds; that of the preset unless given.
    """
    finding = claim.measure(preset, seeds, pool)
    options = "" if seeds is None else f" --seeds {seeds}"
    options += "" if pool.workers == 1 else f" --workers {pool.workers}"
    made = {
        "command": f"loca-reproduce {claim.name} --preset {preset}{options}",
        "commit": commit(),
        "hardware": hardware(),
        "versions": versions(),
        "seconds": {name: round(value, 1) for name, value in finding.seconds.items()},
    }
    result = Reproduction(claim, preset, finding.numbers, claim.judge(finding.numbers), made)
    directory.mkdir(parents=True, exist_ok=True)
    result.write(directory)
    return result


def expected_verdict(claim: str, preset: str) -> str | None:
    """The answer with which this version of the package was released, if it has one."""
    text = (importlib.resources.files("loca_reproduction.claims") / "verdicts.json").read_text(encoding="utf-8")
    return json.loads(text).get(claim, {}).get(preset)
