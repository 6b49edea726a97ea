"""The scattering transforms of time series and of images."""

import abc
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.export import is_symbolic_dim
from jaxtyping import Array, Complex, Float

from loca.encoders import morlet
from loca.encoders.encoder import Encoder, check_positive, check_values
from loca.typing import Input

Batch = Float[Array, "B ..."]

CHUNK = 2**19
"""Numbers of the first order to process at a time: 2 MB, which fits in a processor's cache."""


def modulus(re: Float[Array, "*grid"], im: Float[Array, "*grid"]) -> Float[Array, "*grid"]:
    """|re + i·im|, with gradient zero at zero.

    The square root has infinite slope at 0, which the chain rule would turn into 0·∞ = NaN. Zero is the center of the
    subdifferential, and the value that symmetry requires.
    """
    square = re * re + im * im
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


def batched(f: Callable[[Any, Batch], Batch]) -> Callable[[Any, Batch], Batch]:
    """f(parts, u) on batches u, such that `jax.vmap` over functions calls f once with all of them.

    By default `vmap` would put the functions on the outermost axis of every array inside f, where the matrix products
    of a transform need a copy each; f itself places the batch axis better. Derivatives go through f as it is written,
    in forward and reverse mode; `parts` are constants without derivatives.
    """
    f = jax.jit(f)  # a transform consists of many small operations; compiled, it is fast for a single function too

    @custom_vmap
    def many(parts: Any, u: Batch) -> Batch:
        return f(parts, u)

    @many.def_vmap
    def rule(axis_size: int, is_mapped: list[Any], parts: Any, u: Any) -> tuple[Batch, bool]:
        parts_mapped, u_mapped = is_mapped
        if any(jax.tree.leaves(parts_mapped)):  # an ensemble of encoders is no longer one batch
            axes = jax.tree.map(lambda mapped: 0 if mapped else None, parts_mapped)
            return jax.vmap(f, in_axes=(axes, 0 if u_mapped else None))(parts, u), True
        s = many(parts, u.reshape(-1, *u.shape[2:]))
        return s.reshape(axis_size, -1, *s.shape[1:]), True

    @jax.custom_jvp
    def call(parts: Any, u: Batch) -> Batch:
        return many(parts, u)

    @call.defjvp
    def derivative(primals: tuple[Any, Batch], tangents: tuple[Any, Batch]) -> tuple[Batch, Batch]:
        (parts, u), (_, du) = primals, tangents
        return jax.jvp(lambda u: f(parts, u), (u,), (du,))

    return lambda parts, u: call(jax.lax.stop_gradient(parts), u)


def in_chunks(f: Callable[[Batch], Batch], u: Batch, size: int) -> Batch:
    """f(u), `size` functions at a time, so that a chunk stays in the cache; all at once if their number is free."""
    count = u.shape[0]
    if is_symbolic_dim(count) or count <= size:
        return f(u)
    whole = count // size * size
    s = jax.lax.map(f, u[:whole].reshape(-1, size, *u.shape[1:]))
    s = s.reshape(whole, *s.shape[2:])
    return s if whole == count else jnp.concatenate([s, f(u[whole:])])


class Scattering(Encoder):
    """What the transforms of time series and of images share: sizes, checks, and batches in chunks."""

    shape: eqx.AbstractVar[tuple[int, ...]]
    channels: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def paths(self) -> int:
        """The number of coefficients at a point of the output."""

    @property
    @abc.abstractmethod
    def reduced(self) -> tuple[int, ...]:
        """The grid of a coefficient."""

    @property
    @abc.abstractmethod
    def _largest(self) -> int:
        """Numbers of the largest intermediate array, for one field."""

    @abc.abstractmethod
    def _scatter(self, u: Batch) -> Batch:
        """The coefficients (B, paths, *reduced) of a batch of fields."""

    @property
    def size(self) -> int:
        return self.channels * self.paths * math.prod(self.reduced)

    def transform(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """The coefficients (paths, *reduced) of one field or a batch of fields, not flattened."""
        leading = u.ndim - len(self.shape)
        if u.shape[leading:] != self.shape:
            raise ValueError(
                f"{type(self).__name__} was built for fields on the grid {self.shape}, got an array of shape {u.shape}"
            )
        s = _transform(self, u.reshape(-1, *self.shape))
        return s.reshape(*u.shape[:leading], *s.shape[1:])

    def __call__(self, u: Input) -> Float[Array, " d"]:
        values = check_values(u, math.prod(self.shape), self.channels, type(self).__name__)
        return self.transform(values.T.reshape(self.channels, *self.shape)).reshape(-1)


@batched
def _transform(s: Scattering, u: Batch) -> Batch:
    return in_chunks(s._scatter, u, max(1, CHUNK // s._largest))


def check_scales(shape: tuple[int, ...], scales: int, order: int) -> None:
    """Raise unless the order is 1 or 2, and averages are over fewer points than the grid has."""
    if order not in (1, 2):
        raise ValueError(f"`order` must be 1 or 2, got {order}; higher orders have almost no energy")
    if min(shape) < 2**scales:
        raise ValueError(
            f"scales={scales} averages over 2^{scales} = {2**scales} points but the grid is {shape}; "
            f"use at most scales={int(np.log2(min(shape)))}"
        )


# ---- time series ----------------------------------------------------------------------------------------------------

BORDER = 1e-3  # the fraction of φ that may extend beyond the padding


class Band(eqx.Module):
    """Wavelets applied to the same input, whose output is kept at every 2^step-th point of the padded signal."""

    psi: Float[Array, "paths n_in"]  # ψ̂
    step: int = eqx.field(static=True)


class Scattering1D(Scattering):
    """S u = (u ∗ φ_J,  |u ∗ ψ_λ| ∗ φ_J,  ||u ∗ ψ_λ| ∗ ψ_μ| ∗ φ_J),  every 2ᴶ-th point.

    ψ_λ are Q wavelets per octave, ψ_μ one per octave and lower than λ. Locally invariant to shifts, Lipschitz under
    time warps, differentiable (S. Mallat, 2012; J. Andén and S. Mallat, 2014). Coefficients and their order are those
    of Kymatio 0.3.0. It samples φ and ψ_μ on the coarser grid without the weight of its cells, so a path that was
    subsampled by 2ᵏ before its last filters has a factor 2⁻ᵏ for each. The signal is reflected at its ends.

    Build it with `Scattering1D.create`.
    """

    low: tuple[Float[Array, "n_J _"], ...]  # φ_J ∗ at the points of the output, for inputs subsampled by 1, 2, 4, …
    first: tuple[Band, ...]  # by step
    second: tuple[tuple[Band, ...], ...]  # the bands that follow each of the first
    shape: tuple[int] = eqx.field(static=True)
    padding: tuple[int, int] = eqx.field(static=True)
    scales: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)

    @classmethod
    def create(
        cls, length: int, *, scales: int, wavelets_per_octave: int = 8, order: int = 2, channels: int = 1
    ) -> "Scattering1D":
        """**Arguments:**

        - `length`: m, the number of points.
        - `scales`: J, coefficients are averages over about 2ᴶ points. Good values: 4 for a few hundred points.
        - `wavelets_per_octave`: Q of the first order. Good values: 8; the second order has 1.
        - `order`: 1 or 2, the largest number of wavelets applied in sequence.
        - `channels`: d_u, each transformed separately.
        """
        check_positive(scales=scales, wavelets_per_octave=wavelets_per_octave, channels=channels)
        check_scales((length,), scales, order)
        padded = _padded_signal(length, scales)
        before = (padded - length) // 2
        first, second = (
            [(rung.step, morlet.morlet_1d(padded, rung.center, rung.width)) for rung in morlet.ladder(scales, Q)]
            for Q in (wavelets_per_octave, 1)
        )
        bands = _bands(first, 0)
        followers = tuple(_bands([f for f in second if order == 2 and f[0] > b.step], b.step) for b in bands)
        steps = range(1 + max(b.step for b in itertools.chain(bands, *followers)))
        return cls(
            low=tuple(_low(padded, scales, step, before, length) for step in steps),
            first=bands,
            second=followers,
            shape=(length,),
            padding=(before, padded - length - before),
            scales=scales,
            channels=channels,
        )

    @property
    def paths(self) -> int:
        return 1 + sum(
            len(band.psi) * (1 + sum(len(follower.psi) for follower in followers))
            for band, followers in zip(self.first, self.second, strict=True)
        )

    @property
    def reduced(self) -> tuple[int]:
        return (self.low[0].shape[0],)  # about m/2ᴶ

    @property
    def _largest(self) -> int:
        return 2 * max(band.psi.size for band in self.first)

    def _scatter(self, u: Float[Array, "B m"]) -> Float[Array, "B paths m_J"]:
        def average(v: Float[Array, "*B n"], step: int) -> Float[Array, "*B m_J"]:
            return jnp.matmul(v, self.low[step].T, precision=jax.lax.Precision.HIGHEST)

        u = jnp.pad(u, ((0, 0), self.padding), mode="reflect")
        c = jnp.fft.fft(u)
        orders = [[average(u, 0)[:, None]], [], []]
        for band, followers in zip(self.first, self.second, strict=True):
            v = _propagate(c, band.psi, band.step)
            orders[1].append(average(v, band.step))
            if followers:
                c_v = jnp.fft.fft(v)
                seconds = [average(_propagate(c_v, b.psi, b.step - band.step), b.step) for b in followers]
                second = jnp.concatenate(seconds, axis=2)  # (B, paths, followers, m_J)
                orders[2].append(second.reshape(u.shape[0], -1, second.shape[-1]))
        return jnp.concatenate([p for paths in orders for p in paths], axis=1)


def _padded_signal(length: int, scales: int) -> int:
    """A power of two, longer by three times the support of φ_J on either side if reflection allows it."""
    phi = morlet.morlet_1d(length, 0.0, morlet.LOWEST_WIDTH / 2**scales)
    wanted = np.ceil(np.log2(length + 6 * morlet.support(phi, BORDER)))
    return 2 ** int(min(wanted, np.floor(np.log2(3 * length - 2))))


def _bands(filters: list[tuple[int, Float[np.ndarray, " n"]]], step: int) -> tuple[Band, ...]:
    """Filters for signals subsampled by 2^step, grouped by step; steps never decrease along a ladder."""
    return tuple(
        Band(jnp.asarray(morlet.sampled(np.stack([psi for _, psi in group]), step), dtype=float), kept)
        for kept, group in itertools.groupby(filters, key=lambda f: f[0])
    )


def _low(padded: int, scales: int, step: int, before: int, length: int) -> Float[Array, "n_J n_k"]:
    phi = morlet.sampled(morlet.morlet_1d(padded, 0.0, morlet.LOWEST_WIDTH / 2**scales), step)
    n, coarse = len(phi), 2 ** (scales - step)
    start, stop = -(-before >> scales), -(-(before + length) >> scales)  # rounded up
    outputs = np.arange(start, stop) * coarse
    return jnp.asarray(np.fft.ifft(phi).real[(outputs[:, None] - np.arange(n)) % n], dtype=float)


def _propagate(c: Complex[Array, "*B n"], psi: Float[Array, "paths n"], step: int) -> Float[Array, "*B paths k"]:
    """|· ∗ ψ| at every 2^step-th point, of signals with Fourier coefficients c."""
    c = c[..., None, :] * psi
    k = c.shape[-1] >> step
    # Subsampling adds the aliases; a sum of slices is what XLA vectorizes on a CPU.
    aliases = [c[..., p * k : (p + 1) * k] for p in range(2**step)]
    v = jnp.fft.ifft(sum(aliases[1:], start=aliases[0]) / 2**step)
    return modulus(v.real, v.imag)


# ---- images ---------------------------------------------------------------------------------------------------------


class Axis(eqx.Module):
    """The matrices of one axis of the grid at every level r: n padded points, of which n_r = n/2ʳ are kept.

    `cas` holds cos + sin of 2πkx/n_r, the real counterpart of the Fourier matrix (R. Hartley, 1942). On grids of the
    usual sizes a dense product with it is faster than a complex FFT, and nothing in the transform is complex.
    """

    cas: tuple[Float[Array, "_ _"], ...]  # (n_r, n_r)
    low: tuple[Float[Array, "n_J _"], ...]  # (n_J, n_r): φ_J ∗, at the points of the output
    padded_cas: Float[Array, "n M"]  # the same two for the field itself, reflected at its borders
    padded_low: Float[Array, "n_J M"]

    @classmethod
    def create(cls, length: int, scales: int) -> "Axis":
        """**Arguments:** the number of points M of the axis; the number of scales J."""
        padded = _padded_axis(length, scales)
        before = (padded - length) // 2
        reflect = np.eye(length)[np.pad(np.arange(length), (before, padded - length - before), mode="reflect")]
        phi = morlet.low_pass_factor(padded, scales)
        cas, low = [], []
        for level in range(scales):
            n = padded >> level
            turns = 2 * np.pi * np.outer(np.arange(n), np.arange(n)) / n
            cas.append(np.cos(turns) + np.sin(turns))
            kernel = np.fft.ifft(phi[morlet.lowest(padded, level)]).real
            outputs = np.arange(0, n, 2 ** (scales - level))[1:-1]  # without those beyond the ends
            low.append(kernel[(outputs[:, None] - np.arange(n)) % n])
        return cls(
            cas=tuple(jnp.asarray(c, dtype=float) for c in cas),
            low=tuple(jnp.asarray(a, dtype=float) for a in low),
            padded_cas=jnp.asarray(cas[0] @ reflect, dtype=float),
            padded_low=jnp.asarray(low[0] @ reflect, dtype=float),
        )


class Scattering2D(Scattering):
    """S u = (u ∗ φ_J,  |u ∗ ψ_λ| ∗ φ_J,  ||u ∗ ψ_λ| ∗ ψ_λ′| ∗ φ_J),  λ = (j, θ), j < j′, every 2ᴶ-th point.

    Locally invariant to shifts, Lipschitz under deformations, differentiable (S. Mallat, 2012; J. Bruna and S. Mallat,
    2013). Coefficients and their order are those of Kymatio 0.3.0. The field is reflected at its borders.

    Build it with `Scattering2D.create`.
    """

    rows: Axis
    columns: Axis
    # wavelets[r][j − r] is ψ̂_{j,θ} on the frequencies left at level r, as the four real factors of `_factors`
    wavelets: tuple[tuple[Float[Array, "4 _ L _"], ...], ...]
    shape: tuple[int, int] = eqx.field(static=True)
    scales: int = eqx.field(static=True)
    angles: int = eqx.field(static=True)
    order: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)

    @classmethod
    def create(
        cls, shape: tuple[int, int], *, scales: int, angles: int = 8, order: int = 2, channels: int = 1
    ) -> "Scattering2D":
        """**Arguments:**

        - `shape`: the grid of u; m is its product.
        - `scales`: J, coefficients are averages over about 2ᴶ points. Good values: 1 to 3.
        - `angles`: L, directions of the wavelets. Good values: 8; the paper has 2 (Darcy), 8 and 16.
        - `order`: 1 or 2, the largest number of wavelets applied in sequence.
        - `channels`: d_u, each transformed separately.
        """
        check_positive(scales=scales, angles=angles, channels=channels)
        check_scales(shape, scales, order)
        padded = _padded_axis(shape[0], scales), _padded_axis(shape[1], scales)
        psi = morlet.bank_2d(padded, scales, angles)

        def factors(j: int, level: int) -> Float[Array, "4 _ L _"]:
            kept_x, kept_y = (morlet.lowest(n, level) for n in padded)
            return jnp.asarray(_factors(psi[j][:, kept_x[:, None], kept_y]), dtype=float)

        return cls(
            rows=Axis.create(shape[0], scales),
            columns=Axis.create(shape[1], scales),
            wavelets=tuple(tuple(factors(j, r) for j in range(r, scales)) for r in range(scales if order == 2 else 1)),
            shape=shape,
            scales=scales,
            angles=angles,
            order=order,
            channels=channels,
        )

    @property
    def paths(self) -> int:
        J, L = self.scales, self.angles
        return 1 + J * L + (L * L * J * (J - 1) // 2 if self.order == 2 else 0)

    @property
    def reduced(self) -> tuple[int, int]:
        return self.shape[0] >> self.scales, self.shape[1] >> self.scales

    @property
    def _largest(self) -> int:
        return 2 * self.angles * len(self.rows.cas[0]) * len(self.columns.cas[0])

    def _scatter(self, u: Float[Array, "B M_x M_y"]) -> Float[Array, "B paths m_x m_y"]:
        J, rows, columns = self.scales, self.rows, self.columns

        def propagate(c: Float[Array, "n_x B n_y"], r: int, j: int) -> Float[Array, "k_x B L k_y"]:
            """|· ∗ ψ_j| at level j, of a field with coefficients c at level r."""
            c, c_ = c[:, :, None], _mirror(c, (0, 2))[:, :, None]
            a, b, a_, b_ = self.wavelets[r][j - r][:, :, None]
            re, im = _fold(a * c + b * c_, 2 ** (j - r)), _fold(a_ * c + b_ * c_, 2 ** (j - r))
            cas_x, cas_y = rows.cas[j], columns.cas[j]
            return modulus(_apply(cas_x, cas_y, re), _apply(cas_x, _mirror(cas_y, 0), im))

        def average(v: Float[Array, "n_x *_ n_y"], j: int) -> Float[Array, "m_x *_ m_y"]:
            return _apply(rows.low[j], columns.low[j], v)

        B = u.shape[0]
        u = jnp.swapaxes(u, 0, 1)
        c = _apply(rows.padded_cas, columns.padded_cas, u)
        orders = [[_apply(rows.padded_low, columns.padded_low, u)[:, :, None]], [], []]
        for j in range(J):
            v = propagate(c, 0, j)
            orders[1].append(average(v, j))
            if self.order == 2 and j + 1 < J:
                c_v = _apply(rows.cas[j], columns.cas[j], v.reshape(v.shape[0], -1, v.shape[-1]))
                seconds = [average(propagate(c_v, j, j_), j_) for j_ in range(j + 1, J)]
                second = jnp.concatenate(seconds, axis=2)  # (m_x, B·L, (J−1−j)·L, m_y)
                orders[2].append(second.reshape(second.shape[0], B, -1, second.shape[-1]))
        return jnp.moveaxis(jnp.concatenate([p for paths in orders for p in paths], axis=2), 0, 2)


def _padded_axis(length: int, scales: int) -> int:
    """A multiple of 2ᴶ with room for one output point beyond either end."""
    return ((length >> scales) + 2) << scales


def _factors(psi: Float[np.ndarray, "L n_x n_y"]) -> Float[np.ndarray, "4 n_x L n_y"]:
    """A real ψ̂ as factors on the cas coefficients c of a real field.

    From cas a cas b = cos(a − b) + sin(a + b), the coefficients of a field with transform û are
    c(k, l) = Re û(k, −l) − Im û(k, l). With e, o the even and odd part of ψ̂ under (k, l) → (−k, −l), and a bar for
    l → −l, this gives

        Re(u ∗ ψ):  ½(e + ē) c(k, l) + ½(ē − e) c(−k, −l)
        Im(u ∗ ψ):  ½(ō − o) c(k, l) + ½(ō + o) c(−k, −l),  as the coefficient of (k, −l).
    """
    turned = np.roll(np.flip(psi, (1, 2)), 1, (1, 2))
    e, o = (psi + turned) / 2, (psi - turned) / 2
    e_, o_ = (np.roll(np.flip(part, 2), 1, 2) for part in (e, o))
    factors = np.stack([e + e_, e_ - e, o_ - o, o_ + o]) / 2
    # cas is its own inverse up to the number of points.
    return np.moveaxis(factors, 1, 2) / (psi.shape[1] * psi.shape[2])


# Inside, the two axes of the grid are the outer ones, (x, B, …, y): then products over either are single matrix
# products over everything in between, and no array is ever transposed.

_dot = partial(jnp.tensordot, axes=1, precision=jax.lax.Precision.HIGHEST)


def _apply(
    rows: Float[Array, "a x"], columns: Float[Array, "b y"], u: Float[Array, "x *_ y"]
) -> Float[Array, "a *_ b"]:
    return _dot(rows, _dot(u, columns.T))


def _mirror(c: Array, axes: int | tuple[int, ...]) -> Array:
    """c(−k) for c(k), k modulo the number of frequencies."""
    return jnp.roll(jnp.flip(c, axes), 1, axes)


def _fold(c: Float[Array, "n_x B L n_y"], step: int) -> Float[Array, "k_x B L k_y"]:
    """The coefficients of every `step`-th point: the sum of the aliases."""
    k_x, k_y = c.shape[0] // step, c.shape[-1] // step
    # Written as a sum of slices, because XLA does not vectorize the reduction of a reshaped array on a CPU.
    slices = [c[p * k_x : (p + 1) * k_x, ..., q * k_y : (q + 1) * k_y] for p in range(step) for q in range(step)]
    return sum(slices[1:], start=slices[0])
