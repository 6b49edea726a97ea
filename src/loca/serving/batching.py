"""Requests that wait at the same time are answered together, by one thread that runs the models."""

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
"""Passes of the event loop without another job, after which a batch starts: one is from its bytes to the job."""

BATCHES = Histogram("loca_batch_functions", "Functions run together", buckets=(1, 2, 4, 8, 16, 32, 64, 256))

Results = dict[str, np.ndarray]
Outcome = Results | Exception | None  # if it is too late
Job = tuple[Work, asyncio.Future[Outcome]]


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
        self._queues: dict[tuple[ServedModel, *tuple[object, ...]], list[Job]] = {}  # jobs that can be run together
        self._is_busy = False
        self._thread = ThreadPoolExecutor(1, "models")

    async def run(self, model: ServedModel, work: Work) -> Results:
        """The results of some work; raise `HTTPException` if too much is waiting. It may be cancelled at any time."""
        functions, y = len(work.arrays[0]), work.y
        if self.waiting and self.waiting + functions > self.max_queue:
            reason = f"{self.waiting} functions are waiting and at most {self.max_queue} may; try again later"
            raise HTTPException(429, reason, {"retry-after": "1"})
        loop = asyncio.get_running_loop()
        results = loop.create_future()
        timer = loop.call_later(self.timeout, settle, results, None)
        place = model, work.wanted, None if y is None else y.tobytes()
        self._queues.setdefault(place, []).append((work, results))
        self.waiting += functions
        if not self._is_busy:
            self._is_busy = True
            loop.call_soon(self._start, loop)
        try:
            outcome = await results
        finally:
            timer.cancel()
            self.waiting -= functions
        if outcome is None:
            raise HTTPException(408, f"no result within {self.timeout:g} s; try again later, or send less")
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _start(self, loop: asyncio.AbstractEventLoop, known: int = 0, quiet: int = 0) -> None:
        """Run a batch when some passes of the event loop bring no more jobs.

        So clients that send their next requests as soon as they have their responses are in one batch, and not in two
        that take turns.
        """
        count = sum(map(len, self._queues.values()))
        if quiet < QUIET and count < SIZES[-1]:
            loop.call_soon(self._start, loop, count, quiet + 1 if count == known else 0)
            return
        while self._queues:
            place = next(iter(self._queues))  # every model takes its turn
            jobs = self._queues.pop(place)
            if len(jobs) > SIZES[-1]:
                self._queues[place] = jobs[SIZES[-1] :]
            if waiting := [job for job in jobs[: SIZES[-1]] if not job[1].done()]:  # others were cancelled
                self._thread.submit(self._run, loop, place[0], waiting)
                return
        self._is_busy = False

    def _run(self, loop: asyncio.AbstractEventLoop, model: ServedModel, jobs: Sequence[Job]) -> None:
        """Run jobs together; an error belongs to these jobs and not to the thread."""
        works = [work for work, _ in jobs]
        counts = [len(work.arrays[0]) for work in works]
        try:
            results = model.run(works)
            BATCHES.observe(sum(counts))
            outcomes = shares(counts, results)
        except Exception as error:  # noqa: BLE001 (whatever it is, the clients of these jobs wait for it)
            outcomes = [error] * len(jobs)
        loop.call_soon_threadsafe(self._end, loop, jobs, outcomes)

    def _end(self, loop: asyncio.AbstractEventLoop, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> None:
        """Hand out the rows of jobs, and look for the next ones."""
        for (_, waiting), outcome in zip(jobs, outcomes, strict=True):
            settle(waiting, outcome)
        self._start(loop)


def settle(results: asyncio.Future[Outcome], outcome: Outcome) -> None:
    """Give a job its outcome, unless nobody waits for it."""
    if not results.done():
        results.set_result(outcome)


def shares(counts: Sequence[int], results: Results) -> list[Outcome]:
    """The rows of each job with a number of functions, or an error if they are not finite."""
    found: list[Outcome] = []
    are_all_finite = all(map(is_finite, results.values()))
    for start, count in zip(itertools.accumulate(counts, initial=0), counts, strict=False):
        mine = {name: values[start : start + count] for name, values in results.items()}
        is_mine = are_all_finite or all(map(is_finite, mine.values()))
        found.append(mine if is_mine else HTTPException(422, "the prediction for these inputs is not finite"))
    return found
