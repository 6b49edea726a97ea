"""Rectangular grids: linear interpolation from them, and linear maps of the lowest Fourier coefficients on them."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from loca.data import Interpolation, Samples, grid_axes, multilinear
from loca.nets import MLP
from loca.parameters import Fixed
from loca.products import matmul
from loca.typing import Key


class Grid(Fixed):
    """A rectangular grid given by its axes; axes may be periodic and unevenly spaced."""

    axes: tuple[Float[Array, " _"], ...]
    periods: tuple[float | None, ...] = eqx.field(static=True)
    num_repeated: int = eqx.field(static=True, default=0)  # leading axes that the input does not have, such as time

    @classmethod
    def of(cls, data: Samples) -> "Grid":
        """The grid of the sensors of some data, with leading axes for coordinates that only queries have (time)."""
        x = data.x[0] if isinstance(data.x, tuple) and len(data.x) == 1 else data.x
        inner = None if x is None or isinstance(x, tuple) else grid_axes(x)
        if inner is None:
            raise ValueError(
                "an FNO needs sensors on a grid, but those of this data do not form one; "
                "interpolate the inputs to a grid first, or use LOCA"
            )
        num_repeated = data.domain.dimension - len(inner)
        if num_repeated < 0:
            raise ValueError(
                f"the sensors of this data are {len(inner)}-dimensional but its queries only {data.domain.dimension}-"
                "dimensional, and an FNO predicts on the grid of its sensors; use LOCA, where the two are independent"
            )
        for axis, column in zip(inner, np.asarray(data.y.points).T[num_repeated:], strict=True):
            if is_numbering(axis, column):
                raise ValueError(
                    f"the {len(axis)} sensors along an axis are at 0, 1, 2, …, which numbers them, but the queries are "
                    f"from {column.min():.4g} to {column.max():.4g}; an FNO needs the same coordinates for both, x=..."
                )
        outer = [np.unique(column) for column in np.asarray(data.y.points).T[:num_repeated]]
        axes = tuple(jnp.asarray(axis) for axis in (*outer, *inner))
        return cls(axes, data.domain.periods, num_repeated)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of points along each axis."""
        return tuple(len(axis) for axis in self.axes)

    def coordinates(self) -> Float[Array, "*grid d_y"]:
        """The coordinates of every point, with each axis mapped to [0, 1], or to [0, 1) if it is periodic."""
        unit = [(axis - axis[0]) / extent(axis, period) for axis, period in zip(self.axes, self.periods, strict=True)]
        return jnp.stack(jnp.meshgrid(*unit, indexing="ij"), axis=-1)

    def interpolation(self, y: Float[Array, "P d_y"]) -> Interpolation:
        """Multilinear interpolation at the queries; constant beyond the ends of an axis."""
        return multilinear(self.axes, self.periods, y)


def is_numbering(axis: Float[np.ndarray, " k"], queries: Float[np.ndarray, " P"]) -> bool:
    """Whether an axis is 0, 1, 2, … and queries have another range: numbers of sensors, rather than coordinates."""
    numbers = np.arange(len(axis))
    is_other = max(abs(queries.min()), abs(queries.max() - numbers[-1])) > 1.0 and not np.isin(queries, numbers).all()
    return len(axis) > 1 and bool(is_other and (np.asarray(axis) == numbers).all())


def extent(axis: Float[Array, " k"], period: float | None) -> Float[Array, ""]:
    """The signed length of an axis from the first point to the last, or its period; 1 instead of zero."""
    length = axis[-1] - axis[0]
    if period is not None:
        length = jnp.sign(length) * period
    return jnp.where(length == 0.0, 1.0, length)


def interpolation_between(
    given: Float[np.ndarray, "m d"], expected: Float[np.ndarray, "m_ d"], periods: Sequence[float | None]
) -> Interpolation:
    """Linear interpolation from the given locations, a grid or scattered points, to the expected ones.

    Locations at most one spacing outside the given ones take the value at the boundary; others raise `ValueError`.
    """
    axes = grid_axes(given)
    for i, period in enumerate(periods):
        low, high = given[:, i].min(), given[:, i].max()
        even = (high - low) / len(given) ** (1.0 / given.shape[1])
        spacing = even if axes is None else np.abs(np.diff(axes[i])).max(initial=0.0)
        beyond = max(low - expected[:, i].min(), expected[:, i].max() - high)
        if period is None and beyond > 1.001 * spacing:
            raise ValueError(
                f"the model's sensors extend {beyond:.3g} beyond those of the data along coordinate {i + 1}, more than "
                f"one spacing of {spacing:.3g}; pass inputs that cover them"
            )
    if axes is None:
        return scattered_interpolation(wrapped(given, given, periods), wrapped(expected, given, periods))
    grid = Grid(tuple(jnp.asarray(axis, jnp.float32) for axis in axes), tuple(periods))
    return grid.interpolation(jnp.asarray(expected, jnp.float32))


def wrapped(
    x: Float[np.ndarray, "m d"], expected: Float[np.ndarray, "m_ d"], periods: Sequence[float | None]
) -> Float[np.ndarray, "m d"]:
    """Locations modulo periods, each cut in the middle of the widest gap between the expected values."""
    x = x.copy()
    for i, period in enumerate(periods):
        if period is not None:
            around = np.unique(np.mod(expected[:, i], period))
            gaps = np.diff(around, append=around[0] + period)
            cut = around[np.argmax(gaps)] + 0.5 * gaps.max()
            x[:, i] = cut + np.mod(x[:, i] - cut, period)
    return x


def scattered_interpolation(given: Float[np.ndarray, "m d"], expected: Float[np.ndarray, "m_ d"]) -> Interpolation:
    """Linear interpolation on a Delaunay triangulation; the nearest value outside the convex hull."""
    d = given.shape[1]
    if d == 1:
        line = np.argsort(given[:, 0], kind="stable")
        axis = jnp.asarray(given[line, 0], jnp.float32)
        between = Grid((axis,), (None,)).interpolation(jnp.asarray(expected, jnp.float32))
        return Interpolation(jnp.asarray(line)[between.index], between.weight)
    try:
        triangles = scipy.spatial.Delaunay(given)
    except scipy.spatial.QhullError:
        raise ValueError(f"the sensors of the data do not span {d} dimensions") from None
    found = triangles.find_simplex(expected)
    map_of = triangles.transform[found]
    part = np.einsum("pij,pj->pi", map_of[:, :d], expected - map_of[:, d])
    weight = np.concatenate([part, 1.0 - part.sum(axis=1, keepdims=True)], axis=1)
    index = triangles.simplices[found]
    outside = (found < 0) | ~np.isfinite(weight).all(axis=1)
    index[outside] = np.asarray(scipy.spatial.KDTree(given).query(expected[outside])[1])[:, None]
    weight[outside] = 1.0 / (d + 1)
    return Interpolation(jnp.asarray(index.T), jnp.asarray(weight.T, jnp.float32))


class SpectralLayer(eqx.Module):
    """h ↦ F⁻¹(R · F h) + W h + b, where R is zero except at the lowest frequencies.

    These are −m … m − 1 along every axis but the last, and 0 … m − 1 along the last. R is stored as its real and
    imaginary parts, so that optimizers, checkpoints and meshes need not support complex numbers.
    """

    real: Float[Array, "*modes w w"]
    imag: Float[Array, "*modes w w"]
    weight: Float[Array, "w w"]
    bias: Float[Array, " w"]

    def __init__(self, modes: Sequence[int], width: int, *, key: Key):
        real_key, imag_key, weight_key = jax.random.split(key, 3)
        *others, last = modes
        shape = (*(2 * m for m in others), last, width, width)
        # entries uniform on [0, 1/w²) in both parts, as in the paper that introduced the layer (Li et al. 2021)
        self.real = jax.random.uniform(real_key, shape) / width**2
        self.imag = jax.random.uniform(imag_key, shape) / width**2
        self.weight = jax.nn.initializers.glorot_normal()(weight_key, (width, width))
        self.bias = jnp.zeros(width)

    def __call__(self, h: Float[Array, "w N *grid"]) -> Float[Array, "w N *grid"]:
        """For N functions at once; with channels first, sums over points and over channels are both matrix products."""
        modes = self.real.shape[:-2]
        smooth = to_grid(self.filter(to_frequencies(h, modes)), modes, h.shape[2:])
        return smooth + over_channels(self.weight, self.bias, h)

    def filter(self, spectrum: Float[Array, "w N K 2"]) -> Float[Array, "w N K 2"]:
        """R · F h at every frequency, as a product of real matrices on (Re, Im)."""
        width, count, frequencies, _ = spectrum.shape
        modes = self.real.ndim - 2
        # in the spectrum the last axis varies slowest
        order = (*reversed(range(modes)), modes, modes + 1)
        real, imag = (part.transpose(order).reshape(-1, width, width) for part in (self.real, self.imag))
        R = jnp.block([[real, imag], [-imag, real]])
        rows = spectrum.transpose(2, 1, 3, 0).reshape(frequencies, count, 2 * width)
        return (rows @ R).reshape(frequencies, count, 2, width).transpose(3, 1, 0, 2)


def over_channels(
    weight: Float[Array, "c_in c_out"], bias: Float[Array, " c_out"], h: Float[Array, "c_in N *grid"]
) -> Float[Array, "c_out N *grid"]:
    """W h + b at every grid point."""
    mixed = matmul(weight.T, h.reshape(len(h), -1)) + bias[:, None]
    return mixed.reshape(-1, *h.shape[1:])


def at_every_point(net: MLP, h: Float[Array, "c_in N *grid"]) -> Float[Array, "c_out N *grid"]:
    """The perceptron at every grid point, with channels first."""
    *hidden, last = zip(net.weights, net.biases, strict=True)
    for weight, bias in hidden:
        h = net.activation(over_channels(weight, bias, h))
    return over_channels(*last, h)


# The Fourier transforms are matrix products. A fast transform computes all frequencies, of which only the lowest are
# needed, and on most devices a product with the few rows that are kept is many times faster: 2·2m operations per number
# for m frequencies.


def to_frequencies(h: Float[Array, "w N *grid"], modes: Sequence[int]) -> Float[Array, "w N K 2"]:
    """ĥ(k) = Σₓ h(x) exp(−2πi k·x/n): real and imaginary parts at the kept frequencies.

    These are 0 … m − 1 along the last axis, −m/2 … m/2 − 1 along the others, in the order of the FFT, 0 first. K is
    their product, with the last axis of the grid varying slowest.
    """
    lead, grid = h.shape[:2], h.shape[2:]
    *others, last = modes
    parts = product(h, half_matrix(grid[-1], last))
    done = last
    for n, kept in zip(reversed(grid[:-1]), reversed(others), strict=True):
        # (…, n, done, 2) → (…, done, n, 2), so that one product sums over the points and both parts
        parts = jnp.swapaxes(parts.reshape(-1, n, done, 2), 1, 2).reshape(-1, done, 2 * n)
        parts = product(parts, full_matrix(n, kept))
        done *= kept
    return parts.reshape(*lead, done, 2)


def to_grid(parts: Float[Array, "w N K 2"], modes: Sequence[int], grid: Sequence[int]) -> Float[Array, "w N *grid"]:
    """h(x) = 1/n Σₖ ĥ(k) exp(2πi k·x/n), real; all frequencies that are not kept are zero."""
    lead = parts.shape[:2]
    *others, last = modes
    done = last * math.prod(others)
    for n, kept in zip(grid[:-1], others, strict=True):
        done //= kept
        parts = product(parts.reshape(-1, done, 2 * kept), full_matrix(n, kept).T / n)
        parts = jnp.swapaxes(parts.reshape(-1, done, n, 2), 1, 2)
    n = grid[-1]
    k = np.arange(last)
    times = np.where((k == 0) | (2 * k == n), 1.0, 2.0)  # for −k, which is not stored
    inverse = half_matrix(n, last).T * np.repeat(times, 2)[:, None] / n
    return product(parts.reshape(-1, 2 * last), inverse).reshape(*lead, *grid)


def half_matrix(n: int, kept: int) -> np.ndarray:
    """From n real numbers to frequencies 0 … kept − 1, with real and imaginary parts interleaved."""
    angle = 2.0 * np.pi * np.outer(np.arange(n), np.arange(kept)) / n
    return np.stack([np.cos(angle), -np.sin(angle)], axis=-1).reshape(n, 2 * kept)


def full_matrix(n: int, kept: int) -> np.ndarray:
    """From n complex numbers to frequencies 0 … kept/2 − 1, −kept/2 … −1; its transpose is n times the inverse."""
    angle = 2.0 * np.pi * np.outer(np.arange(n), np.r_[: kept // 2, -(kept // 2) : 0]) / n
    cos, sin = np.cos(angle), np.sin(angle)
    rows = np.stack([np.stack([cos, -sin], axis=-1), np.stack([sin, cos], axis=-1)], axis=1)
    return rows.reshape(2 * n, 2 * kept)


def product(a: Float[Array, "*rows p"], matrix: np.ndarray) -> Float[Array, "*rows q"]:
    """A matrix product in full precision on every device: unlike learned maps, a transform must be exact."""
    return jnp.matmul(a, jnp.asarray(matrix, a.dtype), precision=jax.lax.Precision.HIGHEST)
