"""Morlet wavelets and the ladders of frequencies they are placed on, in the Fourier domain, by NumPy.

A Morlet wavelet is a Gaussian envelope times a wave, minus the multiple of the envelope that makes its mean vanish,

    ψ(x) = g(x) (exp(iξ·x) − κ),     ψ̂(ω) = ĝ(ω − ξ) − κ ĝ(ω),     κ = ĝ(−ξ)/ĝ(0).

Sampling ψ on integers repeats ψ̂ with period 2π, so a filter for a periodic grid is a sum of shifted Gaussians at the
frequencies of that grid. All filters here are real in the Fourier domain.

The numbers (widths, spacing, normalization) are those of Kymatio 0.3.0, so that its coefficients are reproduced.

S. Mallat, *Group invariant scattering*, CPAM 2012. J. Bruna and S. Mallat, *Invariant scattering convolution
networks*, PAMI 2013 (images). J. Andén and S. Mallat, *Deep scattering spectrum*, IEEE TSP 2014 (time series).
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

NEGLIGIBLE = 9.0  # standard deviations at which a Gaussian, e⁻⁴⁰, is below the resolution of double precision

# ---- images ---------------------------------------------------------------------------------------------------------

FINEST_WIDTH = 0.8  # σ in pixels of the envelope at scale j = 0; it doubles with j
HIGHEST_FREQUENCY = 3 * math.pi / 4  # |ξ| in radians per pixel at j = 0: the middle of the highest octave, [π/2, π]
# Kymatio divides the envelope by 2·3.1415·σ², not 2πσ². The factor is 1.00003 per filter, more than the 1e-5 to which
# coefficients should agree, and is kept for that reason alone.
ENVELOPE_GAIN = math.pi / 3.1415


def gaussian_1d(frequencies: Float[np.ndarray, " n"], width: float) -> Float[np.ndarray, " n"]:
    """Σ_p exp(−(ω + 2πp)² σ²/2): the transform of a sampled Gaussian of width σ and sum one."""
    periods = int((NEGLIGIBLE / width + np.abs(frequencies).max()) / (2 * math.pi))
    shifted = frequencies[:, None] + 2 * math.pi * np.arange(-periods, periods + 1)
    return np.exp(-0.5 * (width * shifted) ** 2).sum(axis=1)


def gaussian_2d(
    shape: tuple[int, int], width: float, slant: float, angle: float, frequency: float
) -> Float[np.ndarray, "n_x n_y"]:
    """Σ_p exp(−‖Σ^½ (ω + 2πp − ξ)‖²/2): an envelope of width σ along ξ and σ/slant across it, centered at ξ."""
    along, across = width, width / slant
    reach = NEGLIGIBLE / min(along, across) + frequency + math.pi
    shifts = 2 * math.pi * np.arange(-int(reach / (2 * math.pi)), int(reach / (2 * math.pi)) + 1)
    omega_x, omega_y = (2 * math.pi * np.fft.fftfreq(n) for n in shape)
    cos, sin = math.cos(angle), math.sin(angle)
    total = np.zeros(shape)
    for p in shifts:
        for q in shifts:
            x, y = (omega_x + p)[:, None], (omega_y + q)[None, :]
            total += np.exp(
                -0.5 * ((along * (cos * x + sin * y - frequency)) ** 2 + (across * (cos * y - sin * x)) ** 2)
            )
    return ENVELOPE_GAIN * total


def morlet_2d(
    shape: tuple[int, int], width: float, slant: float, angle: float, frequency: float
) -> Float[np.ndarray, "n_x n_y"]:
    """ψ̂ on the frequencies of a grid, for a wave of the given frequency in the direction (cos angle, sin angle)."""
    wave = gaussian_2d(shape, width, slant, angle, frequency)
    envelope = gaussian_2d(shape, width, slant, angle, 0.0)
    return wave - wave[0, 0] / envelope[0, 0] * envelope


def bank_2d(shape: tuple[int, int], scales: int, angles: int) -> Float[np.ndarray, "J L n_x n_y"]:
    """ψ̂_{j,θ}, j < J: one wavelet dilated by 2ʲ and rotated in L steps through half a circle.

    The other half circle gives complex conjugates on real fields. Angles start near a quarter circle and decrease; the
    finer the angles, the more elongated the envelope across the wave, by 4/L.
    """
    first = max((angles - 2) // 2, 0)
    return np.stack(
        [
            [
                morlet_2d(
                    shape,
                    FINEST_WIDTH * 2**j,
                    slant=4 / angles,
                    angle=(first - turn) * math.pi / angles,
                    frequency=HIGHEST_FREQUENCY / 2**j,
                )
                for turn in range(angles)
            ]
            for j in range(scales)
        ]
    )


def low_pass_factor(length: int, scales: int) -> Float[np.ndarray, " n"]:
    """φ̂_J along one axis; the Gaussian φ_J(x, y) of width 0.8·2ᴶ⁻¹ is a product of two of these."""
    omega = 2 * math.pi * np.fft.fftfreq(length)
    return math.sqrt(ENVELOPE_GAIN) * gaussian_1d(omega, FINEST_WIDTH * 2 ** (scales - 1))


def lowest(length: int, level: int) -> Int[np.ndarray, " k"]:
    """Indices of the frequencies of a grid that remain on the grid coarsened by 2^level."""
    coarse = length >> level
    return np.rint(np.fft.fftfreq(coarse) * coarse).astype(int) % length


# ---- time series ----------------------------------------------------------------------------------------------------

LOWEST_WIDTH = 0.1  # bandwidth of φ in cycles per sample at scale 1; it halves with every scale
CROSSING = math.sqrt(0.5)  # height at which neighboring wavelets of a ladder cross: half of the energy
ALIASING = 5.0  # standard deviations above ξ beyond which a wavelet is negligible when subsampled
HIGHEST_CENTER = 0.35  # cycles per sample; the highest wavelet is centered here, or higher when octaves are fine


class Rung(NamedTuple):
    """One wavelet of a ladder: center ξ and bandwidth σ in cycles per sample, and j if every 2ʲ-th sample suffices."""

    center: float
    width: float
    step: int


def ladder(scales: int, wavelets_per_octave: int) -> list[Rung]:
    """Centers and bandwidths from high to low frequency: constant ratio, then, below the elbow, constant bandwidth.

    The ratio ξ/σ is such that neighbors 2^(1/Q) apart cross at `CROSSING`. No wavelet is narrower than φ_J, so below
    the frequency where the bandwidths reach it, Q − 1 centers are evenly spaced down to zero.
    """
    ratio = 2 ** (1 / wavelets_per_octave)
    narrowest = LOWEST_WIDTH / 2**scales
    center = max(1 / (1 + ratio**3), HIGHEST_CENTER)
    width = center * (ratio - 1) / (ratio + 1) / math.sqrt(-2 * math.log(CROSSING))

    rungs = []
    if width > narrowest:
        rungs.append((center, width))
        while width > narrowest * ratio:
            center, width = center / ratio, width / ratio
            rungs.append((center, width))
        elbow = center
    else:
        # No wavelet of constant ratio fits above φ_J. Kymatio then steps down from the width instead of the center.
        elbow = width
    rungs += [(elbow * (1 - q / wavelets_per_octave), narrowest) for q in range(1, wavelets_per_octave)]

    def step(center: float, width: float) -> int:
        return math.floor(-math.log2(min(center + ALIASING * width, 0.5))) - 1

    return [Rung(center, width, step(center, width)) for center, width in rungs]


def morlet_1d(length: int, center: float, width: float) -> Float[np.ndarray, " n"]:
    """ψ̂ at the frequencies of a grid, for ∑|ψ| = 1; with center 0 the Gaussian φ̂ itself."""
    omega = 2 * math.pi * np.fft.fftfreq(length)
    spread = 1 / (2 * math.pi * width)  # in samples
    filter_ = envelope = gaussian_1d(omega, spread)
    if center > 0:
        # A Gaussian around ξ on the grid's frequencies is one around 0 on frequencies moved by ξ.
        wave = gaussian_1d(omega - 2 * math.pi * center, spread)
        filter_ = wave - wave[0] / envelope[0] * envelope
    return filter_ / np.abs(np.fft.ifft(filter_)).sum()


def sampled(filter_: Float[np.ndarray, "... n"], step: int) -> Float[np.ndarray, "... k"]:
    """ĥ of the samples h(2^step·t): the mean of the aliases."""
    return filter_.reshape(*filter_.shape[:-1], 2**step, -1).mean(axis=-2)


def support(filter_: Float[np.ndarray, " n"], tail: float) -> int:
    """The least half-width beyond which the absolute values of a centered filter sum to at most `tail` on a side."""
    half = np.abs(np.fft.ifft(filter_))[: len(filter_) // 2]
    beyond = np.cumsum(half[::-1])[::-1]
    inside = np.flatnonzero(beyond <= tail)
    return int(inside[0]) + 1 if inside.size else len(half)
