"""R12 and R13: the cost of training, in minutes and in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from loca.data import Samples
from loca.figures import curves
from loca.losses import mean_squared
from loca.training import fit, paper_optimizer
from loca_reproduction.benchmarks.scale import measure_step, slope
from loca_reproduction.claims.claim import Claim, Finding, Preset, Verdict
from loca_reproduction.claims.results import bars_beside_paper
from loca_reproduction.runs import LEARNED, RunPool
from loca_reproduction.settings import SETTINGS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRINTED = {
    "antiderivative": {"LOCA": 2.23, "DeepONet": 2.08, "FNO": 2.06},
    "darcy": {"LOCA": 5.51, "DeepONet": 3.5, "FNO": 1.50},
    "mechanical-mnist": {"LOCA": 21.70, "DeepONet": 16.61, "FNO": 22.87},
    "shallow-water": {"LOCA": 12.10, "DeepONet": 15.39, "FNO": 13.95},
    "climate": {"LOCA": 4.52, "DeepONet": 7.51, "FNO": 10.49},
}
"""Minutes on one RTX A6000."""

UPDATES = {
    "antiderivative": {"DeepONet": 50_000, "FNO": 5_000},
    "darcy": {"DeepONet": 20_000, "FNO": 5_000},
    "mechanical-mnist": {"DeepONet": 100_000, "FNO": 120_000},
    "shallow-water": {"DeepONet": 80_000, "FNO": 4_000},
    "climate": {"DeepONet": 100_000, "FNO": 10_000},
}
"""The paper's training steps of DeepONet and FNO; those of LOCA are in `SETTINGS`."""

TIMED: Mapping[Preset, int] = {"quick": 2, "paper": 100}
"""The number of timed steps, after equally many that are not timed."""

LABELS = {"darcy": 1024}
"""Labels where the paper's minutes are for another number than its other results."""

SIZES: Mapping[Preset, tuple[int, ...]] = {"quick": (1_000, 4_000), "paper": (2_000, 4_000, 8_000, 16_000)}
"""Numbers of queries P whose memory is measured."""
NODES = 200
"""The number of nodes Q while only the queries grow."""
WITHIN = 0.2
"""The tolerance of exponents: terms that grow more slowly are still visible at these sizes."""


def functions_on_grids(name: str) -> Samples:
    """A batch of random functions in the shapes of a setting, on grids, which all models accept."""
    setting = SETTINGS[name]
    axes = [np.linspace(low, high, n) for low, high, n in zip(*corners(name), setting.sensors, strict=True)]
    x = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    y = np.linspace(0.0, 1.0, setting.locations)[:, None] if len(axes) == 1 else x
    if setting.domain.dimension > len(axes):
        times = np.linspace(0.11, 0.31, setting.locations // len(x))
        y = np.concatenate([np.insert(x, 0, time, axis=1) for time in times])
    u_key, s_key, y_key = jax.random.split(jax.random.key(0), 3)
    samples = Samples(
        jax.random.normal(u_key, (setting.batch_size, len(x), setting.input_size)),
        jnp.asarray(y, jnp.float32),
        jax.random.normal(s_key, (setting.batch_size, len(y), setting.output_size)),
        x=jnp.asarray(x, jnp.float32),
        domain=setting.domain,
    )
    labels = LABELS.get(name, setting.queries)
    return samples.observe(y_key, labels) if labels < len(y) else samples


def corners(name: str) -> tuple[Sequence[float], Sequence[float]]:
    """The corners of the box of sensors, which leaves out the time of shallow water."""
    domain = SETTINGS[name].domain
    unused = domain.dimension - len(SETTINGS[name].sensors)
    return domain.low[unused:], domain.high[unused:]


def seconds_per_step(name: str, model: str, steps: int) -> float:
    """The seconds of a step of `fit`, with its batches, once everything is compiled."""
    samples = functions_on_grids(name)
    untrained = LEARNED[model](SETTINGS[name], samples, key=jax.random.key(1))
    _, history = fit(
        untrained,
        samples,
        steps=2 * steps,
        every=steps,
        batch_size=len(samples),
        optimizer=paper_optimizer(),
        loss=mean_squared,
        recover=False,
    )
    return (history.moments[1].seconds - history.moments[0].seconds) / steps


class Minutes(Claim):
    """Minutes of training."""

    name = "R12"
    paper = "One RTX A6000, LOCA / DeepONet / FNO: " + "; ".join(
        f"{name} {' / '.join(f'{value:g}' for value in models.values())}" for name, models in PRINTED.items()
    )
    rule = (
        "Our seconds per step times the paper's steps, on the machine at hand. Holds if LOCA takes no longer than the "
        "paper says on its accelerator in all experiments, in part if in some. A clock's figures differ between runs."
    )

    def measure(self, preset: Preset, seeds: int | None, pool: RunPool) -> Finding:
        minutes: dict[str, dict[str, float]] = {}
        for name in PRINTED if preset == "paper" else ["antiderivative"]:
            minutes[name] = {}
            for model in ("LOCA", "DeepONet", "FNO"):
                steps = SETTINGS[name].steps if model == "LOCA" else UPDATES[name][model]
                minutes[name][model] = steps * seconds_per_step(name, model, TIMED[preset]) / 60.0
                pool.report(f"{name}, {model}: {minutes[name][model]:.1f} minutes for {steps:,} steps")
        return Finding({"minutes": minutes}, {})

    def judge(self, numbers: Mapping[str, Any]) -> Verdict:
        ours = {name: models["LOCA"] for name, models in numbers["minutes"].items()}
        within = [name for name, minutes in ours.items() if minutes <= PRINTED[name]["LOCA"]]
        answer = "holds" if len(within) == len(ours) else "holds in part" if within else "fails"
        text = ", ".join(f"{name} {minutes:.1f} ({PRINTED[name]['LOCA']:g})" for name, minutes in ours.items())
        return Verdict(answer, f"Minutes of LOCA here, and in the paper: {text}.")

    def table(self, finding: Finding) -> list[list[str]]:
        rows = [["experiment", "model", "minutes, paper", "minutes, ours"]]
        for name, models in finding.numbers["minutes"].items():
            rows += [[name, m, f"{PRINTED[name][m]:g}", f"{minutes:.1f}"] for m, minutes in models.items()]
        return rows

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        return bars_beside_paper(numbers["minutes"], PRINTED, "minutes")


class Growth(Claim):
    """Cost grows as PQ + Q²."""

    name = "R13"
    paper = "O(PQ + Q²) with Q nodes and P queries, O(P²) where the queries are the nodes (appendix)."
    rule = (
        "Memory of a training step, as the compiler plans it, against P with Q fixed has exponent 1, and against P = Q "
        f"exponent 2, both within {WITHIN}; holds if both, in part if one."
    )

    def measure(self, preset: Preset, seeds: int | None, pool: RunPool) -> Finding:
        rows, seconds = [], {}
        for along in ("queries", "both"):
            for size in SIZES[preset]:
                nodes = size if along == "both" else NODES
                row = measure_step("Dense", queries=size, nodes=nodes, functions=20, dimension=2, repeats=3)
                rows.append({"along": along, "size": size, "megabytes": round(row["megabytes"], 3)})
                seconds[f"{along} {size}"] = row["seconds"] or 0.0
                pool.report(f"{along} {size}: {row['megabytes']:.1f} MB, {row['seconds']} s")
        return Finding({"rows": rows}, seconds)

    def judge(self, numbers: Mapping[str, Any]) -> Verdict:
        powers = exponents(numbers)
        points = (abs(powers["queries"] - 1.0) <= WITHIN) + (abs(powers["both"] - 2.0) <= WITHIN)
        text = (
            f"Memory grows as P^{powers['queries']:.2f} with {NODES} nodes, and as P^{powers['both']:.2f} with P = Q."
        )
        return Verdict(("fails", "holds in part", "holds")[points], text)

    def table(self, finding: Finding) -> list[list[str]]:
        rows = [
            [f"{r['size']:,}", f"{r['size'] if r['along'] == 'both' else NODES:,}", f"{r['megabytes']:.1f}"]
            for r in finding.numbers["rows"]
        ]
        return [["queries", "nodes", "MB"], *rows]

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        from matplotlib.ticker import NullLocator

        names = {"queries": f"{NODES} nodes", "both": "as many nodes"}
        lines = {name: [r for r in numbers["rows"] if r["along"] == along] for along, name in names.items()}
        figure = curves(lines, x="size", y="megabytes", x_label="queries")
        ax = figure.axes[0]
        ax.set_xscale("log")
        ax.set_xticks([row["size"] for row in lines[names["both"]]], minor=False)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter("{x:g}")
        return figure


def exponents(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The exponents with which memory grows, with the queries and with queries and nodes."""
    found = {}
    for along in ("queries", "both"):
        rows = [row for row in numbers["rows"] if row["along"] == along]
        found[along] = slope([row["size"] for row in rows], [row["megabytes"] for row in rows])
    return found
