"""Operators: LOCA, DeepONet, FNO, linear baselines, their common interface, and compiled predictions."""

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from loca.models.align import Adaptation, adapt, canonical_name, is_numbered, matching_order
from loca.models.baselines import Proportional, Regression, tabulated
from loca.models.combination import Combination, Combined, Sum, around, combine
from loca.models.deeponet import DeepONet
from loca.models.default_encoders import projection
from loca.models.fno import FNO
from loca.models.grid import Grid, interpolation_between
from loca.models.loca import LOCA
from loca.models.operator import (
    FieldOperator,
    Halves,
    Loss,
    Operator,
    Recipe,
    SeparableOperator,
    Wrapper,
    count_sensors,
    interpolate,
    widened,
)
from loca.models.predictor import (
    Predictor,
    TilePredictor,
    at_queries,
    blocks,
    encode_functions,
    mean_error,
    predict,
    predict_encoded,
    shard,
)
from loca.models.signature import FIELD_ARRAYS, Signature, example_of, knows_sensors, named_arrays
from loca.models.stepper import (
    DivergedWarning,
    Noise,
    Start,
    Stepper,
    TimeSignature,
    Unrolled,
    combine_steppers,
    rollout_error,
)
from loca.models.uncertain import (
    LEVEL,
    Bands,
    ErrorBars,
    Uncertain,
    check_level,
    predict_error_bars,
    standardized_errors,
)

__all__ = [
    "FNO",
    "LOCA",
    "MODELS",
    "Bands",
    "Combination",
    "Combined",
    "DeepONet",
    "DivergedWarning",
    "ErrorBars",
    "Grid",
    "Operator",
    "Proportional",
    "Regression",
    "SeparableOperator",
    "Stepper",
    "Uncertain",
    "Unrolled",
    "adapt",
    "combine",
    "combine_steppers",
    "predict",
    "rollout_error",
    "shard",
]


class Model(NamedTuple):
    """One row of `MODELS`."""

    title: str  # the name in tables and figures
    description: str  # what it is, in a sentence
    fitting: Literal["trained", "closed form", "solved"]  # by `loca.fit`, by `create`, or by `loca.solve`
    create: Callable[..., Operator] | None  # from samples and options, with `key` if it is trained; None if solved


mean_field = partial(Regression.fit, components=0)

MODELS: dict[str, Model] = {
    "mean-field": Model("mean field", "the mean of the outputs, whatever the input", "closed form", mean_field),
    "proportional": Model("s = c·u", "the input at the nearest sensor times a factor", "closed form", Proportional.fit),
    "ridge": Model("ridge", "ridge regression on principal components of inputs", "closed form", Regression.fit),
    "gaussian": Model("Gaussian", "a Gaussian process over pairs of inputs and locations", "solved", None),
    "fno": Model("FNO", "a Fourier neural operator, for inputs on a grid", "trained", FNO.create),
    "loca": Model("LOCA", "learning operators with coupled attention", "trained", LOCA.create),
    "deeponet": Model("DeepONet", "a deep operator network", "trained", DeepONet.create),
}
"""All models by the names that configurations and commands use, cheap ones first."""


def trained_models() -> dict[str, Callable[..., Operator]]:
    """The function that creates each model that is trained, by its name in tables."""
    return {m.title: m.create for m in MODELS.values() if m.fitting == "trained" and m.create is not None}
