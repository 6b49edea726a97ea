"""Attention whose cost is linear in the number of queries: landmarks, Nyström, and random features."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jaxtyping import Array, Float, Int

from loca.attention.coupling import Attention, Channels, Proposal, inverse_root
from loca.kernels import RBF, Kernel, Product, Scaled, Sum
from loca.parameters import Fixed
from loca.typing import Key

CANDIDATES = 8
"""Candidates considered per landmark: the choice then costs O(r³), independent of the number of nodes."""


def landmarks(k: Kernel, q_z: Float[Array, "Q l"], count: int) -> Int[Array, " r"]:
    """The pivots of a greedy Cholesky factorization of k: each is the node that those before it explain worst.

    With K̂ the part of K that the pivots so far explain, each step takes the largest diagonal element of K − K̂, so
    that pivots keep a distance where k is narrow and are sparse where it is flat. The choice is not differentiated.

    **Arguments:**

    - `k`: the similarity of two nodes.
    - `q_z`: lifted nodes. If there are more than `CANDIDATES` per pivot, a fixed random subset is considered.
    - `count`: r, at most Q.
    """
    considered = min(len(q_z), CANDIDATES * count)
    subset = np.sort(np.random.default_rng(0).permutation(len(q_z))[:considered])
    arrays, rest = eqx.partition((k, q_z[subset]), eqx.is_array)
    k, q = eqx.combine(jax.lax.stop_gradient(arrays), rest)
    diagonal = jax.vmap(k)(q, q)
    smallest = jnp.finfo(q.dtype).eps * jnp.max(diagonal)

    def choose(i: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        pivots, factor, left = state
        pivot = jnp.argmax(left)
        row = k.matrix(q[pivot][None], q)[0] - factor[:, pivot] @ factor
        row = row * jax.lax.rsqrt(jnp.maximum(left[pivot], smallest))
        # a pivot is explained exactly, despite round-off: none is chosen twice
        left = jnp.where(left < 0.0, -1.0, jnp.maximum(left - row**2, 0.0)).at[pivot].set(-1.0)
        return pivots.at[i].set(pivot), factor.at[i].set(row), left

    start = jnp.zeros(count, int), jnp.zeros((count, considered), q.dtype), diagonal
    pivots, _, _ = jax.lax.fori_loop(0, count, choose, start)
    return jnp.asarray(subset)[pivots]


class Landmarks(eqx.Module):
    """Sums over all nodes, as coefficients of the landmarks: all that a query depends on."""

    q_l: Float[Array, "r l"]  # lifted landmarks
    w_l: Float[Array, " r"]  # their weights in the rule
    mass: Float[Array, " r"]  # k_ll⁻¹ Σ_z k_lz w
    sums: Channels  # k_ll⁻¹ Σ_z k_lz w r_z g_z


class Nystrom(Attention):
    """k_yz ≈ k_yl k_ll⁻¹ k_lz with r landmarks l among the nodes z: time and memory O((P + Q)r), for every kernel.

    Exact where y or z is a landmark, so with all nodes as landmarks it is `Dense`. Landmarks are chosen greedily,
    see `landmarks`; the error falls like the eigenvalues of k beyond the r-th, for smooth kernels faster than any power
    of r. The approximation may have small negative values, but ∫k may not: since the landmarks' own part of it is
    exact and k is positive, that part is a lower bound of ∫k.

    With 64, 128, 256 and 512 landmarks for 2048 nodes the output of a Darcy model, trained for 2000 steps, changes by
    1.4, 0.30, 0.026 and 0.0007 %; that of a shallow-water model, in three dimensions and trained for 300 steps, by 11,
    3.5, 0.42 and 0.05 % (reproduction/studies/linear_attention.py).

    **Arguments:**

    - `landmarks`: r, their number; all nodes if there are fewer. Good values: 128 to 512; more in three dimensions than
        in one.
    """

    landmarks: int = eqx.field(static=True, default=256)

    def __check_init__(self):
        if self.landmarks < 1:
            raise ValueError(f"expected at least one landmark, got {self.landmarks}; good values are 128 to 512")

    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> Landmarks:
        chosen = landmarks(k, q_z, min(self.landmarks, len(q_z)))
        q_l, w_l = q_z[chosen], w[chosen]
        root, k_zl = cholesky(k.matrix(q_l, q_l)), k.matrix(q_z, q_l)
        mass = jsp.linalg.cho_solve((root, True), w @ k_zl)
        w_r = w * inverse_root(integral(k_zl, mass, w_l))
        sums = tuple(jsp.linalg.cho_solve((root, True), k_zl.T @ (w_r[:, None] * g_z)) for g_z in g(q_z))
        return Landmarks(q_l, w_l, mass, sums)

    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: Landmarks) -> Channels:
        k_yl = k.matrix(q_y, nodes.q_l)
        r_y = inverse_root(integral(k_yl, nodes.mass, nodes.w_l))
        return tuple(r_y[:, None] * (k_yl @ sums) for sums in nodes.sums)


def integral(k_yl: Float[Array, "P r"], mass: Float[Array, " r"], w_l: Float[Array, " r"]) -> Float[Array, " P"]:
    """∫k(q(y), ·) over all nodes, but at least that over the landmarks alone, where k is exact and positive."""
    return jnp.maximum(k_yl @ mass, k_yl @ w_l)


def cholesky(k_ll: Float[Array, "r r"]) -> Float[Array, "r r"]:
    """The Cholesky factor of k_ll + δ, with δ at the round-off of k_ll, increased tenfold until the factor exists.

    Replacing k_ll⁻¹ by (k_ll + δ)⁻¹ changes no value of k between landmarks by more than δ.
    """
    fixed, identity = jax.lax.stop_gradient(k_ll), jnp.eye(len(k_ll), dtype=k_ll.dtype)
    start = len(k_ll) * jnp.finfo(k_ll.dtype).eps * jnp.max(jnp.diagonal(fixed))

    def fails(delta: Array) -> Array:
        return ~jnp.isfinite(jnp.linalg.cholesky(fixed + delta * identity)).all() & jnp.isfinite(fixed).all()

    delta = jax.lax.while_loop(fails, lambda delta: 10.0 * delta, start)
    return jnp.linalg.cholesky(k_ll + delta * identity)


Gaussians = list[tuple[Float[Array, ""], Float[Array, ""]]]
"""Amplitudes γ and rates β of k(z, z′) = Σ γ exp(−β‖z − z′‖²)."""


class FixedNoise(Fixed):
    """Random draws that training does not change."""

    values: Float[Array, "r l"]


class FeatureSums(eqx.Module):
    """Sums of features over all nodes: all that a query depends on."""

    q_l: Float[Array, "c l"]  # lifted landmarks, around which features are drawn
    mass: Float[Array, " r"]  # Σ_z w ψ(z)
    sums: Channels  # Σ_z w r_z ψ(z) g_z


class RandomFeatures(Attention):
    """k_yz ≈ ψ(y)·ψ(z) with r positive features: time and memory O((P + Q)r); unbiased, with an error of O(r^(−1/2)).

    For k = exp(−‖x − x′‖²/2), where x = √(2β) q, any ω with density p gives k = E[exp(ω·x − ‖x‖²) exp(ω·x′ − ‖x′‖²)
    N(ω; 0, 1)/p(ω)]. All factors are positive, and so is ∫k. The usual p is normal around the mean of x; but its
    relative variance is exp(‖x + x′‖²), and training drives ‖x‖² from below 1 to about 30 (Darcy, 2000 steps), where
    such features are useless. The best ω for a pair lie around x + x′. So each feature here has its own landmark l
    among the nodes, ω = 2x_l + ε with normal ε, and all share the density p of the mixture:

        ψ(y) = exp(ω·x − ‖x‖²) / ( Σ_l exp(2ω·x_l − 2‖x_l‖²) )^(1/2)

    The variance then depends on the extent of q(Y) in lengths of the kernel, not on its distance from the origin. With
    128 and 512 features for 2048 nodes the output of the Darcy model changes by 4.6 and 2.0 %, that of a shallow-water
    model by 22 and 10 %, as r^(−1/2). 512 features trained to reproduce the dense model change it by 0.14 and 0.88 %
    (reproduction/studies/linear_attention.py). `Nystrom` needs no training, is more accurate with as many landmarks and
    costs the same: prefer it to approximate `Dense`. The advantage of features is that every value of k stays positive
    and, unless they are trained, is unbiased.

    **Arguments:**

    - `size`: l, the `lift_size` of the model.
    - `count`: r.
    - `key`: randomness of ε.
    - `orthogonal`: whether the ε of every l features are orthogonal, which lowers the variance of features that share a
        landmark; with one landmark for each, by a tenth at most.
    - `trainable`: whether training may change ε; features are then learned, and no longer unbiased.
    """

    noise: FixedNoise | Float[Array, "r l"]

    def __init__(self, size: int, count: int = 256, *, key: Key, orthogonal: bool = True, trainable: bool = False):
        if size < 1 or count < 1:
            raise ValueError(f"expected a positive size and count, got size={size} and count={count}")
        noise = orthogonal_normal(key, count, size) if orthogonal else jax.random.normal(key, (count, size))
        self.noise = noise if trainable else FixedNoise(noise)

    def nodes(self, k: Kernel, g: Proposal, q_z: Float[Array, "Q l"], w: Float[Array, " Q"]) -> FeatureSums:
        if self._noise.shape[1] != q_z.shape[1]:
            raise ValueError(
                f"the features were created for lifted points in {self._noise.shape[1]} dimensions, but these have "
                f"{q_z.shape[1]}; pass the model's `lift_size` as `size`"
            )
        q_l = q_z[landmarks(k, q_z, min(len(self._noise), len(q_z)))]
        psi_z = self.features(k, q_z, q_l)
        mass = w @ psi_z
        w_r = w * inverse_root(psi_z @ mass)
        return FeatureSums(q_l, mass, tuple(psi_z.T @ (w_r[:, None] * g_z) for g_z in g(q_z)))

    def scores(self, k: Kernel, g: Proposal, q_y: Float[Array, "P l"], nodes: FeatureSums) -> Channels:
        psi_y = self.features(k, q_y, nodes.q_l)
        r_y = inverse_root(psi_y @ nodes.mass)
        return tuple(r_y[:, None] * (psi_y @ sums) for sums in nodes.sums)

    def features(self, k: Kernel, q_y: Float[Array, "P l"], q_l: Float[Array, "c l"]) -> Float[Array, "P r"]:
        """ψ, concatenated over the Gaussians that k is a sum of."""
        return jnp.concatenate(
            [jnp.sqrt(gamma) * gaussian_features(beta, self._noise, q_y, q_l) for gamma, beta in gaussians(k)], axis=1
        )

    @property
    def _noise(self) -> Float[Array, "r l"]:
        return self.noise.values if isinstance(self.noise, FixedNoise) else self.noise


def gaussian_features(
    beta: Float[Array, ""], noise: Float[Array, "r l"], q_y: Float[Array, "P l"], q_l: Float[Array, "c l"]
) -> Float[Array, "P r"]:
    """ψ for exp(−β‖z − z′‖²), centered to reduce round-off; the center does not change the result otherwise."""
    center, scale = jnp.mean(q_l, axis=0), jnp.sqrt(2.0 * beta)
    x, x_l = scale * (q_y - center), scale * (q_l - center)
    # with more features than landmarks, landmarks repeat, and p weighs each by its number of features
    turn = jnp.arange(len(noise)) % len(q_l)
    turns = jnp.bincount(turn, length=len(q_l))
    omega = 2.0 * x_l[turn] + noise
    log_p = jax.nn.logsumexp(2.0 * (omega @ x_l.T - jnp.sum(x_l**2, axis=1)), axis=1, b=turns)
    return jnp.exp(x @ omega.T - jnp.sum(x**2, axis=1)[:, None] - 0.5 * log_p)


def gaussians(k: Kernel) -> Gaussians:
    """k as a sum of Gaussians; raises for kernels that have no such form."""
    match k:
        case RBF(rate=rate):
            return [(jnp.ones_like(rate()), rate())]
        case Scaled(amplitude=amplitude, kernel=kernel):
            return [(amplitude() * gamma, beta) for gamma, beta in gaussians(kernel)]
        case Sum(left=left, right=right):
            return gaussians(left) + gaussians(right)
        case Product(left=left, right=right):
            return [(c * c_, b + b_) for c, b in gaussians(left) for c_, b_ in gaussians(right)]
    raise TypeError(
        f"random features exist for `RBF` and for sums, products and multiples of it, not for {type(k).__name__}; "
        "use `Nystrom`, which accepts every kernel"
    )


def orthogonal_normal(key: Key, count: int, size: int) -> Float[Array, "r l"]:
    """Normal vectors in orthogonal groups of `size`: random rotations of the axes, with lengths of normal vectors."""
    axes_key, length_key = jax.random.split(key)
    axes = jax.random.orthogonal(axes_key, size, shape=(-(-count // size),)).reshape(-1, size)[:count]
    lengths = jnp.linalg.norm(jax.random.normal(length_key, (count, size)), axis=1)
    return lengths[:, None] * axes
