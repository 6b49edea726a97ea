"""What every domain is, boxes and tori, and locations outside of a domain."""

import abc
import dataclasses
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num

from loca.parameters import Fixed
from loca.typing import Key


class Domain(Fixed):
    """Y: a set of locations with a measure, and a map [0, 1]ᵈ → Y with constant Jacobian determinant.

    Because that map spreads the unit cube evenly over Y, uniform points, low-discrepancy points and product rules are
    constructed on the cube once and mapped to any domain, with their weights multiplied by `volume`.

    A new domain is one class with a dimension, a volume and the map in both directions. The other facts have defaults;
    override those that are not true of the domain. The rest of the package asks for facts, never for a class.
    """

    is_flat: ClassVar[bool] = False
    """Whether `from_unit` is affine: a grid that is even in the coordinates is even in space, as Fourier bands need."""

    is_meshed: ClassVar[bool] = False
    """Whether Y consists of cells: `partition` gives nodes and weights, better than maps from the unit cube do."""

    is_geographic: ClassVar[bool] = False
    """Whether a location is (latitude, longitude) in degrees on the unit sphere, and a field is drawn as a map."""

    @property
    @abc.abstractmethod
    def dimension(self) -> int:
        """d_y, the number of coordinates of a location."""

    @property
    @abc.abstractmethod
    def volume(self) -> float:
        """The measure of Y."""

    @abc.abstractmethod
    def from_unit(self, t: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        """The location of a point of the unit cube."""

    @abc.abstractmethod
    def to_unit(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        """The point of the unit cube that `from_unit` maps to y."""

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """The range (low, high) of each coordinate.

        Unless overridden, the range over a lattice of the unit cube that contains its corners.
        """
        steps = np.linspace(0.0, 1.0, 2 ** (12 // self.dimension) + 1)  # a few thousand points in all
        y = np.asarray(self.from_unit(jnp.asarray(grid(*[steps] * self.dimension), dtype=float)), np.float64)
        return tuple(zip(y.min(axis=0).tolist(), y.max(axis=0).tolist(), strict=True))

    @property
    def periods(self) -> tuple[float | None, ...]:
        """The period of each coordinate; None for one that is not periodic, as for all unless overridden."""
        return (None,) * self.dimension

    @property
    def chart(self) -> "Domain":
        """A domain around Y whose map to the unit cube is smooth, for features of a location; Y unless overridden."""
        return self

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Names of the coordinates in files; y1, y2, … unless overridden."""
        return tuple(f"y{i + 1}" for i in range(self.dimension))

    @property
    def coordinate_units(self) -> tuple[str, ...]:
        """Units of the coordinates by the CF conventions; empty unless overridden."""
        return ("",) * self.dimension

    def contains(self, y: Float[np.ndarray, "P d_y"], tolerance: float = 0.0) -> Bool[np.ndarray, " P"]:
        """Whether each location belongs to Y; it may lie outside by `tolerance` times the extent of a coordinate.

        Unless overridden, whether `to_unit` maps it into the unit cube.
        """
        t = np.asarray(self.to_unit(jnp.asarray(y)))
        return np.all((t >= -tolerance) & (t <= 1.0 + tolerance), axis=-1)

    def area_weights(self, y: Float[np.ndarray, "M d_y"]) -> Float[np.ndarray, " M"]:
        """The share of Y that each location represents; equal unless overridden. See `loca.domains.area_weights`."""
        return np.full(len(y), 1.0 / len(y))

    def partition(self, count: int) -> tuple[Float[np.ndarray, "Q d_y"], Float[np.ndarray, " Q"]]:
        """A location in each of about `count` parts of Y, and the measures of the parts, where Y consists of cells."""
        raise ValueError(f"{self} does not consist of cells; use `QuasiMonteCarlo`")

    def triangles(self, y: Float[np.ndarray, "M d_y"]) -> Int[np.ndarray, "T 3"] | None:
        """Triangles between these locations that cover Y, for drawing; None if there are none, as unless overridden."""
        return None

    def to_json(self) -> dict[str, Any]:
        """A description for data stores: the name of the class under `type`, and its fields unless overridden."""
        name = type(self).__name__
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        try:
            return {"type": name, **json.loads(json.dumps(fields))}
        except TypeError as error:
            methods = f"give {name} the methods `to_json` and `from_json`"
            raise ValueError(f"a {name} cannot be stored, its fields are no JSON ({error}); {methods}") from None

    @classmethod
    def from_json(cls, description: Mapping[str, Any]) -> "Domain":
        """The domain with the given description; its fields are arguments of the class unless overridden."""
        return cls(**{name: value for name, value in description.items() if name != "type"})

    def sample(self, key: Key, count: int) -> Float[Array, "P d_y"]:
        """Locations drawn uniformly with respect to the measure of Y."""
        return self.from_unit(jax.random.uniform(key, (count, self.dimension)))

    def check(self, y: Float[Array | np.ndarray, "..."], name: str = "y") -> None:
        """Raise unless the last axis of `y` holds the coordinates of a location."""
        given = y.shape[-1] if y.ndim else 0
        if given != self.dimension:
            expected = f"pass locations as an array of shape (P, {self.dimension})"
            raise ValueError(f"`{name}` has {given} columns but {self} is {self.dimension}-dimensional; {expected}")


class Box(Domain):
    """[a₁, b₁] × … × [a_d, b_d] with Lebesgue measure.

    **Arguments:**

    - `low`, `high`: the corners a and b, one number per dimension.
    """

    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)
    is_flat = True

    def __init__(self, low: Sequence[float], high: Sequence[float]):
        self.low = tuple(float(a) for a in low)
        self.high = tuple(float(b) for b in high)
        if len(self.low) != len(self.high) or not all(a < b for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError(
                f"expected corners with low < high in every dimension, got low={self.low}, high={self.high}; leave out "
                "coordinates that never vary"
            )

    @classmethod
    def unit(cls, dimension: int) -> "Box":
        """The unit cube."""
        return cls((0.0,) * dimension, (1.0,) * dimension)

    @property
    def dimension(self) -> int:
        return len(self.low)

    @property
    def volume(self) -> float:
        return math.prod(b - a for a, b in self.bounds)

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        return tuple(zip(self.low, self.high, strict=True))

    def from_unit(self, t: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        a, b = jnp.asarray(self.low), jnp.asarray(self.high)
        return a + (b - a) * t

    def to_unit(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        a, b = jnp.asarray(self.low), jnp.asarray(self.high)
        return (y - a) / (b - a)

    def contains(self, y: Float[np.ndarray, "P d_y"], tolerance: float = 0.0) -> Bool[np.ndarray, " P"]:
        low, high = np.array(self.low), np.array(self.high)
        margin = tolerance * (high - low)
        return ~np.any((y < low - margin) | (y > high + margin), axis=-1)


class Torus(Box):
    """[a₁, b₁) × … × [a_d, b_d) with opposite faces identified: all of them, or those of some coordinates.

    **Arguments:**

    - `low`, `high`: the corners a and b; b − a is the period of a periodic coordinate.
    - `periodic`: which coordinates are periodic, such as (False, True) for a cylinder; by default all.
    """

    periodic: tuple[bool, ...] = eqx.field(static=True)

    def __init__(self, low: Sequence[float], high: Sequence[float], periodic: Sequence[bool] | None = None):
        super().__init__(low, high)
        self.periodic = (True,) * self.dimension if periodic is None else tuple(map(bool, periodic))
        if len(self.periodic) != self.dimension or not any(self.periodic):
            expected = f"True or False for each of {self.dimension} coordinates, at least one of them True"
            raise ValueError(f"expected periodic=({expected}), got {periodic}; otherwise use `Box`")

    @property
    def periods(self) -> tuple[float | None, ...]:
        return tuple(b - a if wraps else None for (a, b), wraps in zip(self.bounds, self.periodic, strict=True))

    def to_unit(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P d_y"]:
        t = super().to_unit(y)
        return jnp.where(jnp.asarray(self.periodic), jnp.mod(t, 1.0), t)

    def contains(self, y: Float[np.ndarray, "P d_y"], tolerance: float = 0.0) -> Bool[np.ndarray, " P"]:
        """Whether the other coordinates lie in their ranges: a periodic coordinate has no outside."""
        return super().contains(np.where(self.periodic, self.low, y), tolerance)


def grid(*axes: Num[np.ndarray, " _"]) -> Num[np.ndarray, "m d"]:
    """All points of a rectangular grid, the last coordinate varying fastest."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def area_weights(domain: Domain, y: Float[Array | np.ndarray, "M d_y"]) -> Float[np.ndarray, " M"]:
    """wᵢ = |Yᵢ| / Σⱼ|Yⱼ|, where yᵢ represents the part Yᵢ of Y: weights of means over Y, which sum to 1.

    On a `Sphere`, points that form a latitude–longitude grid, in any order, represent the cells whose edges lie halfway
    to the neighboring rows and columns; their areas are exact. The outermost row extends to the pole if another row
    would not fit before it, otherwise as far outward as inward. Other points on a sphere, such as the land points of a
    grid, are weighted by cos(latitude); points distributed uniformly over the sphere need no weights.

    On a `Mesh` every cell is divided equally among the locations in it, see `Mesh.area_weights`; locations outside have
    weight zero. On the other built-in domains the weights are equal. For a patch of the Earth that is a `Box` in
    degrees of latitude and longitude, pass `Sphere()`.
    """
    domain.check(jnp.asarray(y))
    return domain.area_weights(np.asarray(y, np.float64))


def domain_from_json(description: Mapping[str, Any]) -> Domain:
    """The domain that `Domain.to_json` described.

    Its class is a built-in one, or a subclass of `Domain` that the caller has defined.
    """
    classes = Domain.__subclasses__()
    for each in classes:
        classes += each.__subclasses__()
    # sorted, so that no other class takes the name of a built-in one; of two others, the later definition counts
    known = {cls.__name__: cls for cls in sorted(classes, key=lambda cls: cls.__module__.startswith("loca."))}
    try:
        return known[description["type"]].from_json(description)
    except (KeyError, TypeError):
        expected = f"expected one of {', '.join(sorted(known))}; define or import the class of any other first"
        raise ValueError(f"unknown domain {dict(description)}, {expected}") from None


TOLERANCE = 1e-4
"""How far outside a location may lie before a warning, in units of the extent of a coordinate."""


class OutsideDomainWarning(UserWarning):
    """Queries lie outside the domain that an operator was trained on."""


def warn_outside(domain: Domain, y: Float[Array | np.ndarray, "P d_y"], names: Sequence[str] = ()) -> None:
    """Warn if queries lie outside the domain of an operator, whose coordinates have the given names, or those of Y."""
    y = np.asarray(y, np.float64)
    domain.check(y)
    outside = ~np.asarray(domain.contains(y, TOLERANCE))
    if not outside.any():
        return
    low, high = np.transpose(domain.bounds)
    beyond = np.maximum(np.maximum(low - y, y - high), 0.0)[outside].max(axis=0)
    beyond[[period is not None for period in domain.periods]] = 0.0
    column = int(np.argmax(beyond / (high - low)))
    name = (names or domain.coordinate_names)[column]
    far = f"up to {beyond[column]:.3g} beyond {name} from {low[column]:g} to {high[column]:g}"
    warnings.warn(
        f"{outside.sum()} of {len(y)} queries lie outside the domain of the model, "
        f"{far if beyond[column] else 'in a hole of it'}; predictions there are extrapolated",
        OutsideDomainWarning,
        stacklevel=3,
    )
