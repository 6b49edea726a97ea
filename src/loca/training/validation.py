"""How good a model is on functions that it does not learn from, while it learns."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from loca.data import Samples
from loca.devices import FUNCTIONS, place
from loca.metrics import relative_l2
from loca.models import Operator, predict_encoded
from loca.training.encoded import Encoded


def validation(
    model: Operator,
    data: Samples | None,
    size: int,
    weights: Float[Array, " M"] | None = None,
    mesh: Mesh | None = None,
) -> Callable[[Operator], float | None]:
    """The mean relative L2 error on some data as a function of a model, of which only what is learned may differ.

    The data is encoded once, as training data is; `size` functions are worked on at once, and it is compiled once.
    With a mesh, which has all axes, its devices share the work.
    """
    if data is None:
        return lambda model: None
    encoded = place(Encoded.of(model, data, weights), mesh)
    devices = 1 if mesh is None else mesh.shape[FUNCTIONS]
    count = -(-min(size, len(data)) // devices) * devices
    # the last block is filled up from the beginning
    blocks = (jnp.arange(-(-len(data) // count) * count) % len(data)).reshape(-1, count)

    @eqx.filter_jit
    def error(model: Operator, encoded: Encoded) -> Float[Array, ""]:
        restore = model.normalization.restore_output

        def of_block(rows: Int[Array, " B"]) -> Float[Array, "B d_s"]:
            block = encoded.take(rows).sharded(mesh)
            prediction = predict_encoded(model, block.codes, block.queries, mesh)
            return jnp.asarray(relative_l2(prediction, restore(block.s), block.weights))

        errors = jax.lax.map(of_block, blocks)
        return errors.reshape(-1, errors.shape[-1])[: len(encoded.s)].mean()

    return lambda model: float(error(model, encoded))
