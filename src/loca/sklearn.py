"""An estimator for scikit-learn, which makes operators usable in pipelines, cross-validation and parameter searches."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.choosing import ChoiceReport, choose
from loca.data import Samples, Shared
from loca.domains import Box, Domain
from loca.gaussian import SolveReport, solve
from loca.models import MODELS, Operator, Predictor, Uncertain, predict_error_bars
from loca.training import History, default_optimizer, fit

try:
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "loca.sklearn needs scikit-learn; install it with `pip install loca-jax[sklearn]`"
    ) from missing

__all__ = ["OperatorRegressor"]

BEST = "best"  # the name of the model that `loca.choose` chooses

Predicted = Float[np.ndarray, "N values"] | Float[np.ndarray, " N"]
"""Rows of output values."""

BLOCK = 64
"""Number of functions that are predicted at once. Fewer are padded, so that a prediction does not depend on them."""


class OperatorRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Regression from functions to functions with the interface of scikit-learn.

    A row of `X` has the values of an input function at its sensors, a row of `y` those of an output function at P fixed
    locations. The fitted operator also predicts at other locations: `predict(X, at=points)`.

    After `fit`, `operator_` is the operator for everything else in this package, and `locations_` are the locations of
    the outputs. `history_` is the history of the training and `report_` that of `loca.solve` or `loca.choose`; both are
    None for models without one.

    **Arguments:**

    - `model`: a name of `loca.models.MODELS`, such as "loca", "ridge" or "gaussian", which is solved for by
      `loca.solve` and knows its error; or "best", the one that `loca.choose` chooses.
    - `locations`: where the outputs are, shape (P, d_y) or (P,); by default even steps from 0 to 1.
    - `sensors`: where the inputs are, shape (m, d_x) or (m,); unknown by default. An FNO needs them on a grid, and LOCA
      uses a scattering transform if they form one.
    - `domain`: Y, see `loca.domains`; by default the smallest box that contains the locations.
    - `input_channels`, `output_channels`: number of values at each sensor and at each location. Channels vary fastest:
      a row of `X` is (u₁(x₁), u₂(x₁), u₁(x₂), …).
    - `options`: of the model by name, such as `{"num_features": 50}` for `LOCA.create`, `{"components": 40}` for
      `Regression.fit`, `{"ranks": (500, 100)}` for `loca.solve`, or `{"minutes": 1.0}` for `loca.choose`.
    - `steps`, `batch_size`, `rate`: of models that are trained: number of steps, functions per step at most, by default
      as in `loca.fit`, and highest learning rate.
    - `seed`: of initial weights and batches. The same seed gives the same model.
    """

    operator_: Operator
    history_: History | None
    report_: SolveReport | ChoiceReport | None
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
        options: dict[str, Any] | None = None,
        steps: int = 2000,
        batch_size: int | None = None,
        rate: float = 4e-3,
        seed: int = 0,
    ):
        self.model = model
        self.locations = locations
        self.sensors = sensors
        self.domain = domain
        self.input_channels = input_channels
        self.output_channels = output_channels
        self.options = options
        self.steps = steps
        self.batch_size = batch_size
        self.rate = rate
        self.seed = seed

    def fit(self, X: Any, y: Any) -> "OperatorRegressor":
        """Train the model.

        **Arguments:**

        - `X`: input functions, shape (N, m·channels); further axes, such as those of images, are flattened.
        - `y`: output functions, shape (N, P·channels), or (N,) for one number each.
        """
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, allow_nd=True, dtype=np.float32)
        if self.model not in (*MODELS, BEST):
            raise ValueError(f"expected model to be one of {', '.join(map(repr, (*MODELS, BEST)))}, got {self.model!r}")
        s = channels_last(np.asarray(y, np.float32), self.output_channels, "y", "output_channels")
        self.is_single_ = y.ndim == 1
        steps = [0.5] if s.shape[1] == 1 else np.linspace(0.0, 1.0, s.shape[1])
        self.locations_ = as_points(steps if self.locations is None else self.locations)
        if len(self.locations_) != s.shape[1]:
            raise ValueError(
                f"y has {s.shape[1]} values of {self.output_channels} channels per function but there are "
                f"{len(self.locations_)} locations; pass `locations` with one row per value, and `output_channels` if "
                "there are several"
            )
        domain = self.domain
        if domain is None and len(self.locations_) == 1:  # one location has no box
            domain = Box((self.locations_[0] - 0.5).tolist(), (self.locations_[0] + 0.5).tolist())
        data = Samples(
            jnp.asarray(channels_last(X, self.input_channels, "X", "input_channels")),
            jnp.asarray(self.locations_),
            jnp.asarray(s),
            x=None if self.sensors is None else jnp.asarray(as_points(self.sensors)),
            domain=domain,
        )
        self.history_ = self.report_ = None
        options = self.options or {}
        if self.model == BEST:
            self.operator_, self.report_ = choose(data, seed=self.seed, progress=False, **options)
            return self
        create, fitting = MODELS[self.model].create, MODELS[self.model].fitting
        if create is None:
            self.operator_, self.report_ = solve(data, seed=self.seed, progress=False, **options)
        elif fitting == "trained":
            self.operator_, self.history_ = fit(
                create(data, key=jax.random.key(self.seed), **options),
                data,
                steps=self.steps,
                optimizer=default_optimizer(self.steps, self.rate),
                batch_size=None if self.batch_size is None else min(self.batch_size, len(data)),
                seed=self.seed,
            )
        else:
            self.operator_ = create(data, **options)
        return self

    def predict(self, X: Any, at: Any = None, return_std: bool = False) -> Predicted | tuple[Predicted, Predicted]:
        """Predict output functions.

        The result has the shape that `y` had in `fit`, or (N, P·channels) for P other locations.

        **Arguments:**

        - `X`: input functions, as for `fit`.
        - `at`: locations, shape (P, d_y) or (P,); by default those of the training data.
        - `return_std`: also return the standard deviation of the error, of models that know it, such as "gaussian".
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, allow_nd=True, dtype=np.float32)
        u = channels_last(X, self.input_channels, "X", "input_channels")
        queries = Shared(jnp.asarray(self.locations_ if at is None else as_points(at)))

        def as_rows(s: Float[np.ndarray, "N P d_s"]) -> Predicted:
            s = s.astype(np.float64)  # as other estimators return
            return s.ravel() if self.is_single_ and at is None else s.reshape(len(s), -1)

        blocks = [u[i : i + BLOCK] for i in range(0, len(u), BLOCK)]
        if not return_std:
            predict = Predictor(self.operator_, queries, BLOCK)
            return as_rows(np.concatenate([predict(jnp.asarray(block), queries) for block in blocks]))
        if not isinstance(self.operator_, Uncertain):
            raise ValueError(
                f"{type(self.operator_).__name__} does not know its error; use model='gaussian', or calibrate the "
                "operator on held-out functions: loca.calibrate(regressor.operator_, held)"
            )
        found = []
        for block in blocks:
            full = jnp.asarray(block[np.arange(BLOCK) % len(block)])
            bars = predict_error_bars(self.operator_, full, queries, jnp.zeros(self.output_channels))
            found.append(np.stack([bars.mean, bars.std])[:, : len(block)])
        mean, std = np.concatenate(found, axis=1)
        return as_rows(mean), as_rows(std)


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
