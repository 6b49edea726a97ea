"""An operator in halves: what depends on u alone, what depends on y alone, and what brings both together."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from loca.attention import expectation
from loca.data import Queries, Shared
from loca.models import FNO, Operator, SeparableOperator
from loca.typing import Input, PyTree

BLOCK = 2048
"""Queries whose φ is computed at once: with 1024 nodes κ then takes 8 MB, and larger blocks are no faster."""

MOST_OWN_NODES = 4096
"""Queries that may also be the nodes: κ among them then takes 64 MB."""


class Halves(NamedTuple):
    """F(u)(y) = together(of_functions(u), of_queries(y)), so that neither half is computed twice."""

    of_functions: Callable[[Input], Array]  # B functions, a row each
    of_queries: Callable[[Array], PyTree]  # (P, d_y)
    together: Callable[[Array, PyTree], Float[np.ndarray, "B P d_s"]]  # in the units of the data


def halves(model: Operator, y: Float[Array, "P d_y"]) -> Halves:
    """The halves of an operator; y is where it will be asked, or some of it if answers do not depend on the rest.

    - v(u) and φ(y), if it is separable; all work at the nodes is done here, once.
    - The field on its own grid, and where in this grid the queries lie, if it is an FNO.
    - The encoded function and the queries as they are, for any other: what it does between is done for every block.
    """
    if isinstance(model, SeparableOperator):
        phi = eqx.filter_jit(model.basis(y))
        return Halves(
            functools.partial(features, model),
            lambda y: [phi(y[i : i + BLOCK]) for i in range(0, len(y), BLOCK)],
            lambda v, parts: np.concatenate([np.asarray(expected(model, v, part)) for part in parts], axis=1),
        )
    if isinstance(model, FNO):
        return Halves(
            functools.partial(fields, model),
            eqx.filter_jit(model.grid.interpolation),
            lambda field, places: np.asarray(interpolated(model, field, places)),
        )
    return Halves(
        functools.partial(encoded, model),
        lambda y: y,
        lambda codes, y: np.asarray(responded(model, codes, Shared(y))),
    )


def is_pointwise(model: Operator) -> bool:
    """Whether an answer is the same whatever else is asked, so that queries may be cut into blocks."""
    return not isinstance(model, SeparableOperator) or model.is_pointwise


def check_nodes(model: Operator, queries: int) -> None:
    """Refuse too many queries for a model whose nodes they are: its cost is their number squared."""
    if not is_pointwise(model) and queries > MOST_OWN_NODES:
        raise ValueError(
            f"the nodes of this model are its queries (rule `OwnQueries`), so {queries} of them cannot be answered a "
            f"part at a time; ask for at most {MOST_OWN_NODES}, or train with a rule that has nodes of its own, such "
            "as `MonteCarlo`"
        )


@eqx.filter_jit
def features(model: SeparableOperator, u: Input) -> Float[Array, "B d_s n"]:
    """v(uᵢ)."""
    return jax.vmap(model.features)(u)


@eqx.filter_jit
def expected(model: Operator, v: Float[Array, "B d_s n"], phi: PyTree) -> Float[Array, "B P d_s"]:
    """E_φ[v], in the units of the data."""
    return model.normalization.restore_output(expectation(phi, v))


@eqx.filter_jit
def fields(model: FNO, u: Input) -> Float[Array, "B *grid d_s"]:
    """F(uᵢ) on the grid of the model."""
    return jax.vmap(lambda u: model.field(model.encode(u)))(u)


@eqx.filter_jit
def interpolated(model: Operator, fields: Float[Array, "B *grid d_s"], places: PyTree) -> Float[Array, "B P d_s"]:
    """Fields between the points of their grid, in the units of the data."""
    return model.normalization.restore_output(jax.vmap(places)(fields))


@eqx.filter_jit
def encoded(model: Operator, u: Input) -> Float[Array, "B ..."]:
    """Functions as the model takes them."""
    return jax.vmap(model.encode)(u)


@eqx.filter_jit
def responded(model: Operator, codes: Float[Array, "B ..."], queries: Queries) -> Float[Array, "B P d_s"]:
    """Answers to encoded functions, in the units of the data."""
    return model.normalization.restore_output(model.respond(codes, queries))
