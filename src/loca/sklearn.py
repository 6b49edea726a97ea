"""An estimator for scikit-learn, which makes operators usable in pipelines, cross-validation and parameter searches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.data import Samples, Shared
from loca.domains import Box, Domain
from loca.models import FNO, LOCA, DeepONet, Operator, Predictor, Regression
from loca.training import History, default_optimizer, fit

try:
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "loca.sklearn needs scikit-learn; install it with `pip install loca-jax[sklearn]`"
    ) from missing

__all__ = ["OperatorRegressor"]

MODELS = {"loca": LOCA.create, "deeponet": DeepONet.create, "fno": FNO.create, "ridge": Regression.fit}
"""What makes each kind of model from data."""

BLOCK = 64
"""Number of functions that are predicted at once. Fewer are padded, so that a prediction does not depend on them."""


class OperatorRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Regression from functions to functions with the interface of scikit-learn.

    A row of `X` has the values of an input function at its sensors, a row of `y` those of an output function at P fixed
    locations. The fitted operator also predicts at other locations: `predict(X, at=points)`.

    After `fit`, `operator_` is the trained operator for everything else in this package, `locations_` are the locations
    of the outputs, and `history_` is the history of the training, or None if there was none.

    **Arguments:**

    - `model`: "loca", "deeponet", "fno" or "ridge", a linear regression in closed form.
    - `locations`: where the outputs are, shape (P, d_y) or (P,); by default even steps from 0 to 1.
    - `sensors`: where the inputs are, shape (m, d_x) or (m,); unknown by default. An FNO needs them on a grid, and LOCA
      uses a scattering transform if they form one.
    - `domain`: Y, see `loca.domains`; by default the smallest box that contains the locations.
    - `input_channels`, `output_channels`: number of values at each sensor and at each location. Channels vary fastest:
      a row of `X` is (u₁(x₁), u₂(x₁), u₁(x₂), …).
    - `sizes`: options of the model by name, such as `{"num_features": 50}` for `LOCA.create`, or
      `{"components": 40, "strength": 1e-3}` for `Regression.fit`.
    - `steps`, `batch_size`, `rate`: of the training: number of steps, functions per step at most, and highest learning
      rate. "ridge" needs none of them.
    - `seed`: of initial weights and batches. The same seed gives the same model.
    """

    operator_: Operator
    history_: History | None
    locations_: Float[np.ndarray, "P d_y"]
    is_single_: bool
    n_features_in_: int

    def __init__(
        self,
        model: str = "loca",
        *,
        locations: Any = None,
        sensors: Any = None,
        domain: Domain | None = None,
        input_channels: int = 1,
        output_channels: int = 1,
        sizes: dict[str, Any] | None = None,
        steps: int = 2000,
        batch_size: int = 100,
        rate: float = 4e-3,
        seed: int = 0,
    ):
        self.model = model
        self.locations = locations
        self.sensors = sensors
        self.domain = domain
        self.input_channels = input_channels
        self.output_channels = output_channels
        self.sizes = sizes
        self.steps = steps
        self.batch_size = batch_size
        self.rate = rate
        self.seed = seed

    def fit(self, X: Any, y: Any) -> OperatorRegressor:
        """Train the model.

        **Arguments:**

        - `X`: input functions, shape (N, m·channels); further axes, such as those of images, are flattened.
        - `y`: output functions, shape (N, P·channels), or (N,) for one number each.
        """
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, allow_nd=True, dtype=np.float32)
        if self.model not in MODELS:
            raise ValueError(f"expected model to be one of {', '.join(map(repr, MODELS))}, got {self.model!r}")
        s = channels_last(np.asarray(y, np.float32), self.output_channels, "y", "output_channels")
        self.is_single_ = y.ndim == 1
        self.locations_ = self._output_locations(s.shape[1])
        data = Samples(
            jnp.asarray(channels_last(X, self.input_channels, "X", "input_channels")),
            jnp.asarray(self.locations_),
            jnp.asarray(s),
            x=None if self.sensors is None else jnp.asarray(as_points(self.sensors)),
            domain=self._output_domain(),
        )
        sizes = self.sizes or {}
        self.history_ = None
        if self.model == "ridge":
            self.operator_ = MODELS["ridge"](data, **sizes)
            return self
        start = MODELS[self.model](data, key=jax.random.key(self.seed), **sizes)
        self.operator_, self.history_ = fit(
            start,
            data,
            steps=self.steps,
            optimizer=default_optimizer(self.steps, self.rate),
            batch_size=min(self.batch_size, len(data)),
            seed=self.seed,
        )
        return self

    def predict(self, X: Any, at: Any = None) -> Float[np.ndarray, "N values"] | Float[np.ndarray, " N"]:
        """Predict output functions.

        The result has the shape that `y` had in `fit`, or (N, P·channels) for P other locations.

        **Arguments:**

        - `X`: input functions, as for `fit`.
        - `at`: locations, shape (P, d_y) or (P,); by default those of the training data.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, allow_nd=True, dtype=np.float32)
        u = channels_last(X, self.input_channels, "X", "input_channels")
        queries = Shared(jnp.asarray(self.locations_ if at is None else as_points(at)))
        block = Predictor(self.operator_, queries, BLOCK)
        s = np.concatenate([block(jnp.asarray(u[i : i + BLOCK]), queries) for i in range(0, len(u), BLOCK)])
        s = s.astype(np.float64)  # as other estimators return
        return s.ravel() if self.is_single_ and at is None else s.reshape(len(s), -1)

    def _output_locations(self, count: int) -> Float[np.ndarray, "P d_y"]:
        if self.locations is None:
            return as_points([0.5] if count == 1 else np.linspace(0.0, 1.0, count))
        points = as_points(self.locations)
        if len(points) != count:
            raise ValueError(
                f"y has {count} values of {self.output_channels} channels per function but there are {len(points)} "
                "locations; pass `locations` with one row per value, and `output_channels` if there are several"
            )
        return points

    def _output_domain(self) -> Domain | None:
        if self.domain is not None or len(self.locations_) > 1:
            return self.domain
        return Box((self.locations_[0] - 0.5).tolist(), (self.locations_[0] + 0.5).tolist())  # one location has no box


def as_points(locations: Any) -> Float[np.ndarray, "P d"]:
    """Locations in single precision, with a column for each coordinate."""
    points = np.asarray(locations, np.float32)
    return points[:, None] if points.ndim == 1 else points


def channels_last(
    rows: Float[Array | np.ndarray, "N ..."], channels: int, name: str, option: str
) -> Float[np.ndarray, "N places channels"]:
    """Functions from flat rows, in which channels vary fastest."""
    values = np.asarray(rows).reshape(len(rows), -1)
    if channels < 1 or values.shape[1] % channels:
        raise ValueError(
            f"{name} has {values.shape[1]} values per function, which is no multiple of {option}={channels}; pass as "
            "many values for every channel"
        )
    return values.reshape(len(rows), -1, channels)
