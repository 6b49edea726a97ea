"""Requests that wait at the same time are answered together, by one thread that runs the models."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import itertools
import queue
import threading
from collections.abc import Callable, Sequence

import numpy as np

from loca.serving.protocol import Limits, RequestError
from loca.serving.served_model import SIZES, ServedModel, Work

SWEEP = 0.1
"""Seconds between looks for jobs that have waited too long."""

Results = dict[str, np.ndarray]
"""The outputs of a request, by name."""


@dataclasses.dataclass(eq=False)
class Job:
    """Work for a model, and the future that receives its results."""

    model: ServedModel
    work: Work
    deadline: float
    future: asyncio.Future[Results]
    is_cancelled: bool = False


class Batcher:
    """A queue of jobs. Whatever is queued when the model becomes free is run together, if it can be.

    Jobs can be run together if they are for the same version of a model, for the same outputs and at the same queries.
    A job belongs to one version, and the other jobs of a batch change its results at most by rounding.

    **Arguments:**

    - `limits`: how many functions may wait, and for how long.
    - `observe`: called with the number of functions of each batch.
    """

    def __init__(self, limits: Limits, observe: Callable[[int], object]):
        self.limits, self.observe = limits, observe
        self.waiting = 0
        self._open: dict[Job, None] = {}  # in the order of their deadlines
        self._new: list[Job] = []
        self._jobs: queue.SimpleQueue[list[Job] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._serve, name="models", daemon=True)

    def start(self) -> None:
        """Start the thread; call this in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        self._expire()

    def stop(self) -> None:
        """End the thread after the jobs that are queued."""
        self._jobs.put(None)
        self._thread.join()

    async def run(self, model: ServedModel, work: Work, deadline: float) -> Results:
        """The results of some work; raise `RequestError` if too much is waiting, or after a deadline of the loop."""
        return await self.submit(model, work, deadline).future

    def submit(self, model: ServedModel, work: Work, deadline: float) -> Job:
        """A job in the queue; raise `RequestError` if too much is waiting. To give it up, cancel its future."""
        assert self._loop is not None
        if self.waiting and self.waiting + work.functions > self.limits.queue:
            raise RequestError(
                429,
                f"{self.waiting} functions are waiting and at most {self.limits.queue} may; try again later",
                "queue",
            )
        job = Job(model, work, deadline, self._loop.create_future())
        self.waiting += work.functions
        self._open[job] = None
        job.future.add_done_callback(functools.partial(self._forget, job))
        if not self._new:
            self._loop.call_soon(self._submit)  # after all requests that have arrived are parsed
        self._new.append(job)
        return job

    def _forget(self, job: Job, future: asyncio.Future[Results]) -> None:
        job.is_cancelled = True
        del self._open[job]
        self.waiting -= job.work.functions

    def _submit(self) -> None:
        self._jobs.put(self._new)
        self._new = []

    def _expire(self) -> None:
        """End jobs that have waited too long, now and then."""
        assert self._loop is not None
        now, reason = self._loop.time(), f"no result within {self.limits.timeout:g} s; try again later, or send less"
        for job in list(itertools.takewhile(lambda job: job.deadline < now, self._open)):
            if not job.future.done():
                job.future.set_exception(RequestError(408, reason, "timeout"))
        self._loop.call_later(SWEEP, self._expire)

    def _serve(self) -> None:
        """Run whatever is queued, until the end of the queue."""
        while (jobs := self._jobs.get()) is not None:
            last = False
            while not self._jobs.empty() and not last:
                more = self._jobs.get()
                last = more is None
                jobs = jobs + (more or [])
            for group in groups(jobs):
                self._run(group)
            if last:
                return

    def _run(self, jobs: Sequence[Job]) -> None:
        """Run jobs together and hand out their results."""
        assert self._loop is not None
        jobs = [job for job in jobs if not job.is_cancelled]
        if not jobs:
            return
        first = jobs[0]
        columns = zip(*(job.work.arrays for job in jobs), strict=True)
        arrays = tuple(np.concatenate(column) if len(jobs) > 1 else column[0] for column in columns)
        try:
            results = first.model.run(first.work._replace(arrays=arrays))
        except Exception as error:  # noqa: BLE001 (whatever it is, it belongs to these requests and not to the thread)
            self._loop.call_soon_threadsafe(fail, jobs, error)
            return
        self.observe(len(arrays[0]))
        is_finite = all(bool(np.isfinite(values).all()) for values in results.values())
        self._loop.call_soon_threadsafe(deliver, jobs, results, is_finite)


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


def deliver(jobs: Sequence[Job], results: Results, is_finite: bool) -> None:
    """Hand every job its rows of the results; those that are not finite are refused."""
    start = 0
    for job in jobs:
        rows = slice(start, start + job.work.functions)
        start = rows.stop
        if job.future.done():
            continue
        mine = {name: values[rows] for name, values in results.items()}
        if is_finite or all(np.isfinite(values).all() for values in mine.values()):
            job.future.set_result(mine)
        else:
            reason = "the prediction for these inputs is not finite"
            job.future.set_exception(RequestError(422, reason, "not_finite"))


def fail(jobs: Sequence[Job], error: Exception) -> None:
    """Hand every job an error."""
    for job in jobs:
        if not job.future.done():
            job.future.set_exception(error)
