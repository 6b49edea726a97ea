"""Homogeneity: F(c u) = c^p F(u)."""

from __future__ import annotations

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Normalization, Samples, channels
from loca.parameters import Fixed
from loca.typing import Input, Measurements, MultiInput, values_of, with_values

SIMPLE = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
"""Exponents that are taken if they are within the error of the measured one."""

LEAST, ERRORS, VARIES, FEWEST = 0.03, 3.0, 0.02, 5
"""The error of an exponent, at least, and in standard errors; how much log c varies, and functions, at least."""

TINY = 1e-30


class Scale(Fixed):
    """F(c u) = c^p F(u) for all c > 0, where c(u) is the size of some channels of u.

    **Arguments:**

    - `name`: "scale", or "scale NAME" for one channel.
    - `exponents`: p of each output channel.
    - `channels`: which channels of u are multiplied by c, counted over all fields and scalars.
    - `is_positive`: whether c is the geometric mean of values, which are positive, and not the root mean square.
    - `normalization`: of outputs that have their own size; without a shift, so that small ones are not rounded.
    """

    name: str = eqx.field(static=True)
    exponents: tuple[float, ...] = eqx.field(static=True)
    channels: tuple[int, ...] = eqx.field(static=True)
    is_positive: bool = eqx.field(static=True)
    normalization: Normalization

    def size(self, u: Input) -> Float[Array, ""]:
        """c(u) of one input function."""
        total, count = jnp.zeros(()), jnp.zeros(())
        for part, chosen in self._parts(u):
            values = values_of(part)[0]
            weight = part.mask[:, None] if isinstance(part, Measurements) else jnp.ones((*values.shape[:-1], 1), bool)
            weight = jnp.broadcast_to(weight, values.shape)[..., chosen]
            sizes = jnp.abs(values[..., chosen])
            sizes = jnp.log(jnp.maximum(sizes, TINY)) if self.is_positive else sizes**2
            total, count = total + jnp.sum(jnp.where(weight, sizes, 0.0)), count + jnp.sum(weight)
        mean = total / jnp.maximum(count, 1)
        if self.is_positive:
            return jnp.exp(mean)
        return jnp.where(mean > 0.0, jnp.sqrt(jnp.where(mean > 0.0, mean, 1.0)), 1.0)

    def divide(self, u: Input, c: Float[Array, ""]) -> Input:
        """u/c in the channels of the scale."""
        found, start = [], 0
        for values in values_of(u):
            own = np.isin(np.arange(start, start + values.shape[-1]), self.channels)
            found.append(values / jnp.where(own, c, 1.0))
            start += values.shape[-1]
        return with_values(u, found)

    def factors(self, c: Float[Array, "*N"]) -> Float[Array, "*N d_s"]:
        """c^p of each output channel."""
        return c[..., None] ** jnp.asarray(self.exponents)

    def apply(self, samples: Samples) -> Samples:
        """The pairs (u/c, s/c^p)."""
        u, s = _normalized(self, samples.u, samples.s)
        return dataclasses.replace(samples, u=u, s=s)

    def _parts(self, u: Input) -> list[tuple[Array | Measurements, list[int]]]:
        """The fields and scalars with the channels that are multiplied."""
        parts = [u] if not isinstance(u, MultiInput) else [*u.fields, *([] if u.scalars is None else [u.scalars])]
        found, start = [], 0
        for part in parts:
            size = values_of(part)[0].shape[-1]
            if chosen := [c - start for c in self.channels if start <= c < start + size]:
                found.append((part, chosen))
            start += size
        return found


@eqx.filter_jit
def _normalized(scale: Scale, u: Input, s: Float[Array, "N P d_s"]) -> tuple[Input, Float[Array, "N P d_s"]]:
    c = jax.vmap(scale.size)(u)
    return jax.vmap(scale.divide)(u, c), s / scale.factors(c)[:, None]


def scale(name: str, data: Samples) -> Scale:
    """The scale with a name, and its exponents from a regression of log‖s‖ on log c.

    "scale" multiplies all fields, "scale NAME" one channel, which may be a scalar. Exponents at the end, one for all
    outputs or one for each, are taken as they are: "scale -1".
    """
    numbers = [word for word in name.split()[1:] if re.fullmatch(r"[+-]?[0-9.]+", word)]
    words = [word for word in name.split()[1:] if word not in numbers]
    names = [variable.name for variable in data.inputs]
    if len(words) > 1 or not set(words) <= set(names) or len(numbers) not in (0, 1, data.output_size):
        raise ValueError(
            f"expected 'scale', 'scale NAME' or either of them with the exponents of outputs, got {name!r}; the inputs "
            f"are {', '.join(names)}"
        )
    fields = sum(part.input_size for part in data.parts[: len(data.fields)])
    chosen = (names.index(words[0]),) if words else tuple(range(fields))
    values = [column.flat() for column in channels(data) if column.side == "input"]
    is_positive = all(values[c].min() > 0.0 for c in chosen)
    deviation = np.std(np.asarray(data.s, np.float64), axis=(0, 1))
    outputs = dataclasses.replace(
        Normalization.identity(len(names), data.output_size),
        s_scale=jnp.asarray(np.where(deviation > 0.0, deviation, 1.0), data.s.dtype),
    )
    found = Scale(name, (0.0,) * data.output_size, chosen, is_positive, outputs)
    c = np.asarray(jax.vmap(found.size)(data.u), np.float64)
    given = tuple(map(float, numbers)) * (data.output_size if len(numbers) == 1 else 1)
    return dataclasses.replace(found, exponents=given or exponents(c, data))


def exponents(c: Float[np.ndarray, " N"], data: Samples) -> tuple[float, ...]:
    """p of each output channel: the slope of log‖s‖ over log c, or a simple number within its error."""
    sizes, found = np.sqrt(np.mean(np.asarray(data.s, np.float64) ** 2, axis=1)), []
    for size in sizes.T:
        kept = size > 0.0
        x = np.log(c[kept])
        if len(x) < FEWEST or x.std() < VARIES:
            raise ValueError("inputs have all the same size, or too few outputs are not zero")
        (slope, _), covariance = np.polyfit(x, np.log(size[kept]), 1, cov=True)
        near = min(SIMPLE, key=lambda each: abs(each - slope))
        error = max(LEAST, ERRORS * float(np.sqrt(covariance[0, 0])))
        found.append(near if abs(near - slope) <= error else float(slope))
    return tuple(found)
