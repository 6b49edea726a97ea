"""The multilayer perceptron: its formula and the scale of its weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from loca.nets import MLP


def test_formula(getkey):
    net = MLP((3, 5, 4, 2), key=getkey())
    h = jax.random.normal(getkey(), (3,))
    (w1, w2, w3), (b1, b2, b3) = net.weights, net.biases
    by_hand = jax.nn.gelu(jax.nn.gelu(h @ w1 + b1) @ w2 + b2) @ w3 + b3
    assert jnp.allclose(net(h), by_hand, atol=1e-6)
    many = jax.random.normal(getkey(), (4, 6, 3))
    assert jnp.allclose(net(many), jax.vmap(jax.vmap(net))(many), atol=1e-6)


def test_glorot_normal(getkey):
    """Weights have variance 2/(fan in + fan out), and layers of equal shape do not start equal."""
    net = MLP((400, 400, 400), key=getkey())
    first, second = net.weights
    deviation = np.sqrt(2.0 / 800.0)
    assert float(jnp.std(first)) == pytest.approx(deviation, rel=0.01)
    assert abs(float(jnp.mean(first * second))) < 5 * deviation**2 / 400
    assert not any(jnp.any(b) for b in net.biases)


def test_sizes_are_checked(getkey):
    assert MLP((3, 5, 2), key=getkey()).sizes == (3, 5, 2)
    with pytest.raises(ValueError, match="`sizes` needs at least an input and an output width"):
        MLP((3,), key=getkey())
