"""The order in which functions are visited, as a pure function of (seed, step)."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

ROUNDS = 6
"""Rounds of the Feistel network below; four make a pseudorandom permutation (Luby & Rackoff 1988), two are margin."""


def batch_rows(seed: int | Int[Array, ""], step: int | Int[Array, ""], size: int, count: int) -> Int[Array, " size"]:
    """Which of `count` functions make up the batch of a step.

    Positions step·size … step·size + size − 1 of an endless stream are cut into epochs of `count`; within each epoch
    every function comes exactly once, in an order of its own. Nothing is stored and nothing is sorted: a batch of
    10⁶ functions costs as much as one of 10³, and resuming at any step needs only its number.
    """
    if count * size >= 2**32:
        raise ValueError(f"{count} functions in batches of {size} need positions beyond 32 bits; use smaller batches")
    # step·size itself could overflow, so the epoch and the place in it are found without forming it
    step = jnp.asarray(step, jnp.uint32)
    whole, part = step // count, step % count
    offset = part * size + jnp.arange(size, dtype=jnp.uint32)
    epoch = whole * size + offset // count
    return shuffle(offset % count, epoch, jnp.asarray(seed).astype(jnp.uint32), count).astype(jnp.int32)


@functools.partial(jax.jit, static_argnames="count")
def shuffle(
    place: UInt32[Array, " B"], epoch: UInt32[Array, " B"], seed: UInt32[Array, ""], count: int
) -> UInt32[Array, " B"]:
    """The function at a place of an epoch's order: a permutation of 0 … count − 1, evaluated one element at a time.

    A Feistel network permutes the smallest square power of two that holds `count`; walking its cycles until a value
    falls below `count` restricts it to a permutation of what is wanted (Black & Rogaway 2002).
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask = jnp.uint32((1 << half) - 1)
    key = mix(epoch ^ mix(seed))

    def permute(value: UInt32[Array, " B"]) -> UInt32[Array, " B"]:
        left, right = value >> half, value & mask
        for i in range(ROUNDS):
            left, right = right, left ^ (mix(right ^ mix(key + jnp.uint32(i))) & mask)
        return (left << half) | right

    def walk(value: UInt32[Array, " B"]) -> UInt32[Array, " B"]:
        return jnp.where(value < count, value, permute(value))

    return jax.lax.while_loop(lambda value: jnp.any(value >= count), walk, permute(place))


def mix(h: UInt32[Array, "*B"]) -> UInt32[Array, "*B"]:
    """A bijective hash of 32 bits: multiplications and shifts with constants of low measured bias (Wellons 2018)."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x7FEB352D)
    h = (h ^ (h >> 15)) * jnp.uint32(0x846CA68B)
    return h ^ (h >> 16)
