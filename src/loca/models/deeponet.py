"""Deep operator networks."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.attention import Channels
from loca.data import Normalization, Samples, TransformNames
from loca.encoders import Encoder
from loca.losses import relative_l2
from loca.models.default_encoders import default_encoder
from loca.models.operator import Recipe, SeparableOperator
from loca.models.signature import Signature
from loca.nets import MLP
from loca.positions import Position, position_on
from loca.typing import Key, PyTree


class DeepONet(SeparableOperator):
    """F(u)(y) = Σᵢ tᵢ(e(y)) ⊙ bᵢ(𝒟(u)) + b₀: LOCA without coupling, without softmax, with point sensors.

    The bias b₀ is one more feature whose weight is 1 everywhere.
    """

    normalization: Normalization
    encoder: Encoder  # 𝒟   input function → ℝᵈ
    branch: Callable[[Array], Array]  # b    ℝᵈ → ℝⁿˣᵈˢ
    e: Position  # encoding  Y → ℝᴱ
    trunk: Callable[[Array], Array]  # t    ℝᴱ → ℝⁿˣᵈˢ
    bias: Float[Array, " d_s"]  # b₀

    @classmethod
    def create(
        cls,
        data: Samples,
        *,
        key: Key,
        encoder: Encoder | None = None,
        position: Position | None = None,
        num_features: int = 100,
        branch_widths: Sequence[int] = (100, 100),
        trunk_widths: Sequence[int] = (100, 100),
        transforms: TransformNames = None,
    ) -> "DeepONet":
        """A model for training data; parts that are not given are chosen to fit the data.

        **Arguments:**

        - `data`: training samples, from which sizes, domain and normalization are inferred.
        - `key`: random key for the initial weights.
        - `encoder`: 𝒟. By default the values at the sensors and harmonic features of them; a least-squares projection
            with standardized codes if every function has its own sensors; one of these for each field of several.
        - `position`: e. By default the encoding of the domain.
        - `num_features`: n.
        - `branch_widths`, `trunk_widths`: hidden layers of b and t.
        - `transforms`: of variables, by name, or "auto"; see `loca.data.TransformNames`.
        """
        normalization = Normalization.fit(data, transforms)
        encoder = encoder if encoder is not None else default_encoder(data, normalization, of_sensors=True)
        position = position if position is not None else position_on(data.domain)
        branch_key, trunk_key = jax.random.split(key)
        outputs = num_features * data.output_size
        return cls(
            normalization=normalization,
            encoder=encoder,
            branch=MLP((encoder.size, *branch_widths, outputs), key=branch_key),
            e=position,
            trunk=MLP((position.size, *trunk_widths, outputs), key=trunk_key),
            bias=jnp.zeros(data.output_size),
            signature=Signature.of(data),
        )

    @property
    def recipe(self) -> Recipe:
        return Recipe(20, relative_l2)

    def basis(self, y: Float[Array, "P d_y"], nodes: PyTree) -> Channels:
        channels = jnp.split(self.trunk(self.e(y)), len(self.bias), axis=-1)
        return tuple(jnp.concatenate([t, jnp.ones_like(t[:, :1])], axis=-1) for t in channels)

    def read(self, codes: Float[Array, "*N d"]) -> Float[Array, "*N d_s n"]:
        b = self.branch(codes).reshape(*codes.shape[:-1], len(self.bias), -1)
        bias = jnp.broadcast_to(self.bias[:, None], (*b.shape[:-1], 1))
        return jnp.concatenate([b, bias], axis=-1)
