"""The scattering transform of images."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from loca.encoders import morlet
from loca.encoders.encoder import Encoder, check_positive, fields
from loca.encoders.scattering import CHUNK, batched, in_chunks, modulus
from loca.typing import Input


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
        padded = padded_length(length, scales)
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


class Scattering2D(Encoder):
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
        if order not in (1, 2):
            raise ValueError(f"`order` must be 1 or 2, got {order}; higher orders have almost no energy")
        if min(shape) < 2**scales:
            raise ValueError(
                f"scales={scales} averages over 2^{scales} = {2**scales} points but the grid is {shape}; "
                f"use at most scales={int(np.log2(min(shape)))}"
            )
        padded = padded_length(shape[0], scales), padded_length(shape[1], scales)
        psi = morlet.bank_2d(padded, scales, angles)
        levels = range(scales if order == 2 else 1)
        return cls(
            rows=Axis.create(shape[0], scales),
            columns=Axis.create(shape[1], scales),
            wavelets=tuple(
                tuple(jnp.asarray(_factors(_coarsened(psi[j], r)), dtype=float) for j in range(r, scales))
                for r in levels
            ),
            shape=shape,
            scales=scales,
            angles=angles,
            order=order,
            channels=channels,
        )

    @property
    def paths(self) -> int:
        """1 + JL + L²J(J − 1)/2, the last term for order 2."""
        J, L = self.scales, self.angles
        return 1 + J * L + (L * L * J * (J - 1) // 2 if self.order == 2 else 0)

    @property
    def reduced(self) -> tuple[int, int]:
        """The grid of a coefficient, M/2ᴶ × N/2ᴶ."""
        return self.shape[0] >> self.scales, self.shape[1] >> self.scales

    @property
    def size(self) -> int:
        return self.channels * self.paths * self.reduced[0] * self.reduced[1]

    def transform(self, u: Float[Array, "*N M_x M_y"]) -> Float[Array, "*N paths m_x m_y"]:
        """The coefficients of one field or a batch of fields, not flattened."""
        if u.shape[-2:] != self.shape:
            raise ValueError(
                f"Scattering2D was built for fields on the grid {self.shape}, got an array of shape {u.shape}"
            )
        s = _scatter_batch(self, u.reshape(-1, *self.shape))
        return s.reshape(*u.shape[:-2], *s.shape[1:])

    def __call__(self, u: Input) -> Float[Array, " d"]:
        return self.transform(fields(u, self.shape, self.channels, "Scattering2D")).reshape(-1)


def padded_length(length: int, scales: int) -> int:
    """A multiple of 2ᴶ with room for one output point beyond either end."""
    return ((length >> scales) + 2) << scales


def _coarsened(psi: Float[np.ndarray, "L n_x n_y"], level: int) -> Float[np.ndarray, "L k_x k_y"]:
    kept_x, kept_y = (morlet.lowest(n, level) for n in psi.shape[1:])
    return psi[:, kept_x[:, None], kept_y]


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


def _scatter(s: Scattering2D, u: Float[Array, "B M_x M_y"]) -> Float[Array, "B paths m_x m_y"]:
    J, rows, columns = s.scales, s.rows, s.columns

    def propagate(c: Float[Array, "n_x B n_y"], r: int, j: int) -> Float[Array, "k_x B L k_y"]:
        """|· ∗ ψ_j| at level j, of a field with coefficients c at level r."""
        c, c_ = c[:, :, None], _mirror(c, (0, 2))[:, :, None]
        a, b, a_, b_ = s.wavelets[r][j - r][:, :, None]
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
        if s.order == 2 and j + 1 < J:
            c_v = _apply(rows.cas[j], columns.cas[j], v.reshape(v.shape[0], -1, v.shape[-1]))
            seconds = [average(propagate(c_v, j, j_), j_) for j_ in range(j + 1, J)]
            second = jnp.concatenate(seconds, axis=2)  # (m_x, B·L, (J−1−j)·L, m_y)
            orders[2].append(second.reshape(second.shape[0], B, -1, second.shape[-1]))
    return jnp.moveaxis(jnp.concatenate([p for paths in orders for p in paths], axis=2), 0, 2)


def _scatter_chunks(s: Scattering2D, u: Float[Array, "B M_x M_y"]) -> Float[Array, "B paths m_x m_y"]:
    first = 2 * s.angles * len(s.rows.cas[0]) * len(s.columns.cas[0])
    return in_chunks(partial(_scatter, s), u, max(1, CHUNK // first))


_scatter_batch = batched(_scatter_chunks)
