"""R11: the number of parameters of the models."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec

import jax
import jax.numpy as jnp

from loca.data import Normalization, Samples
from loca.domains import Box
from loca.encoders import Sensors
from loca.models import FNO, DeepONet, Grid
from loca.parameters import count
from loca.positions import Harmonic
from loca_reproduction.claims.claim import Claim, Finding, Preset, Verdict
from loca_reproduction.claims.results import bars_beside_paper
from loca_reproduction.runs import RunPool
from loca_reproduction.settings import SETTINGS, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")

PRINTED = {
    "antiderivative": {"LOCA": 1_677_300, "DeepONet": 2_186_672, "FNO": 1_333_757},
    "darcy": {"LOCA": 381_000, "DeepONet": 449_400, "FNO": 532_993},
    "mechanical-mnist": {"LOCA": 2_475_060, "DeepONet": 3_050_300, "FNO": 1_188_514},
    "shallow-water": {"LOCA": 5_528_484, "DeepONet": 5_565_660, "FNO": 5_126_690},
    "climate": {"LOCA": 1_239_500, "DeepONet": 5_805_800, "FNO": 1_188_353},
}
"""The counts of the paper's table."""

DEEPONET = {
    "antiderivative": (1000, 2, 1),
    "darcy": (1024, 2, 2),
    "mechanical-mnist": (784, 4, 3),
    "shallow-water": (1024, 2, 3),
    "climate": (5184, 10, 2),
}
"""The sensors, harmonics and query coordinates that DeepONet's counts imply.

They differ from the paper's tables, which have 6 harmonics for Darcy flow, and 10 harmonics and two coordinates for
Mechanical MNIST.
"""

FNO_GRIDS = {
    "antiderivative": (1000,),
    "darcy": (32, 32),
    "mechanical-mnist": (28, 28),
    "shallow-water": (5, 32, 32),
    "climate": (72, 72),
}

FNO_UNUSED = {"shallow-water": 200}
"""Parameters that the printed count includes although no output depends on them."""


def example(setting: Setting) -> Samples:
    """One function in the shapes of a setting, with four queries."""
    y = setting.domain.sample(jax.random.key(0), 4)
    u = jnp.zeros((1, math.prod(setting.sensors), setting.input_size))
    return Samples(u, y, jnp.zeros((1, 4, setting.output_size)), domain=setting.domain)


def by_shapes(counting: Callable[P, int]) -> Callable[P, int]:
    """The same count without computing any parameter: JAX traces the shapes only."""

    @functools.wraps(counting)
    def traced(*args: P.args, **kwargs: P.kwargs) -> int:
        found: list[int] = []
        jax.eval_shape(lambda: found.append(counting(*args, **kwargs)))
        return found[0]

    return traced


@by_shapes
def loca_count(name: str) -> int:
    """The count at the sizes of the tables; that of the antiderivative implies 1000 sensors, where the text has 500."""
    setting = SETTINGS[name]
    if name == "antiderivative":
        setting = dataclasses.replace(setting, sensors=(1000,))
    return count(setting.loca(example(setting), key=jax.random.key(0))) - 1  # the paper omits the kernel's rate


@by_shapes
def deeponet_count(name: str) -> int:
    """The count with the last layer twice and no last bias, as every printed count implies; the text omits both."""
    setting, (sensors, harmonics, coordinates) = SETTINGS[name], DEEPONET[name]
    outputs = setting.num_features * setting.output_size
    model = DeepONet.create(
        example(setting),
        key=jax.random.key(0),
        encoder=Sensors(sensors, setting.input_size, num_frequencies=harmonics),
        position=Harmonic(Box.unit(coordinates), harmonics),
        num_features=setting.num_features,
        branch_widths=(*setting.deeponet_widths, outputs),
        trunk_widths=(*setting.deeponet_widths, outputs),
    )
    return count(model) - setting.output_size


@by_shapes
def fno_count(name: str, *, complex_as_one: bool = True) -> int:
    """The count with a complex weight as one parameter, as in the paper, or as two."""
    setting, grid = SETTINGS[name], FNO_GRIDS[name]
    axes = Grid(tuple(jnp.linspace(0, 1, n) for n in grid), (None,) * len(grid), len(grid) - len(setting.sensors))
    norm = Normalization.identity(setting.input_size, setting.output_size)
    fno = FNO(norm, axes, modes=setting.modes, width=setting.width, padding=setting.padding, key=jax.random.key(0))
    imaginary = sum(layer.real.size for layer in fno.layers)
    return count(fno) - complex_as_one * imaginary + FNO_UNUSED.get(name, 0)


COUNTS = {"LOCA": loca_count, "DeepONet": deeponet_count, "FNO": fno_count}


class Counts(Claim):
    """Parameter counts."""

    name = "R11"
    paper = "A table of fifteen counts, from 381 000 to 5.8 million."
    rule = "Holds if all fifteen come out to the last digit; in part if more than half do."

    def measure(self, preset: Preset, seeds: int | None, pool: RunPool) -> Finding:
        found = {name: {model: counting(name) for model, counting in COUNTS.items()} for name in PRINTED}
        return Finding({"counts": found}, {})

    def judge(self, numbers: Mapping[str, Any]) -> Verdict:
        wrong = [
            f"{model} for {name}: {numbers['counts'][name][model]:,} where the paper has {printed:,}"
            for name, models in PRINTED.items()
            for model, printed in models.items()
            if numbers["counts"][name][model] != printed
        ]
        answer = "holds" if not wrong else "holds in part" if len(wrong) < 8 else "fails"
        text = f"{15 - len(wrong)} of 15 are exact"
        return Verdict(answer, f"{text}; {'; '.join(wrong)}." if wrong else f"{text}.")

    def table(self, finding: Finding) -> list[list[str]]:
        counts = finding.numbers["counts"]
        rows = [["experiment", "model", "paper", "ours"]]
        for name, models in PRINTED.items():
            rows += [[name, m, f"{printed:,}", f"{counts[name][m]:,}"] for m, printed in models.items()]
        return rows

    def figure(self, numbers: Mapping[str, Any]) -> Figure:
        return bars_beside_paper(numbers["counts"], PRINTED, "parameters")
