"""Predictions at any number of queries, computed tile by tile: as data sets in memory, and as files of any size."""

from loca.prediction.files import check_suffix, read_columns, read_points, write_dataset
from loca.prediction.forecasts import forecast, forecast_to
from loca.prediction.predict import predict_dataset, predict_to
from loca.prediction.queries import QueryGrid, QueryPoints

__all__ = [
    "QueryGrid",
    "QueryPoints",
    "forecast",
    "forecast_to",
    "predict_dataset",
    "predict_to",
    "read_points",
    "write_dataset",
]
