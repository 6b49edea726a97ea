"""What every experiment is."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data import Samples, Variable
from loca.domains import Domain
from loca.typing import Key


class Problem(abc.ABC):
    """An experiment: the law 𝒢 that takes an input function u to an output function s, and a measure to draw u from.

    A problem is a frozen dataclass of plain arguments, so it travels to other processes and into the metadata of
    files. A key stands for an endless sequence of pairs: number i is a pure function of (key, i), whoever computes it,
    in whatever company. Solvers work in double precision; `sample` hands out what the models use, single precision.
    """

    citation: ClassVar[str]
    """Where the experiment comes from."""

    block: ClassVar[int] = 100
    """Pairs that are worth one piece of work: about a second of one core, so that little is lost when it is killed."""

    @property
    @abc.abstractmethod
    def domain(self) -> Domain:
        """Y, where output functions live."""

    @property
    @abc.abstractmethod
    def x(self) -> Float[np.ndarray, "m d_x"]:
        """The sensors of the input functions."""

    @property
    @abc.abstractmethod
    def y(self) -> Float[np.ndarray, "M d_y"]:
        """The queries at which output functions are known."""

    @property
    @abc.abstractmethod
    def inputs(self) -> tuple[Variable, ...]:
        """Names and units of the input channels."""

    @property
    @abc.abstractmethod
    def outputs(self) -> tuple[Variable, ...]:
        """Names and units of the output channels."""

    @abc.abstractmethod
    def pairs(self, key: Key, rows: Sequence[int]) -> tuple[Float[np.ndarray, "B m d_u"], Float[np.ndarray, "B M d_s"]]:
        """Input and output functions with these numbers of the sequence that `key` stands for, in double precision."""

    def sample(self, key: Key, count: int) -> Samples:
        """The first `count` pairs of the sequence that `key` stands for."""
        u, s = self.pairs(key, range(count))
        return Samples(
            jnp.asarray(u, jnp.float32),
            jnp.asarray(self.y, jnp.float32),
            jnp.asarray(s, jnp.float32),
            x=jnp.asarray(self.x, jnp.float32),
            domain=self.domain,
            inputs=self.inputs,
            outputs=self.outputs,
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """Every choice that makes this problem what it is, as JSON can hold it."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # pyright: ignore[reportArgumentType]

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> Problem:
        """The problem with these arguments, as JSON or TOML hold them: lists stand for tuples."""
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in arguments.items()})


def generators(key: Key, rows: Sequence[int]) -> Iterator[np.random.Generator]:
    """A stream of random numbers of its own for each of these numbers of a key's sequence."""
    entropy = np.asarray(jax.random.key_data(key)).ravel().tolist()
    return (np.random.default_rng([*entropy, row]) for row in rows)


def grid(*axes: Float[np.ndarray, " _"]) -> Float[np.ndarray, "m d"]:
    """All points of a rectangular grid, the last coordinate running fastest."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
