"""Algorithm 1 laid out as the paper's cost section implies: every function of a batch does all the work on its own.

Queries and nodes are given once per function, so q, g and both kernel matrices are computed batch-size times; with
Monte Carlo the nodes are the function's own queries. Written from the paper.
"""

import jax
import jax.numpy as jnp

from loca.benchmarks.bare import kernel, mlp


def predict(params, batch, channels):
    """F(u)(y) for queries (B, P, E) and nodes (B, Q, E), or nodes None where the queries are the nodes."""
    rate = jnp.exp(params["log_rate"])
    q_y = mlp(params["q"], batch["y"])
    if batch["z"] is None:
        q_z = q_y
        k_yz = k_zz = kernel(rate, q_y, q_y)
    else:
        q_z = mlp(params["q"], batch["z"])
        k_yz, k_zz = kernel(rate, q_y, q_z), kernel(rate, q_z, q_z)
    w = batch["w"]
    root_y, root_z = jnp.sqrt(jnp.einsum("bpq,bq->bp", k_yz, w)), jnp.sqrt(jnp.einsum("bpq,bq->bp", k_zz, w))
    kappa = k_yz / root_y[:, :, None] / root_z[:, None, :]
    g = mlp(params["g"], q_z)
    g = g.reshape(*g.shape[:2], channels, -1)
    g_tilde = jnp.einsum("bpq,bqsn,bq->bpsn", kappa, g, w)
    phi = jax.nn.softmax(g_tilde, axis=-1)
    v = mlp(params["f"], batch["codes"])
    return jnp.einsum("bpsn,bsn->bps", phi, v.reshape(len(v), channels, -1))
