"""Forecasts as labeled data sets with time stamps: in memory, or written to Zarr as they are computed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from loca.data import Trajectories, arrays_digest, finish_group, group_attributes, labeled, versions
from loca.durable import Resumable, create
from loca.models import Start, Stepper, matching_order
from loca.prediction.predict import DESCRIPTION, create_arrays, model_digest, write_tile
from loca.prediction.tiles import StoredArray, TileValues

if TYPE_CHECKING:
    import xarray

FORMAT = 1
"""Version of a request, to be raised when parts of an older version must not be mixed with newer ones."""

PARTS = 32
"""Of a forecast that is written, at least, as far as there are steps: what a kill costs is less than one."""


class Forecast(NamedTuple):
    """Rollouts of a stepper, with what they begin with, and the labels of their frames."""

    stepper: Stepper
    start: Start
    steps: int
    draws: int | None
    seed: int

    @property
    def dims(self) -> tuple[str, ...]:
        """The dimensions before those of locations."""
        return ("sample", *(() if self.draws is None else ("draw",)), self.stepper.about.time_name)

    def coordinates(self) -> xarray.Dataset:
        """The coordinates of all frames, with dates where time has them."""
        import xarray

        about, known = self.stepper.about, self.stepper.signature
        assert known is not None
        times = self.start.times[:, None] + about.step * np.arange(1, self.steps + 1)
        count = len(times)
        one = np.zeros((1, len(about.y), len(self.stepper.outputs)), np.float32)
        places = labeled(one, np.arange(1), np.asarray(about.y), known.query_coordinates, self.stepper.outputs)
        along = (about.time_name,) if (times == times[0]).all() else ("sample", about.time_name)
        name = about.time_name if len(along) == 1 else f"{about.time_name}_of_sample"
        attributes = {"units": about.time_unit} if about.time_unit else {}
        if "since" in about.time_unit:
            attributes["calendar"] = "proleptic_gregorian"
        found = {name: (along, times[0] if len(along) == 1 else times, attributes), "sample": np.arange(count)}
        found |= {} if self.draws is None else {"draw": np.arange(self.draws)}
        return xarray.Dataset(coords={**places.drop_vars("sample").coords, **found})

    def arrays(self, size: int) -> dict[str, StoredArray]:
        """The fields as they are stored: in parts of some steps."""
        grid, B = self.stepper.about.grid, len(self.start.window)
        inner = (len(self.stepper.about.y),) if grid is None else grid.shape
        known = self.stepper.signature
        assert known is not None
        places = ("query",) if grid is None else tuple(each.name for each in known.query_coordinates)
        lead = (B, *(() if self.draws is None else (self.draws,)))
        return {
            each.name: StoredArray(
                (*self.dims, *places), (*lead, self.steps, *inner), (*lead, size, *inner), "float32", each.attributes
            )
            for each in self.stepper.outputs
        }

    def roll(self, begin: Any = None, size: int | None = None) -> Iterator[tuple[int, TileValues, np.ndarray]]:
        """Consecutive parts: the first step, the values of each field with their places, and the state after them."""
        shapes = self.arrays(1)
        key = jax.random.key(self.seed)
        for first, frames, state in self.stepper.roll(
            self.start, self.steps, draws=self.draws, key=key, begin=begin, size=size
        ):
            frames = frames if self.draws else frames[:, 0]
            n = frames.shape[-3]
            lead = (slice(None),) * (len(self.dims) - 1)
            values = {}
            for i, (name, array) in enumerate(shapes.items()):
                inner = array.shape[len(self.dims) :]
                region = (*(slice(0, k) for k in array.shape[: len(lead)]), slice(first, first + n))
                values[name] = (
                    (*region, *(slice(0, k) for k in inner)),
                    frames[..., i].reshape(*frames.shape[:-2], *inner),
                )
            yield first, values, state


def prepare_forecast(
    stepper: Stepper,
    start: Any,
    steps: int,
    forcing: Any = None,
    *,
    draws: int | None = None,
    seed: int = 0,
) -> Forecast:
    """A forecast that is checked, but not computed; arguments are those of `forecast`."""
    about, names = stepper.about, [each.name for each in stepper.outputs]
    k = stepper.history
    if not isinstance(start, Trajectories):
        own = stepper.static_names
        held = own if all(name in start.variables for name in own) else ()
        time = about.time_name if about.time_name in start.dims or about.time_name in start.coords else None
        sample = next((dim for dim in ("sample", "trajectory") if dim in start.dims), None)
        start = Trajectories.from_xarray(
            start, names, time=time, sample=sample, static=held,
            periods=periods_of(stepper),
        )  # fmt: skip
    order = matching_order(np.asarray(start.y), np.asarray(about.y), list(periods_of(stepper).values()))
    if order is None:
        raise ValueError(
            f"the start has {len(start.y)} locations of {start.domain}, but the stepper was made for {len(about.y)} "
            f"others of {stepper.domain}; interpolate the start to these"
        )
    mask = None if start.mask is None else start.mask[order]
    frames = np.asarray(start.s[:, -max(k, 2) :])[:, :, order]  # two, whose distance is checked
    static = start.static if start.static.shape[1] == 1 else start.static[:, order]
    if not static.shape[-1] and about.static is not None:
        static = np.asarray(about.static)[None]
    moved = Trajectories(
        frames, np.asarray(about.y), times=start.times[:, -frames.shape[1] :], static=static, mask=mask,
        domain=stepper.domain, fields=start.fields, time=start.time,
    )  # fmt: skip
    if forcing is not None and not isinstance(forcing, np.ndarray):
        forcing = forcing_of(stepper, forcing, moved.times[:, -1], steps)
    return Forecast(stepper, stepper.start(moved, steps, forcing), steps, draws, seed)


def periods_of(stepper: Stepper) -> dict[str, float]:
    """The periods of the coordinates of a stepper, by their names."""
    known = stepper.signature
    assert known is not None
    return {
        each.name: period for each, period in zip(known.query_coordinates, known.domain.periods, strict=True) if period
    }


def forcing_of(
    stepper: Stepper, dataset: xarray.Dataset, times: Float[np.ndarray, " B"], steps: int
) -> Float[np.ndarray, "B steps ..."]:
    """The forcing of the steps from these times on, from a data set that may begin earlier and end later."""
    found = Trajectories.from_xarray(dataset, stepper.forcing_names, time=stepper.about.time_name)
    wanted = times[:, None] + stepper.about.step * np.arange(steps)
    number = np.rint((wanted - found.times[0, 0]) / max(found.step, 1e-30)).astype(int)
    if number.min() < 0 or number.max() >= found.frames:
        raise ValueError(
            f"the forcing covers {stepper.about.time_name} from {found.times[0, 0]:g} to {found.times[0, -1]:g}, but "
            f"{steps} steps need it from {wanted.min():g} to {wanted.max():g}; pass forcing of all steps"
        )
    return np.asarray(found.s)[0][number]


def forecast(
    stepper: Stepper,
    start: xarray.Dataset | Trajectories,
    steps: int,
    *,
    forcing: xarray.Dataset | Float[np.ndarray, "B steps ..."] | None = None,
    draws: int | None = None,
    seed: int = 0,
) -> xarray.Dataset:
    """The next frames with time stamps and coordinates, as a data set in memory.

    **Arguments:**

    - `stepper`: from `loca.fit` or `loca.solve` on trajectories.
    - `start`: frames at the locations of the stepper, in any order of the axes; the last ones count. Static fields are
      those of the start or, if it has none, those of the training data.
    - `steps`: the number of steps.
    - `forcing`: of all steps, as `Stepper.rollout` takes it, or as a data set with times.
    - `draws`: the number of draws of a forecast with a spread.
    - `seed`: of the draws.
    """
    import xarray

    found = prepare_forecast(stepper, start, steps, forcing, draws=draws, seed=seed)
    arrays = found.arrays(1)
    values = {name: np.empty(array.shape, array.dtype) for name, array in arrays.items()}
    for _, parts, _ in found.roll():
        for name, (region, part) in parts.items():
            values[name][region] = part
    variables = {name: (array.dims, values[name], array.attributes) for name, array in arrays.items()}
    return xarray.decode_cf(found.coordinates().assign(variables))


def forecast_to(
    stepper: Stepper,
    start: xarray.Dataset | Trajectories,
    path: str | os.PathLike[str],
    steps: int,
    *,
    forcing: xarray.Dataset | Float[np.ndarray, "B steps ..."] | None = None,
    draws: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> xarray.Dataset:
    """Write a forecast to `FILE.zarr` as it is computed, and open it without reading the values.

    Memory does not grow with the number of steps. The file appears only when it is complete; until then
    `FILE.zarr.partial` holds the steps that are done. If the process is killed, the same call resumes there, and the
    file is the same, byte for byte, as without interruption.

    **Arguments:**

    - `stepper`, `start`, `steps`, `forcing`, `draws`, `seed`: as for `forecast`.
    - `path`: `FILE.zarr`.
    - `progress`: called with the number of steps that are done, and of all.
    """
    import xarray

    found = prepare_forecast(stepper, start, steps, forcing, draws=draws, seed=seed)
    size = min(max(1, steps // PARTS), stepper.steps_at_once(len(found.start.window) * (draws or 1)))
    known = {"format": FORMAT, "steps": steps, "draws": draws, "seed": seed, "model": model_digest(stepper)}
    request = {**known, "start": arrays_digest(list(found.start)), "versions": versions()}

    def build(work: Resumable) -> Path:
        group = work.directory / "data"
        if "arrays" not in work:
            create_arrays(group, found.coordinates(), found.arrays(size), request)
            work.write("arrays")
        done = max((int(key) for key in work.keys() - {"arrays"}), default=0)
        state = (done, np.load(work.path(str(done)))) if done else None
        report = progress or (lambda done, total: None)
        report(done, steps)
        for first, values, after in found.roll(state, size) if done < steps else ():
            write_tile(group, values)
            last = min(first + size, steps)
            work.write(str(last), lambda file, after=after: np.save(file, after))
            report(last, steps)
        finish_group(group)
        return group

    def read_request(path: Path) -> Mapping[str, Any]:
        return json.loads(group_attributes(path).get(DESCRIPTION, "{}"))

    create(Path(path), request, read_request, build, ignore=["versions"])
    return xarray.open_zarr(path, chunks=None)
