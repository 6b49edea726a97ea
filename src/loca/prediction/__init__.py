"""Predictions that never are in memory as a whole: computed and written piece by piece, at any number of queries."""

from loca.prediction.grid import QueryGrid as QueryGrid
from loca.prediction.predicting import predict_to as predict_to

__all__ = ["QueryGrid", "predict_to"]
