"""Predictions at any number of queries, computed tile by tile: as data sets in memory, and as files of any size."""

from loca.prediction.files import check_suffix as check_suffix
from loca.prediction.files import read_columns as read_columns
from loca.prediction.files import read_points as read_points
from loca.prediction.files import write_dataset as write_dataset
from loca.prediction.predict import predict_dataset as predict_dataset
from loca.prediction.predict import predict_to as predict_to
from loca.prediction.queries import QueryGrid as QueryGrid
from loca.prediction.queries import QueryPoints as QueryPoints
from loca.prediction.queries import coordinates_of as coordinates_of

__all__ = [
    "QueryGrid",
    "QueryPoints",
    "predict_dataset",
    "predict_to",
    "read_points",
    "write_dataset",
]
