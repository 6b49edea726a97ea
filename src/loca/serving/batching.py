"""Requests that wait at the same time are answered together, by one thread that runs the models."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from prometheus_client import Histogram
from starlette.exceptions import HTTPException

from loca.serving.model import SIZES, ServedModel, Work

QUIET = 2
"""Passes of the event loop from the bytes of a request to its job."""

BATCHES = Histogram("loca_batch_functions", "Functions run together", buckets=(1, 2, 4, 8, 16, 32, 64, 256))


@dataclasses.dataclass(eq=False, slots=True)
class Job:
    """Work for a model, and its results when they are there. Jobs with equal keys can be run together."""

    model: ServedModel
    work: Work
    key: object
    results: asyncio.Future[dict[str, np.ndarray]]


class Batcher:
    """A queue of jobs. Whatever is queued when the model becomes free is run together, if it can be.

    Jobs can be run together if they are for the same version of a model, for the same outputs and at the same queries.
    A job belongs to one version, and the other jobs of a batch change its results at most by rounding.

    **Arguments:**

    - `max_queue`: how many functions may wait or run.
    - `timeout`: for how many seconds.
    """

    def __init__(self, max_queue: int, timeout: float):
        self.max_queue, self.timeout, self.waiting = max_queue, timeout, 0
        self._queue: list[Job] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "models")

    async def run(self, model: ServedModel, work: Work) -> dict[str, np.ndarray]:
        """The results of some work; raise `HTTPException` if too much is waiting. It may be cancelled at any time."""
        if self.waiting and self.waiting + work.functions > self.max_queue:
            reason = f"{self.waiting} functions are waiting and at most {self.max_queue} may; try again later"
            raise HTTPException(429, reason, {"retry-after": "1"})
        loop = asyncio.get_running_loop()
        job = Job(model, work, (id(model), work.key), loop.create_future())
        self._queue.append(job)
        self.waiting += work.functions
        if self._task is None:
            self._task = loop.create_task(self._run_all())
        try:
            async with asyncio.timeout(self.timeout):
                return await job.results
        except TimeoutError:
            raise HTTPException(408, f"no result within {self.timeout:g} s; try again later, or send less") from None
        finally:
            self.waiting -= work.functions

    async def _run_all(self) -> None:
        """Run batches until the queue is empty.

        A batch begins when two passes of the event loop bring no more jobs. So clients that send their next requests as
        soon as they have their responses are in one batch, and not in two that take turns.
        """
        while self._queue:
            known, quiet = 0, 0
            while quiet < QUIET and len(self._queue) < SIZES[-1]:
                quiet, known = quiet + 1 if len(self._queue) == known else 0, len(self._queue)
                await asyncio.sleep(0)
            key = self._queue[0].key  # every model takes its turn in the order in which jobs arrived
            jobs = [job for job in self._queue if job.key == key][: SIZES[-1]]
            self._queue = [job for job in self._queue if job not in jobs]
            if waiting := [job for job in jobs if not job.results.done()]:  # others were cancelled
                await self._run(waiting)
        self._task = None

    async def _run(self, jobs: Sequence[Job]) -> None:
        """Run jobs together and hand out their rows; an error belongs to these jobs and not to the task."""
        works = [job.work for job in jobs]
        counts = [work.functions for work in works]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, jobs[0].model.run, works)
            BATCHES.observe(sum(counts))
            outcomes = shares(counts, results)
        except Exception as error:  # noqa: BLE001 (whatever it is, the clients of these jobs wait for it)
            outcomes = [error] * len(jobs)
        for job, outcome in zip(jobs, outcomes, strict=True):
            if job.results.done():
                continue
            if isinstance(outcome, Exception):
                job.results.set_exception(outcome)
            else:
                job.results.set_result(outcome)


def shares(counts: Sequence[int], results: dict[str, np.ndarray]) -> list[dict[str, np.ndarray] | Exception]:
    """The rows of each job with a number of functions, or an error if they are not finite."""
    found: list[dict[str, np.ndarray] | Exception] = []
    for start, count in zip(itertools.accumulate(counts, initial=0), counts, strict=False):
        mine = {name: values[start : start + count] for name, values in results.items()}
        is_finite = all(np.isfinite(values).all() for values in mine.values())
        found.append(mine if is_finite else HTTPException(422, "the prediction for these inputs is not finite"))
    return found
