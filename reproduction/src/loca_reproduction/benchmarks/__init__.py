"""Measurements of speed and memory on the machine at hand, as printed by `loca-reproduce bench`."""

from loca_reproduction.benchmarks.fitting import FitFigures as FitFigures
from loca_reproduction.benchmarks.fitting import measure_fit as measure_fit
from loca_reproduction.benchmarks.peers import ComparisonFigures as ComparisonFigures
from loca_reproduction.benchmarks.peers import measure_peers as measure_peers
from loca_reproduction.benchmarks.scale import AXES as SCALE_AXES
from loca_reproduction.benchmarks.scale import Collectives as Collectives
from loca_reproduction.benchmarks.scale import ScaleRow as ScaleRow
from loca_reproduction.benchmarks.scale import measure_collectives as measure_collectives
from loca_reproduction.benchmarks.scale import measure_scale as measure_scale
from loca_reproduction.benchmarks.scale import measure_step as measure_step
from loca_reproduction.benchmarks.scale import slope as slope
from loca_reproduction.benchmarks.step import STEP_SETTINGS as STEP_SETTINGS
from loca_reproduction.benchmarks.step import StepTimes as StepTimes
from loca_reproduction.benchmarks.step import time_step as time_step
from loca_reproduction.benchmarks.throughput import PredictionFigures as PredictionFigures
from loca_reproduction.benchmarks.throughput import StreamedPredictionFigures as StreamedPredictionFigures
from loca_reproduction.benchmarks.throughput import StreamingFigures as StreamingFigures
from loca_reproduction.benchmarks.throughput import measure_prediction as measure_prediction
from loca_reproduction.benchmarks.throughput import measure_streamed_prediction as measure_streamed_prediction
from loca_reproduction.benchmarks.throughput import measure_streaming as measure_streaming

__all__ = [
    "SCALE_AXES",
    "STEP_SETTINGS",
    "Collectives",
    "ComparisonFigures",
    "FitFigures",
    "PredictionFigures",
    "ScaleRow",
    "StepTimes",
    "StreamedPredictionFigures",
    "StreamingFigures",
    "measure_collectives",
    "measure_fit",
    "measure_peers",
    "measure_prediction",
    "measure_scale",
    "measure_step",
    "measure_streamed_prediction",
    "measure_streaming",
    "slope",
    "time_step",
]
