"""The transform of each variable: given by name, or chosen by rules, and fitted on training data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data.channels import ChannelValues, channels
from loca.data.samples import Samples
from loca.data.transforms import Asinh, Chain, Identity, Log, PerLocation, Transform, location_moments

TransformNames = str | Mapping[str, str] | None
"""A transform by the name of its variable, such as `{"permeability": "log", "pressure": "per-location"}`.

Transforms are `standardize`, `log`, `asinh`, `per-location`, `log+per-location`, `asinh+per-location` and `auto`.
Variables that are not named are standardized; `"auto"` alone is for all variables, None for none.
"""

KNOWN = ("standardize", "log", "asinh", "per-location", "log+per-location", "asinh+per-location", "auto")

SPAN = 100.0
"""`auto` takes the logarithm of positive variables whose quantiles at 99 % and 1 % have a larger ratio."""

KURTOSIS = 10.0
"""`auto` takes asinh of variables of both signs whose kurtosis is larger; that of a normal distribution is 3."""

SHARE = 0.5
"""`auto` normalizes per location if the mean field has more than this share of the variance."""

LABELS = 10
"""The least number of values at each location from which `auto` normalizes per location; 2 are needed by request."""


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
        raise ValueError(
            f"transforms are given for {', '.join(unknown)}, but the variables are {', '.join(variables)}; "
            "use these names"
        )
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
