"""Fields over time: trajectories on shared locations, and the pairs of one step that operators learn from."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from loca.data.files.frames import Frames, arguments_of
from loca.data.files.labeled import as_names, contents
from loca.data.grids import grid_axes
from loca.data.queries import check_locations, single
from loca.data.records import Records, Rows, numbered_rows, pieces
from loca.data.samples import Samples, Variable, VariableNames, as_variables, coordinates_of
from loca.data.store import labeled
from loca.domains import Box, Domain
from loca.typing import Key, Numbers

if TYPE_CHECKING:
    import os

    import xarray

DAYS = "days since 1970-01-01"
"""The unit of times that are dates."""

UNEVEN = 1e-3
"""Steps of time may differ by this fraction of a step, as numbers in single precision do."""

BLOCK_NUMBERS = 2**25
"""Values that a block of trajectories has, at most: 128 MB."""

MASK = Variable("mask")
"""The static field that is 1 where the fields have values, of data with locations without."""


class Window(NamedTuple):
    """Consecutive frames of some trajectories, with what is known beside them."""

    s: Float[np.ndarray, "B k m d"]
    static: Float[np.ndarray, "B m d_static"]
    forcing: Float[np.ndarray, "B k m d_f"]


class Moments(NamedTuple):
    """The mean and the standard deviation of each field and of its increments, and its range."""

    mean: Float[np.ndarray, " d"]
    std: Float[np.ndarray, " d"]
    increment_mean: Float[np.ndarray, " d"]
    increment_std: Float[np.ndarray, " d"]
    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class Trajectories:
    """N trajectories s(t, y) of the same fields, at T equal steps of time and m locations that all share.

    Locations where no frame has a value (NaN), such as land in a map of the sea, are kept, so that a grid stays a
    grid: there the fields have their mean, and a static field `mask` is 0.

    Frames in files are read when they are needed; see `from_xarray` and `open`.

    **Arguments:**

    - `s`: values (N, T, m, d), or (N, T, m) of one field.
    - `y`: locations (m, d_y), or (m,) for one coordinate; fields on a grid in row-major order.
    - `times`: times (T,), or (N, T) if every trajectory has its own: numbers, or dates of type `datetime64`. They
      increase by equal steps. 0, 1, 2, … unless given.
    - `static`: fields that do not change with time, such as orography: (m, d_static), or (N, m, d_static) if every
      trajectory has its own. Numbers of a trajectory, such as a viscosity, are (N, 1, d_static).
    - `forcing`: what acts on the fields and is known in advance, such as a tide: (N, T, m, d_f), or numbers
      (N, T, d_f). `forcing[:, t]` acts in the step from t to t + 1.
    - `cycles`: periods of time, such as 365.25 days, of which a sine and a cosine are further forcing.
    - `domain`: of the locations, which knows what is periodic; by default the smallest box around them.
    - `fields`, `static_names`, `forcing_names`: names, or names and units as `Variable`.
    - `coordinates`: names and units of the columns of y; those of the domain unless given.
    - `time`: the name and unit of time. Dates are in days since 1970-01-01.
    - `mask`: (m,), where the fields have values; found in s unless given.
    """

    s: Float[np.ndarray, "N T m d"] | Frames
    y: Float[np.ndarray, "m d_y"]
    times: Float[np.ndarray, "N T"]
    static: Float[np.ndarray, "_ _ d_static"]
    forcing: Float[np.ndarray, "N T _ d_f"] | Frames
    cycles: tuple[float, ...]
    domain: Domain
    fields: tuple[Variable, ...]
    static_names: tuple[Variable, ...]
    forcing_names: tuple[Variable, ...]
    coordinates: tuple[Variable, ...]
    time: Variable
    mask: Bool[np.ndarray, " m"] | None

    def __init__(
        self,
        s: Numbers | Frames,
        y: Numbers,
        *,
        times: Any = None,
        static: Numbers | None = None,
        forcing: Numbers | Frames | None = None,
        cycles: Sequence[float] = (),
        domain: Domain | None = None,
        fields: VariableNames | None = None,
        static_names: VariableNames = (),
        forcing_names: VariableNames = (),
        coordinates: VariableNames = (),
        time: str | tuple[str, ...] = "time",
        mask: Bool[np.ndarray, " m"] | None = None,
    ):
        places = np.asarray(y, np.float32)
        places = np.asarray(check_locations(jnp.asarray(places.reshape(len(places), -1)), "y"))
        found = s if isinstance(s, Frames) else np.asarray(s)
        if not isinstance(found, Frames):
            found = single(found[..., None] if found.ndim == 3 else found, "s")
        if found.ndim != 4 or found.shape[2] != len(places):
            raise ValueError(
                f"expected s of shape (N, T, m, d) with m = {len(places)} locations, got shape {found.shape}"
            )
        N, T, m, d = found.shape
        if not N * T:
            raise ValueError(f"got {N} trajectories of {T} frames; pass at least one")
        given, unit = _as_times(np.arange(T) if times is None else np.asarray(times))
        (named,) = as_variables([time])
        named = Variable(named.name, unit or named.unit)
        if given.shape not in ((T,), (N, T)):
            raise ValueError(f"expected times of shape ({T},) or ({N}, {T}), one for each frame, got {given.shape}")
        given = np.broadcast_to(given, (N, T))
        _check_steps(given, named)
        domain = domain or Box(places.min(axis=0).tolist(), places.max(axis=0).tolist())
        domain.check(places)
        beside = {"static": _as_values(static, "static", N, m), "forcing": _as_values(forcing, "forcing", N, T, m)}
        names = {"fields": (fields, d, "u")}
        names["static_names"] = (static_names, beside["static"].shape[-1], "static")
        names["forcing_names"] = (forcing_names, beside["forcing"].shape[-1], "forcing")
        variables = {
            key: as_variables(each or [f"{name}{i + 1}" for i in range(n)]) for key, (each, n, name) in names.items()
        }
        for key, (_, n, _) in names.items():
            if len(variables[key]) != n:
                raise ValueError(
                    f"{len(variables[key])} names were given as {key} for {n} channels; pass one name each"
                )
        self._put(
            s=found, y=places, times=given, cycles=tuple(map(float, cycles)), domain=domain, time=named, mask=mask
        )
        self._put(coordinates=as_variables(coordinates) or coordinates_of(domain), **beside, **variables)
        self._fill()

    def _put(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _fill(self) -> None:
        """Find the locations without values, and give them the mean of the field."""
        if self.mask is None and not isinstance(self.s, Frames) and (missing := np.isnan(self.s)).any():
            self._put(mask=~missing.all(axis=(0, 1, 3)))
        for name in ("s", "static", "forcing"):
            values, mask = getattr(self, name), self.mask
            if isinstance(values, Frames):
                continue  # which reads finite values only
            if mask is not None and values.shape[-2] == len(mask) and np.isnan(values[..., ~mask, :]).any():
                mean = values[..., mask, :].mean(axis=tuple(range(values.ndim - 1)), dtype=np.float64)
                self._put(**{name: np.where(mask[:, None], values, mean.astype(values.dtype))})
            if wrong := np.count_nonzero(~np.isfinite(getattr(self, name))):
                gaps = ", at locations where other frames have values" if name == "s" else ""
                raise ValueError(
                    f"{wrong} of {values.size} values of {name} are NaN or infinite{gaps}; fill these gaps"
                )

    def __len__(self) -> int:
        """N, the number of trajectories."""
        return self.s.shape[0]

    def __repr__(self) -> str:
        names = ", ".join(map(str, self.fields))
        return f"Trajectories({names}: {len(self)} × {self.frames} steps of {self.step:g} {self.unit}, {self.domain})"

    @property
    def frames(self) -> int:
        """T, the number of frames of each trajectory."""
        return self.s.shape[1]

    @property
    def step(self) -> float:
        """Δt, in units of time; 0 of a single frame."""
        return float((self.times[0, -1] - self.times[0, 0]) / max(1, self.frames - 1))

    @property
    def unit(self) -> str:
        """The unit of Δt."""
        return self.time.unit.partition(" since ")[0]

    @property
    def d(self) -> int:
        """The number of fields."""
        return len(self.fields)

    @functools.cached_property
    def axes(self) -> tuple[Float[np.ndarray, " _"], ...] | None:
        """The axes of the grid of locations; None if they are no grid."""
        return grid_axes(self.y)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The number of points along each axis of the grid; None if the locations are no grid."""
        return None if self.axes is None else tuple(map(len, self.axes))

    @classmethod
    def from_xarray(
        cls,
        dataset: xarray.Dataset,
        fields: str | Sequence[str],
        *,
        time: str | None = None,
        sample: str | None = None,
        static: str | Sequence[str] = (),
        forcing: str | Sequence[str] = (),
        cycles: Sequence[float] = (),
        periods: Mapping[str, float] | None = None,
        domain: Domain | None = None,
    ) -> Trajectories:
        """Trajectories that are variables of a data set in memory or in a file, whose frames are read when needed.

        **Arguments:**

        - `dataset`: of xarray.
        - `fields`: names of the variables that change with time and are predicted.
        - `time`: their dimension of time; by default the one that is called "time" or "t" or holds dates.
        - `sample`: the dimension that counts the trajectories; None for a single one.
        - `static`, `forcing`: names of variables that do not change with time, and of those that are known in advance.
        - `cycles`: as for `Trajectories`.
        - `periods`: the periods of coordinates, such as `{"x": 1.0}`; that of longitudes around the globe is known.
        - `domain`: by default the sphere, a torus or a box, whichever the coordinates describe.
        """
        names = {"static": static, "forcing": forcing, "periods": periods, "domain": domain}
        return cls(**arguments_of(dataset, fields, time=time, sample=sample, **names), cycles=cycles)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        fields: str | Sequence[str] | None = None,
        *,
        time: str | None = None,
        sample: str | None = None,
        static: str | Sequence[str] | None = None,
        forcing: str | Sequence[str] | None = None,
        cycles: Sequence[float] = (),
        periods: Mapping[str, float] | None = None,
        domain: Domain | None = None,
        format: str | None = None,  # noqa: A002
        split: str | None = None,
    ) -> Trajectories:
        """Trajectories in files: NetCDF, Zarr, The Well, PDEBench and all other formats of `loca.data.open`.

        The Well and PDEBench define the fields, what is static (constant fields, and parameters that differ between
        trajectories), forcing, time and periodic boundaries; arguments override them.

        **Arguments:**

        - `path`, `format`, `split`: as for `loca.data.open`.
        - `fields`, `time`, `sample`, `static`, `forcing`, `cycles`, `periods`, `domain`: as for `from_xarray`.
        """
        from loca.data.files.opening import open_layout

        layout, source, rows = open_layout(path, fields or (), sample=sample, format=format, split=split)
        if not layout.outputs:
            raise ValueError(
                f"{source} does not define fields; pass their names, fields=, out of\n{contents(layout.dataset)}"
            )
        along, held = time or layout.time, layout.dataset
        evolves = {str(name): along in each.dims for name, each in held.data_vars.items()}
        others = [name for name in dict.fromkeys((*layout.parameters, *layout.inputs)) if name not in layout.outputs]
        known = {
            "static": [name for name in others if not evolves[name] and held[name].dims],
            "forcing": [
                name for name, moves in evolves.items() if moves and set(held[name].dims) <= {along, layout.sample}
            ],
        }
        given = {"static": static, "forcing": forcing}
        options: dict[str, Any] = {
            name: layout.named(known[name] if each is None else as_names(each)) for name, each in given.items()
        }
        options |= {"time": along, "sample": layout.sample, "domain": domain}
        options["periods"] = {**layout.periods, **(periods or {})}
        found = cls(**arguments_of(layout.dataset, layout.outputs, **options, source=source), cycles=cycles)
        return found if rows is None else found.take(rows)

    def load(self) -> Trajectories:
        """The same trajectories in memory."""
        read = {name: np.asarray(getattr(self, name)) for name in ("s", "forcing")}
        return dataclasses.replace(self, **read) if isinstance(self.s, Frames) else self

    def take(self, rows: Rows) -> Trajectories:
        """The trajectories with these numbers."""
        rows = numbered_rows(rows, len(self))
        of = {"s": self.s[rows], "times": self.times[rows], "forcing": self.forcing[rows]}
        return dataclasses.replace(self, **of, static=self.static[rows] if len(self.static) > 1 else self.static)

    def split(self, key: Key, *counts: int) -> tuple[Trajectories, ...]:
        """Disjoint random subsets with the given numbers of trajectories, each of which stays whole."""
        if sum(counts) > len(self) or min(counts) < 1:
            raise ValueError(
                f"cannot split {len(self)} trajectories into parts of {counts}; pass positive counts. One long "
                "trajectory can be cut into pieces first: cut(frames)"
            )
        order = np.asarray(jax.random.permutation(key, len(self)))
        return tuple(self.take(order[end - n : end]) for end, n in zip(np.cumsum(counts), counts, strict=True))

    def cut(self, frames: int) -> Trajectories:
        """Every trajectory as consecutive pieces of this number of frames; what is left at its end is dropped."""
        if not 2 <= frames <= self.frames:
            raise ValueError(f"expected pieces of 2 to {self.frames} frames, got {frames}")
        count = self.frames // frames

        def pieces_of(values: Any) -> Any:
            return values[:, : count * frames].reshape(len(values) * count, frames, *values.shape[2:])

        static = self.static if len(self.static) == 1 else np.repeat(self.static, count, axis=0)
        of = {"s": pieces_of(self.s), "times": pieces_of(self.times), "forcing": pieces_of(self.forcing)}
        return dataclasses.replace(self, **of, static=static)

    def stride(self, count: int) -> Trajectories:
        """Every trajectory with every `count`-th frame only, for longer steps."""
        of = {"s": self.s[:, ::count], "times": self.times[:, ::count], "forcing": self.forcing[:, ::count]}
        return dataclasses.replace(self, **of)

    def blocks(self, size: int | None = None) -> Iterator[Trajectories]:
        """All trajectories in memory, some at a time; so many that memory stays small unless `size` is given."""
        size = size or max(1, BLOCK_NUMBERS // math.prod(self.s.shape[1:]))
        return (self.take(rows).load() for rows in pieces(range(len(self)), size))

    def window(self, rows: Int[np.ndarray, " B"], starts: Int[np.ndarray, " B"], count: int) -> Window:
        """`count` frames of some trajectories, from some step on, with their static fields and forcing."""
        rows, steps = np.asarray(rows), np.asarray(starts)[:, None] + np.arange(count)
        static = self.static[rows if len(self.static) > 1 else np.zeros_like(rows)]
        m = len(self.y)
        mask = () if self.mask is None else (np.broadcast_to(self.mask[:, None], (len(rows), m, 1)),)
        given = np.asarray(self.forcing[rows[:, None], steps])
        acting = phases(self.times[rows[:, None], steps], self.cycles)
        spread = np.broadcast_to(acting[:, :, None], (*acting.shape[:2], m, acting.shape[-1]))
        return Window(
            np.asarray(self.s[rows[:, None], steps]),
            np.concatenate([np.broadcast_to(static, (len(rows), m, static.shape[-1])), *mask], -1, dtype=np.float32),
            np.concatenate([np.broadcast_to(given, (*given.shape[:2], m, given.shape[-1])), spread], -1),
        )

    @functools.cached_property
    def moments(self) -> Moments:
        """The mean, the standard deviation and the range of each field, and of its increments, where it has values."""
        sums, low, high = np.zeros((2, 2, self.d)), np.full(self.d, np.inf), np.full(self.d, -np.inf)
        counts, inside = np.zeros(2), slice(None) if self.mask is None else self.mask
        for block in self.blocks():
            s = np.asarray(block.s)[:, :, inside].astype(np.float64)
            low, high = np.minimum(low, s.min(axis=(0, 1, 2))), np.maximum(high, s.max(axis=(0, 1, 2)))
            for i, values in enumerate((s, np.diff(s, axis=1))):
                sums[i] += values.sum(axis=(0, 1, 2)), (values**2).sum(axis=(0, 1, 2))
                counts[i] += values[..., 0].size
        mean = sums[:, 0] / counts[:, None]
        std = np.sqrt(np.maximum(sums[:, 1] / counts[:, None] - mean**2, 0.0))
        return Moments(mean[0], std[0], mean[1], std[1], low, high)

    def steps(self, history: int = 1, *, ahead: int = 1, noise: float = 0.0, seed: int = 0) -> Steps:
        """The pairs of one step of time, from which any operator can be trained; see `Steps`."""
        return Steps(self, history, ahead=ahead, noise=noise, seed=seed)

    def samples(self, history: int = 1, *, noise: float = 0.0, seed: int = 0) -> Samples:
        """All pairs of one step of time, in memory."""
        return self.steps(history, noise=noise, seed=seed).load()


class Steps(Records):
    """The pairs of one step of time: frames and what acts on them ↦ the increment of the fields.

    Channels of u are `history` frames, the oldest first, static fields, and the forcing. Frames before the last one are
    called `name@-1`, `name@-2`, ….

    **Arguments:**

    - `trajectories`: the data.
    - `history`: k, the number of frames that an operator sees.
    - `ahead`: the number of steps that s covers. Its channels are the change of the fields from the last frame of u
      to each of them; u has the forcing of all.
    - `noise`: of the frames of u, in standard deviations of each field. The increment is that to the true next frame,
      so an operator learns to correct its own errors.
    - `seed`: of the noise, which each pair always has.
    """

    def __init__(
        self, trajectories: Trajectories, history: int = 1, *, ahead: int = 1, noise: float = 0.0, seed: int = 0
    ):
        last = trajectories.frames - history - ahead + 1
        if history < 1 or ahead < 1 or last < 1:
            raise ValueError(
                f"expected history ≥ 1 and steps ahead ≥ 1 that fit into trajectories of {trajectories.frames} frames, "
                f"got {history} and {ahead}"
            )
        self.trajectories, self.history, self.ahead, self.noise, self.seed = trajectories, history, ahead, noise, seed
        self.per, self.domain, self.source = last, trajectories.domain, repr(trajectories)
        given = trajectories
        static = (*given.static_names, *(() if given.mask is None else (MASK,)))
        cycles = [Variable(f"{name} {cycle:g}") for name in ("sine", "cosine") for cycle in given.cycles]
        acting = (*given.forcing_names, *cycles)
        frames = [at(each, k - history + 1) for k in range(history) for each in given.fields]
        self.inputs = (*frames, *static, *(at(each, k) for k in range(ahead) for each in acting))
        self.outputs = tuple(
            at(Variable(f"{each.name}_increment", each.unit), k) for k in range(ahead) for each in given.fields
        )

    def __len__(self) -> int:
        return len(self.trajectories) * self.per

    def load(self, rows: Rows = slice(None)) -> Samples:
        numbers, k = numbered_rows(rows, len(self)), self.history
        window = self.trajectories.window(numbers // self.per, numbers % self.per, k + self.ahead)
        before, after = window.s[:, :k], window.s[:, k:]
        if self.noise:
            size = np.float32(self.noise * self.trajectories.moments.std)
            before = before + size * np.stack([self._noise(number, before.shape[1:]) for number in numbers.tolist()])
            if self.trajectories.mask is not None:
                before = np.where(self.trajectories.mask[:, None], before, window.s[:, :k])
        parts = (flat(before), window.static, flat(window.forcing[:, k - 1 : -1]))
        return Samples(
            np.concatenate(parts, axis=-1),
            self.trajectories.y,
            flat(after - before[:, -1:]),
            x=self.trajectories.y,
            domain=self.domain,
            inputs=self.inputs,
            outputs=self.outputs,
            sensor_coordinates=self.trajectories.coordinates,
            query_coordinates=self.trajectories.coordinates,
        )

    def _noise(self, number: int, shape: tuple[int, ...]) -> np.ndarray:
        return np.random.default_rng((self.seed, number)).standard_normal(shape, np.float32)

    def label(self, s: Float[np.ndarray, "B P d_s"], rows: Rows = slice(None)) -> xarray.Dataset:
        numbers, given = numbered_rows(rows, len(self)), self.trajectories
        return labeled(np.asarray(s), numbers, given.y, given.coordinates, self.outputs)


def phases(times: Float[np.ndarray, "*T"], cycles: Sequence[float]) -> Float[np.ndarray, "*T k"]:
    """The sine and the cosine of cycles at some times."""
    angles = 2.0 * np.pi * (np.asarray(times)[..., None] / np.asarray(cycles, np.float64) % 1.0)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1).astype(np.float32)


def at(variable: Variable, step: int) -> Variable:
    """The variable at another step than the present one."""
    return variable if step == 0 else Variable(f"{variable.name}@{step:+d}", variable.unit)


def flat(frames: Float[np.ndarray, "B k m d"]) -> Float[np.ndarray, "B m k*d"]:
    """Frames as channels, those of the first frame first."""
    return np.moveaxis(frames, 1, 2).reshape(len(frames), frames.shape[2], -1)


def _as_times(times: np.ndarray) -> tuple[Float[np.ndarray, "*N T"], str]:
    """Times as numbers in double precision, with the unit of dates; empty for numbers, whose unit is the user's."""
    if times.dtype.kind == "M":
        return (times - np.datetime64("1970-01-01")) / np.timedelta64(1, "D"), DAYS
    if times.dtype.kind == "m":
        return times / np.timedelta64(1, "D"), "days"
    return times.astype(np.float64), ""


def _check_steps(times: Float[np.ndarray, "N T"], time: Variable) -> None:
    """Raise unless times increase by equal steps, the same in all trajectories."""
    gaps = np.diff(times, axis=1)
    typical = float(np.median(gaps)) if gaps.size else 0.0
    if (gaps <= 0.0).any():
        row, step = np.argwhere(gaps <= 0.0)[0]
        raise ValueError(
            f"{time.name} does not increase: {times[row, step]:g} is followed by {times[row, step + 1]:g}; sort the "
            f"frames by time, such as `dataset.sortby({time.name!r})`"
        )
    if (np.abs(gaps - typical) > UNEVEN * typical).any():
        raise ValueError(
            f"{time.name} has steps from {gaps.min():g} to {gaps.max():g} {time.unit.partition(' since ')[0]}, but a "
            "step of a rule is always as long; interpolate to equal steps. If only the calendar differs, as for "
            "monthly means, number the frames instead: times 0, 1, 2, …"
        )


def _as_values(values: Any, name: str, *counts: int) -> np.ndarray | Frames:
    """Static fields (N or 1, m or 1, d), or forcing (N, T, m or 1, d); without channels if there are none."""
    *lead, m = counts
    if isinstance(values, Frames):
        return values
    if values is None:
        return np.zeros((*(lead if name == "forcing" else [1]), 1, 0), np.float32)
    found = single(np.asarray(values), name)
    if found.ndim == len(lead) + 1:  # static fields that all trajectories share, or forcing without locations
        found = found[None] if name == "static" else found[:, :, None]
    expected = [{n, 1} if name == "static" else {n} for n in lead] + [{m, 1}]
    if found.ndim != len(lead) + 2 or any(n not in e for n, e in zip(found.shape, expected, strict=False)):
        shapes = {"static": "(m, d) or (N, m, d)", "forcing": "(N, T, m, d) or (N, T, d)"}[name]
        raise ValueError(f"expected {name} of shape {shapes} with sizes {counts}, got {np.shape(values)}")
    return found
