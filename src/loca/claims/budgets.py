"""How long models train in a comparison, and on how many functions at a time.

Fixed by what a step takes on two cores, before any test error was known: nothing is as slow as FNO, which in the paper
too has a quarter of LOCA's steps on Darcy flow, a tenth on antiderivatives and climate, a twentieth on shallow water.
Here it has smaller batches instead, which are quicker for each function, and about half of the steps or more. That
gives it as much time as LOCA or several times more. Where there was no time for that, a claim's own file says so.
"""

from collections.abc import Mapping

from loca.claims.claim import Preset

QUICK: Mapping[str, Mapping[str, int]] = {
    "antiderivative": {"LOCA": 40, "DeepONet": 40, "FNO": 4},
    "darcy": {"LOCA": 40, "LOCA without coupling": 40, "DeepONet": 40, "FNO": 4},
    "mechanical-mnist": {"LOCA": 40, "DeepONet": 40, "FNO": 4},
    "shallow-water": {"LOCA": 4, "DeepONet": 8, "FNO": 2},
    "climate": {"LOCA": 20, "DeepONet": 20, "FNO": 4},
}
"""Steps by setting and model, to see that a study works."""

PAPER: Mapping[str, Mapping[str, int]] = {
    "antiderivative": {"LOCA": 5000, "DeepONet": 5000, "FNO": 3000},
    "darcy": {"LOCA": 5000, "LOCA without coupling": 5000, "DeepONet": 5000, "FNO": 3000},
    "mechanical-mnist": {"LOCA": 1700, "DeepONet": 4000, "FNO": 1200},
    "shallow-water": {"LOCA": 1750, "DeepONet": 3200, "FNO": 850},
    "climate": {"LOCA": 3000, "DeepONet": 5000, "FNO": 3000},
}
"""Steps at the paper's sizes, that take half a minute to ten minutes for each model.

On shallow water and Mechanical MNIST all models have about the same minutes, on one core: ten and five.
"""

BATCH = 100
SMALL = {"antiderivative": 10, "darcy": 25, "mechanical-mnist": 25, "shallow-water": 10, "climate": 10}
"""Functions in a batch of FNO."""


def steps_of(preset: Preset, setting: str) -> Mapping[str, int]:
    """Steps by the names of models."""
    return (QUICK if preset == "quick" else PAPER)[setting]


def batch_of(model: str, setting: str) -> int:
    """Functions in a batch."""
    return SMALL[setting] if model == "FNO" else BATCH
