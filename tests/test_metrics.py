"""Errors, by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from loca.metrics import relative_l2, relative_l2_squared


def test_the_norm_is_that_of_a_vector_not_of_a_matrix():
    """A field error of rank two: its Euclidean norm is √(3² + 4²) = 5, its spectral norm as a matrix only 4."""
    error = np.diag([3.0, 4.0])
    truth = np.full((2, 2), 5.0)  # norm 10
    fields = jnp.asarray(truth.reshape(1, 4, 1)), jnp.asarray((truth + error).reshape(1, 4, 1))
    assert float(relative_l2(fields[1], fields[0])[0, 0]) == pytest.approx(0.5)
    assert float(relative_l2_squared(fields[1], fields[0])[0, 0]) == pytest.approx(0.25)


def test_errors_are_per_function_and_channel_and_relative_to_the_truth():
    truth = jnp.array([[[1.0, 10.0], [0.0, 0.0]], [[3.0, 1.0], [4.0, 0.0]]])
    prediction = truth + jnp.array([[[0.5, 0.0], [0.0, 5.0]], [[0.0, 1.0], [10.0, 0.0]]])
    assert np.allclose(relative_l2(prediction, truth), [[0.5, 0.5], [2.0, 1.0]])
