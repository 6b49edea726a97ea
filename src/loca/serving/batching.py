"""Requests that wait at the same time are answered together, by one thread that runs the models."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from loca.serving.protocol import Limits, RequestError
from loca.serving.served_model import SIZES, ServedModel, Work

Results = dict[str, np.ndarray]
"""The outputs of a request, by name."""


@dataclasses.dataclass(eq=False, slots=True)
class Job:
    """Work for a model, and what is called in the event loop with its results or with an error, exactly once."""

    model: ServedModel
    work: Work
    deadline: float
    respond: Callable[[Results | Exception], object]
    is_done: bool = False


class Batcher:
    """A queue of jobs. Whatever is queued when the model becomes free is run together, if it can be.

    Jobs can be run together if they are for the same version of a model, for the same outputs and at the same queries.
    A job belongs to one version, and the other jobs of a batch change its results at most by rounding.

    The model starts when one pass of the event loop brings no more jobs. So clients that send their next requests as
    soon as they have their responses are in one batch, and not in two that take turns.

    **Arguments:**

    - `limits`: how many functions may wait, and for how long.
    - `observe`: called with the number of functions of each batch.
    """

    def __init__(self, limits: Limits, observe: Callable[[int], object]):
        self.limits, self.observe = limits, observe
        self.waiting = 0
        self._open: dict[Job, None] = {}  # in the order of their deadlines
        self._queue: list[Job] = []
        self._is_busy = False
        self._batches: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._serve, name="models", daemon=True)

    def start(self) -> None:
        """Start the thread; call this in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the jobs that it has."""
        self._batches.put(None)
        self._thread.join()

    async def run(self, model: ServedModel, work: Work, deadline: float) -> Results:
        """The results of some work; raise `RequestError` if too much is waiting, or after a deadline of the loop."""
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        job = self.submit(model, work, deadline, functools.partial(settle, future))
        try:
            return await future
        finally:
            self.cancel(job)

    def submit(
        self, model: ServedModel, work: Work, deadline: float, respond: Callable[[Results | Exception], object]
    ) -> Job:
        """A job in the queue; raise `RequestError` if too much is waiting."""
        assert self._loop is not None
        if self.waiting and self.waiting + work.functions > self.limits.queue:
            raise RequestError(
                429,
                f"{self.waiting} functions are waiting and at most {self.limits.queue} may; try again later",
                "queue",
            )
        job = Job(model, work, deadline, respond)
        self.waiting += work.functions
        self._open[job] = None
        self._queue.append(job)
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._start_batch, 0)
        return job

    def cancel(self, job: Job) -> None:
        """Give up a job, unless it is done."""
        if not job.is_done:
            job.is_done = True
            del self._open[job]
            self.waiting -= job.work.functions

    def expire(self) -> None:
        """End jobs that have waited too long; call this now and then."""
        assert self._loop is not None
        now, reason = self._loop.time(), f"no result within {self.limits.timeout:g} s; try again later, or send less"
        for job in list(itertools.takewhile(lambda job: job.deadline < now, self._open)):
            self._end(job, RequestError(408, reason, "timeout"))

    def _end(self, job: Job, outcome: Results | Exception) -> None:
        assert self._loop is not None
        if not job.is_done:
            self.cancel(job)
            self._loop.call_soon(job.respond, outcome)  # by itself, so that an error does not reach other jobs

    def _start_batch(self, known: int) -> None:
        """Hand the queue to the thread, unless more jobs arrived in this pass of the loop."""
        assert self._loop is not None
        if known < len(self._queue) < SIZES[-1]:
            self._loop.call_soon(self._start_batch, len(self._queue))
            return
        self._batches.put(self._queue)
        self._queue = []

    def _end_batch(self) -> None:
        """Look for the next batch."""
        assert self._loop is not None
        self._is_busy = bool(self._queue)
        if self._is_busy:
            self._loop.call_soon(self._start_batch, 0)

    def _serve(self) -> None:
        """Run batches, until the end of their queue."""
        assert self._loop is not None
        while (jobs := self._batches.get()) is not None:
            for group in groups(jobs):
                self._run(group)
            self._loop.call_soon_threadsafe(self._end_batch)

    def _run(self, jobs: Sequence[Job]) -> None:
        """Run jobs together and hand out their results."""
        assert self._loop is not None
        jobs = [job for job in jobs if not job.is_done]
        if not jobs:
            return
        outcomes: Iterable[Results | Exception]
        try:
            first = jobs[0]
            columns = zip(*(job.work.arrays for job in jobs), strict=True)
            arrays = tuple(np.concatenate(column) if len(jobs) > 1 else column[0] for column in columns)
            results = first.model.run(first.work._replace(arrays=arrays))
            self.observe(len(arrays[0]))
            outcomes = shares(jobs, results)
        except Exception as error:  # noqa: BLE001 (whatever it is, it belongs to these requests and not to the thread)
            outcomes = itertools.repeat(error)
        self._loop.call_soon_threadsafe(self._deliver, jobs, outcomes)

    def _deliver(self, jobs: Sequence[Job], outcomes: Iterable[Results | Exception]) -> None:
        for job, outcome in zip(jobs, outcomes, strict=False):
            self._end(job, outcome)


def groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that are run together: of equal keys, and at most as many functions as programs are compiled for.

    Every model takes its turn in the order in which jobs arrived.
    """
    found: dict[object, list[list[Job]]] = {}
    counts: dict[object, int] = {}  # of functions in the last group of each key
    for job in jobs:
        key, functions = (id(job.model), job.work.key), job.work.functions
        mine = found.setdefault(key, [[]])
        count = counts.get(key, 0) + functions
        if mine[-1] and count > SIZES[-1]:
            mine.append([])
            count = functions
        counts[key] = count
        mine[-1].append(job)
    return list(itertools.chain.from_iterable(found.values()))


def shares(jobs: Sequence[Job], results: Results) -> list[Results | Exception]:
    """The rows of each job, or an error if they are not finite."""
    is_finite = all(bool(np.isfinite(values).all()) for values in results.values())
    found: list[Results | Exception] = []
    start = 0
    for job in jobs:
        rows = slice(start, start + job.work.functions)
        mine = {name: values[rows] for name, values in results.items()}
        start = rows.stop
        if is_finite or all(np.isfinite(values).all() for values in mine.values()):
            found.append(mine)
        else:
            found.append(RequestError(422, "the prediction for these inputs is not finite", "not_finite"))
    return found


def settle(future: asyncio.Future[Results], outcome: Results | Exception) -> None:
    """Give a future its results or its error, unless nobody waits for it."""
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
