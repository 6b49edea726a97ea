"""The result of an inversion."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Array, Float

from loca.data import Variable, grid_axes
from loca.inversion.prior import Prior
from loca.models import Operator, Signature
from loca.typing import Input, PyTree, values_of

if TYPE_CHECKING:
    import xarray


@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """How far to trust a posterior.

    **Arguments:**

    - `method`: how it was found.
    - `p_value`: of the observations: the probability of a worse fit, if noise, surrogate error and prior are as given.
      It is exact for linear operators. A very small value means that one of them is wrong.
    - `steps`: of the search for the mode.
    - `effective`: the effective sample size of the coordinate that has the smallest; the number of draws for Laplace.
    - `r_hat`: the largest potential scale reduction of all coordinates, over halves of chains; near 1 if they agree.
    - `divergences`: the number of draws at which NUTS diverged.
    - `outside`: the share of the variance of held-out inputs that the prior cannot represent; 0 if unknown.
    """

    method: str
    p_value: float
    steps: int
    effective: float
    r_hat: float
    divergences: int
    outside: float = 0.0


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

    def __str__(self) -> str:
        found, seen = self.diagnostics, ~np.isnan(self.observed)
        reduced = 1.0 - self.coordinates.var(axis=0) / np.asarray(self.prior.scales, np.float64) ** 2
        determined = np.clip(reduced, 0.0, None).sum()
        inputs = ", ".join(variable.name for variable in self.operator.inputs)
        noise, error = (np.sqrt(np.mean(std[seen] ** 2)) for std in (self.noise_std, self.surrogate_std))
        outside = f"  prior         {100 * found.outside:.2g} % of the variance of held-out inputs is outside"
        lines = [
            f"posterior of {inputs} given {int(seen.sum())} observations, by {found.method}",
            f"  coordinates   {self.prior.size} of the prior, {determined:.1f} of them determined",
            *([outside] if found.outside > 0.001 else []),
            f"  observations  p = {found.p_value:.2g}; noise {noise:.3g}, surrogate error {error:.3g}",
            f"  draws         {len(self.coordinates)}, effective {found.effective:.0f}, r-hat {found.r_hat:.3f}, "
            f"{found.divergences} divergences",
            f"  mode          found in {found.steps} steps",
        ]
        return "\n".join(lines)

    def to_dataset(self) -> xarray.Dataset:
        """Mean, std, mode and draws of every input, and the observations with their predictions, with coordinates.

        Inputs at sensors on a grid have the coordinates of the grid as dimensions, others the dimension `sensor`.
        """
        import xarray

        variables: dict[str, Any] = {}
        coordinates: dict[str, Any] = {}
        kinds = {
            "": (self.mean, "posterior mean"), "_std": (self.std, "posterior standard deviation"),
            "_mode": (self.mode_input, "most probable"), "_draws": (self.draws, "draws of"),
        }  # fmt: skip
        signature = self.operator.signature
        names = iter(self.operator.inputs)
        for i, part in enumerate(values_of(self.mean)):
            dims, shape, axes = sensor_axes(part, signature, i)
            coordinates |= axes
            for c, variable in enumerate(itertools.islice(names, part.shape[-1])):
                for ending, (u, title) in kinds.items():
                    values = np.asarray(values_of(u)[i][..., c])
                    first = ("draw",) if u is self.draws else ()
                    attributes = {**variable.attributes, "long_name": f"{title} {variable.name}"}
                    array = values.reshape(*values.shape[: len(first)], *shape)
                    variables[variable.name + ending] = ((*first, *dims), array, attributes)
        for c, variable in enumerate(self.operator.outputs):
            for kind in ("observed", "predicted", "predicted_std", "noise_std", "surrogate_std"):
                variables[f"{variable.name}_{kind}"] = ("observation", getattr(self, kind)[:, c], variable.attributes)
        queries = () if signature is None else signature.query_coordinates
        for i, column in enumerate(np.asarray(self.y).T):
            coordinate = queries[i] if queries else Variable(f"y{i + 1}")
            coordinates[f"observed_{coordinate.name}"] = ("observation", column, coordinate.attributes)
        variables["coordinate"] = (("draw", "component"), self.coordinates)
        return xarray.Dataset(variables, coordinates, attrs=dataclasses.asdict(self.diagnostics))


def sensor_axes(
    values: Array, signature: Signature | None, number: int
) -> tuple[tuple[str, ...], tuple[int, ...], dict[str, Any]]:
    """Dimensions, sizes and coordinates of an input's values: those of the grid of its sensors, or their number."""
    if values.ndim == 1:  # numbers beside fields
        return (), (), {}
    after = str(number + 1) if number else ""
    dim = f"sensor{after}"
    field = None if signature is None else signature.fields[number]
    if field is None or field.x is None:
        return (dim,), (len(values),), {}
    x = np.asarray(field.x)
    named = field.coordinates or [Variable(f"x{i + 1}{'_' + after if after else ''}") for i in range(x.shape[1])]
    axes = grid_axes(x)
    if axes is None:
        return (dim,), (len(x),), {v.name: (dim, column, v.attributes) for v, column in zip(named, x.T, strict=True)}
    grid = {each.name: (each.name, axis, each.attributes) for each, axis in zip(named, axes, strict=True)}
    return tuple(grid), tuple(map(len, axes)), grid
