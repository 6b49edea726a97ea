"""Symmetries found on held-out functions, with the evidence for each."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from loca.data import Samples, channels
from loca.metrics import relative_l2
from loca.models import Operator, predict
from loca.symmetries.adoption import Symmetries
from loca.symmetries.symmetry import Frame, Symmetry, group, symmetry

LEAST, FEWEST = (3.0, 0.01), 8
"""Standard errors and the share of the error that a symmetry must gain, and held-out functions, at least."""

SIGNED = 0.05
"""A channel has both signs if its smallest and largest value are this fraction of the larger one, at least."""

Solver = Callable[[Samples], Operator]
"""Finds an operator for some data."""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One symmetry, and the mean relative L2 errors on held-out functions without and with it.

    **Arguments:**

    - `name`: the symmetry.
    - `without`, `with_it`: the errors; None if it does not apply.
    - `gain`, `standard_error`: the mean of the logarithm of their ratio for each function, and its standard error.
    - `adopted`: whether it is used.
    - `reason`: why it does not apply.
    """

    name: str
    without: float | None = None
    with_it: float | None = None
    gain: float | None = None
    standard_error: float | None = None
    adopted: bool = False
    reason: str = ""

    def __str__(self) -> str:
        if self.without is None or self.with_it is None or self.gain is None or self.standard_error is None:
            return f"{self.name:<30} {self.reason or 'given'}"
        every = self.without, self.with_it, self.gain, self.standard_error
        numbers = "".join(f"{100.0 * each:>10.4g}" for each in every)
        return f"{self.name:<30}{numbers}  {'adopted' if self.adopted else 'not adopted'}"


HEADER = f"{'symmetry':<30}{'without %':>10}{'with %':>10}{'gain %':>10}{'± %':>10}"


@dataclasses.dataclass(frozen=True)
class SymmetryReport:
    """The symmetries that were tried, and those that are adopted; prints as a table.

    **Arguments:**

    - `tried`: the evidence for each.
    - `functions`, `held`: the number of functions that operators were solved for, and of those held out.
    """

    tried: tuple[Evidence, ...] = ()
    functions: int = 0
    held: int = 0

    @property
    def adopted(self) -> tuple[str, ...]:
        """The names of the symmetries that are used; `Symmetries.of` takes them."""
        return tuple(row.name for row in self.tried if row.adopted)

    def __str__(self) -> str:
        about = f"mean relative L2 errors on {self.held} held-out functions, from {self.functions} functions"
        return "\n".join([HEADER, *map(str, self.tried), about])

    def as_json(self) -> dict[str, Any]:
        """The report as JSON can hold it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> SymmetryReport:
        """The inverse of `as_json`."""
        found: dict[str, Any] = {**content, "tried": tuple(Evidence(**row) for row in content["tried"])}
        return cls(**found)


def detect(train: Samples, held: Samples, solve: Solver) -> SymmetryReport:
    """Find the symmetries that lower the error on held-out functions.

    A symmetry is adopted if an operator that is solved for with it has a mean error on held-out functions that is
    smaller by at least 1 %, and the mean of the logarithm of its errors is smaller by at least three standard errors of
    their differences, which are paired over functions. Scales are tried first. Of
    symmetries of the domain and of channels, one after the other and together with those adopted before, only those are
    solved for that lower the error if predictions of the first operator are averaged over the group.

    **Arguments:**

    - `train`, `held`: functions to solve for, and others to compare predictions with.
    - `solve`: finds an operator for some data.
    """
    report = SymmetryReport(functions=len(train), held=len(held))
    if len(held) < FEWEST:
        reason = f"needs at least {FEWEST} held-out functions, got {len(held)}"
        return dataclasses.replace(report, tried=(Evidence("any", reason=reason),))
    rows, operator, used = list[Evidence](), solve(train), Symmetries()
    errors = errors_of(operator, held)
    for name in scale_names(train):
        try:
            found = with_exponents(name, train)
            solved = solve(found.augment(train))
        except (ValueError, FloatingPointError) as problem:
            rows.append(Evidence(name, reason=str(problem)))
            continue
        better = errors_of(found.wrap(solved), held)
        rows.append(judged(found.names[0], errors, better))
        if rows[-1].adopted:
            operator, errors, used = solved, better, found
            break
    own, chosen = Averages(operator, used.standardize(held), Frame.of(train)), list[str]()
    for family in families(train, own.frame):
        row = own.best(family, chosen)
        if row is not None and row.adopted:
            both = Symmetries.of((*used.names, *chosen, row.name), train)
            better = errors_of(both.wrap(solve(both.augment(train))), held)
            row = judged(row.name, errors, better)
            if row.adopted:
                errors, chosen = better, [*chosen, row.name]
        rows += [] if row is None else [row]
    return dataclasses.replace(report, tried=tuple(rows))


def judged(
    name: str, without: Float[np.ndarray, " N"], with_it: Float[np.ndarray, " N"], least: tuple[float, float] = LEAST
) -> Evidence:
    """The evidence from the errors of functions without and with a symmetry."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = np.where(without == with_it, 0.0, np.log(without / with_it))
    gain, error = float(np.mean(gains)), float(np.std(gains, ddof=1) / np.sqrt(len(gains)))
    before, now = float(np.mean(without)), float(np.mean(with_it))
    if not np.isfinite([before, now, gain]).all():
        return Evidence(name, reason="errors are not finite, or zero")
    enough = gain > 0.0 and gain >= least[0] * error and before - now >= least[1] * before and now < before
    return Evidence(name, before, now, gain, error, adopted=bool(enough))


def errors_of(operator: Operator, held: Samples) -> Float[np.ndarray, " N"]:
    """The relative L2 error of each function, as a mean over channels."""
    return _errors(np.asarray(predict(operator, held.u, held.y)), held)


def _errors(predicted: Float[np.ndarray, "N P d_s"], held: Samples) -> Float[np.ndarray, " N"]:
    s = np.asarray(held.s, np.float64)
    known = (s != 0.0).any(axis=1)
    errors = np.where(known, relative_l2(predicted.astype(np.float64), s), 0.0)
    return errors.sum(axis=1) / np.maximum(known.sum(axis=1), 1)


class Averages:
    """The predictions of one operator for held-out functions, averaged over groups."""

    def __init__(self, operator: Operator, held: Samples, frame: Frame):
        self.operator, self.held, self.frame = operator, held, frame
        self.known: dict[Any, tuple[np.ndarray, np.ndarray]] = {}

    def errors(self, elements: Sequence[Symmetry]) -> Float[np.ndarray, " N"]:
        """The errors of the averages over a group."""
        found, weights = zip(*map(self._image, elements), strict=True)
        total = sum(weight * each for weight, each in zip(weights, found, strict=True))
        return _errors(np.asarray(total / sum(weights)), self.held)

    def best(self, family: Sequence[str], chosen: Sequence[str]) -> Evidence | None:
        """The evidence for the best of a family, beside those chosen before; None if these generate it."""
        found, problem = list[Evidence](), ""
        others = [symmetry(name, self.frame) for name in chosen]
        elements = group(others, self.frame)
        for name in family:
            try:
                g = symmetry(name, self.frame)
                larger = group([*others, g], self.frame)
            except ValueError as error:
                problem = problem or str(error)
                continue
            if len(larger) == len(elements):
                return None
            found.append(judged(name, self.errors(elements), self.errors(larger), (0.0, 0.0)))
        known = [row for row in found if row.with_it is not None]
        return min(known, key=lambda row: row.with_it or 0.0, default=Evidence(family[0], reason=problem))

    def _image(self, g: Symmetry) -> tuple[np.ndarray, np.ndarray]:
        """g⁻¹(F(g u)(g y)), and whether it counts."""
        if g.key not in self.known:
            y = self.held.y
            moved = dataclasses.replace(y, y=g.locations(y.y))  # pyright: ignore[reportCallIssue]
            found = np.asarray(g.undo_output(predict(self.operator, g.input(self.held.u), moved)), np.float64)
            counts = y.gather(g.counts(y.points, moved.points).astype(float))
            self.known[g.key] = found, np.broadcast_to(np.asarray(counts)[..., None], (*found.shape[:2], 1))
        return self.known[g.key]


# ---- what is tried ---------------------------------------------------------------------------------------------------


def scale_names(data: Samples) -> list[str]:
    """All fields together, and then each channel if there are several."""
    names = [variable.name for variable in data.inputs]
    return ["scale", *(f"scale {name}" for name in names if len(names) > 1)]


def with_exponents(name: str, data: Samples) -> Symmetries:
    """A scale whose name contains its exponents."""
    found = Symmetries.of(name, data)
    assert found.scale is not None
    p = found.scale.exponents
    name = " ".join([name, *(f"{each:.6g}" for each in (p[:1] if len(set(p)) == 1 else p))])
    return Symmetries.of(name, data)


def families(data: Samples, frame: Frame) -> list[list[str]]:
    """Names of symmetries to try; of each family one can hold."""
    inputs, outputs = changes(data, frame, "input"), changes(data, frame, "output")
    several = list(itertools.product(inputs, outputs))
    found = [["odd"] if outputs[1:] else [], ["even"]] if inputs[1:] else []
    found += [[f"shift {name}"] for name, period in zip(frame.names, frame.periods, strict=True) if period is not None]
    axes = [i for i, name in enumerate(frame.names) if name not in ("t", "time")]
    moves = [list(mirrors(frame, i)) for i in axes]
    moves += [
        [f"{kind} {frame.names[i]} {frame.names[j]}"]
        for kind in ("transpose", "rotate")
        for i, j in itertools.combinations(axes, 2)
    ]
    for family in moves:
        found.append([f"{move}: {' '.join(filter(None, each))}".rstrip(": ") for move in family for each in several])
    return [family for family in found if family]


def mirrors(frame: Frame, axis: int) -> Iterator[str]:
    """Reflections about the middle of the domain, of the data, and of the data with one more row: a half-open grid."""
    name, middle, data = frame.names[axis], 0.5 * sum(frame.bounds[axis]), 0.5 * sum(frame.region[axis])
    half, tried = 0.5 * (frame.spacing(axis) or 0.0), list[float]()
    extent = frame.bounds[axis][1] - frame.bounds[axis][0]
    for place in (middle, data, data + half):
        if all(abs(place - each) > 1e-4 * extent for each in tried):
            yield f"reflect {name}" if place == middle else f"reflect {name} at {place:.6g}"
        tried.append(place)


def changes(data: Samples, frame: Frame, side: str) -> list[str]:
    """What can become of the channels of one side: nothing, other signs, or what becomes of a vector."""
    own = [column for column in channels(data) if column.side == side]
    if side == "input":
        own = own[: sum(field.channels for field in frame.known.fields)]
    both = {variable.name for variable in data.inputs} & {variable.name for variable in data.outputs}
    names = [column.variable.name for column in own]
    if any(not re.fullmatch(r"[^\s()]+", name) for name in names):
        return [""]
    signed = [min(-c.flat().min(), c.flat().max()) > SIGNED * np.abs(c.flat()).max() for c in own]
    prefix = f"{side} " if both & set(names) else ""
    found = [""]
    if all(signed):
        found.append(" ".join(f"{prefix}-{name}" for name in names))
    d = len([name for name in frame.names if name not in ("t", "time")])
    if 1 < d <= len(names) and all(signed[-d:]):
        found.append(f"{prefix}({' '.join(names[-d:])})")
    return found
