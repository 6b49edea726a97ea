"""Daubechies' orthonormal wavelet filters, by spectral factorization."""

import math

import numpy as np
from jaxtyping import Float


def daubechies(moments: int) -> Float[np.ndarray, " taps"]:
    """The low-pass filter h of length 2p whose wavelet has p vanishing moments, ∑h = √2.

    h(z) = √2 ((1 + z)/2)ᵖ q(z), where |q|² = Σ_{k<p} C(p−1+k, k) yᵏ at y = (2 − z − 1/z)/4. Each root y is a pair
    z, 1/z; taking the one inside the unit circle gives the filter of minimal phase (I. Daubechies, CPAM 1988).
    """
    roots = np.roots([math.comb(moments - 1 + k, k) for k in reversed(range(moments))])
    middle = 1 - 2 * roots  # (z + 1/z)/2
    z = middle + np.sqrt(middle**2 - 1 + 0j)
    z = np.where(np.abs(z) < 1, z, 1 / z)
    h = np.real(np.poly(np.concatenate([-np.ones(moments), z])))
    return h * (math.sqrt(2) / h.sum())
