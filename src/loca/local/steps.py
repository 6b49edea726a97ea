"""Steps of time that are solved for: the increment depends on the values around a point, everywhere in the same way."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.ndimage
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from loca.data import Interpolation, Normalization, Queries, Trajectories
from loca.local.equations import NormalEquations
from loca.local.patches import Axis, Patch, Torus
from loca.models import FieldOperator, Grid, Operator, Signature, Start, Stepper, Uncertain
from loca.typing import Input, Key, values_of

REACHES = {1: (40.0, 12.0, 4.0), 2: (9.0, 3.2, 1.5), 3: (4.0, 1.8, 1.0)}
"""Of the linear part, of products of two and of products of three values, in cells, by the number of axes; at most."""

FEATURES, PER_FEATURE = 1300, 8
"""Features, at most, and values of a frame for each of them, at least."""

STRENGTHS = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4)
"""Penalties, for features of size 1."""

NOISES = (0.0, 1e-4, 1e-3, 1e-2)
"""Of the frames from which a step begins, in standard deviations of each field."""

SHARES = ((1.0, 1.0, 1.0), (1.0, 0.67, 0.75), (1.0, 0.5, 0.5), (1.0, 1.0, -1.0), (1.0, -1.0, -1.0))
"""Reaches that are compared, as fractions of the largest; below 0 without products of so many values."""

LABELS = 2.0**20
"""Values of each field that are used, at most, unless given: others tell little more."""

TRIAL_LABELS = 2.0**18
"""The same for the comparison of penalties, noise and reaches."""

MEMORY = 2**24
"""Numbers that the features of a block have, about: 128 MB in double precision."""

GROWTH, QUIET = 3.0, 1e-6
"""A Fourier coefficient may be so many times as large as those near it in all data; below this fraction it is noise."""

HELD, HORIZON = 10, 100
"""Trajectories that are held out, and steps of their rollouts, at most."""

LONGER, STARTS = 4, 64
"""Rollouts of so many times the length of the data, from so many frames, must stay within the range of the data."""

EXAMPLES = 4096
"""Frames from which sizes and spectra are taken, at most."""

COSINES = 3
"""Cosines along each axis whose ends do not meet, with which a rule may depend on the place."""


class LocalStep(Uncertain, FieldOperator):
    """G(u)(y) = Σ w Π u(y + r): a polynomial of the values around y, the same everywhere or times functions of place.

    u are frames, static fields and forcing, G(u) is the increment of the fields. No Fourier coefficient of the next
    frame is larger than those in the data were, up to a factor: rollouts stay where data have been.

    **Arguments:**

    - `grid`, `torus`: of the frames, and how they go on beyond its ends.
    - `patches`: what the increment depends on; what the second one gives is multiplied by functions of place.
    - `first`: the number of the first channel of the last frame.
    - `weights`: w.
    - `factor`: F with posterior covariance F Fᵀ of the weights, in units of σ.
    - `sigma`: of the error of one step, standardized.
    - `limit`: of the Fourier coefficients.
    """

    normalization: Normalization
    grid: Grid
    torus: Torus
    patches: tuple[Patch, ...]
    first: int = eqx.field(static=True)
    weights: Float[Array, "K d"]
    factor: Float[Array, "K q"]
    sigma: Float[Array, " d"]
    limit: Array

    @property
    def frame(self) -> slice:
        """The channels of the last frame."""
        return slice(self.first, self.first + len(self.sigma))

    @property
    def ratio(self) -> Float[Array, " d"]:
        """Standardized increments in units of standardized fields."""
        return self.normalization.s_scale / self.normalization.u_scale[self.frame]

    @property
    def places(self) -> Float[np.ndarray, "C m"]:
        """The functions of place: cosines, and what decays within some cells of an end of an axis."""
        axes, bumps = [], []
        for axis in self.torus.axes:
            x, ends = np.arange(axis.count), axis.kind != "periodic"
            k = np.arange(COSINES if ends else 1)
            axes.append(np.cos(np.pi * k[:, None] * x / (axis.count - 1)))
            bumps.append([np.exp(-each / 1.5) for each in (x, x[::-1])] if ends else [])
        found = [functools.reduce(np.kron, axes)[1:]]
        for i, own in enumerate(bumps):
            each = [[bump] if j == i else [np.ones(n)] for bump in own for j, n in enumerate(self.torus.shape)]
            parts = [each[k : k + len(bumps)] for k in range(0, len(each), len(bumps))]
            found += [functools.reduce(np.kron, (factor for (factor,) in part))[None] for part in parts]
        return np.concatenate(found)

    @property
    def kinds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of every feature: its degree, its reach, and whether it depends on the place."""
        degrees, reaches = zip(*(patch.radii(self.torus) for patch in self.patches), strict=True)
        times = [1, len(self.places)][: len(self.patches)]
        degrees, reaches = (
            np.concatenate([np.repeat(each, n) for each, n in zip(of, times, strict=True)]) for of in (degrees, reaches)
        )
        return degrees, reaches, np.arange(len(degrees)) >= self.patches[0].count(self.torus)

    def features(self, u: Float[Array, "c m"], places: Int[Array, " P"]) -> Float[Array, "P K"]:
        """All features at some points."""
        whole = self.torus.extend(u[None])
        found = [self.patches[0].features(self.torus, whole, places)[0]]
        for patch in self.patches[1:]:
            x, c = patch.features(self.torus, whole, places)[0], jnp.asarray(self.places, u.dtype)[:, places]
            found.append((x[:, :, None] * c.T[:, None]).reshape(len(places), -1))
        return jnp.concatenate(found, axis=1)

    def encode(self, u: Input) -> Float[Array, "m c"]:
        return values_of(self.normalization.standardize_input(u))[0]

    def fields(self, codes: Float[Array, "N m c"]) -> Float[Array, "N *grid d"]:
        u, d = jnp.moveaxis(codes, 2, 1), len(self.sigma)
        whole, start = self.torus.extend(u), self.patches[0].count(self.torus)
        s = self.patches[0](self.torus, whole, self.weights[:start])
        for patch in self.patches[1:]:
            c = jnp.asarray(self.places, u.dtype)
            each = patch(self.torus, whole, self.weights[start:].reshape(patch.count(self.torus), -1))
            s = s + jnp.einsum("ncdm,cm->ndm", each.reshape(len(u), len(c), d, -1), c)
        ratio, frame = self.ratio[:, None], u[:, self.frame]
        h = self.torus.spectrum(frame + s * ratio, self.first)
        h = h * jnp.minimum(1.0, self.limit / jnp.maximum(jnp.abs(h), 1e-30))
        s = (self.torus.field(h) - frame) / ratio
        return jnp.moveaxis(s, 1, 2).reshape(len(u), *self.torus.shape, d)

    def interpolation(self, y: Float[Array, "P d_y"]) -> Interpolation:
        return self.grid.interpolation(y)

    def spread(self, codes: Float[Array, "N m c"], queries: Queries) -> Float[Array, "N P d_s"]:
        return jnp.broadcast_to(self.sigma, (codes.shape[0], queries.count, len(self.sigma)))

    def draws(self, key: Key, count: int) -> tuple[Operator, ...]:
        """Operators with weights from the posterior, whose steps differ by as much as one step is wrong."""
        noise = jax.random.normal(key, (count, self.factor.shape[1], len(self.sigma)))
        return tuple(
            dataclasses.replace(self, weights=self.weights + self.factor @ each * self.sigma) for each in noise
        )


# ---- regression ------------------------------------------------------------------------------------------------------


class Frames(NamedTuple):
    """Pairs of a step, with what is drawn for them."""

    u: Float[Array, "B m c"]
    s: Float[Array, "B m d"]
    seed: Int[Array, " B"]
    places: Int[Array, "B P"]


class Noisy(NamedTuple):
    """A step and the noise of the frames from which it begins, with the spectrum of that noise."""

    step: LocalStep
    size: Float[Array, ""]
    spectrum: Array
    inside: Bool[Array, " m"]  # where the fields have values


def pairs(rule: Noisy, block: Frames) -> tuple[Float[Array, "B P K"], Float[Array, "B P d"]]:
    """Features of noisy frames, and the increments from them to the true next frames."""
    step, frames, d = rule.step, rule.step.first // len(rule.step.sigma) + 1, len(rule.step.sigma)

    def one(u: Array, s: Array, seed: Array, places: Array) -> tuple[Array, Array]:
        u, s = step.encode(u).T, (s / step.normalization.s_scale).T
        noise = jax.random.normal(
            jax.random.key(seed), (frames, d, u.shape[1]), u.dtype
        )  # sums may be in double precision
        noise = rule.size * step.torus.field(step.torus.spectrum(noise, step.first) * rule.spectrum).reshape(
            -1, u.shape[1]
        )
        noise = noise * rule.inside
        u, s = u.at[: len(noise)].add(noise), s - noise[-d:] / step.ratio[:, None]
        counts = rule.inside[places][:, None]
        return step.features(u, places) * counts, s[:, places].T * counts

    return jax.vmap(one)(*block)


class StepReport(NamedTuple):
    """How a stepper was found."""

    error: float  # geometric mean over the steps of rollouts of held-out trajectories of the mean of VRMSE
    persistence: float  # the same if nothing changes
    steps: int  # of these rollouts
    reaches: tuple[float, ...]  # of the values, of products of two, and of products of three
    depends_on_place: bool
    strength: float  # the penalty
    noise: float  # of the frames from which steps begin, in standard deviations
    features: int
    labels: int  # values of each field
    is_stable: bool  # whether long rollouts stay within the range of the data
    trials: int
    seconds: float

    def __str__(self) -> str:
        reaches = ", ".join(f"{each:.3g}" for each in self.reaches)
        return (
            f"local stepper: error {self.error:.3g} over {self.steps} steps of held-out trajectories (persistence "
            f"{self.persistence:.3g}), {self.features} features with reaches {reaches}"
            f"{' and functions of place' if self.depends_on_place else ''}, penalty {self.strength:g}, noise "
            f"{self.noise:g}, {self.labels} values of each field"
            f"{'' if self.is_stable else '; LONG ROLLOUTS LEAVE THE RANGE OF THE DATA'}; {self.seconds:.1f} s"
        )


class Setting(NamedTuple):
    """What is chosen on rollouts."""

    noise: float
    strength: float
    shares: tuple[float, ...]
    depends_on_place: bool


def solve_steps(
    data: Trajectories,
    *,
    validation: Trajectories | None = None,
    history: int = 1,
    labels: float | None = None,
    seed: int = 0,
    mesh: Mesh | None = None,
    show: Any = None,
) -> tuple[Stepper, StepReport]:
    """The stepper whose rollouts of held-out trajectories have the smallest error; see `loca.solve`."""
    begun, show = time.perf_counter(), show or (lambda *_, **__: None)
    if data.axes is None or min(data.shape or (0,)) < 4:
        form = "none" if data.axes is None else f"one of {' × '.join(map(str, data.shape or ()))} points"
        raise ValueError(
            f"a step is solved for on a grid with at least 4 points along each axis, but the {len(data.y)} locations "
            f"form {form}; fit an operator instead, loca.fit(operator, trajectories), or interpolate to a grid"
        )
    search = Search(*held_out(data, validation, history, seed), history, labels or LABELS, seed, mesh, show)
    return search.run(begun)


def held_out(
    data: Trajectories, validation: Trajectories | None, history: int, seed: int
) -> tuple[Trajectories, Trajectories]:
    """Trajectories to solve for, and others to choose by; few long ones are cut into pieces."""
    if validation is not None:
        return data, validation
    if len(data) < 5:
        data = data.cut(max(history + 2, min(HORIZON + history, data.frames * len(data) // 10)))
    if len(data) < 2:
        raise ValueError(
            f"a stepper is chosen on trajectories that it has not seen, but there is one of {data.frames} frames; pass "
            "more, or validation=..."
        )
    count = max(1, min(HELD, len(data) // 5))
    train, held = data.split(jax.random.key(seed), len(data) - count, count)
    return train, held


# ---- choice ----------------------------------------------------------------------------------------------------------


class Search:
    """What is computed once for the comparison of settings on rollouts of held-out trajectories."""

    def __init__(
        self, train: Trajectories, held: Trajectories, history: int, labels: float, seed: int, mesh: Mesh | None,
        show: Any,
    ):  # fmt: skip
        self.train, self.held, self.history, self.mesh, self.show = train, held, history, mesh, show
        self.order = np.random.default_rng(seed).permutation(len(train.steps(history)))
        self.labels, self.known = labels, dict[tuple[float, float], NormalEquations]()
        self.inside = np.ones(len(train.y), bool) if train.mask is None else train.mask
        step = self._largest()
        self.stepper, self.counts = Stepper.of(step, train), {}
        degrees, reaches, depends = step.kinds
        self.kinds = degrees, reaches, depends
        self.errors: dict[Setting, float] = {}
        self.steps = min(held.frames - history, HORIZON)
        rows = np.arange(min(len(held), HELD))
        self.start, self.truth = self.stepper.starts(held, rows, np.zeros_like(rows), self.steps)

    # -- the largest step --

    def _largest(self) -> LocalStep:
        """A step with as many features as possible, all of weight zero."""
        data, d = self.train, self.train.d
        count = max(16, min(EXAMPLES, MEMORY // math.prod(data.s.shape[2:])))
        example = data.steps(self.history).load(np.sort(self.order[:count]))
        u, s, moments = np.asarray(example.u, np.float64), np.asarray(example.s, np.float64), data.moments
        shift, scale = u.mean(axis=(0, 1)), u.std(axis=(0, 1))
        frames = self.history * d
        shift[:frames], scale[:frames] = np.tile(moments.mean, self.history), np.tile(moments.std, self.history)
        sizes = np.hypot(moments.increment_mean, moments.increment_std)
        shift, scale, sizes = (np.asarray(each, np.float32) for each in (shift, scale, sizes))
        scale, sizes = (np.where(each > 0.0, each, np.float32(1.0)) for each in (scale, sizes))
        normalization = Normalization(
            jnp.asarray(shift), jnp.asarray(scale), jnp.zeros(d, jnp.float32), jnp.asarray(sizes), (), ()
        )
        constant = np.ptp(u, axis=1).max(axis=0) <= 1e-6 * scale
        uniform = tuple(i for i in range(frames, u.shape[2]) if constant[i])
        u, s = (u - shift) / scale, s / sizes
        torus = self._torus(np.moveaxis(u, 2, 1), np.moveaxis(s, 2, 1), uniform)
        most = min(FEATURES, len(self.order) * int(self.inside.sum()) // PER_FEATURE)
        reaches, patches = np.array(REACHES[len(torus.axes)]), ()
        while not patches or self._count(torus, patches) > most:
            first = Patch(tuple(reaches.tolist()), u.shape[2], uniform)
            second = Patch(tuple((0.5 * reaches[1:]).tolist()), u.shape[2], uniform)
            patches = (first,) if all(axis.kind == "periodic" for axis in torus.axes) else (first, second)
            if reaches.max() < 0.5:
                raise ValueError(
                    f"{len(self.order)} steps of {self.inside.sum()} values are too few for the weights of a step with "
                    f"{u.shape[2]} channels; pass more trajectories, fewer fields, or a shorter history"
                )
            reaches = 0.9 * reaches
        grid = Grid(tuple(jnp.asarray(axis, jnp.float32) for axis in data.axes or ()), tuple(data.domain.periods))
        frame = jnp.asarray(np.moveaxis(u, 2, 1)[:, frames - d : frames], jnp.float32)
        limit = np.asarray(jnp.max(jnp.abs(torus.spectrum(frame, frames - d)), axis=0))
        self.spectrum = jnp.asarray(limit > QUIET * limit.max(axis=torus.dims, keepdims=True))
        ends = ["nearest", *("wrap" for _ in torus.axes[1:]), "nearest"]  # the last axis has positive frequencies only
        limit = GROWTH * scipy.ndimage.maximum_filter(limit, (1, *(3 for _ in torus.axes)), mode=ends)  # pyright: ignore
        limit = jnp.asarray(limit).at[(slice(None), *(0 for _ in torus.axes))].set(jnp.inf)
        K = self._count(torus, patches)
        return LocalStep(
            normalization, grid, torus, patches, frames - d, jnp.zeros((K, d)), jnp.zeros((K, K)), jnp.ones(d), limit,
            signature=Signature.of(example.take(jnp.arange(1))),
        )  # fmt: skip

    def _count(self, torus: Torus, patches: tuple[Patch, ...]) -> int:
        bounded = sum(axis.kind != "periodic" for axis in torus.axes)
        return sum(
            patch.count(torus) * n for patch, n in zip(patches, (1, COSINES**bounded - 1 + 2 * bounded), strict=False)
        )

    def _torus(self, u: Float[np.ndarray, "B c m"], s: Float[np.ndarray, "B d m"], uniform: tuple[int, ...]) -> Torus:
        """How fields go on beyond ends that do not meet: what explains increments near them best."""
        shape, periods = self.train.shape or (), self.train.domain.periods
        axes = [Axis(n, "face" if period is None else "periodic") for n, period in zip(shape, periods, strict=True)]
        patch, few = Patch((2.0,), u.shape[1], uniform), min(len(u), 32)
        places = np.stack(np.unravel_index(np.arange(u.shape[2]), shape))

        def left(i: int, axis: Axis) -> float:
            near = np.minimum(places[i], axis.count - 1 - places[i]) < 2
            torus = Torus((*axes[:i], axis, *axes[i + 1 :]))
            rows = np.flatnonzero(near & self.inside)
            x = patch.features(torus, torus.extend(jnp.asarray(u[:few], jnp.float32)), jnp.asarray(rows))
            x, r = np.asarray(x, np.float64).reshape(-1, x.shape[-1]), np.moveaxis(s[:few][:, :, rows], 1, 2)
            r = r.reshape(-1, r.shape[-1])
            equations = NormalEquations(1, x.shape[1], r.shape[1])
            equations.matrix[0], equations.right[0] = x.T @ x, x.T @ r
            return float(np.sum((r - x @ equations.solve([1e-8])[0]) ** 2))

        for i, axis in enumerate(axes):
            if axis.kind != "periodic":
                tried = {each: left(i, each) for each in (Axis(axis.count, kind) for kind in ("face", "point"))}
                axes[i] = min(tried, key=tried.__getitem__)
                frames = self.history * s.shape[1]
                groups = [tuple(range(field, frames, s.shape[1])) for field in range(s.shape[1])]
                groups += [(channel,) for channel in range(frames, u.shape[1]) if channel not in uniform]
                for channels in groups:
                    flipped = Axis(axis.count, axes[i].kind, (*axes[i].odd, *channels))
                    if left(i, flipped) < 0.999 * left(i, axes[i]):
                        axes[i] = flipped
        return Torus(tuple(axes))

    # -- one setting --

    def equations(self, noise: float, labels: float) -> NormalEquations:
        """Sums over the training trajectories and over those held out, with noise of this size."""
        if (noise, labels) not in self.known:
            step, m = self.stepper.operator, len(self.train.y)
            assert isinstance(step, LocalStep)
            K, d = step.weights.shape
            equations = NormalEquations(2, K, d, self.mesh)
            P = min(m, max(1, MEMORY // K))
            size = equations.multiple * max(1, MEMORY // (K * P) // equations.multiple)
            rule = Noisy(step, jnp.asarray(noise, jnp.float32), self.spectrum, jnp.asarray(self.inside))
            used, held = 0, self.held.steps(self.history)
            for part, records, order in (
                (0, self.train.steps(self.history), self.order),
                (1, held, np.arange(len(held))),
            ):
                rows = order[: math.ceil(labels / P)] if math.isfinite(labels) else order
                for start in range(0, len(rows), size):
                    equations.add(part, pairs, rule, *self._block(records, rows[start : start + size], size, P))
                    self.show(f"solve: noise {noise:g}, {start} of {len(rows)} frames")
                used += len(rows) * P
            self.known[noise, labels], self.counts[noise, labels] = equations, used
        return self.known[noise, labels]

    def _block(self, records: Any, rows: Int[np.ndarray, " n"], size: int, P: int) -> tuple[Frames, int]:
        """Pairs of a step; the first of them fill the block."""
        samples, m = records.load(rows), len(self.train.y)
        fill = np.resize(np.arange(len(rows)), size)
        u, s = (np.asarray(each)[fill] for each in (samples.u, samples.s))
        places = np.arange(m) if m == P else np.random.default_rng(int(rows[0])).choice(m, P, replace=False)
        found = u, s, rows[fill].astype(np.uint32), np.broadcast_to(places, (size, P))
        return Frames(*map(jnp.asarray, found)), len(rows)

    def kept(self, setting: Setting) -> Bool[np.ndarray, " K"]:
        """The features of a setting."""
        degrees, reaches, depends = self.kinds
        own = self.reaches(setting)
        limits = np.array([math.inf, *own, *(-1.0 for _ in range(3 - len(own)))])
        return (reaches <= limits[degrees] + 1e-6) & (setting.depends_on_place | ~depends)

    def reaches(self, setting: Setting) -> tuple[float, ...]:
        """Of its features."""
        step = self.stepper.operator
        assert isinstance(step, LocalStep)
        return tuple(share * each for share, each in zip(setting.shares, step.patches[0].reaches, strict=True))

    def with_weights(self, weights: Float[np.ndarray, "K d"], **more: Any) -> Stepper:
        """The stepper with these weights."""
        step = dataclasses.replace(self.stepper.operator, weights=jnp.asarray(weights, jnp.float32), **more)
        return dataclasses.replace(self.stepper, operator=step)

    def error(self, setting: Setting) -> float:
        """Of rollouts of the held-out trajectories."""
        if setting not in self.errors:
            equations = self.equations(setting.noise, min(TRIAL_LABELS, self.labels))
            weights = equations.solve([setting.strength], without=1, kept=self.kept(setting))[0]
            error = (
                self._mean(self._roll(self.with_weights(weights), self.start, self.steps))
                if np.isfinite(weights).all()
                else math.inf
            )
            self.errors[setting] = error if math.isfinite(error) else math.inf
            self.show(f"solve: error {error:.4g} with {setting}")
        return self.errors[setting]

    def _mean(self, frames: Float[np.ndarray, "B n m d"]) -> float:
        """The geometric mean over steps of the mean of VRMSE."""
        truth, frames = self.truth[:, :, self.inside].astype(np.float64), frames[:, :, self.inside]
        std = np.maximum(truth.std(axis=2), 0.01 * self.train.moments.std)
        errors = np.sqrt(np.mean((frames - truth) ** 2, axis=2)) / np.where(std > 0.0, std, 1.0)
        return float(np.exp(np.mean(np.log(np.maximum(errors.mean(axis=(0, 2)), 1e-12)))))

    @staticmethod
    def _roll(stepper: Stepper, start: Start, steps: int) -> Float[np.ndarray, "B n m d"]:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return np.concatenate([part[:, 0] for _, part, _ in stepper.roll(start, steps)], axis=1)

    def is_stable(self, stepper: Stepper) -> bool:
        """Whether long rollouts stay within the range of the data; only those of the data's length with forcing."""
        data, k = self.train, self.history
        rows = np.arange(min(len(data), STARTS))
        steps = min(data.frames - k, HORIZON)
        start, _ = stepper.starts(data, rows, np.zeros_like(rows), steps)
        if not start.forcing.shape[-1]:
            steps = LONGER * steps
            start = start._replace(forcing=np.zeros((len(rows), steps, 1, 0), np.float32))
        low, high = np.asarray(stepper.about.low), np.asarray(stepper.about.high)
        frames = self._roll(stepper, start, steps)[:, :, self.inside]
        return bool(((frames >= 2.0 * low - high) & (frames <= 2.0 * high - low)).all())

    # -- all of them --

    def run(self, begun: float) -> tuple[Stepper, StepReport]:
        """The best setting, solved for with all trajectories."""
        bounded = bool(self.kinds[2].any())
        best = Setting(1e-3, 1e-8, SHARES[0], bounded)
        options = {"noise": NOISES, "strength": STRENGTHS, "shares": SHARES, "depends_on_place": (bounded, False)}
        for name in ("noise", "strength", "shares", "depends_on_place", "noise", "strength"):
            best = min((best._replace(**{name: each}) for each in options[name]), key=self.error)
        setting, stepper, stable = best, self.stepper, False
        for setting in (*sorted(self.errors, key=self.error)[:3], best):  # the best again if none is stable
            equations, kept = self.equations(setting.noise, self.labels), self.kept(setting)
            stepper = self.with_weights(equations.solve([setting.strength], kept=kept)[0])
            if stable := self.is_stable(stepper):
                break
        return self._finished(stepper, setting, stable, begun)

    def _finished(
        self, stepper: Stepper, setting: Setting, is_stable: bool, begun: float
    ) -> tuple[Stepper, StepReport]:
        equations, kept, step = self.equations(setting.noise, self.labels), self.kept(setting), stepper.operator
        assert isinstance(step, LocalStep)
        used, held = self.counts[setting.noise, self.labels], self.held.steps(self.history)
        samples = held.load(np.linspace(0, len(held) - 1, min(len(held), 64)).astype(int))
        s = np.asarray(eqx.filter_jit(step.fields)(jax.vmap(step.encode)(samples.u))).reshape(samples.s.shape)
        left = (np.asarray(samples.s) / np.asarray(step.normalization.s_scale) - s)[:, self.inside]
        factor = equations.factor(setting.strength, kept)[kept] * math.sqrt(used / kept.sum())
        own, patches = self.reaches(setting), step.patches[: 1 + setting.depends_on_place]
        stepper = self.with_weights(
            np.asarray(step.weights)[kept], factor=jnp.asarray(factor, jnp.float32),
            sigma=jnp.asarray(np.sqrt(np.mean(left**2, axis=(0, 1))), jnp.float32),
            patches=tuple(
                dataclasses.replace(each, reaches=tuple(map(min, each.reaches, own))) for each in patches
            ),
        )  # fmt: skip
        persistence = self._mean(np.broadcast_to(self.start.window[:, -1:], self.truth.shape))
        report = StepReport(
            self.errors[setting], persistence, self.steps, self.reaches(setting), setting.depends_on_place,
            setting.strength, setting.noise, int(kept.sum()), used, is_stable, len(self.errors),
            time.perf_counter() - begun,
        )  # fmt: skip
        return stepper, report
