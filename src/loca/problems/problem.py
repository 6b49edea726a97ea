"""The interface of all experiments, and the generation of their pairs with any number of workers."""

import abc
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from loca.data import Arrays, Samples, Store, Variable, versions, write_store
from loca.domains import Domain
from loca.typing import Key
from loca.workers import one_thread


class Problem(abc.ABC):
    """An experiment: the operator 𝒢 that maps an input function u to an output function s, and a distribution of u.

    A problem is a frozen dataclass of plain arguments, so it can be sent to other processes and stored in the metadata
    of files. A key defines an endless sequence of pairs. Pair number i is a pure function of (key, i): it does not
    depend on which other pairs are computed with it, or where. Solvers use double precision; `sample` returns single
    precision, which the models use.
    """

    citation: ClassVar[str]
    """The origin of the experiment."""

    inputs: ClassVar[tuple[Variable, ...]]
    """Names and units of the input channels."""

    outputs: ClassVar[tuple[Variable, ...]]
    """Names and units of the output channels."""

    sensor_coordinates: ClassVar[tuple[Variable, ...]] = ()
    """Names and units of the coordinates of sensors."""

    query_coordinates: ClassVar[tuple[Variable, ...]] = ()
    """Names and units of the coordinates of queries."""

    block: ClassVar[int] = 100
    """Number of pairs in one piece of work: about a second on one core, so that little is lost if it is killed."""

    @property
    @abc.abstractmethod
    def domain(self) -> Domain:
        """Y, the domain of the output functions."""

    @property
    @abc.abstractmethod
    def x(self) -> Float[np.ndarray, "m d_x"]:
        """The locations of the sensors."""

    @property
    def y(self) -> Float[np.ndarray, "M d_y"]:
        """The query locations; the sensors unless overridden."""
        return self.x

    @abc.abstractmethod
    def pairs(self, key: Key, rows: Sequence[int]) -> tuple[Float[np.ndarray, "B m d_u"], Float[np.ndarray, "B M d_s"]]:
        """Compute the pairs (u, s) with these numbers of the sequence of `key`, in double precision."""

    def sample(self, key: Key, count: int) -> Samples:
        """Compute the first `count` pairs of the sequence of `key`."""
        return self._samples(*self.pairs(key, range(count)))

    def _samples(self, u: Float[np.ndarray, "B m d_u"], s: Float[np.ndarray, "B M d_s"]) -> Samples:
        return Samples(
            jnp.asarray(u, jnp.float32),
            jnp.asarray(self.y, jnp.float32),
            jnp.asarray(s, jnp.float32),
            x=jnp.asarray(self.x, jnp.float32),
            domain=self.domain,
            inputs=self.inputs,
            outputs=self.outputs,
            sensor_coordinates=self.sensor_coordinates,
            query_coordinates=self.query_coordinates,
        )

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that define this problem, serializable as JSON."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # pyright: ignore[reportArgumentType]


def generators(key: Key, rows: Sequence[int]) -> Iterator[np.random.Generator]:
    """A random number generator for each of these numbers of the sequence of a key."""
    entropy = np.asarray(jax.random.key_data(key)).ravel().tolist()
    return (np.random.default_rng([*entropy, row]) for row in rows)


PIECES = 32  # the smallest number of pieces into which the work is divided, so that several workers can share it


def generate(
    problem: Problem,
    count: int,
    path: str | os.PathLike[str],
    *,
    seed: int = 0,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Store:
    """Write the first `count` pairs of the sequence of a seed to a store.

    If the call is interrupted at any moment, the same call resumes it.

    **Arguments:**

    - `problem`: the problem to solve.
    - `count`: the number of pairs.
    - `path`: `FILE.zarr`, which exists only when it is complete; until then the work is in `FILE.zarr.partial`.
    - `seed`: determines the sequence of pairs.
    - `workers`: number of processes; with 1 the calling process does the work. In a script, more than one worker needs
      the usual `if __name__ == "__main__":`.
    - `executor`: any `concurrent.futures.Executor` to use instead, whose workers see the same files.
    - `progress`: called with the number of finished pairs and the total number.
    """
    if count < 1 or workers < 1:
        raise ValueError(f"count and workers must be at least 1, got count={count}, workers={workers}")
    m, M, d_u, d_s = len(problem.x), len(problem.y), len(problem.inputs), len(problem.outputs)
    example = problem._samples(np.zeros((1, m, d_u)), np.zeros((1, M, d_s)))
    provenance = {
        "problem": type(problem).__qualname__,
        "arguments": problem.arguments,
        "seed": seed,
        "citation": problem.citation,
        "versions": versions(),
    }
    return write_store(
        path,
        example,
        count,
        functools.partial(_arrays, problem, seed),
        provenance=provenance,
        block=min(problem.block, -(-count // PIECES)),
        workers=workers,
        executor=executor,
        progress=progress,
    )


def _arrays(problem: Problem, seed: int, rows: range) -> Arrays:
    """The pairs with these numbers of the sequence of a seed, in single precision."""
    with one_thread():  # so that sums are computed in the same order in this process and in workers
        u, s = problem.pairs(jax.random.key(seed), rows)
    return {"u": np.asarray(u, np.float32), "s": np.asarray(s, np.float32)}
