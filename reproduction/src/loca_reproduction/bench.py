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
JsonOption = Annotated[bool, typer.Option("--json", help="Print lines of JSON instead of a table.")]

bench = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@bench.callback()
def options() -> None:
    """Measure speed on this machine."""


@bench.command()
def step(
    setting: SettingOption = "darcy-128",
    as_json: JsonOption = False,
    rounds: Annotated[int, typer.Option(min=1, help="The number of turns; medians are reported.")] = 24,
    seconds: Annotated[float, typer.Option(min=0.0, help="About how long each program runs per turn.")] = 0.25,
) -> None:
    """Time one training step of LOCA (loss, gradients, Adam) in three programs that take turns.

    *ours* is the package; *bare* the same arithmetic written directly in JAX; *paper layout* is Algorithm 1 with all
    work at the nodes repeated for every function of the batch. Sizes are those of the paper's experiments.
    """
    from loca_reproduction.benchmarks.step import STEP_SETTINGS, time_step

    check_setting(setting, STEP_SETTINGS)
    show([time_step(setting, rounds=rounds, seconds=seconds)], as_json=as_json)


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
    as_json: JsonOption = False,
) -> None:
    """Time prediction with φ frozen against the full evaluation, and predict at a million queries in bounded memory."""
    from loca_reproduction.benchmarks.throughput import measure_prediction

    show([measure_prediction()], as_json=as_json)


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
    as_json: JsonOption = False,
) -> None:
    """Measure time and memory of one training step as queries, nodes, functions or dimensions grow.

    Three methods evaluate the coupling: dense, in blocks, with landmarks. Memory is what the compiler plans; a step
    that would take more than 4 GB is not run. Growth is the exponent of seconds and megabytes.
    """
    from loca_reproduction.benchmarks.scale import AXES, measure_scale

    if along not in AXES:
        raise typer.BadParameter(f"unknown axis {along!r}; choose one of {', '.join(AXES)}", param_hint="--along")
    show(list(measure_scale(along)), as_json=as_json)


def check_setting(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse an unknown setting."""
    if name not in settings:
        raise typer.BadParameter(
            f"unknown setting {name!r}; choose one of {', '.join(settings)}", param_hint="--setting"
        )


def show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print figures as a table with a column for each measurement, or as lines of JSON."""
    from rich.console import Console
    from rich.table import Table

    if as_json:
        for row in rows:
            print_json(row)
        return
    table = Table(box=None, show_header=False)
    for name in rows[0]:
        cells = [f"{row[name]:.4g}" if isinstance(row[name], float) else str(row[name]) for row in rows]
        table.add_row(name, *cells)
    Console().print(table)


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
