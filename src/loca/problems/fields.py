"""Gaussian random functions as series, which can be evaluated at any resolution."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jaxtyping import Float


@dataclasses.dataclass(frozen=True)
class GaussianProcess:
    """u ~ GP(0, o·exp(−|x − x'|²/(2l²))) on [0, 1], with its antiderivative in closed form.

    On a circle so long that correlations around it are below rounding errors, the process is a Fourier series with
    independent normal coefficients, and so is its antiderivative. Terms below rounding errors are left out.

    **Arguments:**

    - `length`: the correlation length l.
    - `variance`: o, the variance of u at every point.
    """

    length: float
    variance: float = 1.0

    @property
    def period(self) -> float:
        """The length of the circle: exp(−(period − 1)²/(2l²)) = exp(−32)."""
        return 1.0 + 8.0 * self.length

    @property
    def frequencies(self) -> Float[np.ndarray, " K"]:
        """ω_k = 2πk/period, up to the frequency where the spectrum has fallen to 10⁻¹⁶."""
        step = 2.0 * math.pi / self.period
        return step * np.arange(math.ceil(math.sqrt(2.0 * 37.0) / (self.length * step)) + 1)

    @property
    def variances(self) -> Float[np.ndarray, " K"]:
        """The variances of the coefficients: the Fourier series of the kernel, by Poisson summation over the circle."""
        omega = self.frequencies
        density = math.sqrt(2.0 * math.pi) * self.length / self.period * np.exp(-0.5 * (omega * self.length) ** 2)
        return self.variance * np.where(omega > 0.0, 2.0, 1.0) * density

    def draw(self, generator: np.random.Generator) -> Float[np.ndarray, "2 K"]:
        """Draw the coefficients a, b of u(x) = Σ_k a_k cos ω_k x + b_k sin ω_k x."""
        return np.sqrt(self.variances) * generator.standard_normal((2, len(self.variances)))

    def evaluate(self, coefficients: Float[np.ndarray, "2 K"], x: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """u(x)."""
        a, b = coefficients
        angle = x[:, None] * self.frequencies
        return np.cos(angle) @ a + np.sin(angle) @ b

    def integrate(self, coefficients: Float[np.ndarray, "2 K"], x: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """∫₀ˣ u, term by term."""
        (a0, *_), a, b = coefficients[0], coefficients[0, 1:], coefficients[1, 1:]
        omega = self.frequencies[1:]
        angle = x[:, None] * omega
        # 1 − cos = 2 sin² avoids cancellation near zero
        return a0 * x + np.sin(angle) @ (a / omega) + 2.0 * np.sin(0.5 * angle) ** 2 @ (b / omega)


@dataclasses.dataclass(frozen=True)
class MaternField:
    """u ~ N(0, a(−Δ + τ² I)^(−α)) on the unit square, as a series of eigenfunctions of the Laplacian.

    Such a field is of Matérn type. Its correlation length is of order 1/τ and, in two dimensions, it has α − 1
    derivatives.

    **Arguments:**

    - `amplitude`: a.
    - `rate`: τ.
    - `exponent`: α, larger than 1, so that the variance is finite.
    - `modes`: number of eigenfunctions per dimension; a grid cannot represent more of them than it has points.
    - `boundary`: `"neumann"` for cosines, `"periodic"` for sines and cosines of period 1.
    """

    amplitude: float
    rate: float
    exponent: float
    modes: int
    boundary: str = "neumann"

    def __post_init__(self):
        if self.exponent <= 1.0 or self.modes < 1:
            raise ValueError(
                f"a Matérn field on the square needs exponent > 1 and modes ≥ 1, got {self.exponent} and {self.modes}"
            )
        if self.boundary not in ("neumann", "periodic"):
            raise ValueError(f"boundary must be 'neumann' or 'periodic', got {self.boundary!r}")

    @property
    def frequencies(self) -> Float[np.ndarray, " K"]:
        """The frequencies of the eigenfunctions along one axis: π·(0, 1, 2, …) or 2π·(0, 1, 1, 2, 2, …)."""
        k = np.arange(self.modes)
        return np.pi * k if self.boundary == "neumann" else 2.0 * np.pi * ((k + 1) // 2)

    @property
    def variances(self) -> Float[np.ndarray, "K K"]:
        """The variances of the coefficients: a(ω₁² + ω₂² + τ²)^(−α)."""
        omega = self.frequencies
        return self.amplitude * (omega[:, None] ** 2 + omega**2 + self.rate**2) ** -self.exponent

    def basis(self, x: Float[np.ndarray, " m"]) -> Float[np.ndarray, "m K"]:
        """The orthonormal eigenfunctions along one axis."""
        angle = x[:, None] * self.frequencies
        sines = (self.boundary == "periodic") & (np.arange(self.modes) % 2 == 0)  # 0, cos, sin, cos, sin, …
        waves = np.where(sines, np.sin(angle), np.cos(angle))
        waves[:, 0] = math.sqrt(0.5)
        return math.sqrt(2.0) * waves

    def draw(self, generator: np.random.Generator) -> Float[np.ndarray, "K K"]:
        """Draw the coefficients of the series."""
        return np.sqrt(self.variances) * generator.standard_normal((self.modes, self.modes))

    def evaluate(
        self, coefficients: Float[np.ndarray, "K K"], x1: Float[np.ndarray, " m1"], x2: Float[np.ndarray, " m2"]
    ) -> Float[np.ndarray, "m1 m2"]:
        """u on the grid x₁ × x₂."""
        return self.basis(x1) @ coefficients @ self.basis(x2).T
