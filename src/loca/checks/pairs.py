"""Checks of pairs: repeats, copied inputs, shuffled rows; and of test functions: leaks and drift."""

import hashlib
from collections.abc import Iterator

import numpy as np
import scipy
from jaxtyping import Float

from loca.checks.findings import Finding, rows
from loca.data import ChannelValues, Samples, Shared, channels
from loca.typing import Measurements, MultiInput

NEAR = 1e-3
"""Functions closer than this, relative to their size, are the same to any model: its errors are ten times as large."""

COPY = 1e-5
"""The relative residual of s after the best fit a·u + b, if s is u in another unit: rounding errors of single precision
times a margin of one hundred. No law worth learning is that close to a line."""

SKETCH = 64
"""Number of random projections that represent a function; they preserve distances to about 20 % (Johnson &
Lindenstrauss)."""

RELATED = 3.0
"""Standard deviations by which the outputs of similar inputs must be more similar than in shuffled pairs. Shuffled data
stays below in 99 of 100 cases; 100 functions of any of the paper's experiments reach more than 10."""

COMPARED, ENOUGH = 300, 100
"""The largest and the smallest number of functions whose mutual distances are computed. With fewer functions, weak
relations cannot be distinguished from none."""

FALSE_ALARMS = 1e-3
"""Probability of a false alarm about drift for a complete data set, divided among all comparisons."""

EFFECT = 0.2
"""The smallest distance of two distributions that counts, however significant: at least a fifth of the test functions
would have to be exchanged to look like training functions. With ten thousand functions a distance of 0.04 is already
significant, but harmless."""

FEWEST = 20
"""Number of functions in either set below which distributions are not compared."""


def input_rows(samples: Samples) -> Float[np.ndarray, "N m"]:
    """All data of each input function as one row."""
    found = []
    for part in samples.parts:
        if isinstance(part.u, Measurements):
            mask = np.asarray(part.u.mask)[..., None]
            found += [np.where(mask, np.asarray(part.u.u), 0.0), np.where(mask, np.asarray(part.u.x), 0.0)]
        else:
            found.append(np.asarray(part.u))
    return np.concatenate([each.reshape(len(samples), -1) for each in found], axis=1)


def digests(values: Float[np.ndarray, "N m"]) -> list[bytes]:
    """A digest of each row; equal numbers have equal digests."""
    # adding 0 turns −0 into 0
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in np.ascontiguousarray(values + 0.0)]


def check_repeated(samples: Samples, part: str) -> Iterator[Finding]:
    """Inputs that occur twice: redundant if the outputs are equal, contradictory if they differ."""
    first: dict[bytes, int] = {}
    of_output = digests(np.asarray(samples.s).reshape(len(samples), -1))
    own_queries = not isinstance(samples.y, Shared)  # then outputs differ because they are queried elsewhere
    same, other = np.zeros(len(samples), bool), np.zeros(len(samples), bool)
    u = input_rows(samples)
    finite = np.all(np.isfinite(u), axis=1)
    for i, digest in enumerate(digests(u)):
        j = first.setdefault(digest, i)
        if j != i and finite[i]:
            (same if own_queries or of_output[i] == of_output[j] else other)[i] = True
    if same.any():
        message = f"{rows(same)} of the {part} data repeat the input of an earlier function; keep one of each"
        yield Finding("warning", "repeated", message)
    if other.any():
        message = (
            f"{rows(other)} of the {part} data repeat the input of an earlier function with another output: the inputs "
            "do not determine the outputs, or pairs are mixed up"
        )
        yield Finding("warning", "contradictory", message)


def check_shared(train: Samples, test: Samples) -> Iterator[Finding]:
    """Test functions that are also training functions, exactly or nearly."""
    u_train, u_test = input_rows(train), input_rows(test)
    seen = set(digests(u_train))
    leaked = np.array([digest in seen for digest in digests(u_test)]) & np.isfinite(u_test).all(axis=1)
    if leaked.any():
        message = f"{rows(leaked)} of the test data are also in the training data; errors there are meaningless"
        yield Finding("error", "leak", message)
    near = ~leaked & nearly_in(u_test, u_train)
    if near.any():
        message = f"{rows(near)} of the test data differ from a training function by less than {NEAR:.1%}"
        yield Finding("note", "near-leak", message)


def nearly_in(a: Float[np.ndarray, "N m"], b: Float[np.ndarray, "K m"]) -> np.ndarray:
    """Which rows of a are near some row of b, relative to their own size about the mean of b."""
    mean = np.nan_to_num(b).mean(axis=0)
    project = np.random.default_rng(0).standard_normal((a.shape[1], SKETCH))
    a, b = (np.nan_to_num(each - mean, posinf=0.0, neginf=0.0).astype(np.float64) @ project for each in (a, b))
    size = np.sum(a**2, axis=1)
    found = np.zeros(len(a), bool)
    for start in range(0, len(a), 256):
        part = slice(start, start + 256)
        squares = size[part, None] - 2.0 * a[part] @ b.T + np.sum(b**2, axis=1)
        found[part] = squares.min(axis=1) < NEAR**2 * size[part]
    return found & (size > 0.0)


def check_drift(train: Samples, test: Samples) -> Iterator[Finding]:
    """Two-sample Kolmogorov–Smirnov tests of the mean, the spread and the roughness of functions, by channel."""
    before, after = (list(channels(part)) for part in (train, test))
    found = []
    for old, new in zip(before, after, strict=True):
        old, new = old.finite(), new.finite()
        if min(len(old.values), len(new.values)) < FEWEST:
            continue
        level = FALSE_ALARMS / (len(statistics(old)) * len(before))
        for (name, a), (_, b) in zip(statistics(old).items(), statistics(new).items(), strict=True):
            distance, p_value = scipy.stats.ks_2samp(a, b, method="asymp")
            if distance > EFFECT and p_value < level:
                shift = f"median {np.median(a):.3g} in training, {np.median(b):.3g} in testing"
                found.append(f"{name} of {old} ({shift}, distance {distance:.2f})")
    if found:
        message = f"test functions differ from training functions in the {'; the '.join(found)}"
        yield Finding("warning", "drift", message)


def statistics(channel: ChannelValues) -> dict[str, Float[np.ndarray, " N"]]:
    """The mean, the spread and the roughness of each function: how much neighbors differ relative to the spread."""
    values, counted = channel.values, channel.counted
    mean = np.mean(values, axis=1, where=counted)
    spread = np.std(values, axis=1, where=counted)
    both = counted[:, 1:] & counted[:, :-1]
    if values.shape[1] < 2 or not both.any(axis=1).all():
        return {"mean": mean, "spread": spread}
    change = np.sqrt(np.mean(np.diff(values, axis=1) ** 2, axis=1, where=both))
    # a constant function is not rough
    return {
        "mean": mean,
        "spread": spread,
        "roughness": np.divide(change, spread, out=np.zeros_like(change), where=spread > 0.0),
    }


def check_copy(samples: Samples) -> Iterator[Finding]:
    """Outputs that are inputs, possibly in another unit: s = a·u + b at the same locations."""
    if isinstance(samples.u, MultiInput):
        for part in samples.parts:
            yield from check_copy(part)
        return
    if isinstance(samples.u, Measurements) or samples.x is None or not isinstance(samples.y, Shared):
        return
    x, y, u, s = (np.asarray(each) for each in (samples.x, samples.y.y, samples.u, samples.s))
    for time, here in where_sensors_are(x, y):
        for i, given in enumerate(samples.inputs):
            for j, wanted in enumerate(samples.outputs):
                if is_line(u[..., i], s[:, here, j]):
                    at = "" if time is None else f" at {time:.4g}"
                    level = "error" if time is None else "warning"
                    message = (
                        f"output `{wanted.name}`{at} equals input `{given.name}` up to a factor and a constant in "
                        "every function: there is nothing to learn"
                    )
                    yield Finding(level, "copy", message)


def where_sensors_are(x: Float[np.ndarray, "m d_x"], y: Float[np.ndarray, "P d_y"]) -> Iterator[tuple]:
    """(leading coordinate, numbers of queries) wherever these queries are the sensors, in the same order."""
    if x.shape == y.shape and np.array_equal(x, y):
        yield None, np.arange(len(y))
    if y.shape[1] == x.shape[1] + 1:
        for time in np.unique(y[:, 0]):
            here = np.flatnonzero(y[:, 0] == time)
            if np.array_equal(y[here, 1:], x):
                yield time, here


def is_line(u: Float[np.ndarray, "N m"], s: Float[np.ndarray, "N m"]) -> bool:
    """Whether all (u, s) lie on one line."""
    fine = np.isfinite(u) & np.isfinite(s)
    if not fine.any():
        return False
    u, s = u[fine].astype(np.float64), s[fine].astype(np.float64)
    u, s = u - u.mean(), s - s.mean()
    if not (u.any() and s.any()):
        return False
    rest = s - u * (u @ s) / (u @ u)
    return bool(np.linalg.norm(rest) < COPY * np.linalg.norm(s))


def check_related(samples: Samples) -> Iterator[Finding]:
    """Mantel's test: whether similar inputs have more similar outputs than chance would give them.

    The test compares the correlation between distances of inputs and distances of outputs with that of shuffled
    outputs. Functions are represented by all their values, and by their means and standard deviations alone, which
    are more telling where the values are mostly detail. One significant correlation is enough.
    """
    if any(isinstance(part.u, Measurements) for part in samples.parts) or not isinstance(samples.y, Shared):
        return
    keep = np.isfinite(input_rows(samples)).all(axis=1) & np.isfinite(np.asarray(samples.s)).all(axis=(1, 2))
    chosen = np.flatnonzero(keep)[:COMPARED]
    if len(chosen) < ENOUGH:
        return
    parts = [np.asarray(part.u)[chosen] for part in samples.parts]
    u = [distances(view) for part in parts for view in views(part)]
    if len(parts) > 1:
        u.append(distances(np.concatenate([next(views(part)) / part[0].size ** 0.5 for part in parts], axis=1)))
    s = [distances(view) for view in views(np.asarray(samples.s)[chosen])]
    score = max(relation(of_u, of_s) for of_u in u for of_s in s)
    if score < RELATED:
        message = (
            f"functions with similar inputs have outputs no more similar than shuffled ones ({score:.1f} standard "
            f"deviations over {len(chosen)} functions); check that row i of u belongs to row i of s"
        )
        yield Finding("warning", "unrelated", message)


def relation(u: Float[np.ndarray, "N N"], s: Float[np.ndarray, "N N"]) -> float:
    """The number of standard deviations by which Σᵢⱼ uᵢⱼ sᵢⱼ exceeds its mean over all N! orders of the rows of s.

    For symmetric matrices without diagonal whose entries sum to 0, that mean is 0, and with the sums of squares
    a₂ = Σᵢⱼ aᵢⱼ² and a₃ = Σᵢ (Σⱼ aᵢⱼ)² the variance over all orders is known (N. Mantel, Cancer Research 1967):

    2 u₂s₂/N₂ + 4 (u₃ − u₂)(s₃ − s₂)/N₃ + 4 (u₂ − 2u₃)(s₂ − 2s₃)/N₄,  Nᵢ = N(N − 1)…(N − i + 1).
    """
    N = len(u)
    u2, s2 = (float(np.sum(a**2)) for a in (u, s))
    u3, s3 = (float(np.sum(a.sum(axis=1) ** 2)) for a in (u, s))
    N2 = N * (N - 1)
    N3 = N2 * (N - 2)
    N4 = N3 * (N - 3)
    variance = 2 * u2 * s2 / N2 + 4 * (u3 - u2) * (s3 - s2) / N3 + 4 * (u2 - 2 * u3) * (s2 - 2 * s3) / N4
    # all distances are equal: no evidence against the pairs
    return float(np.sum(u * s) / np.sqrt(variance)) if variance > 0.0 else np.inf


def views(values: Float[np.ndarray, "N m d"]) -> Iterator[Float[np.ndarray, "N k"]]:
    """Functions represented by all their values, and by the mean and the standard deviation of each channel."""
    deviation = values.std(axis=(0, 1), dtype=np.float64)
    values = values / np.where(deviation == 0.0, 1.0, deviation)
    yield values.reshape(len(values), -1)
    yield np.concatenate([values.mean(axis=1), values.std(axis=1)], axis=1)


def distances(points: Float[np.ndarray, "N k"]) -> Float[np.ndarray, "N N"]:
    """Centered ranks of the distances between all points; ranks, so that a few distant points do not dominate."""
    points = points - points.mean(axis=0)
    gram = points @ points.T
    squares = np.diag(gram)[:, None] - 2.0 * gram + np.diag(gram)
    ranks = scipy.stats.rankdata(squares[np.triu_indices(len(points), 1)])  # all the same if no distance differs
    return scipy.spatial.distance.squareform(ranks - ranks.mean())
