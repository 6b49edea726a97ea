"""Tests check the annotated shapes of arguments and results."""

import jax.numpy as jnp
import jaxtyping
import pytest

from loca.metrics import relative_l2


def test_shapes_that_contradict_annotations_raise():
    with pytest.raises(jaxtyping.TypeCheckError, match="relative_l2"):
        relative_l2(jnp.zeros((2, 3, 1)), jnp.zeros((2, 4, 1)))
