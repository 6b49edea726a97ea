"""The result of an inversion."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array, Bool, Float

from loca.data import Variable, grid_axes
from loca.inversion.prior import Prior
from loca.models import Operator
from loca.typing import Input, PyTree, values_of

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """How far to trust a posterior.

    **Arguments:**

    - `method`, `optimizer`: how it was found.
    - `p_value`: of the observations: the probability of a worse fit, if noise, surrogate error and prior are as given.
      It is exact for linear operators. A very small value means that one of them is wrong.
    - `outside`: the share of the variance of held-out inputs that the prior cannot represent; 0 if unknown.
    - `steps`: of the optimizer.
    - `effective`: the effective sample size of the coordinate that has the smallest; the number of draws for Laplace.
    - `r_hat`: the largest potential scale reduction of all coordinates, over halves of chains; near 1 if they agree.
    - `divergences`: the number of draws at which NUTS diverged.
    - `seconds`: in total, with compilation.
    """

    method: str
    optimizer: str
    p_value: float
    outside: float
    steps: int
    effective: float
    r_hat: float
    divergences: int
    seconds: float


@dataclasses.dataclass(frozen=True, eq=False)
class Posterior:
    """Inputs that explain observations; prints as a summary.

    Inputs have the units and the form of the operator's inputs: values (m, d_u) at its sensors.

    **Arguments:**

    - `operator`, `prior`: those of the inversion.
    - `mode`: the most probable coordinates z, and `mode_input` their u.
    - `coordinates`: draws of z.
    - `draws`: draws of u.
    - `mean`, `std`: of u, over draws.
    - `y`: where outputs were observed.
    - `observed`: the observations; NaN where nothing was observed.
    - `predicted`, `predicted_std`: F(u)(y), its mean and its standard deviation over draws; NaN like `observed`.
    - `noise_std`, `surrogate_std`: standard deviations of the noise and of the surrogate's error.
    - `diagnostics`: how far to trust it.
    """

    operator: Operator
    prior: Prior
    mode: Float[np.ndarray, " K"]
    mode_input: Input
    coordinates: Float[np.ndarray, "S K"]
    draws: PyTree
    mean: Input
    std: Input
    y: Float[Array, "P d_y"]
    observed: Float[np.ndarray, "P d_s"]
    predicted: Float[np.ndarray, "P d_s"]
    predicted_std: Float[np.ndarray, "P d_s"]
    noise_std: Float[np.ndarray, "P d_s"]
    surrogate_std: Float[np.ndarray, "P d_s"]
    diagnostics: Diagnostics

    @property
    def seen(self) -> Bool[np.ndarray, "P d_s"]:
        """What was observed."""
        return ~np.isnan(self.observed)

    def __str__(self) -> str:
        found, seen = self.diagnostics, self.seen
        reduced = 1.0 - self.coordinates.var(axis=0) / np.asarray(self.prior.scales, np.float64) ** 2
        determined = np.clip(reduced, 0.0, None).sum()
        inputs = ", ".join(variable.name for variable in self.operator.inputs)
        lines = [
            f"posterior of {inputs} given {int(seen.sum())} observations, by {found.method}",
            f"  coordinates   {self.prior.size} of the prior, {determined:.1f} of them determined",
            f"  observations  p = {found.p_value:.2g}; noise {rms(self.noise_std[seen]):.3g}, surrogate error "
            f"{rms(self.surrogate_std[seen]):.3g}",
            f"  draws         {len(self.coordinates)}, effective {found.effective:.0f}, r-hat {found.r_hat:.3f}, "
            f"{found.divergences} divergences",
            f"  mode          {found.steps} steps of {found.optimizer}; {found.seconds:.1f} s in total",
        ]
        if found.outside > 0.001:
            lines.insert(
                2, f"  prior         {100 * found.outside:.2g} % of the variance of held-out inputs is outside"
            )
        return "\n".join(lines)

    def to_dataset(self) -> xarray.Dataset:
        """Mean, std, mode and draws of every input, and the observations with their predictions, with coordinates.

        Inputs at sensors on a grid have the coordinates of the grid as dimensions, others the dimension `sensor`.
        """
        import xarray

        variables: dict[str, Any] = {}
        coordinates: dict[str, Any] = {}
        for channel in self._channels():
            name, units = channel.variable.name, channel.variable.attributes
            what = {"": "posterior mean", "_std": "posterior standard deviation", "_mode": "most probable"}
            for ending, title in what.items():
                values = channel.values[ending].reshape(channel.shape)
                variables[name + ending] = (channel.dims, values, {**units, "long_name": f"{title} {name}"})
            drawn = channel.values["_draws"].reshape(-1, *channel.shape)
            variables[f"{name}_draws"] = (("draw", *channel.dims), drawn, {**units, "long_name": f"draws of {name}"})
            coordinates |= channel.coordinates
        for c, output in enumerate(self.operator.outputs):
            name, units = output.name, output.attributes
            named = {
                "observed": self.observed, "predicted": self.predicted, "predicted_std": self.predicted_std,
                "noise_std": self.noise_std, "surrogate_std": self.surrogate_std,
            }  # fmt: skip
            for ending, values in named.items():
                variables[f"{name}_{ending}"] = ("observation", values[:, c], units)
        signature = self.operator.signature
        queries = () if signature is None else signature.query_coordinates
        for i, column in enumerate(np.asarray(self.y).T):
            coordinate = queries[i] if queries else Variable(f"y{i + 1}")
            coordinates[f"observed_{coordinate.name}"] = ("observation", column, coordinate.attributes)
        variables["coordinate"] = (("draw", "component"), self.coordinates)
        return xarray.Dataset(variables, coordinates, attrs=dataclasses.asdict(self.diagnostics))

    def _channels(self) -> list[LabeledChannel]:
        """Every channel of u with its dimensions."""
        kinds = {"": self.mean, "_std": self.std, "_mode": self.mode_input, "_draws": self.draws}
        parts = {ending: values_of(u) for ending, u in kinds.items()}
        signature = self.operator.signature
        known = () if signature is None else signature.parts
        names = iter(self.operator.inputs)
        found = []
        for i, mean in enumerate(parts[""]):
            field = known[i] if i < len(known) else None
            for c in range(mean.shape[-1]):
                values = {ending: np.asarray(many[i][..., c]) for ending, many in parts.items()}
                if mean.ndim == 1:
                    found.append(LabeledChannel(next(names), values, (), (), {}))
                    continue
                x = None if field is None or field.x is None else np.asarray(field.x)
                axes = () if field is None else field.coordinates
                found.append(LabeledChannel(next(names), values, *labeled_sensors(mean.shape[0], x, axes, i)))
        return found


@dataclasses.dataclass(frozen=True)
class LabeledChannel:
    """A channel of u: its values by kind, and its dimensions, their sizes and coordinates."""

    variable: Variable
    values: dict[str, np.ndarray]
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    coordinates: dict[str, Any]


def labeled_sensors(
    count: int, x: Float[np.ndarray, "m d_x"] | None, named: tuple[Variable, ...], number: int
) -> tuple[tuple[str, ...], tuple[int, ...], dict[str, Any]]:
    """Dimensions, sizes and coordinates of values at sensors: those of their grid, or their number."""
    after = str(number + 1) if number else ""
    if x is None:
        return (f"sensor{after}",), (count,), {}
    named = named or tuple(Variable(f"x{i + 1}{'_' + after if after else ''}") for i in range(x.shape[1]))
    units = [each.attributes for each in named]
    axes = grid_axes(x)
    if axes is None:
        columns = zip(named, x.T, units, strict=True)
        return (f"sensor{after}",), (count,), {each.name: (f"sensor{after}", c, u) for each, c, u in columns}
    dims, shape = tuple(each.name for each in named), tuple(map(len, axes))
    return dims, shape, {dim: (dim, axis, u) for dim, axis, u in zip(dims, axes, units, strict=True)}


def rms(values: Float[np.ndarray, " n"]) -> float:
    """The root mean square."""
    return float(np.sqrt(np.mean(values**2)))
