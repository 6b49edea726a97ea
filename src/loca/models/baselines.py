"""Linear baselines, fitted in closed form: what every trained model has to beat."""

import itertools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from loca.data import Indexed, Interpolation, Normalization, Queries, Samples, Shared, TransformNames, nearest
from loca.models.operator import FieldOperator
from loca.models.signature import Signature
from loca.parameters import Fixed
from loca.typing import Input, Measurements, MultiInput, values_of
from loca.workers import one_thread


class Regression(FieldOperator, Fixed):
    """s(yⱼ) = s̄(yⱼ) + Σ_c B_c(yⱼ) ⟨e_c, u⟩: ridge regression on the principal components of u, at each location alone.

    Each location is fitted to the functions that are labeled there. Without components the prediction is the mean
    field. A query gets the prediction at the nearest location.
    """

    normalization: Normalization
    components: Float[Array, "D k"]
    responses: Float[Array, "K M d_s"]
    y: Float[Array, "M d_y"]

    @classmethod
    def fit(
        cls, data: Samples, components: int = 40, strength: float = 1e-3, transforms: TransformNames = None
    ) -> "Regression":
        """Fit by least squares with an L2 penalty.

        **Arguments:**

        - `data`: functions with shared sensors, each labeled at all or some of a common set of locations.
        - `components`: k, the number of principal components of the inputs; 0 for the mean field.
        - `strength`: of the penalty, in units of the variance of the first component over all functions.
        - `transforms`: of variables, by name, or "auto"; see `loca.data.TransformNames`.
        """
        return cls.fits(data, [components], [strength], transforms)[0]

    @classmethod
    def fits(
        cls,
        data: Samples,
        components: Sequence[int],
        strengths: Sequence[float],
        transforms: TransformNames = None,
    ) -> list["Regression"]:
        """`fit` for every number of components with every strength, in the time of a few fits.

        **Arguments:**

        - `data`, `transforms`: as for `fit`.
        - `components`, `strengths`: the numbers of components and the strengths; the strength changes first.
        """
        normalization = Normalization.fit(data, transforms)
        if any(isinstance(part.u, Measurements) for part in data.parts):
            raise ValueError("regression needs the same sensors for every function; interpolate to common ones first")
        inputs = values_of(normalization.standardize_input(data.u))
        flat = np.concatenate([np.asarray(values, np.float64).reshape(len(data), -1) for values in inputs], axis=1)
        e = np.linalg.svd(flat, full_matrices=False)[2][: max(components)].T
        z = np.concatenate([np.ones((len(data), 1)), flat @ e], axis=1)
        s, labeled = tabulated(data.y, np.asarray(normalization.at(data.y).standardize(data.s), np.float64))
        choices = list(itertools.product((min(k, e.shape[1]) for k in components), strengths))
        responses = [np.zeros((k + 1, *s.shape[1:])) for k, _ in choices]
        with one_thread():
            every = np.arange(labeled.shape[1]), np.arange(len(labeled))
            alone = ((np.array([place]), np.flatnonzero(column)) for place, column in enumerate(labeled.T))
            # locations that are labeled in the same functions share their normal equations
            for places, rows in [every] if labeled.all() else alone:
                normal = z[rows].T @ z[rows]
                right = np.tensordot(z[rows], s[np.ix_(rows, places)], axes=(0, 0))
                for response, (k, strength) in zip(responses, choices, strict=True):
                    penalty = np.full(k + 1, strength * np.sum(z[:, 1:2] ** 2))
                    penalty[0] = 1e-9  # the mean is not shrunk; a location without labels has mean 0
                    matrix = normal[: k + 1, : k + 1] + np.diag(penalty)
                    found = np.linalg.solve(matrix, right[: k + 1].reshape(k + 1, -1))
                    response[:, places] = found.reshape(k + 1, len(places), -1)
        parts = [(jnp.asarray(e[:, : len(s) - 1], jnp.float32), jnp.asarray(s, jnp.float32)) for s in responses]
        return [cls(normalization, *part, data.y.points, signature=Signature.of(data)) for part in parts]

    def encode(self, u: Input) -> Float[Array, " K"]:
        values = values_of(self.normalization.standardize_input(u))
        flat = jnp.concatenate([each.ravel() for each in values])
        return jnp.concatenate([jnp.ones(1), flat @ self.components])

    def fields(self, codes: Float[Array, "N K"]) -> Float[Array, "N M d_s"]:
        return jnp.tensordot(codes, self.responses, axes=1)

    def interpolation(self, y: Float[Array, "P d_y"]) -> Interpolation:
        return nearest(y, self.y)


class Proportional(FieldOperator, Fixed):
    """s(y) = c ⊙ u(y): the input at the nearest sensor times one factor per channel."""

    normalization: Normalization
    factors: Float[Array, " d"]
    x: Float[Array, "m d_x"]

    @classmethod
    def fit(cls, data: Samples) -> "Proportional":
        """Fit by least squares over all labels; inputs and outputs must have the same channels."""
        x, u, d_u, d_s = data.x, data.u, data.input_size, data.output_size
        if isinstance(u, Measurements | MultiInput) or x is None or isinstance(x, tuple) or d_u != d_s:
            raise ValueError(
                f"s = c·u needs one field on shared sensors, and as many input as output channels; got {d_u} inputs "
                f"and {d_s} outputs{'' if x is not None else ', and no sensor locations `x`'}"
            )
        identity = Normalization.identity(d_u, d_s)
        u = cls(identity, jnp.ones(d_u), x).respond(u, data.y)
        factors = jnp.sum(u * data.s, axis=(0, 1)) / jnp.sum(u * u, axis=(0, 1))
        return cls(identity, factors, x, signature=Signature.of(data))

    def encode(self, u: Input) -> Float[Array, "m d"]:
        assert not isinstance(u, Measurements | MultiInput)
        return u * self.factors

    def fields(self, codes: Float[Array, "N m d"]) -> Float[Array, "N m d"]:
        return codes

    def interpolation(self, y: Float[Array, "P d_y"]) -> Interpolation:
        return nearest(y, self.x)


def tabulated(
    queries: Queries, s: Float[np.ndarray, "N P d_s"]
) -> tuple[Float[np.ndarray, "N M d_s"], Bool[np.ndarray, "N M"]]:
    """Labels in a table of all locations, zero where there is none, and a mask of those that exist."""
    match queries:
        case Shared():
            return s, np.ones(s.shape[:2], bool)
        case Indexed(y, index):
            rows = np.arange(len(s))[:, None]
            table, labeled = np.zeros((len(s), len(y), s.shape[2])), np.zeros((len(s), len(y)), bool)
            table[rows, np.asarray(index)], labeled[rows, np.asarray(index)] = s, True
            return table, labeled
    raise ValueError("every function has its own query locations; regression needs common ones: interpolate first")
