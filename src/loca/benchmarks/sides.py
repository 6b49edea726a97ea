"""Sides of a comparison: processes that hold a model each and train it when told, one at a time."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    # Large arrays stay with the process between steps. By default every one is returned to the system and asked for
    # again, page by page, which costs PyTorch a third of its time here, and us little, whose steps share one buffer.
    "MALLOC_MMAP_THRESHOLD_": "4294967296",
    "MALLOC_TRIM_THRESHOLD_": "8589934592",
    "MALLOC_TOP_PAD_": "268435456",
}


class Side:
    """A process that answers each line of JSON with one.

    It first says, unasked, how many `parameters` its model has, which `way` it runs, its `versions` and how long it
    took to start and compile, `start_seconds`. Then it can be asked:

    - `step`, `count`: so many steps after one that is not timed; answers `seconds` for each.
    - `train`, `seed`, `target`, `every`, `limit`: training from the start, validated every so many steps until the
      error is at most the target or the seconds are over; answers a `curve` of [seconds, steps, error].

    In between it does nothing. Its complaints go to a file, and are shown if it ends.
    """

    def __init__(self, name: str, command: Sequence[str | Path], complaints: Path):
        self.name, self.complaints = name, complaints
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | ENVIRONMENT
        with complaints.open("w") as file:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=environment,
            )
        try:
            self.begun = self._answer()
        except BaseException:
            self.end()
            raise

    def step(self, count: int) -> float:
        """Seconds per step."""
        return self._ask(do="step", count=count)["seconds"]

    def train(self, *, seed: int, target: float, every: int, limit: float) -> list[tuple[float, int, float]]:
        """Seconds, steps and validation error."""
        curve = self._ask(do="train", seed=seed, target=target, every=every, limit=limit)["curve"]
        return [(seconds, steps, error) for seconds, steps, error in curve]

    def end(self) -> None:
        """Close the process down."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            last = "\n".join(self.complaints.read_text().splitlines()[-20:])
            raise RuntimeError(f"{self.name} ended with code {code}; the last it said:\n{last}")
        return json.loads(line)
