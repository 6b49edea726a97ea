"""Learning operators with coupled attention."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from loca.attention import Attention, Channels, Dense
from loca.data import Normalization, Samples, TransformNames
from loca.encoders import Encoder
from loca.kernels import RBF, Kernel
from loca.models.default_encoders import default_encoder
from loca.models.operator import SeparableOperator
from loca.models.signature import Signature
from loca.nets import MLP
from loca.positions import Position, position_on
from loca.rules import Rule, rule_on
from loca.typing import Key, PyTree


class LOCA(SeparableOperator):
    """F(u)(y) = Σᵢ softmax( ∫_Y κ(y, y′) g(y′) dy′ )ᵢ ⊙ vᵢ(u), v = f∘𝒟.

    Build one from data with `create`, which infers sizes and domain, or from parts, each of which can be replaced.
    """

    normalization: Normalization
    encoder: Encoder  # 𝒟  input function → ℝᵈ
    f: MLP  # features    ℝᵈ → ℝⁿˣᵈˢ
    e: Position  # encoding    Y → ℝᴱ
    q: MLP  # lift        ℝᴱ → ℝˡ
    g: MLP  # proposals   ℝˡ → ℝⁿˣᵈˢ
    k: Kernel  # similarity  ℝˡ × ℝˡ → ℝ
    rule: Rule  # ∫_Y
    attention: Attention  # how g̃ is evaluated
    output_size: int = eqx.field(static=True)  # d_s

    @classmethod
    def create(
        cls,
        data: Samples,
        *,
        key: Key,
        encoder: Encoder | None = None,
        position: Position | None = None,
        rule: Rule | None = None,
        kernel: Kernel | None = None,
        attention: Attention | None = None,
        num_features: int = 100,
        lift_size: int = 100,
        lift_widths: Sequence[int] = (100, 100),
        proposal_widths: Sequence[int] = (100, 100),
        feature_widths: Sequence[int] = (100, 100),
        transforms: TransformNames = None,
    ) -> "LOCA":
        """A model for training data; parts that are not given are chosen to fit the data.

        **Arguments:**

        - `data`: training samples, from which sizes, domain and normalization are inferred.
        - `key`: random key for the initial weights.
        - `encoder`: 𝒟. By default scattering for sensors on a one- or two-dimensional grid, a least-squares projection
            with standardized codes if every function has its own sensors, and the values at the sensors otherwise;
            one of these for each field of several.
        - `position`: e. By default the encoding of the domain.
        - `rule`: ∫_Y. By default a product rule of the domain, the cells of a mesh, or a quasi-Monte Carlo rule.
        - `kernel`: k. By default `RBF()`.
        - `attention`: how g̃ is evaluated. By default `Dense()`.
        - `num_features`: n.
        - `lift_size`: l.
        - `lift_widths`, `proposal_widths`, `feature_widths`: hidden layers of q, g and f.
        - `transforms`: of variables, by name, or "auto"; see `loca.data.TransformNames`.
        """
        normalization = Normalization.fit(data, transforms)
        encoder = encoder if encoder is not None else default_encoder(data, normalization)
        position = position if position is not None else position_on(data.domain)
        q_key, g_key, f_key = jax.random.split(key, 3)
        outputs = num_features * data.output_size
        return cls(
            normalization=normalization,
            encoder=encoder,
            f=MLP((encoder.size, *feature_widths, outputs), key=f_key),
            e=position,
            q=MLP((position.size, *lift_widths, lift_size), key=q_key),
            g=MLP((lift_size, *proposal_widths, outputs), key=g_key),
            k=kernel if kernel is not None else RBF(),
            rule=rule if rule is not None else rule_on(data.domain),
            attention=attention if attention is not None else Dense(),
            output_size=data.output_size,
            signature=Signature.of(data),
        )

    def lift(self, y: Float[Array, "P d_y"]) -> Float[Array, "P l"]:
        """q(e(y))."""
        return self.q(self.e(y))

    def propose(self, q_z: Float[Array, "Q l"]) -> Channels:
        """g at lifted locations."""
        return tuple(jnp.split(self.g(q_z), self.output_size, axis=-1))

    def nodes(self, y: Float[Array, "P d_y"]) -> PyTree:
        z, w = self.rule(y)
        return self.attention.nodes(self.k, self.propose, self.lift(z), w)

    def scores(self, y: Float[Array, "P d_y"]) -> Channels:
        """g̃(y)."""
        return self.attention.scores(self.k, self.propose, self.lift(y), self.nodes(y))

    def basis(self, y: Float[Array, "P d_y"], nodes: PyTree) -> Channels:
        g_tilde = self.attention.scores(self.k, self.propose, self.lift(y), nodes)
        return tuple(jax.nn.softmax(g_s, axis=-1) for g_s in g_tilde)

    def read(self, codes: Float[Array, "*N d"]) -> Float[Array, "*N d_s n"]:
        return self.f(codes).reshape(*codes.shape[:-1], self.output_size, -1)

    @property
    def is_pointwise(self) -> bool:
        return not self.rule.follows_queries
