"""What an optimizer may change."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

from loca.domains import Box
from loca.kernels import RBF
from loca.nets import MLP
from loca.parameters import Held, Positive, count, trainable
from loca.rules import GaussLegendre


class Model(eqx.Module):
    net: MLP
    rule: GaussLegendre
    kernel: RBF


def model(rate=1.0):
    return Model(MLP((2, 3, 1), key=jax.random.key(0)), GaussLegendre(Box.unit(2), 3), RBF(rate))


def test_fixed_parts_and_held_numbers_are_not_counted():
    weights = (2 * 3 + 3) + (3 * 1 + 1)
    assert count(model()) == weights + 1
    assert count(model(Held(0.2))) == weights


def test_weight_decay_leaves_fixed_parts_alone():
    """Zero gradients would not protect the nodes from decay; leaving them out of the update does."""
    before = model(Held(0.2))
    learned, given = eqx.partition(before, trainable(before))
    optimizer = optax.adamw(0.1, weight_decay=0.5)
    updates, _ = optimizer.update(jax.tree.map(jnp.ones_like, learned), optimizer.init(learned), learned)
    after = eqx.combine(eqx.apply_updates(learned, updates), given)
    assert jnp.array_equal(after.rule.z, before.rule.z)
    assert after.kernel.rate() == before.kernel.rate()
    assert not jnp.array_equal(after.net.weights[0], before.net.weights[0])


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_positive_refuses_what_has_no_logarithm(value):
    with pytest.raises(ValueError, match="expected a positive number, got"):
        Positive(value)
