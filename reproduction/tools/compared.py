"""Write docs/comparisons.md, its pictures and the table of the README, from reproduction/results/compare/*.json alone.

    make results

To add a table, run `python reproduction/studies/compared.py --task NAME`.
"""

import statistics
from pathlib import Path

from loca.comparing import Comparison, ComparisonEntry
from loca.figures import comparison

ROOT = Path(__file__).parents[2]
RESULTS, PAGE, PICTURES = ROOT / "reproduction/results/compare", ROOT / "docs/comparisons.md", ROOT / "docs/results"
README, BEGIN, END = ROOT / "README.md", "<!-- written by `make results` -->\n", "\n<!-- end -->"
COLUMNS = ("Gaussian", "FNO", "LOCA", "DeepONet", "ridge", "neuraloperator FNO", "scikit-learn GP")
"""The models in the table of the README: ours, and then those of other packages."""
OPENING = """---
description: "Every model on the same data: error, core minutes, coverage of error bars, size and time per prediction."
---

# Comparisons

Every model on the same functions, with the same cores and the same rules, as [`loca compare`](compare.md) does it on
your data. Settings and transforms are chosen on validation functions, and every trained model gets the same time. Test
functions choose nothing. Errors are mean relative L2 errors on test functions over all seeds; *spread* is the largest
minus the smallest of them. *Coverage* is the share of test values inside bands of 90 %, calibrated on the validation
functions. The model that validation functions prefer is in bold.

`python reproduction/studies/compared.py --task NAME` repeats a table, and `make results` writes this page.
"""


def mean(group: list[ComparisonEntry], name: str) -> float:
    """The mean of a number over the seeds."""
    return statistics.mean(getattr(entry, name) for entry in group)


def percent(value: float) -> str:
    """An error with three digits."""
    return f"{100.0 * value:.3g} %"


def table(found: Comparison) -> str:
    """One line per model."""
    lines = ["| model | error | spread | core minutes | coverage | ms |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for (model, _), group in found.groups().items():
        known = {
            name: [value for entry in group if (value := getattr(entry, name)) is not None]
            for name in ("error", "core_seconds", "coverage", "milliseconds")
        }
        means = {name: statistics.mean(values) for name, values in known.items() if values}
        cells = [
            f"**{model}**" if model == found.best else model,
            percent(means["error"]),
            percent(max(known["error"]) - min(known["error"])),
            f"{means['core_seconds'] / 60.0:.2f}",
            f"{100.0 * means['coverage']:.0f} %" if "coverage" in means else "",
            f"{means['milliseconds']:.2g}" if "milliseconds" in means else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    reasons = {entry.model: entry.reason for entry in found.entries if entry.error is None}
    return "\n".join([*lines, *(f"\n{model}: {reason}." for model, reason in reasons.items())])


def overview(comparisons: dict[str, Comparison]) -> str:
    """The table of the README: error and core minutes of each model on every task, the least error in bold."""
    heading = " | ".join(("Gaussian operator", *COLUMNS[1:]))
    lines = [f"| task | {heading} |", f"| --- |{' ---: |' * len(COLUMNS)}"]
    for found in comparisons.values():
        groups = {model: group for (model, _), group in reversed(found.groups().items())}  # its best budget
        errors = {model: mean(groups[model], "error") for model in COLUMNS if model in groups}
        cells = []
        for model in COLUMNS:
            cell = ""
            if model in errors:
                error = percent(errors[model])
                error = f"**{error}**" if errors[model] == min(errors.values()) else error
                cell = f"{error} ({mean(groups[model], 'core_seconds') / 60.0:.1f})"
            cells.append(cell)
        lines.append(f"| {found.about['title']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def readme(comparisons: dict[str, Comparison]) -> str:
    """The README with its table."""
    before, _, rest = README.read_text().partition(BEGIN)
    return f"{before}{BEGIN}{overview(comparisons)}{END}{rest.partition(END)[2]}"


def page(comparisons: dict[str, Comparison]) -> str:
    """The page with all tables."""
    sections = [section(name, found) for name, found in comparisons.items()]
    return "\n\n".join([OPENING.rstrip(), *sections]) + "\n"


def all_comparisons() -> dict[str, Comparison]:
    """All committed comparisons by name."""
    return {path.stem: Comparison.load(path) for path in sorted(RESULTS.glob("*.json"))}


def section(name: str, found: Comparison) -> str:
    """The table and the picture of a task."""
    budgets = sorted({entry.minutes for entry in found.entries if entry.minutes})
    seeds = len({entry.seed for entry in found.entries})
    made = (
        f"{found.functions} functions to fit, {found.validation} to choose, {found.test} to test; "
        f"{' and '.join(f'{each:g}' for each in budgets)} min for each trained model; seeds: {seeds}. "
        f"{found.about['hardware']}, commit {found.about['commit']}."
    )
    picture = f"![Test error of each model over its core minutes](results/compare-{name}.png)"
    return f"## {found.about['title']}\n\n{table(found)}\n\n{picture}\n\n{made}"


def main() -> None:
    comparisons = all_comparisons()
    for name, found in comparisons.items():
        comparison(found).savefig(PICTURES / f"compare-{name}.png", dpi=160)
    PAGE.write_text(page(comparisons))
    README.write_text(readme(comparisons))


if __name__ == "__main__":
    main()
