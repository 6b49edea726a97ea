"""Gaussian processes over pairs (u, y): features of their kernels, and least squares for the coefficients."""

from loca.gaussian.correlated import correlated as correlated
from loca.gaussian.features import GridFeatures as GridFeatures
from loca.gaussian.features import InputFeatures as InputFeatures
from loca.gaussian.features import InputKernel as InputKernel
from loca.gaussian.features import LocationFeatures as LocationFeatures
from loca.gaussian.features import PointFeatures as PointFeatures
from loca.gaussian.features import grid_axes as grid_axes
from loca.gaussian.features import location_features as location_features
from loca.gaussian.labels import KEPT as KEPT
from loca.gaussian.labels import Labels as Labels
from loca.gaussian.labels import Values as Values
from loca.gaussian.labels import free_cost as free_cost
from loca.gaussian.labels import label_costs as label_costs
from loca.gaussian.labels import labels_at as labels_at
from loca.gaussian.system import Block as Block
from loca.gaussian.system import Report as Report
from loca.gaussian.system import Solution as Solution
from loca.gaussian.system import StoredBlocks as StoredBlocks
from loca.gaussian.system import System as System
from loca.gaussian.system import conjugate_gradients as conjugate_gradients

__all__ = [
    "KEPT",
    "Block",
    "GridFeatures",
    "InputFeatures",
    "InputKernel",
    "Labels",
    "LocationFeatures",
    "PointFeatures",
    "Report",
    "Solution",
    "StoredBlocks",
    "System",
    "Values",
    "conjugate_gradients",
    "correlated",
    "free_cost",
    "grid_axes",
    "label_costs",
    "labels_at",
    "location_features",
]
