"""Symmetries found by cross-validation, with the evidence for each."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data import Samples, channels
from loca.metrics import relative_l2
from loca.models import Operator, predict
from loca.symmetries.adoption import Symmetries, images
from loca.symmetries.symmetry import Frame, Symmetry, group, symmetry

FOLDS, FEWEST = 3, 8
"""Parts of the functions, each of which is held out once, and functions of a part, at least."""

LEAST = 3.0, 0.01
"""Standard errors and the share of the error that a symmetry must gain, at least."""

WORSE = 1.05
"""The error of averages of predictions without a symmetry, as a multiple of theirs, at most, to solve with it."""

DEFECT = 1.2
"""Standard errors of the defect of a symmetry, at most."""

TINY = 1e-30

SIGNED = 0.05
"""A channel has both signs if its smallest and largest value are this fraction of the larger one, at least."""

OF_MAPS, OF_SCALES = 100.0, 1.0
"""Noise of residuals, for each label of a function: how smooth the operators are that predict them."""

Solver = Callable[[Samples, float | None], Operator]
"""Finds an operator for some data, with a noise of its own or another one."""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One symmetry: what it gains, and whether it holds.

    **Arguments:**

    - `name`: the symmetry.
    - `without`, `with_it`: mean relative L2 errors on held-out functions; None if it does not apply.
    - `gain`: the mean of the logarithm of their ratio for each function, in standard errors.
    - `defect`: how well the part of the residuals that breaks the symmetry is predicted, in standard errors; about a
      standard normal variable if the symmetry holds, larger if it does not. None if it gains nothing.
    - `adopted`: whether it is used.
    - `reason`: why it does not apply.
    """

    name: str
    without: float | None = None
    with_it: float | None = None
    gain: float | None = None
    defect: float | None = None
    adopted: bool = False
    reason: str = ""

    def __str__(self) -> str:
        if self.without is None or self.with_it is None or self.gain is None:
            return f"{self.name:<30} {self.reason or 'given'}"
        errors = f"{100.0 * self.without:>10.4g}{100.0 * self.with_it:>10.4g}{self.gain:>8.1f}"
        defect = "" if self.defect is None else f"{self.defect:.1f}"
        return f"{self.name:<30}{errors}{defect:>8}  {'adopted' if self.adopted else 'not adopted'}"


HEADER = f"{'symmetry':<30}{'without %':>10}{'with %':>10}{'gain':>8}{'defect':>8}"


@dataclasses.dataclass(frozen=True)
class SymmetryReport:
    """The symmetries that were tried, and those that are adopted; prints as a table.

    **Arguments:**

    - `tried`: the evidence for each.
    - `functions`: the number of functions, each of which was held out once.
    """

    tried: tuple[Evidence, ...] = ()
    functions: int = 0

    @property
    def adopted(self) -> tuple[str, ...]:
        """The names of the symmetries that are used; `Symmetries.of` takes them."""
        return tuple(row.name for row in self.tried if row.adopted)

    def __str__(self) -> str:
        about = f"mean errors of {self.functions} functions, each held out once; gain and defect in standard errors"
        return "\n".join([HEADER, *map(str, self.tried), about])

    def as_json(self) -> dict[str, Any]:
        """The report as JSON can hold it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> SymmetryReport:
        """The inverse of `as_json`."""
        found: dict[str, Any] = {**content, "tried": tuple(Evidence(**row) for row in content["tried"])}
        return cls(**found)


def detect(data: Samples, solve: Solver) -> SymmetryReport:
    """Find the symmetries that hold and lower the error, by cross-validation.

    A symmetry is adopted if

    - operators that are solved for with it have a mean error that is smaller by at least 1 %, and the mean of the
      logarithm of the errors is smaller by at least three standard errors of the differences, which are paired, and
    - what their residuals R = s − F(u) contain that breaks it is not predictable. An operator B is solved for the
      residuals of the other functions. If the symmetry holds and images of functions are as likely as the functions
      themselves, the mean of ⟨R(u), B(u) − B̄(u)⟩ is zero, whatever F and B are, because R is equivariant; B̄ is the
      average of B over the group. Otherwise it is positive. At most 1.2 standard errors are allowed. For a scale, B
      is solved for R times the logarithm of the size, whose product with R has mean zero if size and shape of functions
      are independent.

    Scales are tried first, then symmetries of the domain and of channels, one after the other and together with those
    adopted before. Only those are solved for that lower the error if predictions without them are averaged.

    **Arguments:**

    - `data`: functions, each of which is held out once.
    - `solve`: finds an operator for some data.
    """
    count = len(data) - len(data) % FOLDS
    report = SymmetryReport(functions=count)
    if count < FOLDS * FEWEST:
        reason = f"needs at least {FOLDS * FEWEST} functions, got {len(data)}"
        return dataclasses.replace(report, tried=(Evidence("any", reason=reason),))
    data, rows = data.take(jnp.arange(count)), list[Evidence]()
    trials = Trials(data, solve)
    for name in scale_names(data):
        try:
            own = Symmetries.of(name, data).scale
            assert own is not None
            rounded = " ".join(f"{round(2.0 * p) / 2.0:g}" for p in own.exponents)
            own = Symmetries.of(f"{name} {rounded}", data).scale
            assert own is not None
            found = Trials(own.apply(data), solve)
        except (ValueError, FloatingPointError) as problem:
            rows.append(Evidence(name, reason=str(problem)))
            continue
        sizes = np.log(np.asarray(jax.vmap(own.size)(data.u), np.float64))
        rows.append(judged(own.name, trials.errors, found.errors, partial(found.defect, sizes)))
        if rows[-1].adopted:
            trials = found
            break
    frame = Frame.of(data)
    chosen = list[Symmetry]()
    for family in families(data, frame):
        try:
            g, average = trials.best(family, chosen, frame)
        except ValueError as problem:
            rows += [Evidence(family[0], reason=str(problem))] if str(problem) else []
            continue
        if geometric(average) > WORSE * geometric(trials.errors):
            rows.append(Evidence(g.name, float(np.mean(trials.errors)), float(np.mean(average)), 0.0))
            continue
        new = Trials(trials.data, solve, group([*chosen, g], frame))
        rows.append(judged(g.name, trials.errors, new.errors, new.defect))
        if rows[-1].adopted:
            trials, chosen = new, [*chosen, g]
    return dataclasses.replace(report, tried=tuple(rows))


def judged(
    name: str, without: Float[np.ndarray, " N"], with_it: Float[np.ndarray, " N"], defect: Callable[[], float]
) -> Evidence:
    """The evidence from the errors of functions without and with a symmetry, and its defect if it gains anything."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = np.where(without == with_it, 0.0, np.log(without / with_it))
        gain = float(np.mean(gains) / (np.std(gains, ddof=1) / np.sqrt(len(gains)))) if np.any(gains) else 0.0
    before, now = float(np.mean(without)), float(np.mean(with_it))
    if not np.isfinite([before, now, gain]).all():
        return Evidence(name, reason="errors are not finite, or zero")
    if gain < LEAST[0] or before - now < LEAST[1] * before or now >= before:
        return Evidence(name, before, now, gain)
    found = defect()
    return Evidence(name, before, now, gain, found, adopted=found <= DEFECT)


class Trials:
    """Operators with some symmetries, solved for without one part of the functions each, and their predictions."""

    def __init__(self, data: Samples, solve: Solver, elements: Sequence[Symmetry] = ()):
        self.data, self.solve, self.elements, rows = data, solve, elements, np.arange(len(data))
        self.split = [(np.setdiff1d(rows, rows[k::FOLDS]), rows[k::FOLDS]) for k in range(FOLDS)]
        self.operators = [solve(images(part, elements) if elements else part, None) for part in self._rest(data)]
        self.predictions = self._predicted(self.operators, elements)
        self.errors = errors(self.predictions, np.asarray(data.s, np.float64))

    def best(
        self, family: Sequence[str], chosen: Sequence[Symmetry], frame: Frame
    ) -> tuple[Symmetry, Float[np.ndarray, " N"]]:
        """The symmetry of a family over which averages of predictions have the smallest errors, and these.

        Raises `ValueError`, with an empty message if the symmetries that are chosen generate one of the family.
        """
        found, problem, s = list[tuple[Symmetry, np.ndarray]](), "", np.asarray(self.data.s, np.float64)
        for name in family:
            try:
                g = symmetry(name, frame)
                if len(group([*chosen, g], frame)) == max(1, len(self.elements)):
                    raise ValueError
                found.append((g, errors(self._predicted(self.operators, group([g], frame)), s)))
            except ValueError as error:
                if not str(error):
                    raise
                problem = problem or str(error)
        if not found:
            raise ValueError(problem)
        return min(found, key=lambda each: geometric(each[1]))

    def defect(self, sizes: Float[np.ndarray, " N"] | None = None) -> float:
        """How well the part of the residuals that breaks the symmetry is predicted, in standard errors.

        The symmetry is that of the group, or a scale if the logarithms of sizes are given, which data has lost.
        """
        s = np.asarray(self.data.s, np.float64)
        R = (s - self.predictions) / np.maximum(np.std(s, axis=(0, 1)), TINY)
        R /= np.maximum(np.sqrt(np.sum(R**2, axis=(1, 2), keepdims=True)), TINY)  # which an image does not change
        if sizes is not None:
            R *= ((sizes - np.mean(sizes)) / np.std(sizes))[:, None, None]
        names = [f"residual {i + 1}" for i in range(R.shape[2])]
        residuals = dataclasses.replace(self.data, s=jnp.asarray(R, self.data.s.dtype), outputs=names)
        noise = s.shape[1] * (OF_MAPS if sizes is None else OF_SCALES)
        B = [self.solve(part, noise) for part in self._rest(residuals)]
        found = self._predicted(B)
        if sizes is None:
            found -= self._predicted(B, self.elements)
        c = np.sum(R * found, axis=(1, 2))
        error = np.sqrt(2.0) * np.std(c, ddof=1) / np.sqrt(len(c))  # two functions meet twice: each is held out once
        return float(np.mean(c) / error) if error > 0.0 else 0.0

    def _rest(self, data: Samples) -> list[Samples]:
        return [data.take(jnp.asarray(rest)) for rest, _ in self.split]

    def _predicted(self, operators: Sequence[Operator], elements: Sequence[Symmetry] = ()) -> np.ndarray:
        """Predictions for all functions by the operators that have not seen them, as averages over a group."""
        found = np.zeros(self.data.s.shape)
        for operator, (_, rows) in zip(operators, self.split, strict=True):
            held = self.data.take(jnp.asarray(rows))
            if elements:
                values, weights = zip(*(image(g, operator, held) for g in elements), strict=True)
                found[rows] = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
            else:
                found[rows] = np.asarray(predict(operator, held.u, held.y))
        return found


def image(g: Symmetry, operator: Operator, held: Samples) -> tuple[np.ndarray, np.ndarray]:
    """g⁻¹(F(g u)(g y)), and whether it counts."""
    moved = dataclasses.replace(held.y, y=g.locations(held.y.y))  # pyright: ignore[reportCallIssue]
    found = np.asarray(g.undo_output(predict(operator, g.input(held.u), moved)), np.float64)
    counts = held.y.gather(g.counts(held.y.points, moved.points).astype(float))
    return found, np.asarray(counts)[..., None]


def errors(predicted: Float[np.ndarray, "N P d_s"], s: Float[np.ndarray, "N P d_s"]) -> Float[np.ndarray, " N"]:
    """The relative L2 error of each function, as a mean over channels."""
    known = (s != 0.0).any(axis=1)
    found = np.where(known, relative_l2(predicted, s), 0.0)
    return found.sum(axis=1) / np.maximum(known.sum(axis=1), 1)


def geometric(errors: Float[np.ndarray, " N"]) -> float:
    """Their geometric mean, which does not depend on a few large ones."""
    return float(np.exp(np.mean(np.log(np.maximum(errors, TINY)))))


# ---- what is tried ---------------------------------------------------------------------------------------------------


def scale_names(data: Samples) -> list[str]:
    """All fields together, and then each channel if there are several."""
    names = [variable.name for variable in data.inputs]
    return ["scale", *(f"scale {name}" for name in names if len(names) > 1)]


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
