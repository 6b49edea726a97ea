"""Runs carried out, one after the other or side by side, each once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from loca.claims.runs import Outcome, Run, Runs
from loca.workers import run_tasks


@dataclasses.dataclass(frozen=True)
class Workshop:
    """Where and how a study is carried out.

    **Arguments:**

    - `directory`: keeps every run, for all studies that ask for it.
    - `workers`: processes that train side by side.
    - `tell`: called with a line of text whenever a run is done.
    """

    directory: Path
    workers: int = 1
    tell: Callable[[str], object] = lambda line: None

    def __call__(self, runs: Sequence[Run]) -> dict[Run, Outcome]:
        """What came of each run."""
        for source in dict.fromkeys(run.source for run in runs):
            source.prepare(self.directory / "data")
        do = Runs(self.directory)
        wanted = list(dict.fromkeys(runs))
        for done, run in enumerate(run_tasks(do, wanted, workers=self.workers), 1):
            outcome = do(run)
            self.tell(f"{done}/{len(wanted)} {run.model}, seed {run.seed}, rate {run.rate:g}: {outcome.validation:.4f}")
        return {run: do(run) for run in runs}
