"""`loca-reproduce bench`: measurements of speed and memory on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

SettingOption = Annotated[str, typer.Option(help="An experiment of the paper; an unknown name lists them all.")]
DirectoryOption = Annotated[
    Path | None, typer.Option("--dir", help="Where to write; the directory for temporary files unless given.")
]

bench = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@bench.callback()
def options() -> None:
    """Measure speed on this machine."""


@bench.command()
def step(
    setting: SettingOption = "darcy-128",
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of a table.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="The number of turns; medians are reported.")] = 24,
    seconds: Annotated[float, typer.Option(min=0.0, help="About how long each program runs per turn.")] = 0.25,
) -> None:
    """Time one training step of LOCA (loss, gradients, Adam) in three programs that take turns.

    *ours* is the package; *bare* the same arithmetic written directly in JAX; *paper layout* is Algorithm 1 with all
    work at the nodes repeated for every function of the batch. Sizes are those of the paper's experiments.
    """
    from loca_reproduction.benchmarks.step import STEP_SETTINGS, time_step

    check_setting(setting, STEP_SETTINGS)
    times = time_step(setting, rounds=rounds, seconds=seconds)
    if as_json:
        print_json(times)
    else:
        print_step(times)


@bench.command()
def fit(
    setting: SettingOption = "darcy-1024",
    seconds: Annotated[float, typer.Option(min=1.0, help="About how long each turn takes.")] = 65.0,
    turns: Annotated[int, typer.Option(min=1, help="The number of turns; medians are reported.")] = 3,
) -> None:
    """Time a complete run, with validation, checkpoints and progress, against the bare step of `bench step`."""
    from loca_reproduction.benchmarks.fitting import measure_fit
    from loca_reproduction.benchmarks.step import STEP_SETTINGS

    check_setting(setting, STEP_SETTINGS)
    print_json(measure_fit(setting, seconds=seconds, turns=turns))


@bench.command()
def predict(
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of sentences.")] = False,
) -> None:
    """Time prediction with φ frozen against the full evaluation, and predict at a million queries in bounded memory."""
    from loca_reproduction.benchmarks.throughput import measure_prediction

    figures = measure_prediction()
    if as_json:
        print_json(figures)
        return
    typer.echo(
        "{queries} queries: {full_ms:.1f} ms in full, {frozen_ms:.3f} ms frozen by `at`, {speedup:.0f} times faster; "
        "largest difference {frozen_error:.1e}\n"
        "{many_queries} queries with {nodes} nodes: {many_seconds:.1f} s, {many_megabytes:.0f} MB above the process "
        "before; largest difference {many_error:.1e}".format(**figures)
    )


@bench.command()
def collectives(
    devices: Annotated[int, typer.Option(min=1, help="The number of devices to compile for; they need not exist.")] = 8,
    setting: SettingOption = "darcy",
) -> None:
    """Count what devices send each other in the compiled program of a training step; print lines of JSON."""
    from loca_reproduction.benchmarks.scale import measure_collectives
    from loca_reproduction.settings import SETTINGS

    check_setting(setting, SETTINGS)
    for counted in measure_collectives(devices, setting=setting):
        print_json(counted)


@bench.command()
def peers(
    rounds: Annotated[int, typer.Option(min=1, help="The number of turns.")] = 10,
    runs: Annotated[int, typer.Option(min=1, help="The number of training runs to the common error.")] = 3,
) -> None:
    """Compare the models with neuraloperator and DeepXDE, in a checkout of the repository; print lines of JSON.

    Run `reproduction/parity/peers/environment.sh` first: it creates the environment of the other packages.
    """
    from loca_reproduction.benchmarks.peers import measure_peers

    for match in measure_peers(rounds=rounds, runs=runs):
        print_json(match)


@bench.command()
def queries(
    count: Annotated[int, typer.Option(min=1, help="About the number of queries.")] = 10_000_000,
    directory: DirectoryOption = None,
) -> None:
    """Write predictions for one function to Zarr, at a tenth of the queries and at all; print time and memory."""
    from loca_reproduction.benchmarks.throughput import measure_streamed_prediction

    print_json(measure_streamed_prediction(count, max(1, count // 10), directory=directory))


@bench.command()
def scale(
    along: Annotated[str, typer.Option(help="What grows; an unknown name lists all.")] = "both",
    as_json: Annotated[bool, typer.Option("--json", help="Print lines of JSON instead of a table.")] = False,
) -> None:
    """Measure time and memory of one training step as queries, nodes, functions or dimensions grow.

    Three methods evaluate the coupling: dense, in blocks, with landmarks. Memory is what the compiler plans; a step
    that would take more than 4 GB is not run. Growth is the exponent of seconds and megabytes.
    """
    from loca_reproduction.benchmarks.scale import AXES, measure_scale

    if along not in AXES:
        raise typer.BadParameter(f"unknown axis {along!r}; choose one of {', '.join(AXES)}", param_hint="--along")
    rows = []
    for row in measure_scale(along):
        rows.append(row)
        if as_json:
            print_json(row)
    if not as_json:
        print_scale(along, rows)


@bench.command()
def stream(
    gigabytes: Annotated[float, typer.Option(min=0.0, help="The size of the store.")] = 4.0,
    directory: DirectoryOption = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples per batch; a sample has 16 KiB.")] = 100,
    threads: Annotated[int, typer.Option(min=1, help="The number of batches read at the same time.")] = 2,
    seconds: Annotated[float, typer.Option(min=0.0, help="About how long to read.")] = 10.0,
) -> None:
    """Write a store of random functions and read it in shuffled batches in a new process; print rate and memory."""
    from loca_reproduction.benchmarks.throughput import measure_streaming

    print_json(
        measure_streaming(gigabytes, directory=directory, batch_size=batch_size, threads=threads, seconds=seconds)
    )


def check_setting(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse an unknown setting."""
    if name not in settings:
        raise typer.BadParameter(
            f"unknown setting {name!r}; choose one of {', '.join(settings)}", param_hint="--setting"
        )


def print_scale(along: str, rows: list[dict[str, Any]]) -> None:
    """Print a table with a row for each size and a column for each method; the last row has the growth."""
    from rich.console import Console
    from rich.table import Table

    from loca_reproduction.benchmarks.scale import slope

    def growth(rows: list[dict[str, Any]], what: str) -> float:
        known = [row for row in rows if row[what] is not None]
        return slope([row[name] for row in known], [row[what] for row in known])

    name = "queries" if along == "both" else along
    methods = {
        method: [row for row in rows if row["way"] == method] for method in dict.fromkeys(r["way"] for r in rows)
    }
    table = Table(along, *(f"{method}\ns / MB" for method in methods), title="One training step")
    for each in zip(*methods.values(), strict=True):
        seconds = ["-" if row["seconds"] is None else f"{row['seconds']:.3f}" for row in each]
        cells = [f"{s} / {row['megabytes']:.0f}" for s, row in zip(seconds, each, strict=True)]
        table.add_row(f"{each[0][name]}", *cells)
    table.add_section()
    growths = [[growth(found, what) for what in ("seconds", "megabytes")] for found in methods.values()]
    table.add_row("growth", *(f"{seconds:.2f} / {megabytes:.2f}" for seconds, megabytes in growths))
    Console().print(table)


def print_step(times: dict[str, Any]) -> None:
    """Print the times of a training step as a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"One training step, {times['setting']}")
    for column in ("", "ms", "relative to ours", "loss"):
        table.add_column(column, justify="left" if not column else "right")
    for key, name in (("ours", "ours"), ("bare", "bare JAX"), ("paper_layout", "paper layout")):
        ms = times[f"{key}_ms"]
        table.add_row(name, f"{ms:.2f}", f"{ms / times['ours_ms']:.2f}", f"{times[f'loss_{key}']:.6f}")
    console = Console()
    console.print(table)
    console.print(
        "{gflop:.2f} GFLOP per step at {gflops_per_s:.0f} GFLOP/s; a large matrix product reaches "
        "{sgemm_gflops_per_s:.0f} GFLOP/s on this machine".format(**times)
    )


def print_json(figures: dict[str, Any]) -> None:
    """Print figures as one line of JSON, with numbers rounded to six digits."""
    import json

    def short(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [short(each) for each in value]
        if isinstance(value, dict):
            return {name: short(each) for name, each in value.items()}
        return float(f"{value:.6g}") if isinstance(value, float) else value

    typer.echo(json.dumps(short(figures)))
