"""Transform, shift and scale of every channel, fitted on training data and stored in every model.

A statistic of values that are not finite is worthless, so such values are found first and named.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Bool, Float

from loca.data.choices import TransformNames, fit_transforms
from loca.data.queries import Queries
from loca.data.records import Records
from loca.data.samples import Samples, Variable
from loca.data.transforms import Transform, is_round_off
from loca.parameters import Fixed
from loca.typing import Array, Input, Measurements, MultiInput, values_of, with_values

LISTED = 4
"""The number of channels of functions that a message lists."""


def check_finite(samples: Samples, what: str = "the data", numbers: Sequence[int] | np.ndarray | None = None) -> None:
    """Raise `ValueError` with functions and channels if a value is NaN or infinite; for arguments see `not_finite`."""
    if found := not_finite(samples, numbers):
        raise ValueError(f"{what} has values that are not finite: {found}; fill them, or leave these functions out")


def not_finite(samples: Samples, numbers: Sequence[int] | np.ndarray | None = None) -> str:
    """The first functions and channels with NaN or infinite values, in words; empty if there are none.

    **Arguments:**

    - `samples`: the functions. Values that are not known while JAX traces a program are not checked.
    - `numbers`: the numbers of these functions in messages; from 0 on unless given.
    """
    inputs = [
        ("input", *values_of(part.u), part.inputs, part.u.mask if isinstance(part.u, Measurements) else None)
        for part in samples.parts
    ]
    listed = [
        (int(row if numbers is None else numbers[row]), text)
        for role, values, variables, mask in (*inputs, ("output", samples.s, samples.outputs, None))
        for row, text in wrong_channels(role, values, variables, mask)
    ]
    texts = [f"function {number}, {text}" for number, text in sorted(listed)[:LISTED]]
    if len(listed) > LISTED:
        texts.append(f"and {len(listed) - LISTED} more")
    return "; ".join(texts)


def wrong_channels(
    role: str, values: Array, variables: Sequence[Variable], mask: Array | None
) -> Iterator[tuple[int, str]]:
    """Every function with a channel that is not finite everywhere, and what is wrong with the channel."""
    if isinstance(values, Tracer):
        return
    wrong = ~np.isfinite(np.asarray(values))
    if mask is not None:
        wrong &= np.asarray(mask)[..., None]
    if not wrong.any():
        return
    for row, channel in zip(*np.nonzero(wrong.any(axis=1)), strict=True):
        count = int(wrong[row, :, channel].sum())
        nan = bool(np.isnan(np.asarray(values[row, :, channel])[wrong[row, :, channel]]).any())
        kind = "NaN" if nan else "infinite"
        yield int(row), f"{role} {variables[channel].name!r}: {count} of {wrong.shape[1]} values {kind}"


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
    def fit(cls, samples: Samples, transforms: TransformNames = None) -> Normalization:
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
        u_transforms, s_transforms = fit_transforms(samples, transforms)
        u_shift, u_scale = input_moments(transform_input(u_transforms, samples.u))
        s_shift, s_scale = moments(apply(at(s_transforms, samples.y), samples.s))
        return cls(u_shift, u_scale, s_shift, s_scale, u_transforms, s_transforms)

    @classmethod
    def identity(cls, input_size: int, output_size: int) -> Normalization:
        """The identity, for d_u = `input_size` and d_s = `output_size` channels."""
        return cls(jnp.zeros(input_size), jnp.ones(input_size), jnp.zeros(output_size), jnp.ones(output_size))

    def at(self, queries: Queries) -> OutputNormalization:
        """The normalization of outputs at some queries."""
        return OutputNormalization(self.s_shift, self.s_scale, at(self.s_transforms, queries))

    def standardize_input(self, u: Input) -> Input:
        """ũ from u."""
        values = counted_values(u) if self.u_transforms else values_of(u)
        count = sum(each.shape[-1] for each in values)
        if count != len(self.u_shift):  # otherwise one channel would be broadcast to all
            raise ValueError(
                f"u has {count} channels but the training data had {len(self.u_shift)}; "
                f"pass values of shape (m, {len(self.u_shift)})"
            )
        return with_values(u, [part.standardize(v) for part, v in zip(self._of_parts(values), values, strict=True)])

    def restore_input(self, u: Input) -> Input:
        """u from ũ."""
        values = values_of(u)
        return with_values(u, [part.restore(v) for part, v in zip(self._of_parts(values), values, strict=True)])

    def _of_parts(self, values: Sequence[Array]) -> Iterator[OutputNormalization]:
        for of in channels_of(values):
            yield OutputNormalization(self.u_shift[of], self.u_scale[of], self.u_transforms[of])

    def check_input(self, u: Input, variables: Sequence[Variable]) -> None:
        """Raise if values of u cannot be transformed; values that JAX is tracing are not checked."""
        if not self.u_transforms:
            return
        scalars = u.scalars if isinstance(u, MultiInput) else None
        parts = counted_values(u)
        for values, of in zip(parts, channels_of(parts), strict=True):
            if not isinstance(values, Tracer):
                known = np.asarray(values)
                known = known[..., None, :] if values is scalars else known
                check(self.u_transforms[of], variables[of], "input", known)

    def check_output(self, s: Float[Array, "*N P d_s"], variables: Sequence[Variable]) -> None:
        """Raise if values of s cannot be transformed; values that JAX is tracing are not checked."""
        if self.s_transforms and not isinstance(s, Tracer):
            check(self.s_transforms, variables, "output", s)


class OutputNormalization(Fixed):
    """s̃ = (T(s) − c)/d at given queries.

    **Arguments:**

    - `shift`, `scale`: c and d of each channel.
    - `transforms`: T of each channel at the queries; empty if all are the identity.
    """

    shift: Float[Array, " d_s"]
    scale: Float[Array, " d_s"]
    transforms: tuple[Transform, ...]

    def standardize(self, s: Float[Array, "*P d_s"]) -> Float[Array, "*P d_s"]:
        """s̃ from s."""
        return (apply(self.transforms, s) - self.shift) / self.scale

    def restore(self, s: Float[Array, "*P d_s"]) -> Float[Array, "*P d_s"]:
        """s from s̃."""
        return invert(self.transforms, self.shift + self.scale * s)


def at(transforms: tuple[Transform, ...], queries: Queries) -> tuple[Transform, ...]:
    """The transforms of values at some queries."""
    return tuple(transform.at(queries) for transform in transforms)


def apply(transforms: tuple[Transform, ...], values: Float[Array, "*N d"]) -> Float[Array, "*N d"]:
    """Transform every channel; there may be no transforms."""
    if not transforms:
        return values
    return jnp.stack([transform.apply(values[..., i]) for i, transform in enumerate(transforms)], axis=-1)


def invert(transforms: tuple[Transform, ...], values: Float[Array, "*N d"]) -> Float[Array, "*N d"]:
    """Undo the transform of every channel; there may be no transforms."""
    if not transforms:
        return values
    return jnp.stack([transform.invert(values[..., i]) for i, transform in enumerate(transforms)], axis=-1)


def transform_input(transforms: tuple[Transform, ...], u: Input) -> Input:
    """Transform every channel of u; measurements that do not count become finite."""
    if not transforms:
        return u
    parts = counted_values(u)
    return with_values(u, [apply(transforms[of], v) for v, of in zip(parts, channels_of(parts), strict=True)])


def channels_of(parts: Sequence[Array]) -> list[slice]:
    """The numbers of the channels of each part of u among all channels."""
    ends = list(itertools.accumulate((values.shape[-1] for values in parts), initial=0))
    return [slice(start, end) for start, end in itertools.pairwise(ends)]


def counted_values(u: Input) -> tuple[Array, ...]:
    """The values of u as in `values_of`, with 1 for measurements that do not count."""
    if isinstance(u, MultiInput):
        fields = tuple(values for field in u.fields for values in counted_values(field))
        return fields if u.scalars is None else (*fields, u.scalars)
    return (jnp.where(u.mask[..., None], u.u, 1.0) if isinstance(u, Measurements) else u,)


def check(
    transforms: Sequence[Transform],
    variables: Sequence[Variable],
    side: str,
    values: Float[Array | np.ndarray, "*N m d"],
) -> None:
    """Raise if values cannot be transformed."""
    table = np.asarray(values)
    table = table.reshape(-1, *table.shape[-2:])
    for i, (transform, variable) in enumerate(zip(transforms, variables, strict=True)):
        transform.check(table[..., i], f"{side} `{variable.name}`")


def input_moments(u: Input) -> tuple[Float[Array, " d_u"], Float[Array, " d_u"]]:
    """The mean and the standard deviation of each channel of u."""
    if isinstance(u, MultiInput):
        found = [*map(input_moments, u.fields), *([] if u.scalars is None else [moments(u.scalars)])]
        shift, scale = (jnp.concatenate(each) for each in zip(*found, strict=True))
        return shift, scale
    return moments(u.u, u.mask[..., None]) if isinstance(u, Measurements) else moments(u)


@jax.jit
def moments(
    values: Float[Array, "*N d"], mask: Bool[Array, "*N 1"] | None = None
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """The mean and the standard deviation of each channel; the deviation of a constant channel is 1."""
    axes = tuple(range(values.ndim - 1))
    mean = jnp.mean(values, axis=axes, where=mask)
    deviation = jnp.std(values, axis=axes, where=mask)
    return mean, jnp.where(is_round_off(deviation, mean), 1.0, deviation)
