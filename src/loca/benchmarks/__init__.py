"""Measurements of speed and memory on the machine at hand, as printed by `loca bench`."""

from loca.benchmarks.fitting import FitFigures as FitFigures
from loca.benchmarks.fitting import measure_fit as measure_fit
from loca.benchmarks.peers import ComparisonFigures as ComparisonFigures
from loca.benchmarks.peers import measure_peers as measure_peers
from loca.benchmarks.scale import AXES as SCALE_AXES
from loca.benchmarks.scale import Collectives as Collectives
from loca.benchmarks.scale import ScaleRow as ScaleRow
from loca.benchmarks.scale import measure_collectives as measure_collectives
from loca.benchmarks.scale import measure_scale as measure_scale
from loca.benchmarks.scale import measure_step as measure_step
from loca.benchmarks.scale import slope as slope
from loca.benchmarks.step import STEP_SETTINGS as STEP_SETTINGS
from loca.benchmarks.step import StepTimes as StepTimes
from loca.benchmarks.step import time_step as time_step
from loca.benchmarks.throughput import PredictionFigures as PredictionFigures
from loca.benchmarks.throughput import StreamedPredictionFigures as StreamedPredictionFigures
from loca.benchmarks.throughput import StreamingFigures as StreamingFigures
from loca.benchmarks.throughput import measure_prediction as measure_prediction
from loca.benchmarks.throughput import measure_streamed_prediction as measure_streamed_prediction
from loca.benchmarks.throughput import measure_streaming as measure_streaming

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
