"""The antiderivative of a random function."""

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from loca.data import Variable
from loca.domains import Box
from loca.problems.problem import Problem, generators
from loca.typing import Key

Scale = float | tuple[float, float]
"""One value for all functions, or the ends of a range from which a value is drawn log-uniformly for each function."""


@dataclasses.dataclass(frozen=True)
class Antiderivative(Problem):
    """s' = u, s(0) = 0 on [0, 1] with u ~ GP(0, o·exp(−|x − x'|²/(2l²))); u ↦ s, exact up to rounding errors.

    The covariance in the paper's text lacks the minus sign and the square; this is the covariance of its data. For the
    out-of-distribution study train with `length` from 0.1 to 0.9 and test with 0.1, the default.

    **Arguments:**

    - `length`: the correlation length l.
    - `variance`: o, the variance of u at every point.
    - `sensors`, `queries`: numbers of points of the two grids on [0, 1]. The paper's text says 500 and 100, but its
      parameter counts imply 1000 sensors.
    """

    citation: ClassVar[str] = "Kissas et al., Learning Operators with Coupled Attention, JMLR 23 (2022), antiderivative"
    inputs: ClassVar[tuple[Variable, ...]] = (Variable("u"),)
    outputs: ClassVar[tuple[Variable, ...]] = (Variable("antiderivative"),)
    block: ClassVar[int] = 1000

    length: Scale = 0.1
    variance: Scale = 1.0
    sensors: int = 500
    queries: int = 100

    def __post_init__(self):
        for name in ("length", "variance"):
            value = getattr(self, name)
            low, high = np.broadcast_to(value, 2)
            if not 0.0 < low <= high:
                raise ValueError(f"{name} must be positive, or a range (low, high) of positive numbers, got {value}")

    @classmethod
    def multi_scale(cls, **arguments) -> "Antiderivative":
        """The problem in which every function has its own length 10^U(−2, 0) and variance 10^U(−2, 2).

        The paper's text has lengths up to 10, its data up to 1.
        """
        return cls(**{"length": (0.01, 1.0), "variance": (0.01, 100.0), **arguments})

    @property
    def domain(self) -> Box:
        return Box.unit(1)

    @property
    def x(self) -> Float[np.ndarray, "m 1"]:
        return np.linspace(0.0, 1.0, self.sensors)[:, None]

    @property
    def y(self) -> Float[np.ndarray, "M 1"]:
        return np.linspace(0.0, 1.0, self.queries)[:, None]

    def pairs(self, key: Key, rows: Sequence[int]) -> tuple[Float[np.ndarray, "B m 1"], Float[np.ndarray, "B M 1"]]:
        x, y = self.x[:, 0], self.y[:, 0]
        u, s = [], []
        for generator in generators(key, rows):
            process = GaussianProcess(log_uniform(generator, self.length), log_uniform(generator, self.variance))
            coefficients = process.draw(generator)
            u.append(process.evaluate(coefficients, x))
            s.append(process.integrate(coefficients, y))
        return np.stack(u)[..., None], np.stack(s)[..., None]


def log_uniform(generator: np.random.Generator, scale: Scale) -> float:
    """The value itself, or a log-uniform draw between the ends of a range."""
    low, high = np.log(np.broadcast_to(scale, 2))
    return float(np.exp(low + (high - low) * generator.uniform()))


@dataclasses.dataclass(frozen=True)
class GaussianProcess:
    """u ~ GP(0, o·exp(−|x − x'|²/(2l²))) on [0, 1], with its antiderivative in closed form.

    On a circle so long that correlations around it are below rounding errors, the process is a Fourier series with
    independent normal coefficients, and so is its antiderivative. Terms below rounding errors are left out.
    """

    length: float  # l
    variance: float = 1.0  # o

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
