"""Many steps at a time, on data that is in memory or streams by."""

from __future__ import annotations

import abc
import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from loca.data import Records, Samples, Stream, batch_rows, stream
from loca.devices import ShardingRule, constrain, from_process_rows, local_copy, place, process_part, replicated
from loca.training.encoded import Encoded
from loca.training.step import Loss, State, advance
from loca.typing import PyTree

NEVER = jnp.iinfo(jnp.int32).max


class Stretch(NamedTuple):
    """What happened in some steps: the sum of all losses so far, and the first step whose loss was not finite.

    The sum goes on from step to step in the order of the steps, so it does not depend on how a run is cut up.
    """

    total: float
    broken_at: int | None


class Recipe(NamedTuple):
    """What is done at every step: batches of so many functions in the order of a seed, a loss, an optimizer.

    `weights` say how much each location counts, `mesh` is what the work is split over, and `parameters` how what is
    learned lies there between steps.
    """

    optimizer: optax.GradientTransformation
    loss: Loss
    size: int
    seed: int
    weights: Float[Array, " M"] | None = None
    mesh: Mesh | None = None
    parameters: ShardingRule = replicated

    def advance(self, state: State, batch: Encoded) -> tuple[State, Float[Array, ""]]:
        """One step."""
        state, value = advance(state, batch.sharded(self.mesh), self.optimizer, self.loss, self.mesh)
        arrays, rest = eqx.partition(state, eqx.is_array)
        return eqx.combine(constrain(arrays, self.mesh, self.parameters), rest), value


def spanning(batch: Samples, mesh: Mesh | None, size: int) -> Samples:
    """The batch of `size` functions of which every process has read its part."""
    if mesh is None:
        return batch

    def joined(rows: PyTree) -> PyTree:
        return from_process_rows(rows, mesh, size)

    parts = joined(batch.u), batch.y.each(joined), joined(batch.s)
    # replacing leaves instead of making new Samples, which would check values that are no longer all here
    return place(eqx.tree_at(lambda batch: (batch.u, batch.y, batch.s), batch, parts), mesh)


class Feed(abc.ABC):
    """Batches for a run, and the compiled step that uses them; compiled once, however many steps are asked for."""

    @abc.abstractmethod
    def run(self, state: State, until: int, total: float = 0.0) -> tuple[State, Stretch]:
        """Take all steps before number `until` and add their losses to `total`; the state given is used up."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of what reads ahead."""


class InMemory(Feed):
    """All data encoded and on the device: steps follow each other without coming back to Python."""

    def __init__(self, state: State, data: Samples, recipe: Recipe):
        model = local_copy(place(state.model, recipe.mesh))
        self.encoded = place(Encoded.of(model, data, recipe.weights), recipe.mesh)
        self.constant = eqx.filter(state, eqx.is_array, inverse=True)

        @functools.partial(jax.jit, donate_argnums=0)
        def stretch(
            variable: PyTree, encoded: Encoded, until: Int[Array, ""], total: Float[Array, ""]
        ) -> tuple[PyTree, Array, Array]:
            def step(carry: tuple[PyTree, Array, Array]) -> tuple[PyTree, Array, Array]:
                variable, total, _ = carry
                state = eqx.combine(variable, self.constant)
                # every device finds all rows, else they would have to tell each other while they look for them
                rows = constrain(batch_rows(recipe.seed, state.step, recipe.size, len(encoded.s)), recipe.mesh)
                state, value = recipe.advance(state, encoded.take(rows))
                return eqx.filter(state, eqx.is_array), total + value, value

            def more(carry: tuple[PyTree, Array, Array]) -> Array:
                variable, _, value = carry
                return (variable.step < until) & jnp.isfinite(value)

            # what no step changes would come out as the compiler likes, and the next call be another program
            end = jax.lax.while_loop(more, step, (variable, total, jnp.zeros(())))
            return constrain(end, recipe.mesh, recipe.parameters)

        self.stretch, self.mesh = stretch, recipe.mesh

    def run(self, state: State, until: int, total: float = 0.0) -> tuple[State, Stretch]:
        limit: tuple[Int[Array, ""], Float[Array, ""]] = jnp.asarray(until, jnp.int32), jnp.asarray(total, jnp.float32)
        variable, summed, last = self.stretch(eqx.filter(state, eqx.is_array), self.encoded, *place(limit, self.mesh))
        state = eqx.combine(variable, self.constant)
        return state, Stretch(float(summed), None if jnp.isfinite(last) else int(state.step) - 1)

    def close(self) -> None:
        pass


class Streamed(Feed):
    """Batches read while the last one is being used, each encoded when it comes."""

    def __init__(self, state: State, data: Records, recipe: Recipe):
        self.constant = eqx.filter(state, eqx.is_array, inverse=True)
        self.recipe, part = recipe, process_part(recipe.mesh)
        self.open = functools.partial(stream, data, size=recipe.size, seed=recipe.seed, process=part)
        self.batches: Stream | None = None

        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def one(variable: PyTree, tally: tuple[Array, Array], batch: Samples) -> tuple[PyTree, tuple[Array, Array]]:
            total, broken = tally
            state = eqx.combine(variable, self.constant)
            step = state.step
            state, value = recipe.advance(state, Encoded.of(state.model, batch, recipe.weights))
            broken = jnp.where(jnp.isfinite(value), broken, jnp.minimum(broken, step))
            return eqx.filter(state, eqx.is_array), (total + value, broken)

        self.one = one

    def run(self, state: State, until: int, total: float = 0.0) -> tuple[State, Stretch]:
        step = int(state.step)
        if self.batches is None or self.batches.step != step:
            self.close()
            self.batches = self.open(start=step)
        variable = eqx.filter(state, eqx.is_array)
        tally: tuple[Float[Array, ""], Int[Array, ""]] = (jnp.asarray(total, jnp.float32), jnp.asarray(NEVER))
        tally = place(tally, self.recipe.mesh)
        for _ in range(step, until):
            batch = spanning(next(self.batches), self.recipe.mesh, self.recipe.size)
            variable, tally = self.one(variable, tally, batch)
        broken = int(tally[1])
        return eqx.combine(variable, self.constant), Stretch(float(tally[0]), None if broken == NEVER else broken)

    def close(self) -> None:
        if self.batches is not None:
            self.batches.close()
            self.batches = None
