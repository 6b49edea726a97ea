"""The scattering transform of time series."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from loca.encoders import morlet
from loca.encoders.encoder import Encoder, check_positive, fields
from loca.encoders.scattering import CHUNK, batched, in_chunks, modulus
from loca.typing import Input

BORDER = 1e-3  # the fraction of φ that may extend beyond the padding


class Band(eqx.Module):
    """Wavelets applied to the same input, whose output is kept at every 2^step-th point of the padded signal."""

    psi: Float[Array, "paths n_in"]  # ψ̂
    step: int = eqx.field(static=True)


class Scattering1D(Encoder):
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
    length: int = eqx.field(static=True)
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
        if order not in (1, 2):
            raise ValueError(f"`order` must be 1 or 2, got {order}; higher orders have almost no energy")
        if length < 2**scales:
            raise ValueError(
                f"scales={scales} averages over 2^{scales} = {2**scales} points but the signal has {length}; "
                f"use at most scales={int(np.log2(length))}"
            )
        padded = padded_length(length, scales)
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
            length=length,
            padding=(before, padded - length - before),
            scales=scales,
            channels=channels,
        )

    @property
    def paths(self) -> int:
        """The number of coefficients at a point of the output."""
        return 1 + sum(
            len(band.psi) * (1 + sum(len(follower.psi) for follower in followers))
            for band, followers in zip(self.first, self.second, strict=True)
        )

    @property
    def reduced(self) -> tuple[int]:
        """The grid of a coefficient, about m/2ᴶ."""
        return (self.low[0].shape[0],)

    @property
    def size(self) -> int:
        return self.channels * self.paths * self.reduced[0]

    def transform(self, u: Float[Array, "*N m"]) -> Float[Array, "*N paths m_J"]:
        """The coefficients of one signal or a batch of signals, not flattened."""
        if u.shape[-1] != self.length:
            raise ValueError(
                f"Scattering1D was built for signals of length {self.length}, got an array of shape {u.shape}"
            )
        s = _scatter_batch(self, u.reshape(-1, self.length))
        return s.reshape(*u.shape[:-1], *s.shape[1:])

    def __call__(self, u: Input) -> Float[Array, " d"]:
        return self.transform(fields(u, (self.length,), self.channels, "Scattering1D")).reshape(-1)


def padded_length(length: int, scales: int) -> int:
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


def _scatter(s: Scattering1D, u: Float[Array, "B m"]) -> Float[Array, "B paths m_J"]:
    def average(v: Float[Array, "*B n"], step: int) -> Float[Array, "*B m_J"]:
        return jnp.matmul(v, s.low[step].T, precision=jax.lax.Precision.HIGHEST)

    u = jnp.pad(u, ((0, 0), s.padding), mode="reflect")
    c = jnp.fft.fft(u)
    orders = [[average(u, 0)[:, None]], [], []]
    for band, followers in zip(s.first, s.second, strict=True):
        v = _propagate(c, band.psi, band.step)
        orders[1].append(average(v, band.step))
        if followers:
            c_v = jnp.fft.fft(v)
            seconds = [average(_propagate(c_v, b.psi, b.step - band.step), b.step) for b in followers]
            second = jnp.concatenate(seconds, axis=2)  # (B, paths, followers, m_J)
            orders[2].append(second.reshape(u.shape[0], -1, second.shape[-1]))
    return jnp.concatenate([p for paths in orders for p in paths], axis=1)


def _scatter_chunks(s: Scattering1D, u: Float[Array, "B m"]) -> Float[Array, "B paths m_J"]:
    first = 2 * max(band.psi.size for band in s.first)
    return in_chunks(partial(_scatter, s), u, max(1, CHUNK // first))


_scatter_batch = batched(_scatter_chunks)
