"""Operators: LOCA, DeepONet, FNO, linear baselines, their common interface, and compiled predictions."""

from loca.models.align import Adaptation, adapt, canonical_name, is_numbered, matching_order
from loca.models.baselines import Proportional, Regression, tabulated
from loca.models.combination import Combination, Combined, combine
from loca.models.deeponet import DeepONet
from loca.models.default_encoders import projection
from loca.models.fno import FNO
from loca.models.grid import Grid, interpolation_between
from loca.models.loca import LOCA
from loca.models.operator import Halves, Operator, SeparableOperator, Wrapper, count_sensors, widened
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
from loca.models.table import MODELS, Model, trained_models
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
    "ErrorBars",
    "Grid",
    "Operator",
    "Proportional",
    "Regression",
    "SeparableOperator",
    "Uncertain",
    "adapt",
    "combine",
    "predict",
    "shard",
]
