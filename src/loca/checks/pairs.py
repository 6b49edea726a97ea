"""Checks of the pairs: repeated functions, leaks between parts, outputs that are inputs, pairs that do not belong."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from loca.checks.channels import rows
from loca.checks.finding import Finding
from loca.data import Samples, Shared
from loca.typing import Measurements

NEAR = 1e-3
"""Functions whose distance is this part of their size are one to any model, whose errors are ten times as large."""

COPY = 1e-5
"""What is left of s after the best a·u + b, if s is u in another unit: round-off of single precision and a margin of
one hundred. No law worth learning is that close to a line."""

SKETCH = 64
"""Random projections by which functions are compared: distances are kept to about 20 % (Johnson & Lindenstrauss)."""

RELATED = 3.0
"""Standard deviations by which alike inputs must have more alike outputs than in shuffled pairs. Shuffled data stays
below in 99 of 100 cases; 100 functions of any of the paper's experiments reach more than 10."""

COMPARED, ENOUGH = 300, 100
"""Functions whose mutual distances are computed, at most and at least: of fewer, weak relations cannot be told from
none."""


def input_rows(samples: Samples) -> Float[np.ndarray, "N m"]:
    """Everything that is known of each input function, as one row."""
    if isinstance(samples.u, Measurements):
        mask = np.asarray(samples.u.mask)[..., None]
        parts = [np.where(mask, np.asarray(samples.u.u), 0.0), np.where(mask, np.asarray(samples.u.x), 0.0)]
        return np.concatenate([part.reshape(len(samples), -1) for part in parts], axis=1)
    return np.asarray(samples.u).reshape(len(samples), -1)


def digests(values: Float[np.ndarray, "N m"]) -> list[bytes]:
    """A fingerprint of each row; equal numbers give equal ones."""
    # adding 0 turns −0 into 0
    return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in np.ascontiguousarray(values + 0.0)]


def check_repeated(samples: Samples, part: str) -> Iterator[Finding]:
    """The same input twice: wasted if the output is the same, contradictory if it is not."""
    first: dict[bytes, int] = {}
    of_output = digests(np.asarray(samples.s).reshape(len(samples), -1))
    own_queries = not isinstance(samples.y, Shared)  # then outputs differ because they are asked elsewhere
    same, other = np.zeros(len(samples), bool), np.zeros(len(samples), bool)
    u = input_rows(samples)
    finite = np.all(np.isfinite(u), axis=1)
    for i, digest in enumerate(digests(u)):
        j = first.setdefault(digest, i)
        if j != i and finite[i]:
            (same if own_queries or of_output[i] == of_output[j] else other)[i] = True
    if same.any():
        message = f"{rows(same)} of the {part} data repeat the input of an earlier one; they count twice"
        yield Finding("warning", "repeated", message)
    if other.any():
        message = (
            f"{rows(other)} of the {part} data repeat the input of an earlier one with another output: the inputs do "
            "not determine the outputs, or pairs are mixed up"
        )
        yield Finding("warning", "contradictory", message)


def check_shared(train: Samples, test: Samples) -> Iterator[Finding]:
    """Test functions that a model has seen in training, exactly or as good as exactly."""
    u_train, u_test = input_rows(train), input_rows(test)
    seen = set(digests(u_train))
    leaked = np.array([digest in seen for digest in digests(u_test)]) & np.isfinite(u_test).all(axis=1)
    if leaked.any():
        message = f"{rows(leaked)} of the test data are also in the training data; errors there say nothing"
        yield Finding("error", "leak", message)
    near = ~leaked & nearly_in(u_test, u_train)
    if near.any():
        message = f"{rows(near)} of the test data differ from a training function by less than {NEAR:.1%}"
        yield Finding("note", "near-leak", message)


def nearly_in(a: Float[np.ndarray, "N m"], b: Float[np.ndarray, "K m"]) -> np.ndarray:
    """Which rows of a lie near some row of b, relative to their own size about the mean of b."""
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


def check_copy(samples: Samples) -> Iterator[Finding]:
    """s = a·u + b at the same places: an output that is an input, maybe in another unit."""
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
                        f"output `{wanted.name}`{at} is input `{given.name}`, up to a factor and a constant, in every "
                        "function: it is given, not to be learned"
                    )
                    yield Finding(level, "copy", message)


def where_sensors_are(x: Float[np.ndarray, "m d_x"], y: Float[np.ndarray, "P d_y"]) -> Iterator[tuple]:
    """(leading coordinate, queries) wherever the queries are the sensors, in their order."""
    if x.shape == y.shape and np.array_equal(x, y):
        yield None, np.arange(len(y))
    if y.shape[1] == x.shape[1] + 1:
        for time in np.unique(y[:, 0]):
            here = np.flatnonzero(y[:, 0] == time)
            if np.array_equal(y[here, 1:], x):
                yield time, here


def is_line(u: Float[np.ndarray, "N m"], s: Float[np.ndarray, "N m"]) -> bool:
    """Whether one line goes through all (u, s)."""
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
    """Mantel's test: alike inputs have more alike outputs than chance gives them.

    The correlation of the distances between inputs with those between outputs, against the same for shuffled outputs.
    Functions are compared by all their values, and by their means and spreads alone, which tell more where
    the values are mostly detail; one relation is enough.
    """
    if isinstance(samples.u, Measurements) or not isinstance(samples.y, Shared):
        return
    keep = np.isfinite(input_rows(samples)).all(axis=1) & np.isfinite(np.asarray(samples.s)).all(axis=(1, 2))
    chosen = np.flatnonzero(keep)[:COMPARED]
    if len(chosen) < ENOUGH:
        return
    u, s = ([distances(view) for view in views(np.asarray(each)[chosen])] for each in (samples.u, samples.s))
    score = max(relation(of_u, of_s) for of_u in u for of_s in s)
    if score < RELATED:
        message = (
            f"functions with alike inputs have outputs no more alike than shuffled ones ({score:.1f} standard "
            f"deviations over {len(chosen)} functions): do u and s belong together, row by row?"
        )
        yield Finding("warning", "unrelated", message)


def relation(u: Float[np.ndarray, "N N"], s: Float[np.ndarray, "N N"]) -> float:
    """By how many standard deviations Σᵢⱼ uᵢⱼ sᵢⱼ exceeds its mean over all N! orders of the rows of s.

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
    # all distances equal: nothing can be said against the pairs
    return float(np.sum(u * s) / np.sqrt(variance)) if variance > 0.0 else np.inf


def views(values: Float[np.ndarray, "N m d"]) -> Iterator[Float[np.ndarray, "N k"]]:
    """Functions by all their values, and by the mean and the spread of each channel."""
    deviation = values.std(axis=(0, 1), dtype=np.float64)
    values = values / np.where(deviation == 0.0, 1.0, deviation)
    yield values.reshape(len(values), -1)
    yield np.concatenate([values.mean(axis=1), values.std(axis=1)], axis=1)


def distances(points: Float[np.ndarray, "N k"]) -> Float[np.ndarray, "N N"]:
    """Ranks of the distances between all points, about their mean: ranks, so that a few far ones do not dominate."""
    points = points - points.mean(axis=0)
    gram = points @ points.T
    squares = np.diag(gram)[:, None] - 2.0 * gram + np.diag(gram)
    above = np.triu_indices(len(points), 1)
    if not np.ptp(squares[above]) > 0.0:
        return np.zeros_like(squares)
    ranks = np.argsort(np.argsort(squares[above])).astype(np.float64)
    matrix = np.zeros_like(squares)
    matrix[above] = ranks - ranks.mean()
    return matrix + matrix.T
