"""What a trial of the search computes: solve for some functions, and compare predictions for others."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Free, Indexed, OutputNormalization, Queries, Samples, Shared
from loca.encoders import Encoder
from loca.gaussian.equation import RECENT, Accuracy, PreparedData, Ranks, precision, take
from loca.gaussian.hyperparameters import Hyperparameters
from loca.gaussian.operator import GaussianOperator
from loca.metrics import relative_l2
from loca.models import Operator, standardized_errors
from loca.symmetries import Symmetries
from loca.typing import Input

ACCURACY = Accuracy(tolerance=3e-4, limit=100)
"""Of the solve in a trial: hyperparameters that need more iterations are not worth them."""

NEIGHBOR = Accuracy(tolerance=1e-4, limit=100)
"""The same for an iteration that starts from the solution for other hyperparameters, and is that close early."""

WEAK = 1e-2
"""Features are left out of trials if labels determine less than this fraction of each of their coefficients."""

HELD, HELD_LABELS = 100, 256
"""Held-out functions and labels of each that determine the size of error bars, at most."""

NORMAL_QUANTILE = 1.6449
"""Of the absolute value of a standard normal variable: 90 % are below."""

Path = tuple[Hyperparameters, ...]
"""The best hyperparameters of a search so far, one after the other."""


class Fold:
    """Functions to solve with, and others to compare predictions with; prepared once for each choice of codes.

    With symmetries, trials solve for all images of the first functions: as many as `functions` says.
    """

    def __init__(self, train: Samples, held: Samples, own: Symmetries | None = None, functions: int | None = None):
        self.train, self.held, self.own = train, held, own or Symmetries()
        images = self.own.augment(train if functions is None else take(train, slice(functions)))
        self._standardized = self.own.standardize(held)
        self._whole = functools.cache(functools.partial(PreparedData.fit, images))
        self._fitted = OrderedDict[Any, np.ndarray]()
        self.comparison = functools.cache(self._comparison)

    def _comparison(self, of_codes: tuple[Any, ...], encoder: Encoder | None, count: int) -> Comparison:
        """A comparison with the first of the training functions, or of their images."""
        transforms, structure, is_grouped = of_codes
        whole = self._whole(transforms, float(structure > 0.0), is_grouped, encoder)
        if structure and encoder is None:  # its components do not depend on their weight
            whole = whole.reweighted(structure)
        return Comparison(
            whole.first(count), self._standardized, lambda codes: self.comparison(codes, encoder, count), self._fitted
        )


class Values(NamedTuple):
    """Features of training functions or labeled locations, and of those that are held out, in double precision."""

    train: Float[np.ndarray, "_ r"]
    held: Float[np.ndarray, "_ r"]


class Comparison:
    """Solve for the training functions, and compare predictions for held-out functions.

    `other` is the comparison with other codes of the same functions, and `fitted` are values that they share.
    """

    def __init__(
        self, train: PreparedData, held: Samples, other: Callable[[tuple[Any, ...]], Comparison],
        fitted: OrderedDict[Any, np.ndarray],
    ):  # fmt: skip
        self.train, self.held, self._other, self._fitted = train, held, other, fitted
        self._of_inputs = functools.lru_cache(RECENT)(self._new_of_inputs)
        self._of_locations = functools.lru_cache(RECENT)(self._new_of_locations)

    @np.errstate(all="ignore")  # what is not finite counts as an infinite error
    def error(self, hyper: Hyperparameters, ranks: Ranks, path: Path = ()) -> tuple[float, int]:
        """The mean relative L2 error of held-out functions, and the number of iterations.

        The solution for the last hyperparameters of a path, which is that from the one before and so on, is where the
        iteration starts. It is computed again if need be, so the error depends on nothing else.
        """
        if not self.is_dense(ranks):
            operator, found = self.train.solve(hyper, ranks, ACCURACY)
            return float(mean_error(operator, self.held.u, self.held.y, self.held.s)), found.iterations
        (f, new_f), (h, new_h) = self._features(hyper, ranks)
        of_f, of_h, share = np.sum(f**2, axis=0), np.sum(h**2, axis=0), self.train.data.y.count / len(h)
        strong, used = (each * other.max() * share > WEAK * hyper.noise for each, other in ((of_f, of_h), (of_h, of_f)))
        path = tuple(each for each in path if each.transforms == hyper.transforms)
        start = self._start(path, ranks)
        found = self.train.solve_densely(f[:, strong], h, hyper, ranks, NEIGHBOR, used=used, start=start)
        self._fitted[(*path, hyper), len(f), ranks] = found.fitted
        while len(self._fitted) > RECENT:
            self._fitted.popitem(last=False)
        values = self._at_queries(new_f[:, strong] @ found.x @ new_h[:, used].T)
        s = np.asarray(self.held.s)
        predictions = self._outputs.restore(np.moveaxis(values, 0, 2).astype(s.dtype))
        return float(np.mean(relative_l2(predictions, s), where=np.any(s != 0.0, axis=1))), found.iterations

    @np.errstate(all="ignore")
    def amplitudes(self, hyper: Hyperparameters, ranks: Ranks) -> tuple[float, ...]:
        """As the function for an operator, which takes longer to compile."""
        (f, new_f), (h, new_h) = self._features(hyper, ranks)
        z, new_f = self._encoded[0][:HELD], new_f[:HELD]
        found = self.train.solve_densely(f, h, hyper, ranks, NEIGHBOR)
        kernel = self.train.features(hyper, ranks).f.kernel
        inside = new_f**2 @ (hyper.noise / (found.power + hyper.noise)) @ (new_h**2).T
        outside = kernel.diagonal(z)[:, None] - np.multiply.outer(np.sum(new_f**2, axis=1), np.sum(new_h**2, axis=1))
        spread = np.sqrt(inside + np.maximum(outside, 0.0) + hyper.nugget)[None]
        left = self._at_queries(new_f @ found.x @ new_h.T) - self._encoded[1][:, :HELD]
        scores = np.quantile(np.abs(left) / self._at_queries(spread), 0.9, axis=(1, 2)) / NORMAL_QUANTILE
        return tuple((scores**2 / found.variance(hyper.noise)).tolist())

    def completed(self, ranks: Ranks, path: Path) -> Float[np.ndarray, "S N M"] | None:
        """The labels at all locations, with predictions where there are none; None if functions share no locations."""
        if isinstance(self.train.data.y, Shared):
            return self.train.dense.values
        fitted = self._start(path, ranks) if self.is_dense(ranks) else None
        return None if fitted is None else self.train.dense.completed(fitted)

    def is_dense(self, ranks: Ranks) -> bool:
        """Whether trials compile nothing."""
        return not isinstance(self.held.y, Free) and self.train.is_dense(ranks.locations)

    def _start(self, path: Path, ranks: Ranks) -> np.ndarray | None:
        """The values of the training functions with the last hyperparameters of a path."""
        if not path or isinstance(self.train.data.y, Shared):
            return None
        key = path, len(self.train.data), ranks
        if key not in self._fitted:
            self._other(path[-1].of_codes).error(path[-1], ranks, path[:-1])
        self._fitted.move_to_end(key)
        return self._fitted[key]

    def _features(self, hyper: Hyperparameters, ranks: Ranks) -> tuple[Values, Values]:
        return self._of_inputs(hyper.of_inputs, ranks.inputs), self._of_locations(
            hyper.location_lengths, ranks.locations
        )

    def _new_of_inputs(self, key: tuple[Any, ...], rank: int) -> Values:
        f, values = self.train.input_features(*key, rank, precision())
        return Values(values, f(self._encoded[0]))

    def _new_of_locations(self, lengths: tuple[float, ...], rank: int) -> Values:
        h, points = self.train.label_features(lengths, rank), np.asarray(self.held.y.points, np.float64)
        values = h(self.train.points)
        return Values(values, values if np.array_equal(points, self.train.points) else h(points))

    def _at_queries(self, values: Float[np.ndarray, "S N M"]) -> Float[np.ndarray, "S N P"]:
        y = self.held.y
        if not isinstance(y, Indexed):
            return values
        return np.take_along_axis(values, np.asarray(y.index)[None, : values.shape[1]], axis=2)

    @functools.cached_property
    def _outputs(self) -> OutputNormalization:
        """The normalization at the queries of the held-out functions, for arrays of NumPy."""
        return jax.tree.map(np.asarray, self.train.normalization.at(self.held.y))

    @functools.cached_property
    def _encoded(self) -> tuple[Float[np.ndarray, "N d"], Float[np.ndarray, "S N P"]]:
        """Codes and standardized labels of the held-out functions."""
        return self.train.encoded(self.held)


@eqx.filter_jit
def mean_error(operator: GaussianOperator, u: Input, queries: Queries, s: Float[Array, "N P d_s"]) -> Float[Array, ""]:
    """The mean relative L2 error over functions and channels, except those that are zero everywhere."""
    return jnp.mean(relative_l2(operator.predict(u, queries), s), where=jnp.any(s != 0.0, axis=1))


def amplitudes(operator: Operator, held: Samples) -> tuple[float, ...]:
    """Factors of σ² with which 90 % of the labels of held-out functions are within the interval for 90 %."""
    held = take(held, slice(HELD))
    if held.y.count > HELD_LABELS:
        held = held.observe(jax.random.key(0), HELD_LABELS)
    scores = standardized_errors(operator, held.u, held.y, held.s)
    return tuple(((jnp.quantile(scores, 0.9, axis=(0, 1)) / NORMAL_QUANTILE) ** 2).tolist())
