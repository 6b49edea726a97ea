"""The paper's five settings: the sizes of its data and of every model it compares."""

from __future__ import annotations

import dataclasses
import math

import jax

from loca.data import Samples, TransformNames, grid_shape
from loca.domains import Box, Domain
from loca.encoders import Encoder, Scattering1D, Scattering2D, Sensors
from loca.kernels import RBF
from loca.models import FNO, LOCA, DeepONet, Grid
from loca.positions import Harmonic
from loca.rules import GaussLegendre, MonteCarlo, Rule
from loca.typing import Key


@dataclasses.dataclass(frozen=True)
class Setting:
    """One experiment of the paper; letters are those of its tables."""

    domain: Box  # Y
    sensors: tuple[int] | tuple[int, int]  # the grid of m sensors
    input_size: int  # d_u
    output_size: int  # d_s
    functions: int  # N
    queries: int  # P, labels per function
    locations: int  # M, of which P carry labels
    batch_size: int
    steps: int
    # LOCA
    scales: int  # J
    rotations: int  # L in two dimensions, Q in one
    nodes: int  # per dimension for quadrature; in all for Monte Carlo
    monte_carlo: bool
    num_features: int  # n
    num_frequencies: int  # H
    lift_widths: tuple[int, ...]
    proposal_widths: tuple[int, ...]
    feature_widths: tuple[int, ...]
    # DeepONet
    harmonics: int  # H of its inputs and queries
    deeponet_widths: tuple[int, ...]
    # FNO
    modes: int
    width: int
    padding: tuple[int, ...]
    rate: float = 1.0  # initial β
    lift_size: int = 100  # l

    def sensor_grid(self, data: Samples) -> tuple[int, ...]:
        """The grid of the data, which may be finer or coarser than the paper's; the paper's if the data has no `x`."""
        shape = self.sensors if data.x is None else None if isinstance(data.x, tuple) else grid_shape(data.x)
        if shape is None or len(shape) != len(self.sensors) or data.input_size != self.input_size:
            found = f"{data.input_size} channels on {'no grid' if shape is None else f'a grid {shape}'}"
            raise ValueError(
                f"this setting is for {self.input_size} input channels on a grid such as {self.sensors}; this data has "
                f"{found}. Use another setting, or `LOCA.create`"
            )
        return shape

    def encoder(self, data: Samples) -> Encoder:
        """The scattering transform of the setting."""
        length, *more = self.sensor_grid(data)
        if not more:
            return Scattering1D.create(
                length=length, scales=self.scales, wavelets_per_octave=self.rotations, channels=self.input_size
            )
        shape = (length, more[0])
        return Scattering2D.create(shape=shape, scales=self.scales, angles=self.rotations, channels=self.input_size)

    def rule(self, domain: Box) -> Rule:
        """The quadrature rule of the setting; Monte Carlo nodes are drawn once and shared by all functions."""
        if self.monte_carlo:
            return MonteCarlo(domain, self.nodes, key=jax.random.key(0))
        return GaussLegendre(domain, self.nodes)

    def loca(self, data: Samples, *, key: Key, transforms: TransformNames = None) -> LOCA:
        """LOCA at the sizes of the paper."""
        domain = coordinates(data.domain)
        return LOCA.create(
            data,
            key=key,
            encoder=self.encoder(data),
            position=Harmonic(domain, self.num_frequencies),
            rule=self.rule(domain),
            kernel=RBF(self.rate),
            num_features=self.num_features,
            lift_size=self.lift_size,
            lift_widths=self.lift_widths,
            proposal_widths=self.proposal_widths,
            feature_widths=self.feature_widths,
            transforms=transforms,
        )

    def deeponet(self, data: Samples, *, key: Key, transforms: TransformNames = None) -> DeepONet:
        """DeepONet at the sizes of the paper's table."""
        return DeepONet.create(
            data,
            key=key,
            encoder=Sensors(math.prod(self.sensor_grid(data)), self.input_size, num_frequencies=self.harmonics),
            position=Harmonic(coordinates(data.domain), self.harmonics),
            num_features=self.num_features,
            branch_widths=self.deeponet_widths,
            trunk_widths=self.deeponet_widths,
            transforms=transforms,
        )

    def fno(self, data: Samples, *, key: Key, transforms: TransformNames = None) -> FNO:
        """FNO at the sizes of the paper's table; on a coarser grid, with the frequencies that it resolves."""
        shape = Grid.of(data).shape
        modes = [min(self.modes, (n + padding) // 2) for n, padding in zip(shape, self.padding, strict=True)]
        return FNO.create(data, key=key, modes=modes, width=self.width, padding=self.padding, transforms=transforms)


def coordinates(domain: Domain) -> Box:
    """The ranges of the coordinates: the paper takes every domain for a box, the globe too."""
    low, high = zip(*domain.bounds, strict=True)
    return Box(low, high)


SETTINGS: dict[str, Setting] = {
    "antiderivative": Setting(
        domain=Box.unit(1), sensors=(500,), input_size=1, output_size=1,
        functions=1000, queries=100, locations=100, batch_size=100, steps=50_000,
        scales=4, rotations=8, nodes=100, monte_carlo=False, num_features=100, num_frequencies=10,
        lift_widths=(100, 100), proposal_widths=(100, 100), feature_widths=(500,),
        harmonics=2, deeponet_widths=(512, 512), modes=32, width=100, padding=(2,),
    ),
    "darcy": Setting(
        domain=Box.unit(2), sensors=(32, 32), input_size=1, output_size=1,
        functions=1000, queries=128, locations=1024, batch_size=100, steps=20_000,
        scales=1, rotations=2, nodes=14, monte_carlo=False, num_features=100, num_frequencies=6,
        lift_widths=(100, 100), proposal_widths=(100, 100), feature_widths=(100, 100), rate=0.2,
        harmonics=6, deeponet_widths=(100,) * 6, modes=8, width=32, padding=(0, 0),
    ),
    "mechanical-mnist": Setting(
        domain=Box.unit(2), sensors=(28, 28), input_size=2, output_size=2,
        functions=60_000, queries=56, locations=784, batch_size=100, steps=100_000,
        scales=1, rotations=16, nodes=20, monte_carlo=False, num_features=500, num_frequencies=10,
        lift_widths=(256, 256), proposal_widths=(256, 256), feature_widths=(256, 256),
        harmonics=10, deeponet_widths=(100,) * 4, modes=12, width=32, padding=(0, 0),
    ),
    "shallow-water": Setting(
        domain=Box((0.11, 0.0, 0.0), (0.31, 1.0, 1.0)), sensors=(32, 32), input_size=3, output_size=3,
        functions=1000, queries=128, locations=5120, batch_size=100, steps=80_000,
        scales=1, rotations=2, nodes=128, monte_carlo=True, num_features=480, num_frequencies=2,
        lift_widths=(1024,), proposal_widths=(1024,), feature_widths=(1024,),
        harmonics=2, deeponet_widths=(100,) * 11, modes=8, width=25, padding=(12, 0, 0),
    ),
    "climate": Setting(
        domain=Box.unit(2), sensors=(72, 72), input_size=1, output_size=1,
        functions=1825, queries=144, locations=5184, batch_size=73, steps=100_000,
        scales=1, rotations=8, nodes=144, monte_carlo=True, num_features=100, num_frequencies=10,
        lift_widths=(100, 100), proposal_widths=(100, 100), feature_widths=(100, 100),
        harmonics=10, deeponet_widths=(100,) * 4, modes=12, width=32, padding=(0, 0),
    ),
}  # fmt: skip
"""The settings by name."""
