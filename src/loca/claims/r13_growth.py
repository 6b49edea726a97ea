"""R13: how cost grows with queries and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loca.benchmarks import measure_step, slope
from loca.claims.claim import Claim, Finding, Preset, Verdict
from loca.claims.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZES: Mapping[Preset, tuple[int, ...]] = {"quick": (1_000, 4_000), "paper": (2_000, 4_000, 8_000, 16_000)}
WITHIN = 0.2
"""Of the exponents, for the terms that grow more slowly and are still seen."""
FIXED = 200


class Growth(Claim):
    """Cost grows as PQ + Q²."""

    name = "R13"
    paper = "O(PQ + Q²) with Q nodes and P queries, O(P²) where the queries are the nodes (appendix)."
    rule = (
        "Memory of a training step, as the compiler plans it, against P with Q fixed has exponent 1, and against P = Q "
        f"exponent 2, both within {WITHIN}; holds if both, in part if one."
    )

    def measure(self, preset: Preset, seeds: int | None, workshop: Workshop) -> Finding:
        rows, seconds = [], {}
        for along in ("queries", "both"):
            for size in SIZES[preset]:
                nodes = size if along == "both" else FIXED
                row = measure_step("Dense", queries=size, nodes=nodes, functions=20, dimension=2, repeats=3)
                rows.append({"along": along, "size": size, "megabytes": round(row.megabytes, 3)})
                seconds[f"{along} {size}"] = row.seconds or 0.0
                workshop.tell(f"{along} {size}: {row.megabytes:.1f} MB, {row.seconds} s")
        return Finding({"rows": rows}, seconds)

    def judge(self, numbers: Mapping[str, Any]) -> Verdict:
        powers = exponents(numbers)
        points = (abs(powers["queries"] - 1.0) <= WITHIN) + (abs(powers["both"] - 2.0) <= WITHIN)
        told = (
            f"Memory grows as P^{powers['queries']:.2f} with {FIXED} nodes, and as P^{powers['both']:.2f} with P = Q."
        )
        return Verdict(("fails", "holds in part", "holds")[points], told)

    def table(self, finding: Finding) -> list[list[str]]:
        rows = [
            [f"{r['size']:,}", f"{r['size'] if r['along'] == 'both' else FIXED:,}", f"{r['megabytes']:.1f}"]
            for r in finding.numbers["rows"]
        ]
        return [["queries", "nodes", "MB"], *rows]

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        from matplotlib.ticker import NullLocator

        from loca.figures import curves

        names = {"queries": f"{FIXED} nodes", "both": "as many nodes"}
        lines = {name: [r for r in numbers["rows"] if r["along"] == along] for along, name in names.items()}
        figure = curves(lines, x="size", y="megabytes", x_label="queries")
        ax = figure.axes[0]
        ax.set_xscale("log")
        ax.set_xticks([row["size"] for row in lines[names["both"]]], minor=False)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter("{x:g}")
        return figure


def exponents(numbers: Mapping[str, Any]) -> dict[str, float]:
    """The power with which memory grows along each way."""
    found = {}
    for along in ("queries", "both"):
        rows = [row for row in numbers["rows"] if row["along"] == along]
        found[along] = slope([row["size"] for row in rows], [row["megabytes"] for row in rows])
    return found
