"""Our FNO, DeepONet and LOCA beside neuraloperator's FNO and DeepXDE's DeepONet, taking turns in one run."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from loca.benchmarks.our_side import DEEPONET_WIDTH, FEATURES, MODELS
from loca.benchmarks.sides import Side
from loca.data import Normalization
from loca.problems import Darcy

FUNCTIONS, VALIDATION = 1000, 200
TOLERANCE = 0.05
"""How much the numbers of parameters in a match may differ."""

PARITY, ENVIRONMENTS = Path("parity"), Path(".parity")
"""Where the repository keeps the peers' side, and the environments made for it."""


@dataclasses.dataclass(frozen=True)
class Match:
    """Models of about as many parameters, on the same data in the same batches; ours come first."""

    name: str
    sides: tuple[str, ...]
    batch_size: int
    target: float  # validation error
    every: int  # steps between validations


MATCHES: tuple[Match, ...] = (
    Match("FNO", ("fno", "neuraloperator", "neuraloperator-alike"), batch_size=20, target=0.05, every=25),
    Match("DeepONet", ("deeponet", "loca", "deepxde", "deepxde-alike"), batch_size=100, target=0.05, every=50),
)
"""A peer plays twice: with the layers that it recommends, and with those that ours has."""


@dataclasses.dataclass(frozen=True)
class SideFigures:
    """What one side did; medians over rounds and over runs."""

    side: str
    parameters: int
    way: str  # how it ran: compiled or not, threads
    versions: dict[str, str]
    start_seconds: float  # building, compiling, and for the peers finding their quickest way
    step_ms: float
    step_ratio: float  # its step over that of the first side, within a round
    seconds_to_target: float | None  # None if a run did not get there
    steps_to_target: int | None
    errors: tuple[float, ...]  # the last of every run


@dataclasses.dataclass(frozen=True)
class MatchFigures:
    """One match."""

    name: str
    batch_size: int
    target: float
    rounds: int
    runs: int
    sides: tuple[SideFigures, ...]


def measure_peers(
    *,
    matches: tuple[Match, ...] = MATCHES,
    parity: Path = PARITY,
    environments: Path = ENVIRONMENTS,
    rounds: int = 10,
    seconds: float = 2.0,
    runs: int = 3,
    limit: float = 120.0,
) -> tuple[MatchFigures, ...]:
    """Let all sides of every match take turns.

    Each side is a process of its own, the peers' in their own environment, and does nothing while another works. All
    train on Darcy flow, 32 × 32, with every label, by Adam at rate 10⁻³·0.99^(step/100), on standardized inputs and
    outputs, in single precision.

    **Arguments:**

    - `matches`: who plays whom.
    - `parity`: the directory of that name in the repository.
    - `environments`: where `parity/peers/environment.sh` made the peers' environment.
    - `rounds`: how often steps are timed.
    - `seconds`: about how long a side steps in a round.
    - `runs`: how often each side is trained to the target, from different seeds.
    - `limit`: seconds after which a run is given up.
    """
    commands = {side: command(side, parity, environments) for match in matches for side in match.sides}
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        write_data(work / "data.npz")
        return tuple(play(match, commands, work, rounds, seconds, runs, limit) for match in matches)


def command(side: str, parity: Path, environments: Path) -> tuple[str | Path, ...]:
    """What starts a side, but for its data and batch size."""
    if side in MODELS:
        return (sys.executable, "-c", "from loca.benchmarks.our_side import main; main()", side)
    script, python = parity / "peers" / "side.py", environments / "peers" / "bin" / "python"
    if not script.exists():
        raise FileNotFoundError(
            f"{script} is not there: comparing with peers needs the repository, whose directory `parity` says how "
            "they are installed and run; call this from the root of a clone or say where it is"
        )
    if not python.exists():
        raise FileNotFoundError(
            f"the peers' environment is not at {python}; make it with {parity / 'peers' / 'environment.sh'}, "
            "which downloads PyTorch, neuraloperator and DeepXDE"
        )
    return (python, script, side)


def write_data(path: Path, *, functions: int = FUNCTIONS, validation: int = VALIDATION) -> None:
    """Training and validation functions with all that the sides must agree on."""
    samples = Darcy(resolution=32, preset="easy").sample(jax.random.key(0), functions + validation)
    u, s = np.asarray(samples.u)[..., 0], np.asarray(samples.s)[..., 0]
    scales = Normalization.fit(samples.take(jnp.arange(functions)))
    np.savez(
        path,
        u=u[:functions],
        s=s[:functions],
        judge_u=u[functions:],
        judge_s=s[functions:],
        y=np.asarray(samples.y.points),
        features=np.asarray(FEATURES(samples.y.points)),
        deeponet_width=np.asarray(DEEPONET_WIDTH),
        **{name: np.asarray(getattr(scales, name))[0] for name in ("u_shift", "u_scale", "s_shift", "s_scale")},
    )


def play(
    match: Match,
    commands: dict[str, tuple[str | Path, ...]],
    work: Path,
    rounds: int,
    seconds: float,
    runs: int,
    limit: float,
) -> MatchFigures:
    """One match: steps in turns, then runs in turns."""
    with contextlib.ExitStack() as stack:
        sides: list[Side] = []
        for name in match.sides:
            side = Side(name, (*commands[name], work / "data.npz", str(match.batch_size)), work / f"{name}.log")
            stack.callback(side.end)
            sides.append(side)
        check_sizes(sides)
        times = time_steps(sides, rounds, seconds)
        curves: dict[str, list[list[tuple[float, int, float]]]] = {side.name: [] for side in sides}
        for run in range(runs):
            for side in turns(sides, run):
                curves[side.name].append(side.train(seed=run, target=match.target, every=match.every, limit=limit))
    first = times[sides[0].name]
    figures = tuple(figures_of(side, times[side.name], first, curves[side.name], match.target) for side in sides)
    return MatchFigures(match.name, match.batch_size, match.target, rounds, runs, figures)


def time_steps(sides: list[Side], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds per step of every side in every round."""
    counts = {side.name: max(1, round(seconds / side.step(2))) for side in sides}
    times: dict[str, list[float]] = {side.name: [] for side in sides}
    for turn in range(rounds):
        for side in turns(sides, turn):
            times[side.name].append(side.step(counts[side.name]))
    return times


def turns(sides: list[Side], turn: int) -> list[Side]:
    """Everyone once, forward and backward alternately, so that none always follows the same."""
    return sides if turn % 2 == 0 else list(reversed(sides))


def check_sizes(sides: list[Side]) -> None:
    """Refuse a match between models of different size."""
    sizes = {side.name: side.begun["parameters"] for side in sides}
    ours = sizes[sides[0].name]
    if any(abs(size / ours - 1.0) > TOLERANCE for size in sizes.values()):
        raise ValueError(f"a match needs models of the same size within {TOLERANCE:.0%}, got parameters {sizes}")


def figures_of(
    side: Side,
    times: list[float],
    first: list[float],
    curves: list[list[tuple[float, int, float]]],
    target: float,
) -> SideFigures:
    """Medians of what a side did."""
    ends = [curve[-1] for curve in curves]
    arrived = bool(ends) and all(error <= target for _, _, error in ends)
    return SideFigures(
        side=side.name,
        parameters=side.begun["parameters"],
        way=side.begun["way"],
        versions=side.begun["versions"],
        start_seconds=side.begun["start_seconds"],
        step_ms=1e3 * statistics.median(times),
        step_ratio=statistics.median(a / b for a, b in zip(times, first, strict=True)),
        seconds_to_target=statistics.median(end[0] for end in ends) if arrived else None,
        steps_to_target=round(statistics.median(end[1] for end in ends)) if arrived else None,
        errors=tuple(end[2] for end in ends),
    )
