"""Write docs/comparisons.md, its pictures and the table of the README, from results alone.

    make results

To add a table, run `python reproduction/studies/compared.py --task NAME`. Rows of models that use the structure of the
data are those of `python reproduction/studies/around.py`.
"""

import json
import statistics
from pathlib import Path

from loca.comparing import Comparison, ComparisonEntry
from loca.figures import comparison

ROOT = Path(__file__).parents[2]
RESULTS, PAGE, PICTURES = ROOT / "reproduction/results/compare", ROOT / "docs/comparisons.md", ROOT / "docs/results"
STRUCTURE = ROOT / "reproduction/studies/around.json"
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

TITLES = {
    "darcy": "Darcy flow, rough inputs, 128 labels",
    "smooth darcy": "Darcy flow, smooth inputs, 128 labels",
    "digits": "Mechanical MNIST, 56 labels",
    "noisy digits": "Mechanical MNIST, 56 labels, noisy inputs",
    "waves": "Shallow water, 128 labels: height, both velocities",
    "europe": "Temperature to pressure height over Europe, 600 days",
    "bundled": "Two-valued Darcy flow of neuraloperator, 16 × 16",
    "two-valued 85": "Two-valued Darcy flow, 85 × 85",
}
"""Of the cases of the study."""

KNOWN = """## With what is known about the data

A thousand training functions unless it says otherwise. The [symmetries](symmetries.md) of each problem are named, and
Gaussian operators are [corrected](solving.md) where that lowers the error on held-out functions, except on shallow
water. The *structure tensor* has hyperparameters that `studies/local.py` has searched for, in 1.4 core minutes that
are not counted. With *own labels*, images of a function under a reflection of a half-open grid have no labels on the
row that the grid lacks, instead of extrapolated ones. *Around* is a map that the network [is trained
around](training.md#a-map-around-the-network). A combination has the best model of each kind on validation functions,
with weights chosen on these. Coverage is that of bands of 90 % after calibration on the validation functions. The
model that validation functions prefer is in bold; several numbers are those of the channels.

"""


def mean(group: list[ComparisonEntry], name: str) -> float:
    """The mean of a number over the seeds."""
    return statistics.mean(getattr(entry, name) for entry in group)


def percent(value: float, digits: int = 3) -> str:
    """An error in percent, with some digits."""
    return f"{100.0 * value:.{digits}g} %"


def table(found: Comparison) -> str:
    """One line per model."""
    lines = ["| model | error | spread | core min | coverage | ms |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for (model, _), group in found.groups().items():
        known = {
            name: [value for entry in group if (value := getattr(entry, name)) is not None]
            for name in ("error", "core_seconds", "coverage", "milliseconds")
        }
        means = {name: statistics.mean(values) for name, values in known.items() if values}
        cells = [
            f"**{model}**" if model == found.best else model,
            percent(means["error"]),
            percent(max(known["error"]) - min(known["error"]), digits=2),
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
    return "\n\n".join([OPENING.rstrip(), *sections, KNOWN + structure(json.loads(STRUCTURE.read_text()))]) + "\n"


def structure(rows: list[dict]) -> str:
    """Models that use the structure of the data, means over seeds."""
    lines = ["| data | model | error | coverage | core minutes | seeds |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    for case, title in TITLES.items():
        own = [row for row in rows if row["case"] == case]
        runs = {run: [row for row in own if row["run"] == run] for run in sorted({row["run"] for row in own})}
        chosen = {run: statistics.mean(row["validation"] for row in same) for run, same in runs.items()}
        for run in sorted(runs, key=chosen.__getitem__):
            parts = [zip(*(row[name] for row in runs[run]), strict=True) for name in ("test", "coverage")]
            errors, covered = ([statistics.mean(channel) for channel in part] for part in parts)
            minutes = statistics.mean(row["core_seconds"] for row in runs[run]) / 60.0
            cells = [
                title,
                f"**{run}**" if run == min(chosen, key=chosen.__getitem__) else run,
                ", ".join(map(percent, errors)),
                ", ".join(f"{100.0 * each:.0f} %" for each in covered),
                f"{minutes:.1f}",
                str(len(runs[run])),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


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
        f"{found.about['hardware']}, commit {found.about['commit'][:10]}."
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
