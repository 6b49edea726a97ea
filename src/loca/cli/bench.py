"""`loca bench`: measurements on this machine."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from loca.benchmarks import (
    SCALE_AXES,
    STEP_SETTINGS,
    Collectives,
    ComparisonFigures,
    FitFigures,
    PredictionFigures,
    ScaleRow,
    StepTimes,
    StreamedPredictionFigures,
    StreamingFigures,
    measure_collectives,
    measure_fit,
    measure_peers,
    measure_prediction,
    measure_scale,
    measure_streamed_prediction,
    measure_streaming,
    slope,
    time_step,
)
from loca.cli.progress import training_shown
from loca.models import SETTINGS, Setting

bench = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@bench.callback()
def options() -> None:
    """Measure speed on this machine."""


@bench.command()
def step(
    setting: Annotated[str, typer.Option(help=f"One of {', '.join(STEP_SETTINGS)}.")] = "darcy-128",
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of a table.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="How often the ways take turns; medians are reported.")] = 24,
    seconds: Annotated[float, typer.Option(min=0.0, help="About how long each way runs per turn.")] = 0.25,
) -> None:
    """Time one training step of LOCA (loss, gradients, Adam) three ways, taking turns in one run.

    *ours* is the package; *bare* the same arithmetic by hand in bare JAX; *paper layout* is Algorithm 1 with all work
    at the nodes repeated for every function of the batch. Sizes are those of the paper's experiments.
    """
    known_setting(setting, STEP_SETTINGS)
    times = time_step(setting, rounds=rounds, seconds=seconds)
    if as_json:
        print_json(times)
    else:
        show(times)


@bench.command()
def fit(
    setting: Annotated[str, typer.Option(help=f"One of {', '.join(STEP_SETTINGS)}.")] = "darcy-1024",
    seconds: Annotated[float, typer.Option(min=1.0, help="About how long a turn of each is.")] = 65.0,
    turns: Annotated[int, typer.Option(min=1, help="How often they take turns; medians are reported.")] = 3,
) -> None:
    """Time a whole run (validation, checkpoints, progress) against the bare step of `loca bench step`, in turns."""
    known_setting(setting, STEP_SETTINGS)
    with training_shown() as shown:
        figures = measure_fit(setting, seconds=seconds, turns=turns, callbacks=[shown])
    print_json(figures)


@bench.command()
def predict(
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of sentences.")] = False,
) -> None:
    """Time prediction with φ frozen against the full evaluation, and ask for a million queries in bounded memory."""
    figures = measure_prediction()
    if as_json:
        print_json(figures)
        return
    typer.echo(
        f"{figures.queries} queries: {figures.full_ms:.1f} ms in full, {figures.frozen_ms:.3f} ms frozen by `at`, "
        f"{figures.speedup:.0f} times faster; largest difference {figures.frozen_error:.1e}\n"
        f"{figures.many_queries} queries with {figures.nodes} nodes: {figures.many_seconds:.1f} s, "
        f"{figures.many_megabytes:.0f} MB above the process before; largest difference {figures.many_error:.1e}"
    )


@bench.command()
def collectives(
    devices: Annotated[int, typer.Option(min=1, help="How many devices to compile for; none of them is needed.")] = 8,
    setting: Annotated[str, typer.Option(help=f"One of {', '.join(SETTINGS)}.")] = "darcy",
) -> None:
    """Count what devices send each other in a training step, in the compiled program; print lines of JSON."""
    known_setting(setting, SETTINGS)
    for counted in measure_collectives(devices, setting=setting):
        print_json(counted)


@bench.command()
def peers(
    rounds: Annotated[int, typer.Option(min=1, help="How often the sides take turns.")] = 10,
    runs: Annotated[int, typer.Option(min=1, help="Trainings to the common error.")] = 3,
) -> None:
    """Match our models with neuraloperator and DeepXDE, in a checkout of the repository; print lines of JSON.

    `parity/peers/environment.sh` makes the environment of the peers first.
    """
    try:
        for match in measure_peers(rounds=rounds, runs=runs):
            print_json(match)
    except FileNotFoundError as missing:
        typer.echo(f"loca bench peers: {missing}", err=True)
        raise typer.Exit(1) from None


@bench.command()
def queries(
    count: Annotated[int, typer.Option(min=1, help="About how many queries.")] = 10_000_000,
    directory: Annotated[Path | None, typer.Option("--dir", help="Where; by default where temporary files go.")] = None,
) -> None:
    """Write the predictions of one function at a tenth of the queries and at all to Zarr; print time and memory."""
    print_json(measure_streamed_prediction(count, max(1, count // 10), directory=directory))


@bench.command()
def scale(
    along: Annotated[str, typer.Option(help=f"What grows: {', '.join(SCALE_AXES)}.")] = "both",
    as_json: Annotated[bool, typer.Option("--json", help="Print lines of JSON instead of a table.")] = False,
) -> None:
    """Time one training step, and ask the compiler for its memory, as queries, nodes, functions or dimensions grow.

    Four ways to evaluate the coupling: dense, in blocks, through landmarks, through random features. A step that would
    take more than 4 GB is not run. Growth is the power of the size with which seconds and megabytes grow.
    """
    if along not in SCALE_AXES:
        raise typer.BadParameter(f"unknown axis {along!r}; choose one of {', '.join(SCALE_AXES)}", param_hint="--along")
    rows = []
    for row in measure_scale(along):
        rows.append(row)
        if as_json:
            print_json(row)
    if not as_json:
        show_scale(along, rows)


@bench.command()
def stream(
    gigabytes: Annotated[float, typer.Option(min=0.0, help="How much is written, and read in shuffled batches.")] = 4.0,
    directory: Annotated[Path | None, typer.Option("--dir", help="Where; by default where temporary files go.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples per batch; one has 16 KiB.")] = 100,
    threads: Annotated[int, typer.Option(min=1, help="Batches that are read at once.")] = 2,
    seconds: Annotated[float, typer.Option(min=0.0, help="About how long is read.")] = 10.0,
) -> None:
    """Write a store of random functions and stream it in a fresh process; print the rate and the memory as JSON."""
    print_json(
        measure_streaming(gigabytes, directory=directory, batch_size=batch_size, threads=threads, seconds=seconds)
    )


def known_setting(name: str, settings: Mapping[str, Setting]) -> None:
    """Refuse a setting that there is not."""
    if name not in settings:
        raise typer.BadParameter(
            f"unknown setting {name!r}; choose one of {', '.join(settings)}", param_hint="--setting"
        )


def show_scale(along: str, rows: list[ScaleRow]) -> None:
    """A table for the terminal: sizes below each other, ways beside each other, and how each grows at the end."""
    name = "queries" if along == "both" else along
    ways = list(dict.fromkeys(row.way for row in rows))
    table = Table(along, *(f"{way}\ns / MB" for way in ways), title="One training step")
    for size in dict.fromkeys(getattr(row, name) for row in rows):
        cells = {row.way: row for row in rows if getattr(row, name) == size}
        table.add_row(f"{size}", *(cell_of(cells[way]) for way in ways))
    table.add_section()
    table.add_row("growth", *(growth_of([row for row in rows if row.way == way], name) for way in ways))
    Console().print(table)


def cell_of(row: ScaleRow) -> str:
    """Seconds and megabytes."""
    return f"{'-' if row.seconds is None else f'{row.seconds:.3f}'} / {row.megabytes:.0f}"


def growth_of(rows: list[ScaleRow], name: str) -> str:
    """The powers with which seconds and megabytes grow."""
    timed = [row for row in rows if row.seconds is not None]
    seconds = slope([getattr(row, name) for row in timed], [row.seconds for row in timed if row.seconds is not None])
    megabytes = slope([getattr(row, name) for row in rows], [row.megabytes for row in rows])
    return f"{seconds:.2f} / {megabytes:.2f}"


Figures = (
    Collectives
    | ComparisonFigures
    | FitFigures
    | PredictionFigures
    | ScaleRow
    | StepTimes
    | StreamedPredictionFigures
    | StreamingFigures
)


def print_json(figures: Figures) -> None:
    """One line of JSON, numbers to six digits."""

    def short(value: Any) -> Any:
        if isinstance(value, tuple):
            return [short(each) for each in value]
        if isinstance(value, dict):
            return {name: short(each) for name, each in value.items()}
        return float(f"{value:.6g}") if isinstance(value, float) else value

    typer.echo(json.dumps(short(dataclasses.asdict(figures))))


def show(times: StepTimes) -> None:
    """A table for the terminal."""
    table = Table(title=f"One training step, {times.setting}")
    for column in ("", "ms", "relative to ours", "loss"):
        table.add_column(column, justify="left" if not column else "right")
    for name, ms, loss in (
        ("ours", times.ours_ms, times.loss_ours),
        ("bare JAX", times.bare_ms, times.loss_bare),
        ("paper layout", times.paper_layout_ms, times.loss_paper_layout),
    ):
        table.add_row(name, f"{ms:.2f}", f"{ms / times.ours_ms:.2f}", f"{loss:.6f}")
    console = Console()
    console.print(table)
    console.print(
        f"{times.gflop:.2f} GFLOP per step at {times.gflops_per_s:.0f} GFLOP/s; "
        f"a large matrix product reaches {times.sgemm_gflops_per_s:.0f} GFLOP/s on this machine"
    )
