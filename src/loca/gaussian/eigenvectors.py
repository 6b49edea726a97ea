"""Eigenvectors of kernel matrices, in double precision."""

import numpy as np
from jaxtyping import Float

NEGLIGIBLE = 1e-8
"""Features with eigenvalues below this fraction of the largest are zero: in single precision a kernel has errors of
about 1e-7, which λ^(−1/2) would amplify to the size of such a feature."""


def leading(matrix: Float[np.ndarray, "n n"], rank: int) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "n r"]]:
    """λ^(−1/2) of the largest eigenvalues λ of a symmetric matrix, in decreasing order of λ, and the eigenvectors.

    Features are the kernel times their product. Negligible eigenvalues give zero: the number of features is fixed, so
    programs for them are compiled once.
    """
    values, vectors = np.linalg.eigh(np.asarray(matrix, np.float64))
    values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
    kept = values > NEGLIGIBLE * values[0]
    return np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0), vectors
