"""Checks of the values themselves: missing, constant, badly scaled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from loca.checks.channels import Channel, rows
from loca.checks.finding import Finding

SINGLE = np.finfo(np.float32)

GOOD_ERROR = 1e-2
"""The relative error of a good model. Data that is itself coarser than that cannot be learned to it."""

LOST = float(SINGLE.eps**-0.5)
"""A channel this many times smaller than another (2900) vanishes in a sum of their squares in single precision."""

FENCE = 3.0
"""Interquartile ranges beyond the upper quartile of log-sizes: Tukey's outer fence. One in a million of log-normal
sizes lies beyond, and none of log-uniform ones, however many decades they span."""

FILL_VALUES = (999.0, 9999.0, 99999.0, 32767.0, 32768.0, 1e20, 1e30, 9.969209968386869e36)
"""What files write where there is no value, of either sign; the last is netCDF's own."""

FILL_GAP = 3.0
"""A fill value lies this many times the range of all other values away from them; anything nearer may be data."""


def check_finite(channels: Sequence[Channel]) -> Iterator[Finding]:
    """NaN and Inf: one is enough to turn all parameters into NaN in the first step that meets it."""
    for channel in channels:
        for what, is_wrong in (("NaN", np.isnan), ("Inf", np.isinf)):
            wrong = is_wrong(channel.values) & channel.counted
            if wrong.any():
                message = (
                    f"{channel} holds {int(wrong.sum())} {what} in {rows(np.any(wrong, axis=1))}; drop or fill them"
                )
                yield Finding("error", "not-finite", message)


def check_constant(channels: Sequence[Channel]) -> Iterator[Finding]:
    """Channels that never change, and single functions that do not where others do."""
    for channel in channels:
        # the same test by which `Normalization` decides that a deviation is nothing but round-off
        if channel.deviation() <= 10.0 * SINGLE.eps * abs(channel.mean()):
            if channel.side == "input":
                message = f"{channel} is {channel.mean():.6g} everywhere and tells a model nothing; leave it out"
                yield Finding("warning", "constant", message)
            else:
                message = (
                    f"{channel} is {channel.mean():.6g} everywhere: there is nothing to learn; check what was read"
                )
                yield Finding("error", "constant", message)
            continue
        if channel.values.shape[1] < 2:
            continue
        first = channel.values[np.arange(len(channel.values)), np.argmax(channel.counted, axis=1)]
        flat = ((channel.values == first[:, None]) | ~channel.counted).all(axis=1)
        # Where most functions are constants, the channel is a parameter; where a few are, something was left empty.
        if 0 < flat.sum() < len(flat) / 2:
            message = f"{channel} does not vary within {rows(flat)}, though it does in the others; was it left empty?"
            yield Finding("warning", "constant-function", message)


def check_precision(channels: Sequence[Channel]) -> Iterator[Finding]:
    """Whether single precision can hold the variation: its spacing at the mean, and the squares of deviations."""
    for channel in channels:
        mean, deviation = abs(channel.mean()), channel.deviation()
        if deviation <= 10.0 * SINGLE.eps * mean:
            continue
        if mean * SINGLE.eps > GOOD_ERROR * deviation:
            message = (
                f"{channel} varies by {deviation:.3g} about {channel.mean():.6g}: numbers of 32 bits lie "
                f"{mean * SINGLE.eps / deviation:.1%} of that variation apart; subtract the mean in double precision"
            )
            yield Finding("warning", "precision", message)
        largest = float(np.abs(channel.values[channel.counted]).max())
        if largest**2 > float(SINGLE.max) or deviation**2 < float(SINGLE.tiny):
            message = (
                f"{channel} has values up to {largest:.3g} and a deviation of {deviation:.3g}, whose squares do not "
                "fit into 32 bits; choose another unit"
            )
            yield Finding("error", "range", message)


def check_scales(channels: Sequence[Channel]) -> Iterator[Finding]:
    """Channels of one side that differ so much that one is lost beside the other."""
    varying = [channel for channel in channels if channel.deviation() > 10.0 * SINGLE.eps * abs(channel.mean())]
    if len(varying) < 2:
        return
    small, large = min(varying, key=Channel.deviation), max(varying, key=Channel.deviation)
    ratio = large.deviation() / small.deviation()
    if ratio <= LOST:
        return
    what = f"{large} varies {ratio:.1e} times as much as {small}"
    if large.variable.unit == small.variable.unit:
        unit = f"both in `{large.variable.unit}`" if large.variable.unit else "and neither has a unit"
        message = f"{what}, {unit}: is one of them in another unit? Beside it the other is lost in every common error"
        yield Finding("warning", "scales", message)
    else:
        message = f"{what}; models here standardize each channel, but give noise and errors per channel"
        yield Finding("note", "scales", message)


def check_outliers(channels: Sequence[Channel]) -> Iterator[Finding]:
    """A few functions that make up most of the variance by which all are standardized."""
    for channel in channels:
        sizes = channel.sizes()
        if len(sizes) < 8 or not sizes.any():  # quartiles of fewer say nothing
            continue
        logs = np.log10(np.maximum(sizes, sizes[sizes > 0.0].min()))
        lower, upper = np.quantile(logs, [0.25, 0.75])
        beyond = logs > upper + FENCE * (upper - lower)
        share = float(np.sum(sizes[beyond] ** 2) / np.sum(sizes**2))
        if share > 0.5:
            factor = sizes[beyond].max() / np.median(sizes)
            message = (
                f"{channel}: {rows(beyond)} hold {share:.0%} of all variance, the largest {factor:.0f} times the "
                "median; standardized by them, all others become nearly zero"
            )
            yield Finding("warning", "outliers", message)


def check_fill_values(channels: Sequence[Channel]) -> Iterator[Finding]:
    """Numbers that stand for missing ones."""
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
                message = f"{channel} is {value:.6g} in {rows(np.any(wrong, axis=1))}, far from all else: a fill value?"
                yield Finding("error", "fill-value", message)
