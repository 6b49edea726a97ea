"""Baselines for climate: the seasonal mean, and linear regression on principal components."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Array, Float, Shaped

Time = Shaped[np.ndarray, " N"]
"""Dates, as datetime64."""

DAYS_PER_YEAR = 365.2425
"""The mean length of a year in the Gregorian calendar."""


@dataclasses.dataclass(frozen=True)
class Climatology:
    """s̄(t, y) = a₀(y) + Σₖ aₖ(y) cos 2πkt + bₖ(y) sin 2πkt with t in years: the prediction from the date alone.

    **Arguments:**

    - `coefficients`: a₀, a₁, b₁, a₂, b₂, … at every location.
    """

    coefficients: Float[np.ndarray, "K P d_s"]

    @classmethod
    def fit(cls, time: Time, fields: Float[Array | np.ndarray, "N P d_s"], harmonics: int = 2) -> Climatology:
        """Fit by least squares over the given dates; two harmonics are the annual and the semiannual cycle."""
        waves = annual_waves(time, harmonics)
        if len(time) < waves.shape[1]:
            raise ValueError(
                f"{harmonics} harmonics need at least {waves.shape[1]} fields, but {len(time)} were given; "
                "pass fewer harmonics or a longer record"
            )
        values = np.asarray(fields, np.float64)
        flat = np.linalg.lstsq(waves, values.reshape(len(values), -1), rcond=None)[0]
        return cls(flat.reshape(-1, *values.shape[1:]))

    def __call__(self, time: Time) -> Float[np.ndarray, "N P d_s"]:
        """The mean fields of these dates."""
        return np.tensordot(annual_waves(time, (len(self.coefficients) - 1) // 2), self.coefficients, axes=1)


@dataclasses.dataclass(frozen=True)
class Ridge:
    """s = Σⱼ Bⱼ ⟨eⱼ, u⟩_w: ridge regression from the leading principal components eⱼ of u to s.

    For anomalies, that is, departures from a `Climatology`: no mean is fitted.

    **Arguments:**

    - `components`: w eⱼ, so that a sum over the sensors gives the coordinate of u along the component eⱼ.
    - `responses`: Bⱼ, the change of s for one unit of that coordinate.
    """

    components: Float[np.ndarray, "k m d_u"]
    responses: Float[np.ndarray, "k P d_s"]

    @classmethod
    def fit(
        cls,
        u: Float[Array | np.ndarray, "N m d_u"],
        s: Float[Array | np.ndarray, "N P d_s"],
        components: int = 40,
        weights: Float[np.ndarray, " m"] | None = None,
        strength: float = 1e-6,
    ) -> Ridge:
        """Bⱼ = Σᵢ zᵢⱼ sᵢ / (λⱼ + strength·λ₁) with coordinates zᵢⱼ = ⟨eⱼ, uᵢ⟩_w and λⱼ = Σᵢ zᵢⱼ².

        Coordinates of different components are uncorrelated over the training functions, so the regression separates
        into one per component. The strength only avoids division by zero for components without variance; the number
        of components regularizes.

        **Arguments:**

        - `u`, `s`: anomalies of inputs and outputs.
        - `components`: k, the number of components.
        - `weights`: w, such as the `area_weights` of the sensors; equal by default.
        - `strength`: strength of the penalty, relative to the largest λ.
        """
        inputs, outputs = np.asarray(u, np.float64), np.asarray(s, np.float64)
        N, m, d_u = inputs.shape
        if not 0 < components <= min(N, m * d_u):
            raise ValueError(
                f"cannot compute {components} components of {N} functions with {m * d_u} values each; "
                f"pass 1 to {min(N, m * d_u)}"
            )
        root = np.sqrt(np.full(m, 1.0 / m) if weights is None else weights)
        scaled = (inputs * root[:, None]).reshape(N, -1)
        directions = principal_directions(scaled, components)
        z = scaled @ directions
        variance = np.sum(z**2, axis=0)
        responses = (z.T @ outputs.reshape(N, -1)) / (variance + strength * variance[0])[:, None]
        return cls(directions.T.reshape(components, m, d_u) * root[:, None], responses.reshape(-1, *outputs.shape[1:]))

    def keep(self, components: int) -> Ridge:
        """The regression on the first `components` components: the same as fitting with this number."""
        return Ridge(self.components[:components], self.responses[:components])

    def __call__(self, u: Float[Array | np.ndarray, "N m d_u"]) -> Float[np.ndarray, "N P d_s"]:
        """Predict the outputs of these inputs."""
        z = np.tensordot(np.asarray(u, np.float64), self.components, axes=((1, 2), (1, 2)))
        return np.tensordot(z, self.responses, axes=1)


@dataclasses.dataclass(frozen=True)
class SeasonalRidge:
    """s = s̄(t) + ridge(u − ū(t)): the seasonal mean of s, corrected by the anomaly of u.

    **Arguments:**

    - `inputs`, `outputs`: the climatologies ū and s̄.
    - `ridge`: the map between anomalies.
    """

    inputs: Climatology
    outputs: Climatology
    ridge: Ridge

    @classmethod
    def fit(
        cls,
        time: Time,
        u: Float[Array | np.ndarray, "N m d_u"],
        s: Float[Array | np.ndarray, "N P d_s"],
        components: int = 40,
        weights: Float[np.ndarray, " m"] | None = None,
        harmonics: int = 2,
    ) -> SeasonalRidge:
        """Fit all three on the same dates; arguments as in `Climatology.fit` and `Ridge.fit`."""
        inputs, outputs = Climatology.fit(time, u, harmonics), Climatology.fit(time, s, harmonics)
        u_anomaly, s_anomaly = np.asarray(u, np.float64) - inputs(time), np.asarray(s, np.float64) - outputs(time)
        return cls(inputs, outputs, Ridge.fit(u_anomaly, s_anomaly, components, weights))

    def keep(self, components: int) -> SeasonalRidge:
        """The same model with the first `components` components."""
        return dataclasses.replace(self, ridge=self.ridge.keep(components))

    def __call__(self, time: Time, u: Float[Array | np.ndarray, "N m d_u"]) -> Float[np.ndarray, "N P d_s"]:
        """Predict the outputs of these inputs on these dates."""
        return self.outputs(time) + self.ridge(np.asarray(u, np.float64) - self.inputs(time))


def annual_waves(time: Time, harmonics: int) -> Float[np.ndarray, "N K"]:
    """1, cos 2πt, sin 2πt, cos 4πt, sin 4πt, … with t in years since 2000-01-01."""
    seconds = (time - np.datetime64("2000-01-01", "s")) / np.timedelta64(1, "s")
    angle = 2.0 * np.pi / (DAYS_PER_YEAR * 86400.0) * seconds
    waves = [f(k * angle) for k in range(1, harmonics + 1) for f in (np.cos, np.sin)]
    return np.stack([np.ones_like(angle), *waves], axis=1)


def principal_directions(a: Float[np.ndarray, "N n"], count: int) -> Float[np.ndarray, "n count"]:
    """The leading right singular vectors of a, from whichever of aaᵀ and aᵀa is smaller."""
    N, n = a.shape
    if n <= N:
        return np.linalg.eigh(a.T @ a)[1][:, ::-1][:, :count]
    # these columns are already orthogonal, up to rounding; the QR factorization normalizes them, even zero columns
    left = np.linalg.eigh(a @ a.T)[1][:, ::-1][:, :count]
    return np.linalg.qr(a.T @ left)[0]
