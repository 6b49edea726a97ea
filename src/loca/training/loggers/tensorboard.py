"""A run as TensorBoard reads it: event files, a new one for each time that the run goes on."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loca.training.loggers.logger import Logger


class TensorBoard(Logger):
    """Event files in `logs/tensorboard`, for `tensorboard --logdir`; written by tensorboardX.

    A row is one event, on its way to the disk when the call returns.

    **Arguments:**

    - `directory`: of the run.
    - `description`: appears under Text.
    """

    def __init__(self, directory: str | os.PathLike[str], description: Mapping[str, Any] | None = None):
        super().__init__(directory, description)
        try:
            import tensorboardX.event_file_writer  # noqa: F401
        except ImportError as error:
            raise ImportError("TensorBoard needs a further library: pip install loca-jax[tensorboard]") from error
        self._writer: Any = None

    def _begin(self) -> int:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.summary import text

        folder = self.logs / "tensorboard"
        folder.mkdir(exist_ok=True)
        files = sorted(folder.glob("events.out.tfevents.*"))
        events = [event for path in files for event in read_events(path)]
        # names are made of seconds and would collide, and what is there would be overwritten, without a number
        self._writer = EventsWriter(str(folder / "events"), f".{len(files)}")
        described = text("description", "    " + json.dumps(self.description, indent=2).replace("\n", "\n    "))
        tags = {value.tag for event in events for value in event.summary.value}
        if self.description and described.value[0].tag not in tags:
            self._add(0, described)
        return max((event.step for event in events if event.summary.value), default=-1)

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        from tensorboardX.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue] (made when imported)
        from tensorboardX.summary import scalar

        self._add(step, Summary(value=[value for name in scalars for value in scalar(name, scalars[name]).value]))

    def _add(self, step: int, summary: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] (made when imported)

        self._writer.write_event(Event(wall_time=time.time(), step=step, summary=summary))
        self._writer.flush()

    def _end(self, *, failed: bool) -> None:
        self._writer.close()


def read_events(path: Path) -> Iterator[Any]:
    """The events of a file, as far as it goes: the last may have been cut off.

    length (8 bytes), its checksum (4), the event (length), its checksum (4); and so on.
    """
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] (made when imported)

    contents, start = path.read_bytes(), 0
    while start + 12 <= len(contents):
        (length,) = struct.unpack_from("<Q", contents, start)
        stop = start + 12 + length
        if stop + 4 > len(contents):
            return
        yield Event.FromString(contents[start + 12 : stop])
        start = stop + 4
