"""e(y): features of a location, one encoding for each kind of coordinates."""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.domains import Domain, unit_vectors
from loca.parameters import Fixed

__all__ = ["Harmonic", "Periodic", "Position", "Spherical"]


class Position(Fixed):
    """e : Y → ℝᴱ, fixed features of a location that are easier for a network to use than its coordinates."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """E, the number of features."""

    @abc.abstractmethod
    def __call__(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P E"]:
        """e(y)."""


def position_on(domain: Domain) -> Position:
    """The default encoding for a domain.

    Spherical harmonics of latitude and longitude, periodic features if some coordinates are periodic, and harmonic
    features otherwise.
    """
    if domain.is_geographic:
        return Spherical(domain)
    if any(domain.periods):
        return Periodic(domain)
    return Harmonic(domain)


class Harmonic(Position):
    """e(y) = (t, cos 2ʲπtⁱ, sin 2ʲπtⁱ), j = 0 … H/2 − 1, where t is y mapped to the unit cube.

    The paper prints j = 1 … H/2 and no coordinates; then every feature has period 1 and the two ends of the domain
    cannot be told apart. `start=1, include_raw=False` gives that version.

    **Arguments:**

    - `domain`: Y, in general a box; of a mesh, the box around it.
    - `num_frequencies`: H, cosines and sines together, per dimension. Good values: 6 to 10.
    - `start`: the first j.
    - `include_raw`: whether to prepend the coordinates t.
    """

    domain: Domain
    num_frequencies: int = eqx.field(static=True)
    start: int = eqx.field(static=True)
    include_raw: bool = eqx.field(static=True)

    def __init__(self, domain: Domain, num_frequencies: int = 10, *, start: int = 0, include_raw: bool = True):
        check_even(num_frequencies)
        self.domain = domain.chart
        self.num_frequencies = num_frequencies
        self.start = start
        self.include_raw = include_raw

    @property
    def size(self) -> int:
        return self.domain.dimension * (self.num_frequencies + self.include_raw)

    def __call__(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P E"]:
        self.domain.check(y)
        t = self.domain.to_unit(y)
        waves = octaves(t, math.pi, self.num_frequencies // 2, self.start)
        return jnp.concatenate([t, waves], axis=-1) if self.include_raw else waves


class Periodic(Position):
    """e(y) = (cos 2ʲ·2πtⁱ, sin 2ʲ·2πtⁱ), j = 0 … H/2 − 1: equal on opposite faces, with all derivatives.

    A coordinate that is not periodic has the features of `Harmonic`.

    **Arguments:**

    - `domain`: Y, a torus or another domain with periodic coordinates.
    - `num_frequencies`: H, cosines and sines together, per dimension. Good values: 6 to 10.
    """

    domain: Domain
    num_frequencies: int = eqx.field(static=True)

    def __init__(self, domain: Domain, num_frequencies: int = 10):
        if not check_even(num_frequencies):
            raise ValueError("num_frequencies must be at least 2 for `Periodic`, which has no other features; got 0")
        if not any(domain.periods):
            raise ValueError(f"`Periodic` needs a domain with periodic coordinates, got {domain}; use `Harmonic`")
        self.domain = domain
        self.num_frequencies = num_frequencies

    @property
    def size(self) -> int:
        return self.domain.dimension * self.num_frequencies + self.domain.periods.count(None)

    def __call__(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P E"]:
        self.domain.check(y)
        t, wraps = self.domain.to_unit(y), np.array([period is not None for period in self.domain.periods])
        base = jnp.asarray(np.where(wraps, 2.0 * math.pi, math.pi)[:, None], t.dtype)
        return jnp.concatenate([t[..., ~wraps], octaves(t, base, self.num_frequencies // 2, start=0)], axis=-1)


class Spherical(Position):
    """e(y) = (Y_ℓᵐ(y)), 1 ≤ ℓ ≤ degree, |m| ≤ ℓ: real spherical harmonics, orthonormal on S².

    Degree 1 is the Cartesian unit vector up to a factor. The features are smooth at the poles and across the date line,
    because each harmonic is evaluated as a polynomial in the unit vector.

    **Arguments:**

    - `domain`: Y, the sphere or another domain of latitude and longitude.
    - `degree`: the largest ℓ. Good values: 4 to 10; features resolve about 180/degree degrees.
    """

    domain: Domain
    degree: int = eqx.field(static=True)

    def __init__(self, domain: Domain, degree: int = 6):
        if degree < 1:
            raise ValueError(f"degree must be at least 1 (the Cartesian unit vector), got {degree}")
        if not domain.is_geographic:
            raise ValueError(f"`Spherical` needs a domain of (latitude, longitude), got {domain}; use `Harmonic`")
        self.domain = domain
        self.degree = degree

    @property
    def size(self) -> int:
        return (self.degree + 1) ** 2 - 1

    def __call__(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P E"]:
        self.domain.check(y)
        return real_harmonics(unit_vectors(y), self.degree)[..., 1:]


def octaves(
    t: Float[Array, "*P d_y"], base: float | Float[Array, "d_y 1"], count: int, start: int
) -> Float[Array, "*P E"]:
    """cos(2ʲ·base·tⁱ), sin(2ʲ·base·tⁱ) for j = start … start + count − 1, grouped by dimension i."""
    frequencies = base * 2.0 ** jnp.arange(start, start + count)
    angles = t[..., :, None] * frequencies
    waves = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)
    return waves.reshape(*t.shape[:-1], -1)


def check_even(num_frequencies: int) -> int:
    """H/2; raises if H is odd, because cosines and sines come in pairs."""
    if num_frequencies < 0 or num_frequencies % 2:
        raise ValueError(
            f"num_frequencies (H) counts cosines and sines together and must be even, got {num_frequencies}; "
            f"pass {2 * max(1, num_frequencies // 2)}"
        )
    return num_frequencies // 2


def real_harmonics(r: Float[Array, "*P 3"], degree: int) -> Float[Array, "*P E"]:
    """Y_ℓᵐ at unit vectors r, ordered (0,0), (1,−1), (1,0), (1,1), (2,−2), …

    Y_ℓ^{±m} = Π_ℓᵐ(r₃) · Re, Im (r₁ + i r₂)ᵐ, where Π_ℓᵐ is the fully normalized associated Legendre function
    without its factor (1 − r₃²)^{m/2}, so that no angle is ever computed. The three-term recurrence in ℓ is the usual
    stable one (Holmes & Featherstone 2002).
    """
    x, y, z = r[..., 0], r[..., 1], r[..., 2]
    cosine, sine = jnp.ones_like(x), jnp.zeros_like(x)  # Re, Im (x + iy)ᵐ
    harmonics: dict[tuple[int, int], Array] = {}
    diagonal = math.sqrt(1.0 / (4.0 * math.pi))  # Π_mᵐ, a constant
    for m in range(degree + 1):
        if m:
            cosine, sine = x * cosine - y * sine, x * sine + y * cosine
            diagonal *= math.sqrt((2 * m + 1) / (2 * m))
        before, legendre = jnp.zeros_like(z), jnp.full_like(z, diagonal)
        for degree_ in range(m, degree + 1):
            if degree_ > m:
                a = math.sqrt((4 * degree_**2 - 1) / (degree_**2 - m**2))
                b = math.sqrt(((degree_ - 1) ** 2 - m**2) / (4 * (degree_ - 1) ** 2 - 1))
                before, legendre = legendre, a * (z * legendre - b * before)
            if m == 0:
                harmonics[degree_, 0] = legendre
            else:
                harmonics[degree_, m] = math.sqrt(2.0) * legendre * cosine
                harmonics[degree_, -m] = math.sqrt(2.0) * legendre * sine
    return jnp.stack([harmonics[k] for k in sorted(harmonics)], axis=-1)
