"""Write docs/results.md, its figures, and the short table of the README, from studies/results/*.json alone.

    make results

A study is added by `loca reproduce R1 --preset paper`, and its `result.json` copied to studies/results/R1.json. Beside
it, R1.md says in a paragraph why it came out so.
"""

import json
from pathlib import Path

from loca.claims import CLAIMS, Reproduction

ROOT = Path(__file__).parents[1]
RESULTS, PAGE, FIGURES, README = (
    ROOT / "studies/results", ROOT / "docs/results.md", ROOT / "docs/results", ROOT / "README.md"
)  # fmt: skip
BEGIN, END = "<!-- results: made by `make results` -->", "<!-- end of results -->"
OPENING = """# The paper, re-run

Every claim of the paper as a study that anyone can repeat: `loca reproduce --list`, `loca reproduce R1 --preset paper`.
Data, models, budget, statistic and the rule of the verdict stand in one file per claim, `src/loca/claims`, and
did before any test error was known. All models have the same data, normalization and optimizer, and the same rates to
choose from on validation functions; no choice was made on test functions. Steps, batches and minutes, of which the
median over seeds is told, stand in the tables; `src/loca/claims/budgets.py` says how they were fixed. Errors are
relative L2 over whole fields, mean over test functions, ± one standard deviation over seeds. Where a claim was put to
the test at other sizes than the paper's, the table says so. R6 and R7 read MNIST from the file that LOCA_MNIST names,
R8 its records from the directory LOCA_DATA.
"""


def reproductions() -> list[Reproduction]:
    """All that are there, in the order of the claims."""
    paths = {name: RESULTS / f"{name}.json" for name in CLAIMS}
    return [Reproduction.from_json(json.loads(path.read_text()), CLAIMS) for path in paths.values() if path.exists()]


def short_table(found: list[Reproduction]) -> str:
    """One line for each claim."""
    lines = [f"| {f.claim.name} | {f.claim.title} | {f.verdict.answer} |" for f in found]
    table = "\n".join(["| | claim | verdict |", "| --- | --- | --- |", *lines])
    missing = [name for name in CLAIMS if name not in {f.claim.name for f in found}]
    return f"{table}\n\nNot yet run at these sizes: {', '.join(missing)}." if missing else table


def section(found: Reproduction) -> str:
    """What the study says, the figure, and the reading."""
    name = found.claim.name
    reading = RESULTS / f"{name}.md"
    parts = [found.page().rstrip(), f"![{found.claim.title}](results/{name}-result.png)"]
    if "example" in found.numbers:
        parts.append(f"![Input, truth, prediction and error of each model](results/{name}-fields.png)")
    if reading.exists():
        parts.append(reading.read_text().strip())
    return "\n\n".join(parts)


def main() -> None:
    found = reproductions()
    FIGURES.mkdir(exist_ok=True)
    for each in found:
        for name, figure in each.pictures().items():
            figure.savefig(FIGURES / f"{each.claim.name}-{name}.png", dpi=200)
    PAGE.write_text("\n\n".join([OPENING.rstrip(), short_table(found), *map(section, found)]) + "\n")
    text = README.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n\n{short_table(found)}\n\n{END}{after}")


if __name__ == "__main__":
    main()
