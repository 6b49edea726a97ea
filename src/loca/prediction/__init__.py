"""Predictions that do not fit in memory: computed and written tile by tile, at any number of queries."""

from loca.prediction.grid import QueryGrid as QueryGrid
from loca.prediction.predict import predict_to as predict_to

__all__ = ["QueryGrid", "predict_to"]
