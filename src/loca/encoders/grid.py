"""One input function as an encoder was built for it."""

import math

from jaxtyping import Array, Float

from loca.typing import Input, Measurements


def check_values(u: Input, sensors: int, channels: int, name: str) -> Float[Array, "m d_u"]:
    """u itself, unless it is not values at the m sensors of the encoder called `name`."""
    if isinstance(u, Measurements):
        raise TypeError(
            f"{name} reads values at sensors that are the same for every function, got Measurements with locations of "
            "their own; encode those with `Projection`"
        )
    if u.shape != (sensors, channels):
        raise ValueError(
            f"{name} was built for {sensors} sensors and {channels} channel(s), that is u of shape "
            f"{(sensors, channels)}, got {u.shape}; put channels last, and map over functions with `jax.vmap`"
        )
    return u


def fields(u: Input, shape: tuple[int, ...], channels: int, name: str) -> Float[Array, "d_u *grid"]:
    """The values u, whose rows are in row-major order of the grid, as one field per channel."""
    return check_values(u, math.prod(shape), channels, name).T.reshape(channels, *shape)


def check_positive(**sizes: int) -> None:
    """Raise unless every size is at least one."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1, got {size}")
