"""A training step of LOCA in bare JAX: the same arithmetic as the package's, written by hand without it.

What the package costs over this is the price of its abstractions, and should be none.
"""

import jax
import jax.numpy as jnp


def mlp(layers, h):
    """A multilayer perceptron with GELU."""
    for w, b in layers[:-1]:
        h = jax.nn.gelu(h @ w + b)
    w, b = layers[-1]
    return h @ w + b


def kernel(rate, a, b):
    """exp(−rate·‖a − b‖²) for all pairs, over any leading axes."""
    a2, b2 = jnp.sum(a**2, axis=-1), jnp.sum(b**2, axis=-1)
    r2 = a2[..., :, None] + b2[..., None, :] - 2.0 * a @ jnp.swapaxes(b, -1, -2)
    return jnp.exp(-rate * jnp.maximum(r2, 0.0))


def predict(params, batch, channels):
    """F(u)(y) with the node side once, φ once per location, v once per function."""
    rate = jnp.exp(params["log_rate"])
    q_y, q_z = mlp(params["q"], batch["y"]), mlp(params["q"], batch["z"])
    k_yz, k_zz = kernel(rate, q_y, q_z), kernel(rate, q_z, q_z)
    w = batch["w"]
    kappa = k_yz * jax.lax.rsqrt(k_yz @ w)[:, None] * jax.lax.rsqrt(k_zz @ w)
    g = mlp(params["g"], q_z) * w[:, None]
    g = jnp.split(g, channels, axis=-1)
    v = jnp.split(mlp(params["f"], batch["codes"]), channels, axis=-1)
    s = [v_s @ jax.nn.softmax(kappa @ g_s, axis=-1).T for g_s, v_s in zip(g, v, strict=True)]
    s = jnp.stack(s, axis=-1)
    return s if batch["index"] is None else jnp.take_along_axis(s, batch["index"][:, :, None], axis=1)


def adam(params, gradient, moments, step, rate=1e-3, b1=0.9, b2=0.999, eps=1e-8):
    """One step of Adam."""
    first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, moments[0], gradient)
    second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g**2, moments[1], gradient)
    c1, c2 = 1 - b1**step, 1 - b2**step
    params = jax.tree.map(lambda p, m, v: p - rate * (m / c1) / (jnp.sqrt(v / c2) + eps), params, first, second)
    return params, (first, second)


def advance(carry, batch, channels, predict=predict):
    """One training step: mean squared loss, its gradient, Adam."""
    params, moments, step = carry

    def objective(params):
        return jnp.mean((predict(params, batch, channels) - batch["s"]) ** 2)

    loss, gradient = jax.value_and_grad(objective)(params)
    params, moments = adam(params, gradient, moments, step + 1)
    return (params, moments, step + 1), loss
