"""The error that the scripts of the paper report for Darcy flow."""

from __future__ import annotations

from collections.abc import Sequence

from loca.metrics.squares import Errors, Values, ratio


def spectral(prediction: Values, truth: Values, shape: Sequence[int]) -> Errors:
    """‖S* − S‖ / ‖S‖ with the largest singular values of the fields as matrices.

    Only the strongest pattern of an error counts: one that is spread over r equal singular values is √r times smaller
    than its Euclidean norm. Use it to compare with numbers made so, and `relative_l2` otherwise.

    **Arguments:**

    - `prediction`, `truth`: values on a two-dimensional grid in row-major order.
    - `shape`: of that grid.
    """
    if len(shape) != 2 or shape[0] * shape[1] != truth.shape[1]:
        raise ValueError(
            f"a spectral norm needs values on a two-dimensional grid, but {truth.shape[1]} values per function were "
            f"given for the shape {tuple(shape)}; use `relative_l2`, which needs no grid"
        )

    def size(values: Values) -> Errors:
        numbers = values.__array_namespace__()
        return numbers.linalg.norm(values.reshape(len(values), *shape, -1), ord=2, axis=(1, 2))

    return ratio(size(prediction - truth), size(truth))
