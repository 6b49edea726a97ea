"""Checks of values: missing, constant or badly scaled."""

from collections.abc import Iterator, Sequence

import numpy as np

from loca.checks.findings import Finding, rows
from loca.data import ChannelValues, Samples, recommend

SINGLE = np.finfo(np.float32)

GOOD_ERROR = 1e-2
"""The relative error of a good model. Data with coarser resolution than this cannot be learned to this error."""

LOST = float(SINGLE.eps**-0.5)
"""A channel this many times (2900) smaller than another vanishes in a sum of their squares in single precision."""

FENCE = 3.0
"""Interquartile ranges above the upper quartile of the logarithmic sizes: Tukey's outer fence. One in a million of
log-normal sizes lies beyond it, and no log-uniform size, however many decades they span."""

FILL_VALUES = (999.0, 9999.0, 99999.0, 32767.0, 32768.0, 1e20, 1e30, 9.969209968386869e36)
"""Numbers, of either sign, that files store for missing values; the last is netCDF's default."""

FILL_GAP = 3.0
"""A fill value is at least this many ranges of the other values away from them; anything nearer may be data."""


def check_finite(channels: Sequence[ChannelValues]) -> Iterator[Finding]:
    """NaN and Inf: a single one turns all parameters into NaN in the first step that meets it."""
    for channel in channels:
        for what, is_wrong in (("NaN", np.isnan), ("Inf", np.isinf)):
            wrong = is_wrong(channel.values) & channel.counted
            if wrong.any():
                message = (
                    f"{channel} holds {int(wrong.sum())} {what} in {rows(np.any(wrong, axis=1))}; drop or fill them"
                )
                yield Finding("error", "not-finite", message)


def check_constant(channels: Sequence[ChannelValues]) -> Iterator[Finding]:
    """Constant channels, and single constant functions in channels where other functions vary."""
    for channel in channels:
        if channel.is_constant():
            what = f"{channel} is {channel.mean():.6g} everywhere"
            if channel.side == "input":
                yield Finding("warning", "constant", f"{what} and carries no information; leave it out")
            else:
                yield Finding("error", "constant", f"{what}: there is nothing to learn; check the data source")
            continue
        if channel.values.shape[1] < 2:
            continue
        first = channel.values[np.arange(len(channel.values)), np.argmax(channel.counted, axis=1)]
        flat = ((channel.values == first[:, None]) | ~channel.counted).all(axis=1)
        # If most functions are constant, the channel is a parameter; if a few are, they were probably never filled.
        if 0 < flat.sum() < len(flat) / 2:
            message = f"{channel} is constant in {rows(flat)} but varies in the others; were they left empty?"
            yield Finding("warning", "constant-function", message)


def check_precision(channels: Sequence[ChannelValues]) -> Iterator[Finding]:
    """Variation that single precision cannot represent: below its spacing at the mean, or with squares out of range."""
    for channel in channels:
        mean, deviation = abs(channel.mean()), channel.deviation()
        if channel.is_constant():
            continue
        if mean * SINGLE.eps > GOOD_ERROR * deviation:
            message = (
                f"{channel} varies by {deviation:.3g} about {channel.mean():.6g}, where the spacing of 32-bit numbers "
                f"is {mean * SINGLE.eps / deviation:.1%} of that variation; subtract the mean in double precision"
            )
            yield Finding("warning", "precision", message)
        largest = float(np.abs(channel.values[channel.counted]).max())
        if largest**2 > float(SINGLE.max) or deviation**2 < float(SINGLE.tiny):
            message = (
                f"{channel} has values up to {largest:.3g} and a deviation of {deviation:.3g}, whose squares are out "
                "of the range of 32-bit numbers; choose another unit"
            )
            yield Finding("error", "range", message)


def check_scales(channels: Sequence[ChannelValues]) -> Iterator[Finding]:
    """Channels among the inputs, or among the outputs, so different in scale that one is lost beside the other."""
    varying = [channel for channel in channels if not channel.is_constant()]
    if len(varying) < 2:
        return
    small, large = min(varying, key=ChannelValues.deviation), max(varying, key=ChannelValues.deviation)
    ratio = large.deviation() / small.deviation()
    if ratio <= LOST:
        return
    what = f"{large} varies {ratio:.1e} times as much as {small}"
    if large.variable.unit == small.variable.unit:
        unit = f"both in `{large.variable.unit}`" if large.variable.unit else "and neither has a unit"
        message = f"{what}, {unit}: check for a wrong unit; the smaller one is lost in any common error"
        yield Finding("warning", "scales", message)
    else:
        message = f"{what}; models standardize each channel, but specify noise and report errors per channel"
        yield Finding("note", "scales", message)


def check_outliers(channels: Sequence[ChannelValues]) -> Iterator[Finding]:
    """A few functions that make up most of the variance by which all functions are standardized."""
    for channel in channels:
        squares = (channel.values - channel.mean()) ** 2
        sizes = np.sqrt(np.mean(squares, axis=1, where=channel.counted))  # root mean squares about the common mean
        if len(sizes) < 8 or not sizes.any():  # quartiles of fewer are meaningless
            continue
        logs = np.log10(np.maximum(sizes, sizes[sizes > 0.0].min()))
        lower, upper = np.quantile(logs, [0.25, 0.75])
        beyond = logs > upper + FENCE * (upper - lower)
        share = float(np.sum(sizes[beyond] ** 2) / np.sum(sizes**2))
        if share > 0.5:
            factor = sizes[beyond].max() / np.median(sizes)
            message = (
                f"{channel}: {rows(beyond)} hold {share:.0%} of all variance, the largest {factor:.0f} times the "
                "median; after standardization all others would be nearly zero"
            )
            yield Finding("warning", "outliers", message)


def check_transforms(samples: Samples) -> Iterator[Finding]:
    """Variables that models learn better after a transform, by the rules of `transforms="auto"`."""
    for side, variable, transform, reason in recommend(samples):
        if reason:
            message = (
                f"{side} `{variable}`: {reason}; train with transforms={{{variable!r}: {transform!r}}}, on the command "
                f"line --transform {variable}={transform}"
            )
            yield Finding("note", "transform", message)


def check_fill_values(channels: Sequence[ChannelValues]) -> Iterator[Finding]:
    """Numbers that stand for missing values."""
    for channel in channels:
        magnitude = np.abs(channel.values)
        for fill in FILL_VALUES:
            wrong = np.isclose(magnitude, fill, rtol=SINGLE.eps, atol=0.0) & channel.counted
            others = channel.values[channel.counted & ~wrong]
            if not wrong.any() or not others.size:
                continue
            away = np.abs(channel.values[wrong] - np.median(others)).min()
            if away > FILL_GAP * np.ptp(others):
                value = channel.values[wrong][0]
                where = rows(np.any(wrong, axis=1))
                message = f"{channel} is {value:.6g} in {where}, far from all other values: a fill value?"
                yield Finding("error", "fill-value", message)
