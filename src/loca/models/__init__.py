"""Operators: LOCA, DeepONet, FNO, linear baselines, their common interface, and compiled predictions."""

from loca.models.align import Adaptation as Adaptation
from loca.models.align import adapt as adapt
from loca.models.align import canonical_name as canonical_name
from loca.models.align import is_numbered as is_numbered
from loca.models.align import matching_order as matching_order
from loca.models.baselines import Proportional as Proportional
from loca.models.baselines import Regression as Regression
from loca.models.combination import Combination as Combination
from loca.models.combination import Combined as Combined
from loca.models.combination import combine as combine
from loca.models.deeponet import DeepONet as DeepONet
from loca.models.default_encoders import projection as projection
from loca.models.fno import FNO as FNO
from loca.models.grid import Grid as Grid
from loca.models.grid import interpolation_between as interpolation_between
from loca.models.loca import LOCA as LOCA
from loca.models.operator import AtQueries as AtQueries
from loca.models.operator import Halves as Halves
from loca.models.operator import Operator as Operator
from loca.models.operator import SeparableOperator as SeparableOperator
from loca.models.operator import Wrapper as Wrapper
from loca.models.operator import count_sensors as count_sensors
from loca.models.operator import widened as widened
from loca.models.predictor import Predictor as Predictor
from loca.models.predictor import TilePredictor as TilePredictor
from loca.models.predictor import at_queries as at_queries
from loca.models.predictor import blocks as blocks
from loca.models.predictor import encode_functions as encode_functions
from loca.models.predictor import mean_error as mean_error
from loca.models.predictor import predict as predict
from loca.models.predictor import predict_encoded as predict_encoded
from loca.models.predictor import shard as shard
from loca.models.signature import FIELD_ARRAYS as FIELD_ARRAYS
from loca.models.signature import Signature as Signature
from loca.models.signature import example_of as example_of
from loca.models.signature import knows_sensors as knows_sensors
from loca.models.signature import named_arrays as named_arrays
from loca.models.table import MODELS as MODELS
from loca.models.table import Model as Model
from loca.models.table import trained_models as trained_models
from loca.models.uncertain import LEVEL as LEVEL
from loca.models.uncertain import Bands as Bands
from loca.models.uncertain import ErrorBars as ErrorBars
from loca.models.uncertain import Uncertain as Uncertain
from loca.models.uncertain import predict_error_bars as predict_error_bars
from loca.models.uncertain import standardized_errors as standardized_errors

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
