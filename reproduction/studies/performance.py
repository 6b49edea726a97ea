"""What does a training step cost, how does it grow, and how far is it from what the machine can do?

    python studies/performance.py          # about 15 minutes on two quiet cores; goes on where it was if it was killed
    python studies/performance.py --draw   # the figures of docs/performance.md, from the numbers alone

Steps: `bench step`, every setting of the paper. Growth: `bench scale`, along every axis. Queries: `bench
queries`, ten million. Writes studies/performance.json.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from loca.figures import INK, line_styles, log_axis, style
from loca_reproduction.benchmarks.scale import ATTENTIONS, AXES, measure_scale
from loca_reproduction.benchmarks.step import STEP_SETTINGS, time_step
from loca_reproduction.benchmarks.throughput import measure_streamed_prediction
from loca_reproduction.machine import commit, hardware

HERE = Path(__file__).parent
RESULTS, FIGURES = HERE / "performance.json", HERE.parents[1] / "docs/figures"

PARTS: dict[str, Callable[[], Any]] = {
    **{f"step {name}": lambda name=name: time_step(name) for name in STEP_SETTINGS},
    **{f"scale {a}": lambda a=a: list(measure_scale(a)) for a in AXES},
    "queries": lambda: measure_streamed_prediction(10_000_000, 1_000_000),
}


def measure() -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, part in PARTS.items():
        if name not in results:
            machine = {"hardware": hardware(), "cores": len(os.sched_getaffinity(0)), "jax": jax.__version__}
            results[name] = machine | {"commit": commit(), "load": round(os.getloadavg()[0], 2), "found": part()}
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(name, json.dumps(results[name]["found"])[:200], flush=True)


def draw(results: dict) -> None:
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(6.2, 2.3), layout="constrained")
        axes = figure.subplots(1, 3)
        panels = (
            ("both", "queries", "seconds"),
            ("both", "queries", "megabytes"),
            ("dimension", "dimension", "seconds"),
        )
        for ax, (along, size, what) in zip(axes, panels, strict=True):
            for way, look in line_styles(ATTENTIONS).items():
                rows = [r for r in results[f"scale {along}"]["found"] if r["way"] == way and r[what] is not None]
                ax.plot([r[size] for r in rows], [r[what] for r in rows], marker="o", label=way, **look)
            ax.set_xlabel("dimension of Y" if along == "dimension" else "queries = nodes")
            ax.set_ylabel(f"{what} per step")
            if along == "dimension":
                ax.set_ylim(bottom=0.0)
            else:
                ax.set_xscale("log")
                log_axis(ax)
        axes[0].legend(fontsize=6.0)
        figure.savefig(FIGURES / "performance_scale.png", dpi=200)

        steps = {name: results[f"step {name}"]["found"] for name in STEP_SETTINGS}
        figure = Figure(figsize=(4.6, 2.3), layout="constrained")
        ax = figure.subplots()
        ax.bar(
            range(len(steps)),
            [s["gflops_per_s"] for s in steps.values()],
            0.6,
            color=line_styles(["LOCA"])["LOCA"]["color"],
        )
        for i, found in enumerate(steps.values()):
            ax.plot([i - 0.35, i + 0.35], [found["sgemm_gflops_per_s"]] * 2, color=INK)
        ax.plot([], [], color=INK, label="a large matrix product")
        ax.set_xticks(range(len(steps)), [name.replace("-", "\n") for name in steps])
        ax.set_ylabel("GFLOP/s")
        figure.legend(loc="outside upper right")
        figure.savefig(FIGURES / "performance_roofline.png", dpi=200)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true")
    if not parser.parse_args().draw:
        measure()
    draw(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
