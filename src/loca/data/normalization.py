"""Transform, shift and scale of every channel, fitted on training data and stored in every model.

The transform of a variable is given by name, or chosen by rules.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Bool, Float

from loca.data.channels import ChannelValues, channels, check_finite
from loca.data.queries import Queries
from loca.data.records import Records
from loca.data.samples import Samples, Variable
from loca.data.transforms import (
    Asinh,
    Chain,
    Identity,
    Log,
    PerLocation,
    Transform,
    is_round_off,
    location_moments,
)
from loca.parameters import Fixed
from loca.typing import Array, Input, Measurements, MultiInput, values_of, with_values

TransformNames = str | Mapping[str, str] | None
"""A transform by the name of its variable, such as `{"permeability": "log", "pressure": "per-location"}`.

Transforms are `standardize`, `log`, `asinh`, `per-location`, `log+per-location`, `asinh+per-location` and `auto`.
Variables that are not named are standardized; `"auto"` alone is for all variables, None for none.
"""

KNOWN = ("standardize", "log", "asinh", "per-location", "log+per-location", "asinh+per-location", "auto")

SPAN, KURTOSIS, SHARE, LABELS = 100.0, 10.0, 0.5, 10
"""The thresholds of the rules of `recommend`."""

ROWS = 1024
"""Functions whose squares are summed at once."""


class Normalization(Fixed):
    """ũ = (T(u) − a)/b and s̃ = (T(s) − c)/d, with one (a, b) per input channel and one (c, d) per output channel.

    T is a transform of each channel, by default the identity. Losses compare s̃, whereas predictions and metrics are in
    the units of the data.

    Shifts and scales are taken over functions and locations together, never per position in the list of queries: the
    same position is a different location in every function, so its mean is noise that no model can see. The transform
    `PerLocation` knows the locations.

    **Arguments:**

    - `u_shift`, `u_scale`, `s_shift`, `s_scale`: a, b, c and d.
    - `u_transforms`, `s_transforms`: T of each channel; empty if all are the identity.
    """

    u_shift: Float[Array, " d_u"]
    u_scale: Float[Array, " d_u"]
    s_shift: Float[Array, " d_s"]
    s_scale: Float[Array, " d_s"]
    u_transforms: tuple[Transform, ...] = ()
    s_transforms: tuple[Transform, ...] = ()

    @classmethod
    def fit(cls, samples: Samples, transforms: TransformNames = None) -> "Normalization":
        """Fit the transforms, and then the mean and the standard deviation of each channel, to finite training data.

        **Arguments:**

        - `samples`: training data.
        - `transforms`: by the names of variables, or `"auto"`; see `TransformNames`.
        """
        if isinstance(samples, Records):
            raise TypeError(
                f"expected training data in memory, got {samples!r}; load the pairs, `records.load()`, or if memory is "
                "short some of them, `records.load(slice(0, 1000))`"
            )
        check_finite(samples)
        fitted = fit_transforms(samples, transforms)
        only = dataclasses.replace(
            cls.identity(samples.input_size, samples.output_size), u_transforms=fitted[0], s_transforms=fitted[1]
        )
        u = only.standardized_input(samples.u) if fitted[0] else samples.u
        s = only.standardized_output(samples.y, samples.s) if fitted[1] else samples.s
        return cls(*_input_moments(u), *_moments(s), *fitted)

    @classmethod
    def identity(cls, input_size: int, output_size: int) -> "Normalization":
        """The identity, for d_u = `input_size` and d_s = `output_size` channels."""
        return cls(jnp.zeros(input_size), jnp.ones(input_size), jnp.zeros(output_size), jnp.ones(output_size))

    def at(self, queries: Queries) -> "OutputNormalization":
        """The normalization of outputs at some queries."""
        return OutputNormalization(self.s_shift, self.s_scale, tuple(each.at(queries) for each in self.s_transforms))

    def standardize_input(self, u: Input) -> Input:
        """ũ from u."""
        values = _counted_values(u) if self.u_transforms else values_of(u)
        count = sum(each.shape[-1] for each in values)
        if count != len(self.u_shift):  # otherwise one channel would be broadcast to all
            raise ValueError(f"u has {count} channels but the training data had {len(self.u_shift)}; pass as many")
        return with_values(u, [part.standardize(v) for part, v in zip(self._of_parts(values), values, strict=True)])

    def standardized_input(self, u: Input) -> Input:
        """ũ of many functions, by one program that does not depend on the outputs."""
        nothing = self.s_shift[:0]
        return _standardized_input(dataclasses.replace(self, s_shift=nothing, s_scale=nothing, s_transforms=()), u)

    def standardized_output(self, queries: Queries, s: Float[Array, "N P d_s"]) -> Float[Array, "N P d_s"]:
        """s̃ of many functions, by one program."""
        return _standardized_output(self.at(queries), s)

    def restore_input(self, u: Input) -> Input:
        """u from ũ."""
        values = values_of(u)
        return with_values(u, [part.restore(v) for part, v in zip(self._of_parts(values), values, strict=True)])

    def _of_parts(self, values: Sequence[Array]) -> Iterator["OutputNormalization"]:
        for of in _channels_of(values):
            yield OutputNormalization(self.u_shift[of], self.u_scale[of], self.u_transforms[of])

    def check_input(self, u: Input, variables: Sequence[Variable]) -> None:
        """Raise if values of u cannot be transformed; values that JAX is tracing are not checked."""
        if self.u_transforms:
            parts = _counted_values(u)
            for values, of in zip(parts, _channels_of(parts), strict=True):
                is_number = isinstance(u, MultiInput) and values is u.scalars
                _check(self.u_transforms[of], variables[of], "input", values[..., None, :] if is_number else values)

    def check_output(self, s: Float[Array, "*N P d_s"], variables: Sequence[Variable]) -> None:
        """Raise if values of s cannot be transformed; values that JAX is tracing are not checked."""
        _check(self.s_transforms, variables, "output", s)


class OutputNormalization(Fixed):
    """s̃ = (T(s) − c)/d at given queries."""

    shift: Float[Array, " d_s"]  # c of each channel
    scale: Float[Array, " d_s"]  # d
    transforms: tuple[Transform, ...]  # T at the queries; empty if all are the identity

    def standardize(self, s: Float[Array, "*P d_s"]) -> Float[Array, "*P d_s"]:
        """s̃ from s."""
        return (_mapped(s, [each.apply for each in self.transforms]) - self.shift) / self.scale

    def restore(self, s: Float[Any, "*P d_s"]) -> Float[Any, "*P d_s"]:
        """s from s̃, without a program of JAX where all arrays are those of NumPy."""
        return _mapped(self.shift + self.scale * s, [each.invert for each in self.transforms])


def _mapped(values: Any, maps: Sequence[Callable[[Any], Any]]) -> Any:
    """Every channel mapped by its own function; all as they are if there are no functions."""
    xp = np if isinstance(values, np.ndarray) else jnp
    return xp.stack([maps[i](values[..., i]) for i in range(len(maps))], axis=-1) if maps else values


def _channels_of(parts: Sequence[Array]) -> list[slice]:
    ends = itertools.accumulate((values.shape[-1] for values in parts), initial=0)
    return list(itertools.starmap(slice, itertools.pairwise(ends)))


def _counted_values(u: Input) -> tuple[Array, ...]:
    """The values of u as in `values_of`, with 1 for measurements that do not count."""
    if isinstance(u, MultiInput):
        fields = tuple(values for field in u.fields for values in _counted_values(field))
        return fields if u.scalars is None else (*fields, u.scalars)
    return (jnp.where(u.mask[..., None], u.u, 1.0) if isinstance(u, Measurements) else u,)


def _check(
    transforms: Sequence[Transform],
    variables: Sequence[Variable],
    side: str,
    values: Float[Array | np.ndarray, "*N m d"],
) -> None:
    if transforms and not isinstance(values, Tracer):
        table = np.asarray(values).reshape(-1, *values.shape[-2:])
        for i, (transform, variable) in enumerate(zip(transforms, variables, strict=True)):
            transform.check(table[..., i], f"{side} `{variable.name}`")


_standardized_input = eqx.filter_jit(Normalization.standardize_input)
_standardized_output = eqx.filter_jit(OutputNormalization.standardize)


def _input_moments(u: Input) -> tuple[Float[Array, " d_u"], Float[Array, " d_u"]]:
    """The mean and the standard deviation of each channel of u."""
    if isinstance(u, MultiInput):
        found = [*map(_input_moments, u.fields), *([] if u.scalars is None else [_moments(u.scalars)])]
        shift, scale = (jnp.concatenate(each) for each in zip(*found, strict=True))
        return shift, scale
    return _moments(u.u, u.mask[..., None]) if isinstance(u, Measurements) else _moments(u)


def _moments(
    values: Float[Array, "*N d"], mask: Bool[Array, "*N 1"] | None = None
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """The mean and the standard deviation of each channel; the deviation of a constant channel is 1."""
    axes = tuple(range(values.ndim - 1))
    if isinstance(values, Tracer):
        mean, deviation = jnp.mean(values, axis=axes, where=mask), jnp.std(values, axis=axes, where=mask)
        return mean, jnp.where(is_round_off(deviation, mean), 1.0, deviation)
    every = np.asarray(values)
    where = np.broadcast_to(True if mask is None else np.asarray(mask), every.shape)
    mean = np.mean(every, axis=axes, dtype=np.float64, where=where)
    parts = (slice(start, start + ROWS) for start in range(0, len(every), ROWS))  # a copy of all would need memory
    squares = sum(np.sum((every[part] - mean) ** 2, axis=axes, where=where[part]) for part in parts)
    deviation = np.sqrt(squares / np.sum(where, axis=axes))
    deviation = np.where(deviation**2 < np.finfo(values.dtype).max, deviation, np.inf)  # later squares would overflow
    deviation = np.where(is_round_off(deviation, mean), 1.0, deviation)
    return jnp.asarray(mean, values.dtype), jnp.asarray(deviation, values.dtype)


# ---- choices ---------------------------------------------------------------------------------------------------------


class Recommendation(NamedTuple):
    """The transform that the rules choose for a variable; the reason is empty if it is only standardized."""

    side: str
    variable: str
    transform: str
    reason: str


def recommend(samples: Samples) -> tuple[Recommendation, ...]:
    """The transform of every variable by simple rules, first of u and then of s.

    1. `log` if all values are positive and the 99 % quantile is more than 100 times the 1 % quantile.
    2. Otherwise `asinh` if at least 1 % of the values are negative, at least 1 % are positive, and their kurtosis is
       more than 10.
    3. Then also `per-location` if all functions share their locations, at least 10 values are known at each, and the
       mean field has more than half of the variance of the values after steps 1 and 2.

    Functions with NaN or Inf are left out.
    """
    return tuple(_recommended(column.finite()) for column in channels(samples))


def _recommended(column: ChannelValues) -> Recommendation:
    names, reasons, values = [], [], column.flat()
    if values.size and np.ptp(values) > 0.0:
        low, high = np.quantile(values, [0.01, 0.99])
        squares = (values - values.mean()) ** 2
        kurtosis = float(np.mean(squares**2) / np.mean(squares) ** 2)
        transform: Transform = Identity()
        if values.min() > 0.0 and high > SPAN * low:
            transform = Log()
            reasons.append(f"all values are positive and span {np.log10(high / low):.1f} decades")
        elif low < 0.0 < high and kurtosis > KURTOSIS:
            transform = Asinh.fit(values)
            reasons.append(f"values of both signs have a kurtosis of {kurtosis:.3g}")
        names += [transform.name] if reasons else []
        share = _mean_field_share(column, _transformed(transform, column.values))
        if share > SHARE:
            names.append(PerLocation.name)
            reasons.append(f"the mean field has {share:.0%} of the variance")
    return Recommendation(column.side, column.variable.name, "+".join(names) or Identity.name, ", and ".join(reasons))


def _mean_field_share(column: ChannelValues, values: Float[np.ndarray, "N m"]) -> float:
    """The share of the variance of the mean field; 0 if it cannot be known."""
    if column.places is None or column.locations < 2:
        return 0.0
    moments, number = location_moments(values, column.places, column.locations)
    return float(np.var(np.asarray(moments.shift, np.float64)) / np.var(values)) if number.min() >= LABELS else 0.0


def fit_transforms(samples: Samples, names: TransformNames) -> tuple[tuple[Transform, ...], tuple[Transform, ...]]:
    """Fit the transforms of u and of s; both are empty if all variables are only standardized.

    Prints what `auto` chooses.
    """
    if names is None:
        return (), ()
    variables = [variable.name for variable in (*samples.inputs, *samples.outputs)]
    given = dict.fromkeys(variables, names) if isinstance(names, str) else dict(names)
    if unknown := sorted(set(given) - set(variables)):
        raise ValueError(f"transforms are given for {', '.join(unknown)}, but the variables are {', '.join(variables)}")
    fitted: dict[str, list[Transform]] = {"input": [], "output": []}
    for column in channels(samples):
        name = given.get(column.variable.name, Identity.name)
        if name not in KNOWN:
            raise ValueError(f"the transform of {column.variable.name} is {name!r}; choose one of {', '.join(KNOWN)}")
        if name == "auto":
            _, _, name, reason = _recommended(column.finite())
            # whoever asks for a choice wants to see it
            print(f"transform of {column}: {name}{reason and f' ({reason})'}")  # noqa: T201
        fitted[column.side].append(_fit_transform(name, column, samples))
    if all(isinstance(transform, Identity) for side in fitted.values() for transform in side):
        return (), ()
    return tuple(fitted["input"]), tuple(fitted["output"])


def _fit_transform(name: str, column: ChannelValues, samples: Samples) -> Transform:
    """Fit the transform with this name to the values of a variable."""
    transform: Transform = Identity()
    if name.startswith(Log.name):
        transform = Log()
        transform.check(np.where(column.counted, column.values, 1.0), str(column))
    elif name.startswith(Asinh.name):
        transform = Asinh.fit(column.flat())
    if PerLocation.name not in name or (column.side == "input" and column.locations == 1):
        return transform  # a number is standardized: it has no other location
    if column.places is None:
        raise ValueError(
            f"per-location needs locations that all functions share, but every function has its own for {column}; "
            "interpolate to common locations, or use standardize"
        )
    moments, number = location_moments(_transformed(transform, column.values), column.places, column.locations)
    if number.min() < 2:
        raise ValueError(
            f"per-location needs at least 2 values at every location, but {column} has "
            f"{int(number.min())} at location {int(np.argmin(number))} ({int((number < 2).sum())} of "
            f"{column.locations} have fewer than 2); keep more labels per function, or use standardize"
        )
    # sensors are those of the training data, but queries may be anywhere
    last = moments if column.side == "input" else PerLocation.on(moments, samples.y.points, samples.domain)
    return last if isinstance(transform, Identity) else Chain((transform, last))


def _transformed(transform: Transform, values: Float[np.ndarray, "N m"]) -> Float[np.ndarray, "N m"]:
    """Transformed values, in double precision where they do not change."""
    if isinstance(transform, Identity):
        return values
    return np.asarray(transform.apply(jnp.asarray(values, jnp.float32)), np.float64)
