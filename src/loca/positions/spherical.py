"""Spherical harmonics as features of a location on the globe."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.domains import Sphere
from loca.positions.position import Position


class Spherical(Position):
    """e(y) = (Y_ℓᵐ(y)), 1 ≤ ℓ ≤ degree, |m| ≤ ℓ: real spherical harmonics, orthonormal on S².

    Degree 1 is the Cartesian unit vector up to a factor. Smooth at the poles and across the date line, because each
    harmonic is evaluated as a polynomial in the unit vector.

    **Arguments:**

    - `domain`: the sphere Y.
    - `degree`: the largest ℓ. Good values: 4 to 10; features resolve about 180/degree degrees.
    """

    domain: Sphere
    degree: int = eqx.field(static=True)

    def __init__(self, domain: Sphere, degree: int = 6):
        if degree < 1:
            raise ValueError(f"degree must be at least 1 (the Cartesian unit vector), got {degree}")
        self.domain = domain
        self.degree = degree

    @property
    def size(self) -> int:
        return (self.degree + 1) ** 2 - 1

    def __call__(self, y: Float[Array, "*P d_y"]) -> Float[Array, "*P E"]:
        self.domain.check(y)
        return real_harmonics(self.domain.to_cartesian(y), self.degree)[..., 1:]


def real_harmonics(r: Float[Array, "*P 3"], degree: int) -> Float[Array, "*P E"]:
    """Y_ℓᵐ at unit vectors r, ordered (0,0), (1,−1), (1,0), (1,1), (2,−2), …

    Y_ℓ^{±m} = Π_ℓᵐ(r₃) · Re, Im (r₁ + i r₂)ᵐ, where Π_ℓᵐ is the fully normalized associated Legendre function
    without its factor (1 − r₃²)^{m/2}, so that no angle is ever formed. The three-term recurrence in ℓ is the usual
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
