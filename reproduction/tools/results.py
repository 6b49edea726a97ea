"""Write docs/results.md and its figures, from reproduction/results/*.json alone.

    make results

To add a claim, run `loca-reproduce R1 --preset paper` and copy its `result.json` to reproduction/results/R1.json. R1.md
beside it explains the result in a paragraph.
"""

import json
from pathlib import Path

from loca_reproduction.claims import CLAIMS, Reproduction

ROOT = Path(__file__).parents[2]
RESULTS, PAGE, FIGURES = ROOT / "reproduction/results", ROOT / "docs/results.md", ROOT / "docs/results"
OPENING = """---
description: "Every claim of the paper, repeated: what it says, our results, and the verdict."
---

# Reproducing the paper

Every claim of the paper is an experiment that anyone can repeat: `loca-reproduce --list` lists them, and
`loca-reproduce R1 --preset paper` repeats the first. Data, models, training time, statistic and the rule for the
verdict are fixed in the source code of the claim in `reproduction/src/loca_reproduction/claims`, and were before any
test error was known. All models have the same data, normalization and optimizer. Their learning rates are chosen from
the same few, on validation functions; test functions choose nothing. The tables have steps, batch sizes and minutes
(the median over seeds); `comparison.py` in that folder explains how they were fixed. Errors are relative L2 errors over
complete fields: means over test functions, ± one standard deviation over seeds. Where sizes differ from the paper's,
the table shows them. R6 and R7 read MNIST from the file that LOCA_MNIST names, R8 its records from the
directory LOCA_DATA.
"""

INPUTS = {"easy": "smooth inputs", "literal": "rough inputs"}
"""What the page and the figures call the two measures of inputs of Darcy flow."""


def reproductions() -> list[Reproduction]:
    """All committed reproductions, in the order of the claims."""
    paths = {name: RESULTS / f"{name}.json" for name in CLAIMS}
    return [Reproduction.from_json(json.loads(path.read_text()), CLAIMS) for path in paths.values() if path.exists()]


def short_table(found: list[Reproduction]) -> str:
    """A line for each claim."""
    lines = [f"| {f.claim.name} | {f.claim.title} | {f.verdict.answer} |" for f in found]
    table = "\n".join(["| | claim | verdict |", "| --- | --- | --- |", *lines])
    missing = [name for name in CLAIMS if name not in {f.claim.name for f in found}]
    return f"{table}\n\nNot yet run at these sizes: {', '.join(missing)}." if missing else table


def section(found: Reproduction) -> str:
    """The page of a claim, its figures, and the explanation."""
    name = found.claim.name
    reading = RESULTS / f"{name}.md"
    parts = [found.page().rstrip(), f"![{found.claim.title}](results/{name}-result.png)"]
    if "example" in found.numbers:
        parts.append(f"![Input, truth, prediction and error of each model](results/{name}-fields.png)")
    if reading.exists():
        parts.append(reading.read_text().strip())
    return "\n\n".join(parts)


def page(found: list[Reproduction]) -> str:
    """The page of all claims."""
    text = "\n\n".join([OPENING.rstrip(), short_table(found), *map(section, found)]) + "\n"
    for name, words in INPUTS.items():
        text = text.replace(f"| {name} |", f"| {words} |").replace(f"({name})", f"({words})")
    return text


def main() -> None:
    found = reproductions()
    FIGURES.mkdir(exist_ok=True)
    for each in found:
        for name, figure in each.figures().items():
            for ax in figure.axes:
                ax.title.set_text(INPUTS.get(ax.get_title(), ax.get_title()))
            figure.savefig(FIGURES / f"{each.claim.name}-{name}.png", dpi=200)
    PAGE.write_text(page(found))


if __name__ == "__main__":
    main()
