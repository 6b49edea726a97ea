"""Transform, shift and scale of every channel, fitted on training data and stored in every model."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Bool, Float

from loca.data.channels import check_finite
from loca.data.choices import TransformNames, fit_transforms
from loca.data.queries import Queries
from loca.data.records import Records
from loca.data.samples import Samples, Variable
from loca.data.transforms import Transform, is_round_off
from loca.parameters import Fixed
from loca.typing import Array, Input, Measurements, MultiInput, values_of, with_values


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
        fitted = fit_transforms(samples, transforms)
        only = dataclasses.replace(
            cls.identity(samples.input_size, samples.output_size), u_transforms=fitted[0], s_transforms=fitted[1]
        )
        u_shift, u_scale = _input_moments(only.standardize_input(samples.u))
        s_shift, s_scale = _moments(only.at(samples.y).standardize(samples.s))
        return cls(u_shift, u_scale, s_shift, s_scale, *fitted)

    @classmethod
    def identity(cls, input_size: int, output_size: int) -> Normalization:
        """The identity, for d_u = `input_size` and d_s = `output_size` channels."""
        return cls(jnp.zeros(input_size), jnp.ones(input_size), jnp.zeros(output_size), jnp.ones(output_size))

    def at(self, queries: Queries) -> OutputNormalization:
        """The normalization of outputs at some queries."""
        return OutputNormalization(self.s_shift, self.s_scale, tuple(each.at(queries) for each in self.s_transforms))

    def standardize_input(self, u: Input) -> Input:
        """ũ from u."""
        values = _counted_values(u) if self.u_transforms else values_of(u)
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
        return (_apply(self.transforms, s) - self.shift) / self.scale

    def restore(self, s: Float[Array, "*P d_s"]) -> Float[Array, "*P d_s"]:
        """s from s̃."""
        return _invert(self.transforms, self.shift + self.scale * s)


def _apply(transforms: tuple[Transform, ...], values: Float[Array, "*N d"]) -> Float[Array, "*N d"]:
    if not transforms:
        return values
    return jnp.stack([transform.apply(values[..., i]) for i, transform in enumerate(transforms)], axis=-1)


def _invert(transforms: tuple[Transform, ...], values: Float[Array, "*N d"]) -> Float[Array, "*N d"]:
    if not transforms:
        return values
    return jnp.stack([transform.invert(values[..., i]) for i, transform in enumerate(transforms)], axis=-1)


def _channels_of(parts: Sequence[Array]) -> list[slice]:
    ends = list(itertools.accumulate((values.shape[-1] for values in parts), initial=0))
    return [slice(start, end) for start, end in itertools.pairwise(ends)]


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


def _input_moments(u: Input) -> tuple[Float[Array, " d_u"], Float[Array, " d_u"]]:
    """The mean and the standard deviation of each channel of u."""
    if isinstance(u, MultiInput):
        found = [*map(_input_moments, u.fields), *([] if u.scalars is None else [_moments(u.scalars)])]
        shift, scale = (jnp.concatenate(each) for each in zip(*found, strict=True))
        return shift, scale
    return _moments(u.u, u.mask[..., None]) if isinstance(u, Measurements) else _moments(u)


@jax.jit
def _moments(
    values: Float[Array, "*N d"], mask: Bool[Array, "*N 1"] | None = None
) -> tuple[Float[Array, " d"], Float[Array, " d"]]:
    """The mean and the standard deviation of each channel; the deviation of a constant channel is 1."""
    axes = tuple(range(values.ndim - 1))
    mean = jnp.mean(values, axis=axes, where=mask)
    deviation = jnp.std(values, axis=axes, where=mask)
    return mean, jnp.where(is_round_off(deviation, mean), 1.0, deviation)
