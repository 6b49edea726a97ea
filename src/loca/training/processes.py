"""Several processes that train one model: which of them speaks, and how they agree."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh


@dataclasses.dataclass(frozen=True)
class Crew:
    """This process among those that do the same work: the `index`-th of `count`.

    All of them do everything in the same order; what only one may do, such as write a file, the first does.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def of(cls, mesh: Mesh | None) -> Crew:
        """The processes whose devices are in a mesh: one, or all that there are."""
        found = {0} if mesh is None else {device.process_index for device in mesh.devices.flat}
        if len(found) == 1:
            return cls()
        if len(found) < jax.process_count():
            raise ValueError(
                f"the mesh has devices of {len(found)} of the {jax.process_count()} processes; take the devices of "
                "all of them, jax.devices(), or of one, jax.local_devices()"
            )
        return cls(jax.process_index(), jax.process_count())

    @property
    def is_first(self) -> bool:
        """Whether this process speaks for all."""
        return self.index == 0

    def gathered(self, numbers: Sequence[int]) -> np.ndarray:
        """Some small integers of every process, a row for each; all wait for each other here."""
        row = np.asarray(numbers, np.int32)
        if self.count == 1:
            return row[None]
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(row)).reshape(self.count, -1)

    def told_by_first(self, number: int) -> int:
        """What the first process says."""
        return int(self.gathered([number])[0, 0])

    def said_by_any(self, yes: bool) -> bool:
        """Whether any process says yes."""
        return bool(self.gathered([yes]).any())

    def meet(self) -> None:
        """Return when all processes are here."""
        self.gathered([0])


ALONE = Crew()
"""The only process."""
