"""Steppers: operators that advance fields by one step of time, and their rollouts."""

import dataclasses
import functools
import warnings
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from loca.data import Normalization, Queries, Shared, Trajectories, Variable, at, nearest, phases
from loca.domains import area_weights
from loca.models.combination import Sum
from loca.models.grid import Grid
from loca.models.operator import FieldOperator, Operator, Wrapper, interpolate
from loca.models.signature import Signature, names_and_units
from loca.models.uncertain import Uncertain
from loca.parameters import Fixed
from loca.typing import Input, Key, values_of

AT_ONCE = 2**24
"""Values that a rollout computes before they leave the device, at most: 64 MB."""

CONSERVED = 1e-4
"""The mean of a field is conserved if it changes by less than this fraction of the field's standard deviation."""


class DivergedWarning(UserWarning):
    """A rollout has left the range of the data that its stepper was made for."""


class TimeSignature(Fixed):
    """What a stepper knows of the trajectories it was made for.

    **Arguments:**

    - `y`, `grid`: the locations, and the grid that they form; None if they form none.
    - `static`: the static fields that all trajectories share; None if each has its own.
    - `mask`: where the fields have values; None if everywhere.
    - `low`, `high`, `fill`: the range of each field, and its value where it has none.
    - `mean`: the climatology: the mean field, and the amplitudes of the sine and the cosine of each cycle.
    - `weights`: of the locations in a mean, of the fields whose mean is conserved, in `conserved`.
    - `step`, `time_name`, `time_unit`: Δt, and the name and unit of time.
    - `cycles`: periods of time.
    - `num_forcing`: the number of channels of forcing, without cycles.
    """

    y: Float[Array, "m d_y"]
    grid: Grid | None
    static: Float[Array, "m d_static"] | None
    mask: Bool[Array, " m"] | None
    low: Float[Array, " d"]
    high: Float[Array, " d"]
    fill: Float[Array, " d"]
    mean: Float[Array, "c m d"]
    weights: Float[Array, " m"]
    conserved: tuple[bool, ...] = eqx.field(static=True)
    step: float = eqx.field(static=True)
    time_name: str = eqx.field(static=True)
    time_unit: str = eqx.field(static=True)
    cycles: tuple[float, ...] = eqx.field(static=True)
    num_forcing: int = eqx.field(static=True)

    @classmethod
    def of(cls, data: Trajectories) -> "TimeSignature":
        """What is known of some trajectories."""
        shared, moments = len(data.static) == 1, data.moments
        static = np.broadcast_to(data.static[0], (len(data.y), data.static.shape[-1])) if shared else None
        weights = np.asarray(area_weights(data.domain, data.y)) * (1.0 if data.mask is None else data.mask)
        weights = weights / weights.sum()
        drift, count, normal = np.zeros(data.d), 1 + 2 * len(data.cycles), 0.0
        sums = 0.0
        for block in data.blocks():
            means = np.einsum("ntmd,m->ntd", block.s, weights, dtype=np.float64, optimize=True)
            drift = np.maximum(drift, np.abs(means - means[:, :1]).max(axis=(0, 1)))
            terms, frames = (
                _terms(block.times, data.cycles).reshape(-1, count),
                block.s.reshape(-1, len(data.y) * data.d),
            )
            normal, sums = normal + terms.T @ terms, sums + terms.T @ frames
        mean = np.linalg.lstsq(normal, sums, rcond=1e-6)[0].reshape(count, len(data.y), data.d)
        single = functools.partial(jnp.asarray, dtype=jnp.float32)
        outside = np.zeros(data.d) if data.mask is None or data.mask.all() else data.s[0, 0, ~data.mask][0]
        grid = None if data.axes is None else Grid(tuple(map(single, data.axes)), tuple(data.domain.periods))
        return cls(
            single(data.y), grid, None if static is None else single(static),
            None if data.mask is None else jnp.asarray(data.mask),
            single(moments.low), single(moments.high), single(outside), single(mean), single(weights),
            tuple((drift < CONSERVED * moments.std).tolist()), data.step, *data.time, data.cycles,
            data.forcing.shape[-1],
        )  # fmt: skip

    def climatology(self, times: Float[np.ndarray, "*T"]) -> Float[np.ndarray, "*T m d"]:
        """The mean of the training data at some times."""
        return np.einsum("...c,cmd->...md", _terms(times, self.cycles), np.asarray(self.mean)).astype(np.float32)


class Noise(Fixed):
    """What differs between the draws of a forecast: errors of one step, and their size at each lead time.

    **Arguments:**

    - `errors`: of one step, on trajectories that the stepper has not seen.
    - `amplitude`: by which the distance of draws from their mean is multiplied at each lead time; that of the last one
      also holds later.
    """

    errors: Float[Array, "R m d"]
    amplitude: Float[Array, "L d"]


class Start(NamedTuple):
    """What rollouts of B trajectories begin with.

    **Arguments:**

    - `window`: the last k frames, the last of them at `times`.
    - `static`: static fields, with the mask.
    - `forcing`: of all steps, at all locations or, with one of them, the same everywhere; with the phases of cycles.
    - `times`: of the last frames.
    """

    window: Float[np.ndarray, "B k m d"]
    static: Float[np.ndarray, "B m c_static"]
    forcing: Float[np.ndarray, "B steps _ c_f"]
    times: Float[np.ndarray, " B"]


class Stepper(Wrapper):
    """s(t + Δt) = s(t) + G(s(t), …, s(t − (k − 1)Δt), static fields, forcing) at the locations of the data.

    G is any operator whose output is the increment of the fields. The stepper is an operator too: from the frames and
    what acts on them to the next frame. Means that the data conserve are conserved.

    Build one with `Stepper.of`, `loca.fit(operator, trajectories)` or `loca.solve(trajectories)`.

    **Arguments:**

    - `normalization`: of the inputs of G, and of frames.
    - `operator`: G.
    - `about`: what is known of the data.
    - `history`: k.
    - `noise`: what differs between draws; None before `loca.calibrate`.
    """

    normalization: Normalization
    operator: Operator
    about: TimeSignature
    history: int = eqx.field(static=True)
    noise: Noise | None = None

    @classmethod
    def of(cls, operator: Operator, data: Trajectories) -> "Stepper":
        """The stepper with increments of an operator that was fitted to pairs of some trajectories.

        The number of frames that it sees follows from the number of its input channels.
        """
        own = operator.normalization
        others = sum(len(each) for each in (data.static_names, data.forcing_names)) + 2 * len(data.cycles)
        frames = len(own.u_shift) - others - (data.mask is not None)
        history, left = divmod(frames, data.d)
        if left or history < 1 or len(own.s_shift) != data.d:
            raise ValueError(
                f"the operator has {len(own.u_shift)} input and {len(own.s_shift)} output channels, but the steps of "
                f"these trajectories have {others + data.d} or more, and {data.d}; create it from "
                "`trajectories.samples(history=k)`"
            )
        moments, steps = data.moments, data.steps(history)
        shift, scale = (jnp.asarray(each, jnp.float32) for each in (moments.mean, moments.std))
        normalization = dataclasses.replace(
            own, s_shift=shift, s_scale=jnp.where(scale > 0.0, scale, 1.0), s_transforms=()
        )
        signature = dataclasses.replace(
            Signature.of(steps.load([0])),
            **dict(zip(("output_names", "output_units"), names_and_units(data.fields), strict=True)),
        )
        return cls(normalization, operator, TimeSignature.of(data), history, signature=signature)

    @property
    def static_names(self) -> tuple[str, ...]:
        """The names of the static fields, without the mask."""
        own = self.inputs[self.history * len(self.outputs) :]
        acting = self.about.num_forcing + 2 * len(self.about.cycles)
        return tuple(each.name for each in own[: len(own) - acting - (self.about.mask is not None)])

    @property
    def forcing_names(self) -> tuple[str, ...]:
        """The names of the forcing, without cycles."""
        end = len(self.inputs) - 2 * len(self.about.cycles)
        return tuple(each.name for each in self.inputs[end - self.about.num_forcing : end])

    # ---- one step ----------------------------------------------------------------------------------------------------

    def increments(self, u: Float[Array, "B m c"]) -> Float[Array, "B m d"]:
        """What G adds to the last frames, in the units of the data; means of conserved fields stay as they are."""
        queries, operator = Shared(self.about.y), self.operator
        codes = jax.vmap(operator.encode)(u)
        shape = (*u.shape[:2], len(self.outputs))
        if isinstance(operator, FieldOperator) and (fields := operator.fields(codes)).size == np.prod(shape):
            found = fields.reshape(shape)  # on the grid of its inputs, where nothing needs to be interpolated
        else:
            found = operator.respond(codes, queries)
        found = operator.normalization.at(queries).restore(found)
        mean = jnp.einsum("bmd,m->bd", found, self.about.weights, precision="highest") * jnp.asarray(
            self.about.conserved, found.dtype
        )
        return found - mean[:, None]

    def encode(self, u: Input) -> Float[Array, " n"]:
        (values,) = values_of(u)
        return values.ravel()

    def respond(self, codes: Float[Array, "N n"], queries: Queries) -> Float[Array, "N P d_s"]:
        m, d = len(self.about.y), len(self.outputs)
        u = codes.reshape(codes.shape[0], m, -1)
        frames = u[:, :, (self.history - 1) * d : self.history * d] + self.increments(u)
        y, grid = queries.points, self.about.grid
        near = nearest(y, self.about.y) if grid is None else grid.interpolation(y)
        return self.normalization.at(queries).standardize(interpolate(near, queries, frames))

    # ---- many steps --------------------------------------------------------------------------------------------------

    def rollout(
        self,
        start: Float[Array | np.ndarray, "*B k m d"] | Trajectories,
        steps: int,
        *,
        forcing: Float[np.ndarray, "..."] | None = None,
        draws: int | None = None,
        key: Key | None = None,
    ) -> Float[np.ndarray, "..."]:
        """The next frames (…, steps, m, d), or (…, draws, steps, m, d) of forecasts with a spread.

        A `DivergedWarning` says so if a field leaves the range of the data by more than its width. Where fields have no
        values, frames are NaN.

        **Arguments:**

        - `start`: the last frames of one or several trajectories, at least as many as the stepper sees; or as
          `Trajectories`, with their static fields and times.
        - `steps`: the number of steps.
        - `forcing`: of all steps, (…, steps, d_f) or (…, steps, m, d_f): `forcing[..., 0, :]` acts in the first.
        - `draws`: the number of draws; None for the forecast without spread. Draws differ in weights, if the posterior
          of the operator is known, and by the errors of a calibrated stepper.
        - `key`: random key of the draws.
        """
        several = isinstance(start, Trajectories) or np.ndim(start) == 4
        begin = self.start(start, steps, forcing)
        frames = np.concatenate([part for _, part, _ in self.roll(begin, steps, draws=draws, key=key)], axis=2)
        frames = frames if draws else frames[:, 0]
        return frames if several else frames[0]

    def start(
        self,
        start: Float[Array | np.ndarray, "*B k m d"] | Trajectories,
        steps: int,
        forcing: Float[np.ndarray, "..."] | None = None,
    ) -> Start:
        """What rollouts begin with, checked; see `rollout`."""
        about, d, m, k = self.about, len(self.outputs), len(self.about.y), self.history
        if isinstance(start, Trajectories):
            if tuple(start.fields) != tuple(self.outputs) or not np.allclose(start.y, about.y, rtol=1e-5):
                raise ValueError(
                    f"the stepper knows the fields {', '.join(v.name for v in self.outputs)} at {m} locations, but the "
                    f"start has {', '.join(v.name for v in start.fields)} at {len(start.y)} or others"
                )
            if start.frames > 1 and abs(start.step - about.step) > 1e-3 * about.step:
                raise ValueError(f"the frames of the start are {start.step:g} apart, steps are {about.step:g} long")
            frames, times = np.asarray(start.s[:, -k:]), start.times[:, -1]
            static = start.static
        else:
            frames, static = np.asarray(start, np.float32), None
            frames = frames[None] if frames.ndim == 3 else frames
            times = np.zeros(len(frames))
        if frames.ndim != 4 or frames.shape[2:] != (m, d):
            raise ValueError(f"expected frames of shape (k, {m}, {d}) or (B, k, {m}, {d}), got {frames.shape}")
        if frames.shape[1] < k:
            raise ValueError(f"the stepper sees the last {k} frames, but the start has {frames.shape[1]}; pass {k}")
        B, known = len(frames), getattr(start, "mask", None)
        if known is not None and not (known if about.mask is None else known | ~np.asarray(about.mask)).all():
            raise ValueError("the start has no values (NaN) at some locations where the stepper needs them; fill these")
        if static is None or not static.shape[-1]:
            static = np.zeros((1, m, 0)) if about.static is None else about.static[None]
        static = np.broadcast_to(static, (B, m, static.shape[-1]))
        window = frames[:, -k:]
        if about.mask is not None:
            mask = np.asarray(about.mask)
            window = np.where(mask[:, None], window, np.asarray(about.fill))
            static = np.concatenate([static, np.broadcast_to(mask[:, None], (B, m, 1))], axis=-1)
        if not np.isfinite(window).all():
            raise ValueError("the last frames of the start have values that are NaN or infinite; fill these gaps")
        given = np.zeros((B, steps, 1, 0)) if forcing is None else np.asarray(forcing, np.float32)
        if given.ndim == 2 or (given.ndim == 3 and not isinstance(start, Trajectories) and np.ndim(start) == 3):
            given = given[None]
        given = given[:, :, None] if given.ndim == 3 else given
        if given.shape[1] < steps or given.shape[0] != B or given.shape[-1] != about.num_forcing:
            raise ValueError(
                f"{steps} steps of {B} rollouts need {about.num_forcing} channels of forcing for each, got an array of "
                f"shape {() if forcing is None else forcing.shape}; pass forcing until the last step"
            )
        acting = phases(times[:, None] + about.step * np.arange(steps), about.cycles)[:, :, None]
        spread = np.broadcast_to(acting, (*acting.shape[:2], given.shape[2], acting.shape[-1]))
        acting = np.concatenate([given[:, :steps], spread], axis=-1, dtype=np.float32)
        found = Start(window, static.astype(np.float32), acting, times)
        if self._channels(found) != len(self.normalization.u_shift):
            raise ValueError(
                f"the stepper needs {len(self.normalization.u_shift)} input channels, but frames, static fields and "
                f"forcing have {self._channels(found)}; pass trajectories with their own static fields"
            )
        return found

    def starts(
        self, data: Trajectories, rows: Int[np.ndarray, " B"], first: Int[np.ndarray, " B"], steps: int
    ) -> tuple[Start, Float[np.ndarray, "B steps m d"]]:
        """Rollouts from within trajectories of the same form as the training data, and the frames that follow.

        The first frame that a rollout sees is `first` of the trajectory of this number.
        """
        k = self.history
        window = data.window(rows, first, k + steps)
        times = data.times[rows, np.asarray(first) + k - 1]
        start = Start(window.s[:, :k], window.static, window.forcing[:, k - 1 : -1], times)
        if tuple(data.fields) != tuple(self.outputs) or self._channels(start) != len(self.normalization.u_shift):
            raise ValueError(
                f"the stepper was made for {', '.join(v.name for v in self.inputs)}, but these trajectories have "
                f"{', '.join(v.name for v in data.steps(min(k, data.frames - 1)).inputs)}"
            )
        return start, window.s[:, k:]

    def _channels(self, start: Start) -> int:
        return sum(each.shape[-1] for each in start[:3]) + (self.history - 1) * len(self.outputs)

    def roll(
        self,
        start: Start,
        steps: int,
        *,
        draws: int | None = None,
        key: Key | None = None,
        begin: "Rolled | None" = None,
        size: int | None = None,
    ) -> Iterator[tuple[int, Float[np.ndarray, "B D n m d"], Float[np.ndarray, "D B k m d"]]]:
        """Consecutive parts of rollouts: the first step, the frames, and the state from which to continue.

        Memory does not grow with the number of steps. `begin` continues from such a state; a part has `size` steps.
        """
        members = self.members(draws, key)
        size = size or self.steps_at_once(len(start.window) * len(members))
        first, windows = begin or (0, np.stack([start.window] * len(members)))
        keys = None if draws is None or self.noise is None else jax.random.split(key_of(key), len(members))
        static, diverged = jnp.asarray(start.static), False
        while first < steps:
            last = min(first + size, steps)
            acting, numbers = jnp.asarray(start.forcing[:, first:last]), jnp.arange(first, last)
            parts = [
                advance(member, jnp.asarray(window), static, acting, numbers, None if keys is None else keys[i])
                for i, (member, window) in enumerate(zip(members, windows, strict=True))
            ]
            windows = np.stack([np.asarray(window) for window, _ in parts])
            frames = np.stack([np.asarray(frames) for _, frames in parts], axis=1)
            frames = self._spread(frames, first)
            diverged = diverged or self._warn_diverged(frames, first)
            if self.about.mask is not None:
                frames[:, :, :, ~np.asarray(self.about.mask)] = np.nan
            yield first, frames, windows
            first = last

    def steps_at_once(self, rollouts: int) -> int:
        """The number of steps between two moments at which frames leave the device."""
        return max(1, AT_ONCE // (rollouts * self.about.y.shape[0] * len(self.outputs)))

    def members(self, draws: int | None, key: Key | None) -> "list[Stepper]":
        """The steppers of a forecast: this one, or draws from the posterior of its operator."""
        if draws is None:
            return [self]
        if not isinstance(self.operator, Uncertain):
            if self.noise is None:
                raise ValueError(
                    "this stepper does not know its error, so draws would be equal; calibrate it on other trajectories "
                    "first: loca.calibrate(stepper, validation)"
                )
            return [self] * draws
        each = self.operator.draws(jax.random.fold_in(key_of(key), 1), draws)
        return [dataclasses.replace(self, operator=operator) for operator in each]

    def _spread(self, frames: Float[np.ndarray, "B D n m d"], first: int) -> Float[np.ndarray, "B D n m d"]:
        """Draws with the calibrated distance from their mean."""
        if self.noise is None or frames.shape[1] == 1:
            return frames
        amplitude = np.asarray(self.noise.amplitude)
        factor = amplitude[np.minimum(np.arange(first, first + frames.shape[2]), len(amplitude) - 1)][:, None]
        mean = frames.mean(axis=1, keepdims=True)
        return mean + factor * (frames - mean)

    def _warn_diverged(self, frames: Float[np.ndarray, "B D n m d"], first: int) -> bool:
        low, high = np.asarray(self.about.low), np.asarray(self.about.high)
        inside = (frames >= 2.0 * low - high) & (frames <= 2.0 * high - low)  # false where not finite
        if inside.all():
            return False
        wrong = ~inside.all(axis=(0, 1, 3))
        step, field = min(np.argwhere(wrong).tolist())
        warnings.warn(
            f"the rollout diverges: at step {first + step + 1} the field {self.outputs[field].name} has left its range "
            f"in the data, {low[field]:.3g} to {high[field]:.3g}, by more than the width of that; later frames mean "
            "nothing. Take shorter steps, more data, or train with noise and several steps",
            DivergedWarning,
            stacklevel=4,
        )
        return True


Rolled = tuple[int, Float[np.ndarray, "D B k m d"]]
"""The number of steps that are done, and the state after them."""


@eqx.filter_jit
def advance(
    stepper: Stepper,
    window: Float[Array, "B k m d"],
    static: Float[Array, "B m c_static"],
    forcing: Float[Array, "B n _ c_f"],
    numbers: Int[Array, " n"],
    key: Key | None,
) -> tuple[Float[Array, "B k m d"], Float[Array, "B n m d"]]:
    """Some steps: the last frames, and all new ones. With a key, an error of one step is added to each."""
    about, noise = stepper.about, stepper.noise
    B, k, m, d = window.shape

    def step(window: Array, each: tuple[Array, Array]) -> tuple[Array, Array]:
        acting, number = each
        before = jnp.moveaxis(window, 1, 2).reshape(B, m, k * d)
        acting = jnp.broadcast_to(acting, (B, m, acting.shape[-1]))
        s = window[:, -1] + stepper.increments(jnp.concatenate([before, static, acting], axis=-1))
        if key is not None and noise is not None:
            own = jax.random.fold_in(key, number)
            rows = jax.random.randint(own, (B,), 0, noise.errors.shape[0])
            s = s + jax.random.rademacher(own, (B, 1, 1), s.dtype) * noise.errors[rows]
        s = s if about.mask is None else jnp.where(about.mask[:, None], s, about.fill)
        return jnp.concatenate([window[:, 1:], s[:, None]], axis=1), s

    window, frames = jax.lax.scan(step, window, (jnp.moveaxis(forcing, 1, 0), numbers))
    return window, jnp.moveaxis(frames, 0, 1)


class Unrolled(Wrapper):
    """A stepper as an operator from frames and what acts on them to the changes after each of several steps.

    Training it is training on short rollouts: `loca.fit(..., unroll=4)`.
    """

    normalization: Normalization
    operator: Stepper
    ahead: int = eqx.field(static=True)

    @classmethod
    def of(cls, stepper: Stepper, ahead: int) -> "Unrolled":
        """A stepper over several steps; its error is that of frames in units of one increment."""
        own, acting = stepper.operator.normalization, stepper.about.num_forcing + 2 * len(stepper.about.cycles)
        shift, scale = (
            jnp.concatenate([each, jnp.tile(each[len(each) - acting :], ahead - 1)])
            for each in (own.u_shift, own.u_scale)
        )
        s = jnp.zeros(len(own.s_shift) * ahead), jnp.tile(own.s_scale, ahead)
        known = stepper.signature
        if known is not None:  # names as those of `Steps`
            later = stepper.inputs[len(stepper.inputs) - acting :]
            inputs = (*stepper.inputs, *(at(each, k) for k in range(1, ahead) for each in later))
            changes = [Variable(f"{each.name}_increment", each.unit) for each in stepper.outputs]
            names = [
                *names_and_units(inputs),
                *names_and_units([at(each, k) for k in range(ahead) for each in changes]),
            ]
            sides = zip(("input_names", "input_units", "output_names", "output_units"), names, strict=True)
            field = dataclasses.replace(known.fields[0], channels=len(inputs))
            known = dataclasses.replace(known, fields=(field,), **dict(sides))
        return cls(Normalization(shift, scale, *s), stepper, ahead, signature=known)

    @property
    def is_pointwise(self) -> bool:
        return False

    def encode(self, u: Input) -> Float[Array, " n"]:
        return self.operator.encode(u)

    def respond(self, codes: Float[Array, "N n"], queries: Queries) -> Float[Array, "N P d_s"]:
        stepper, B = self.operator, codes.shape[0]
        m, d, k = len(stepper.about.y), len(stepper.outputs), stepper.history
        acting = stepper.about.num_forcing + 2 * len(stepper.about.cycles)
        u = codes.reshape(B, m, -1)
        window = jnp.moveaxis(u[..., : k * d].reshape(B, m, k, d), 2, 1)
        end = u.shape[-1] - self.ahead * acting
        forcing = jnp.moveaxis(u[..., end:].reshape(B, m, self.ahead, acting), 2, 1)
        _, frames = advance(stepper, window, u[..., k * d : end], forcing, jnp.arange(self.ahead), None)
        changes = jnp.moveaxis(frames - window[:, -1:], 1, 2).reshape(B, m, -1)
        return self.normalization.at(queries).standardize(changes)


def rollout_error(stepper: Stepper, data: Trajectories, steps: int | None = None) -> float:
    """The geometric mean over steps of the mean relative L2 error of rollouts from the beginning of trajectories."""
    steps = steps or data.frames - stepper.history
    inside = slice(None) if stepper.about.mask is None else np.asarray(stepper.about.mask)
    sums = np.zeros(steps)
    for rows in np.array_split(
        np.arange(len(data)), -(-len(data) // max(1, AT_ONCE // (steps * np.prod(data.s.shape[2:]))))
    ):
        start, truth = stepper.starts(data, rows, np.zeros_like(rows), steps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergedWarning)
            found = np.concatenate([part[:, 0] for _, part, _ in stepper.roll(start, steps)], axis=1)
        error, size = (
            np.square(each[:, :, inside], dtype=np.float64).sum(axis=(2, 3)) for each in (found - truth, truth)
        )
        sums += np.sqrt(error / size).sum(axis=0)
    logs = np.log(np.where(np.isfinite(sums), sums / len(data), np.inf))
    return float(np.exp(logs.mean()))


WEIGHTS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Weights of a stepper in a mean of two that are tried."""


def combine_steppers(steppers: Mapping[str, Stepper], validation: Trajectories) -> tuple[Stepper, float]:
    """The mean of the increments of steppers with the least error of rollouts, and that error.

    Steppers join one after the other, the best first, with the weight that is best on rollouts of validation
    trajectories.

    **Arguments:**

    - `steppers`: by name, such as a solved and a trained one; they see the same number of frames.
    - `validation`: trajectories that none of them was fitted to.
    """
    errors = {name: rollout_error(stepper, validation) for name, stepper in steppers.items()}
    first, *others = sorted(errors, key=lambda name: errors[name])
    best, error, weights, pairs = steppers[first], errors[first], {first: 1.0}, None
    for name in others:
        if steppers[name].history != best.history:
            raise ValueError(f"{name} sees {steppers[name].history} frames, {first} {best.history}; combine equal ones")
        pairs, trials = pairs or validation.steps(best.history).load(slice(0, 100)), []
        for w in WEIGHTS:
            tried = {**{each: (1.0 - w) * other for each, other in weights.items()}, name: w}
            rows = np.asarray(list(tried.values()))[:, None] * np.ones(len(best.outputs))
            mean = Sum.of({each: steppers[each].operator for each in tried}, rows, pairs)
            stepper = dataclasses.replace(best, operator=mean)
            trials.append((rollout_error(stepper, validation), tried, stepper))
        found = min(trials, key=lambda trial: trial[0])
        error, weights, best = found if found[0] < error else (error, weights, best)
    return best, error


def _terms(times: Float[np.ndarray, "*T"], cycles: tuple[float, ...]) -> Float[np.ndarray, "*T c"]:
    """1 and the phases of cycles."""
    return np.concatenate([np.ones((*np.shape(times), 1)), phases(times, cycles)], axis=-1)


def key_of(key: Key | None) -> Key:
    """The key, or that of seed 0."""
    return jax.random.key(0) if key is None else key
