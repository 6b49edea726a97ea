"""The logger for TensorBoard: event files, a new one whenever the run resumes."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loca.training.loggers.logger import Logger


class TensorBoard(Logger):
    """Writes event files to `logs/tensorboard` with tensorboardX; view them with `tensorboard --logdir`.

    A row is one event, and is flushed when the call returns. No row is lost or written twice if the process is killed.

    **Arguments:**

    - `directory`: the run directory.
    - `description`: a JSON description of the run, shown under Text.
    """

    def __init__(self, directory: str | os.PathLike[str], description: Mapping[str, Any] | None = None):
        super().__init__(directory, description)
        try:
            import tensorboardX  # noqa: F401
        except ImportError as error:
            raise ImportError("TensorBoard requires tensorboardX: pip install loca-jax[tensorboard]") from error
        self._writer: Any = None

    def _begin(self) -> int:
        from tensorboardX import RecordWriter
        from tensorboardX.summary import text

        folder = self.logs / "tensorboard"
        folder.mkdir(exist_ok=True)
        files = sorted(folder.glob("events.out.tfevents.*"))
        events = [event for path in files for event in read_events(path)]
        # The number makes names unique: two files opened within one second would otherwise overwrite each other.
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{len(files)}"
        self._writer = RecordWriter(str(folder / name))
        self._add(file_version="brain.Event:2")
        described = text("description", "    " + json.dumps(self.description, indent=2).replace("\n", "\n    "))
        tags = {value.tag for event in events for value in event.summary.value}
        if self.description and described.value[0].tag not in tags:
            self._add(step=0, summary=described)
        return max((event.step for event in events if event.summary.value), default=-1)

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        self._add(step=step, summary={"value": [{"tag": name, "simple_value": scalars[name]} for name in scalars]})

    def _add(self, **fields: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] (generated)

        self._writer.write(Event(wall_time=time.time(), **fields).SerializeToString())
        self._writer.flush()

    def _end(self, *, failed: bool) -> None:
        self._writer.close()


def read_events(path: Path) -> Iterator[Any]:
    """The events of a TFRecord file, except a last one that was cut off.

    A record is a length (8 bytes), its checksum (4), an event (length) and its checksum (4).
    """
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue] (generated)

    contents, start = path.read_bytes(), 0
    while start + 12 <= len(contents):
        (length,) = struct.unpack_from("<Q", contents, start)
        stop = start + 12 + length
        if stop + 4 > len(contents):
            return
        yield Event.FromString(contents[start + 12 : stop])
        start = stop + 4
