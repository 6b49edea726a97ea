"""Write docs/comparisons.md and its pictures, from reproduction/results/compare/*.json alone.

    make results

To add a table, run `python reproduction/studies/compared.py --task NAME`.
"""

import statistics
from pathlib import Path

from loca.comparing import Comparison
from loca.figures import comparison

ROOT = Path(__file__).parents[2]
RESULTS, PAGE, PICTURES = ROOT / "reproduction/results/compare", ROOT / "docs/comparisons.md", ROOT / "docs/results"
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
    comparisons = {path.stem: Comparison.load(path) for path in sorted(RESULTS.glob("*.json"))}
    for name, found in comparisons.items():
        comparison(found).savefig(PICTURES / f"compare-{name}.png", dpi=160)
    sections = [section(name, found) for name, found in comparisons.items()]
    PAGE.write_text("\n\n".join([OPENING.rstrip(), *sections]) + "\n")


if __name__ == "__main__":
    main()
