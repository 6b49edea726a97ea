"""Ensembles: several members of one model, which differ where the data does not determine them."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from loca.data import Normalization, Queries, Samples
from loca.models import Loss, Operator, Uncertain, Wrapper
from loca.parameters import trainable
from loca.typing import Key


class Ensemble(Uncertain, Wrapper):
    """F = mean of F₁ … F_K, σ² = Σ (Fₖ − F)²/(K − 1): members of the same kind with other learned parameters.

    Build one with `create`, or with `of` from operators. `fit` trains all members as one program, with the same batches
    for all; each ends as if it had been trained alone. The loss of the history is the sum over the members.

    Parts that are not learned, such as the encoder, are the same for all members, so functions are encoded once.

    **Arguments:**

    - `normalization`: that of the members.
    - `operator`: a member whose learned arrays have one more axis in front, of length K.
    - `size`: K. Good values: 4 to 8.
    """

    normalization: Normalization
    operator: Operator
    size: int = eqx.field(static=True)

    @classmethod
    def create(
        cls, create: Callable[..., Operator], data: Samples, *, key: Key, size: int = 5, **sizes: Any
    ) -> "Ensemble":
        """Untrained members with different initial weights: `Ensemble.create(LOCA.create, data, key=key)`.

        **Arguments:**

        - `create`: makes a member from `data`, `key` and the other arguments.
        - `data`: training samples.
        - `key`: random key for the initial weights of all members.
        - `size`: K.
        """
        return cls.of([create(data, key=each, **sizes) for each in jax.random.split(key, size)])

    @classmethod
    def of(cls, members: Sequence[Operator]) -> "Ensemble":
        """An ensemble of operators that differ in learned parameters only."""
        if len(members) < 2:
            raise ValueError(f"an ensemble needs at least two members, got {len(members)}; pass more operators")
        learned, given = zip(*(eqx.partition(each, trainable(each)) for each in members), strict=True)
        for i, other in enumerate(given[1:], 1):
            if not eqx.tree_equal(given[0], other):
                raise ValueError(
                    f"members 0 and {i} differ in more than learned parameters; create them from the same data with "
                    "the same sizes, and pass random parts that are not learned, such as a Monte Carlo rule, to all"
                )
        stacked = jax.tree.map(lambda *each: jnp.stack(each), *learned)
        together = eqx.combine(stacked, given[0])
        return cls(together.normalization, together, len(members), signature=together.signature)

    def respond(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        return jnp.mean(self._each(lambda member: member.respond(codes, queries)), axis=0)

    def spread(self, codes: Float[Array, "N ..."], queries: Queries) -> Float[Array, "N P d_s"]:
        return jnp.std(self._each(lambda member: member.respond(codes, queries)), axis=0, ddof=1)

    def draws(self, key: Key, count: int) -> tuple[Operator, ...]:
        """Members, chosen at random without replacement; at most K."""
        if count > self.size:
            raise ValueError(f"an ensemble of {self.size} members has no {count} draws; pass a smaller count")
        return tuple(self.member(int(i)) for i in np.asarray(jax.random.permutation(key, self.size)[:count]))

    def member(self, number: int) -> Operator:
        """One member."""
        learned, given = eqx.partition(self.operator, trainable(self.operator))
        return eqx.combine(jax.tree.map(lambda each: each[number], learned), given)

    def objective(
        self, loss: Loss, codes: Float[Array, "N ..."], queries: Queries, s: Float[Array, "N P d_s"], *weights: Array
    ) -> Float[Array, ""]:
        """The sum over the members, of which each depends on the parameters of one member only."""
        return jnp.sum(self._each(lambda member: member.objective(loss, codes, queries, s, *weights)))

    def wrap_optimizer(self, optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
        """The optimizer with a state for each member: what it does to a member depends on that member only."""
        return optax.GradientTransformation(jax.vmap(optimizer.init), jax.vmap(optimizer.update))

    def _each(self, function: Callable[[Operator], Array]) -> Array:
        learned, given = eqx.partition(self.operator, trainable(self.operator))
        return jax.vmap(lambda each: function(eqx.combine(each, given)))(learned)
