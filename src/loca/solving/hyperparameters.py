"""Hyperparameters of Gaussian operators, and the moves of a search."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Hyperparameters:
    """What `solve` chooses on held-out functions.

    **Arguments:**

    - `length`: of the kernel on inputs, whose codes have mean square length 1.
    - `damping`: component k of a code is multiplied by (1 + k/20)^(−damping).
    - `linear`: the weight of linear operators relative to the Matérn term.
    - `noise`: λ, the variance of the noise of labels relative to that of the prior.
    - `location_lengths`: of the kernel on locations: for each coordinate, a fraction of its extent; on a sphere one
      number, in units of the radius.
    - `transforms`: of the variables, as pairs (name, transform).
    """

    length: float = 2.0
    damping: float = 0.5
    linear: float = 0.3
    noise: float = 1e-4
    location_lengths: tuple[float, ...] = (0.5,)
    transforms: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Hyperparameters:
        """The hyperparameters that `dataclasses.asdict` described."""
        return cls(**content | {"location_lengths": tuple(content["location_lengths"]),
                                "transforms": tuple(map(tuple, content["transforms"]))})  # fmt: skip

    def moves(self, factor: float, *, few: bool) -> Iterator[list[dict[str, Any]]]:
        """Lists of changes; in each list one number changes, in both directions.

        **Arguments:**

        - `factor`: by which a number grows or shrinks.
        - `few`: only the noise and lengths, which depend on the number of functions and features.
        """

        def scaled(name: str) -> list[dict[str, Any]]:
            return [{name: getattr(self, name) * by} for by in (factor, 1.0 / factor)]

        def stretched(chosen: range) -> list[dict[str, Any]]:
            both = []
            for by in (factor, 1.0 / factor):
                lengths = (each * by if i in chosen else each for i, each in enumerate(self.location_lengths))
                both.append({"location_lengths": tuple(lengths)})
            return both

        axes = len(self.location_lengths)
        yield scaled("noise")
        yield scaled("length")
        yield stretched(range(axes))
        if not few:
            yield [{"damping": self.damping + 0.5}, {"damping": max(0.0, self.damping - 0.5)}]
            yield scaled("linear")
            if axes > 1:
                yield from (stretched(range(axis, axis + 1)) for axis in range(axes))
