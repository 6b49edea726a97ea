"""Requests that wait at the same time are answered together, by one thread that runs the models."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from prometheus_client import Histogram
from starlette.exceptions import HTTPException

from loca.serving.model import SIZES, ServedModel, Work
from loca.serving.protocol import is_finite

QUIET = 2
"""Passes of the event loop from the bytes of a request to its job."""

BATCHES = Histogram("loca_batch_functions", "Functions run together", buckets=(1, 2, 4, 8, 16, 32, 64, 256))

Results = dict[str, np.ndarray]
Job = tuple[Work, asyncio.Future[Results]]


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
        self._queues: dict[tuple[ServedModel, object], list[Job]] = {}  # jobs that can be run together
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "models")

    async def run(self, model: ServedModel, work: Work) -> Results:
        """The results of some work; raise `HTTPException` if too much is waiting. It may be cancelled at any time."""
        if self.waiting and self.waiting + work.functions > self.max_queue:
            reason = f"{self.waiting} functions are waiting and at most {self.max_queue} may; try again later"
            raise HTTPException(429, reason, {"retry-after": "1"})
        loop = asyncio.get_running_loop()
        results = loop.create_future()
        timer = loop.call_later(self.timeout, settle, results, TimeoutError())
        self._queues.setdefault((model, work.key), []).append((work, results))
        self.waiting += work.functions
        if self._task is None:
            self._task = loop.create_task(self._run_all())
        try:
            return await results
        except TimeoutError:
            raise HTTPException(408, f"no result within {self.timeout:g} s; try again later, or send less") from None
        finally:
            timer.cancel()
            self.waiting -= work.functions

    async def _run_all(self) -> None:
        """Run batches until the queue is empty.

        A batch begins when two passes of the event loop bring no more jobs. So clients that send their next requests as
        soon as they have their responses are in one batch, and not in two that take turns.
        """
        while self._queues:
            known = quiet = count = 0
            while quiet < QUIET and count < SIZES[-1]:
                count = sum(map(len, self._queues.values()))
                quiet, known = quiet + 1 if count == known else 0, count
                await asyncio.sleep(0)
            place = next(iter(self._queues))  # every model takes its turn
            jobs = self._queues.pop(place)
            if len(jobs) > SIZES[-1]:
                self._queues[place] = jobs[SIZES[-1] :]
            if waiting := [job for job in jobs[: SIZES[-1]] if not job[1].done()]:  # others were cancelled
                await self._run(place[0], waiting)
        self._task = None

    async def _run(self, model: ServedModel, jobs: Sequence[Job]) -> None:
        """Run jobs together and hand out their rows; an error belongs to these jobs and not to the task."""
        works = [work for work, _ in jobs]
        counts = [work.functions for work in works]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, model.run, works)
            BATCHES.observe(sum(counts))
            outcomes = shares(counts, results)
        except Exception as error:  # noqa: BLE001 (whatever it is, the clients of these jobs wait for it)
            outcomes = [error] * len(jobs)
        for (_, waiting), outcome in zip(jobs, outcomes, strict=True):
            settle(waiting, outcome)


def settle(results: asyncio.Future[Results], outcome: Results | Exception) -> None:
    """Give a job its results or an error, unless nobody waits for them."""
    if results.done():
        return
    if isinstance(outcome, Exception):
        results.set_exception(outcome)
    else:
        results.set_result(outcome)


def shares(counts: Sequence[int], results: Results) -> list[Results | Exception]:
    """The rows of each job with a number of functions, or an error if they are not finite."""
    found: list[Results | Exception] = []
    are_all_finite = all(map(is_finite, results.values()))
    for start, count in zip(itertools.accumulate(counts, initial=0), counts, strict=False):
        mine = {name: values[start : start + count] for name, values in results.items()}
        is_mine = are_all_finite or all(map(is_finite, mine.values()))
        found.append(mine if is_mine else HTTPException(422, "the prediction for these inputs is not finite"))
    return found
