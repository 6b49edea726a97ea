"""Whether test functions are drawn like training functions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from loca.checks.channels import Channel, inputs_of, outputs_of
from loca.checks.finding import Finding
from loca.data import Samples

LEVEL = 1e-3
"""Probability of a false alarm for a whole data set, divided among all comparisons that are made of it."""

EFFECT = 0.2
"""The smallest distance that counts, however significant: at least a fifth of the test functions would have to be
exchanged to look like training functions. Of ten thousand functions a distance of 0.04 is significant and harmless."""

FEWEST = 20
"""Functions in either part below which distributions are not compared."""


def check_drift(train: Samples, test: Samples) -> Iterator[Finding]:
    """Two-sample Kolmogorov–Smirnov tests of the mean, the spread and the roughness of functions, by channel."""
    before, after = ([*inputs_of(part), *outputs_of(part)] for part in (train, test))
    found = []
    for old, new in zip(before, after, strict=True):
        old, new = old.finite(), new.finite()
        if min(len(old.values), len(new.values)) < FEWEST:
            continue
        limit = critical_distance(len(old.values), len(new.values), LEVEL / (len(statistics(old)) * len(before)))
        for (name, a), (_, b) in zip(statistics(old).items(), statistics(new).items(), strict=True):
            distance = kolmogorov_smirnov(a, b)
            if distance > max(limit, EFFECT):
                shift = f"median {np.median(a):.3g} in training, {np.median(b):.3g} in testing"
                found.append(f"{name} of {old} ({shift}, distance {distance:.2f})")
    if found:
        message = f"test functions are unlike training functions in the {'; the '.join(found)}"
        yield Finding("warning", "drift", message)


def statistics(channel: Channel) -> dict[str, Float[np.ndarray, " N"]]:
    """Simple numbers of each function: mean, spread, and how much neighbors differ relative to the spread."""
    values, counted = channel.values, channel.counted
    mean = np.mean(values, axis=1, where=counted)
    spread = np.std(values, axis=1, where=counted)
    both = counted[:, 1:] & counted[:, :-1]
    if values.shape[1] < 2 or not both.any(axis=1).all():
        return {"mean": mean, "spread": spread}
    change = np.sqrt(np.mean(np.diff(values, axis=1) ** 2, axis=1, where=both))
    # a function that does not vary is not rough
    return {
        "mean": mean,
        "spread": spread,
        "roughness": np.divide(change, spread, out=np.zeros_like(change), where=spread > 0.0),
    }


def kolmogorov_smirnov(a: Float[np.ndarray, " N"], b: Float[np.ndarray, " K"]) -> float:
    """sup |F_a − F_b|: the largest distance of the two empirical distribution functions."""
    a, b = np.sort(a), np.sort(b)
    everywhere = np.concatenate([a, b])
    below = [np.searchsorted(each, everywhere, side="right") / len(each) for each in (a, b)]
    return float(np.abs(below[0] - below[1]).max())


def critical_distance(n: int, k: int, level: float) -> float:
    """The distance that samples of one distribution exceed with this probability: √(ln(2/level)·(n + k)/(2nk))."""
    return float(np.sqrt(np.log(2.0 / level) * (n + k) / (2.0 * n * k)))
