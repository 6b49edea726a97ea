"""Errors of an operator on data it has not seen, at all the locations where the truth is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from loca.data import Queries, Records, Samples, Shared
from loca.devices import complete, constrain, place, shard_functions
from loca.evaluation.blocks import BLOCK, blocks
from loca.evaluation.measures import Measuring
from loca.evaluation.report import Report
from loca.models import Operator, Spread, spread
from loca.typing import Input, PyTree

Reference = Float[Array | np.ndarray, "P d_s"] | Float[Array | np.ndarray, "N P d_s"]
"""One field for all functions, such as a mean, or one for each, such as the climatology of its day."""


def evaluate(
    model: Operator,
    data: Samples | Records,
    *,
    metrics: Sequence[str] | None = None,
    weights: Float[Array | np.ndarray, " P"] | None = None,
    reference: Reference | None = None,
    batch_size: int = BLOCK,
    mesh: Mesh | None = None,
) -> Report:
    """The errors of F(uᵢ) against sᵢ for every function and output channel, in the units of the data.

    Functions pass in blocks: data in files is never in memory as a whole. Predictions are made in single precision by
    one compiled function, with all work on shared queries done once; errors are taken in double precision.

    **Arguments:**

    - `model`: the operator.
    - `data`: test data, in memory or in files.
    - `metrics`: names from `MEASURES`; by default all that the data admits (bands need an evenly spaced grid, not on
        a sphere, and skill a reference) but the paper's `relative_l2_squared` and `spectral`.
    - `weights`: how much of Y each query stands for, such as `loca.domains.area_weights`. Maximum, spectral norm and
        bands take none.
    - `reference`: what to beat, such as `mean_field(train)`: gives skill, and its own errors beside the model's.
    - `batch_size`: functions in memory at once.
    - `mesh`: devices that share the predictions, see `loca.models.spread`. With devices of several processes each makes
        this same call and gets the whole report.
    """
    measuring: Measuring | None = None
    answer: Callable[[Samples], Array] | None = None
    found: list[dict[str, np.ndarray]] = []
    baseline: list[dict[str, np.ndarray]] = []
    done, size = 0, min(batch_size, len(data))
    for samples in blocks(data, size):
        count = len(samples)
        truth = np.asarray(samples.s, np.float64)
        if measuring is None or answer is None:
            measuring = Measuring.prepare(samples, metrics, weights, reference is not None)
            check_reference(reference, len(data), truth.shape)
            answer = answers(model, samples, mesh)
        # the last block is filled up, so that it needs no compilation of its own
        filled = samples if count == size else samples.take(jnp.arange(size) % count)
        prediction = np.asarray(answer(filled), np.float64)[:count]
        expected = None
        if reference is not None:
            field = reference if reference.ndim == 2 else reference[done : done + count]
            expected = np.broadcast_to(np.asarray(field, np.float64), truth.shape)
            baseline.append(measuring(expected, truth, None))
        found.append(measuring(prediction, truth, expected))
        done += count
    return Report(
        outputs=data.outputs,
        errors=join(found),
        baseline=join(baseline) if baseline else None,
        is_weighted=weights is not None,
        source=data.source if isinstance(data, Records) else "",
    )


def answers(model: Operator, like: Samples, mesh: Mesh | None = None) -> Callable[[Samples], Array]:
    """A function from samples to predictions; queries shared by all functions are worked on once."""
    mesh = None if mesh is None else complete(mesh)
    asked = model if mesh is None else place(spread(model, mesh), mesh)
    if not isinstance(like.y, Shared):
        return lambda samples: predict(asked, *place((samples.u, samples.y), mesh), mesh)
    fixed = fix(asked, place(like.y, mesh))
    return lambda samples: apply(fixed, place(samples.u, mesh), mesh)


# compiled here and not where they are used, so that another model of the same sizes needs no compilation


@eqx.filter_jit
def predict(model: Operator | Spread, u: Input, queries: Queries, mesh: Mesh | None) -> Float[Array, "N P d_s"]:
    """F(uᵢ)(yᵢ), on every device of a mesh."""
    return constrain(model.predict(u, queries), mesh)


@eqx.filter_jit
def fix(model: Operator | Spread, queries: Shared) -> PyTree:
    """The operator with all work on the queries done."""
    return model.at(queries.y)


@eqx.filter_jit
def apply(fixed: PyTree, u: Input, mesh: Mesh | None) -> Float[Array, "N P d_s"]:
    """Its answers for some functions, on every device of a mesh."""
    return constrain(jax.vmap(fixed)(shard_functions(u, mesh)), mesh)


def join(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Blocks of errors, one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_reference(reference: Reference | None, functions: int, shape: tuple[int, ...]) -> None:
    """Refuse a reference that does not belong to the data."""
    fields = (shape[1:], (functions, *shape[1:]))
    if reference is not None and reference.shape not in fields:
        raise ValueError(
            f"the reference has shape {reference.shape}; pass one field {fields[0]} for all functions, "
            f"or one for each {fields[1]}"
        )
