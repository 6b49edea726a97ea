"""Several processes that train one model together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh


@dataclasses.dataclass(frozen=True)
class ProcessGroup:
    """This process among those that do the same work: number `index` of `count`.

    All processes make the same calls in the same order. What only one may do, such as writing a file, the first does.
    """

    index: int = 0
    count: int = 1

    @classmethod
    def of(cls, mesh: Mesh | None) -> ProcessGroup:
        """The processes whose devices are in a mesh: one, or all of them."""
        found = {0} if mesh is None else {device.process_index for device in mesh.devices.flat}
        if len(found) == 1:
            return cls()
        if len(found) < jax.process_count():
            raise ValueError(
                f"the mesh has devices of {len(found)} of the {jax.process_count()} processes; use the devices of "
                "all of them, jax.devices(), or of one, jax.local_devices()"
            )
        return cls(jax.process_index(), jax.process_count())

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and reports progress."""
        return self.index == 0

    def gather(self, numbers: Sequence[int]) -> np.ndarray:
        """A few integers from every process, one row each; waits for all processes."""
        row = np.asarray(numbers, np.int32)
        if self.count == 1:
            return row[None]
        from jax.experimental import multihost_utils

        return np.asarray(multihost_utils.process_allgather(row)).reshape(self.count, -1)

    def broadcast(self, number: int) -> int:
        """The number that the first process passes."""
        return int(self.gather([number])[0, 0])

    def any(self, flag: bool) -> bool:
        """Whether any process passes true."""
        return bool(self.gather([flag]).any())

    def barrier(self) -> None:
        """Wait until all processes are here."""
        self.gather([0])


SINGLE_PROCESS = ProcessGroup()
"""The group of a process that works alone."""
