"""The queue of the server: who gets which rows, what runs together, and who is refused."""

import asyncio
import dataclasses
import functools
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from loca.serving.application import Application
from loca.serving.batching import Batcher, shares
from loca.serving.protocol import Limits, RequestError
from loca.serving.served_model import Work


class Doubling:
    """A model that doubles its input, and waits for permission."""

    def __init__(self):
        self.sizes, self.may_run = [], threading.Event()

    def run(self, work):
        assert self.may_run.wait(10.0)
        self.sizes.append(work.functions)
        return {"s": 2.0 * work.arrays[0]}


def work(*values):
    """Functions with one value each."""
    return Work((np.array(values)[:, None],), None, frozenset(["s"]), {})


def run(scenario, limits=None, observe=lambda count: None):
    """Run a coroutine with a batcher that has started."""

    async def main():
        batcher = Batcher(limits or Limits(), observe)
        batcher.start()
        try:
            return await asyncio.wait_for(scenario(batcher), 10.0)
        finally:
            batcher.stop()

    return asyncio.run(main())


@pytest.mark.usefixtures("unchecked")
def test_every_request_gets_its_own_rows_unless_they_are_not_finite():
    jobs = [SimpleNamespace(work=SimpleNamespace(functions=count)) for count in (2, 1, 3)]
    found = shares(jobs, {"s": np.arange(6.0)})
    assert [each["s"].tolist() for each in found] == [[0.0, 1.0], [2.0], [3.0, 4.0, 5.0]]
    first, second, third = shares(jobs, {"s": np.array([0.0, 1.0, np.nan, 3.0, 4.0, 5.0])})
    assert (first["s"].tolist(), second.status, third["s"].tolist()) == ([0.0, 1.0], 422, [3.0, 4.0, 5.0])


@pytest.mark.usefixtures("unchecked")
def test_jobs_that_arrive_while_the_model_runs_are_one_batch():
    model = Doubling()

    async def scenario(batcher):
        tasks = [asyncio.create_task(batcher.run(model, work(0.0), 1e9))]
        while not batcher._batches.empty() or not batcher._is_busy or batcher._queue:
            await asyncio.sleep(0.001)
        for value in (1.0, 2.0, 3.0):  # in passes of the loop of their own
            tasks.append(asyncio.create_task(batcher.run(model, work(value), 1e9)))
            await asyncio.sleep(0.01)
        model.may_run.set()
        return [(await task)["s"].item() for task in tasks]

    assert run(scenario) == [0.0, 2.0, 4.0, 6.0]
    assert model.sizes == [1, 3]


@pytest.mark.usefixtures("unchecked")
def test_a_batch_starts_when_a_pass_of_the_loop_brings_no_more_jobs():
    model = Doubling()
    model.may_run.set()

    async def scenario(batcher):
        tasks = []
        for value in (0.0, 1.0, 2.0):  # in one pass after the other
            tasks.append(asyncio.create_task(batcher.run(model, work(value), 1e9)))
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    run(scenario)
    assert model.sizes == [3]


@pytest.mark.usefixtures("unchecked")
def test_an_error_in_one_response_leaves_the_others_alone():
    model, found = Doubling(), []
    model.may_run.set()

    async def scenario(batcher):
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.append(str(context["exception"])))

        def fail(outcome):
            raise OSError("no way to this client")

        batcher.submit(model, work(0.0), 1e9, fail)
        return (await batcher.run(model, work(1.0), 1e9))["s"].item()

    assert run(scenario) == 2.0
    assert (model.sizes, found) == ([2], ["no way to this client"])


@pytest.mark.usefixtures("unchecked")
def test_a_batch_that_cannot_be_counted_does_not_end_the_thread():
    model, counts = Doubling(), iter([OSError("no space left"), None])
    model.may_run.set()

    def observe(count):
        if error := next(counts):
            raise error

    async def scenario(batcher):
        with pytest.raises(OSError, match="no space left"):
            await batcher.run(model, work(1.0), 1e9)
        return (await batcher.run(model, work(2.0), 1e9))["s"].item()

    assert run(scenario, observe=observe) == 4.0


def test_late_requests_are_ended_even_if_metrics_cannot_be_written():
    looks = []

    def flush():
        raise OSError("no space left")

    batcher, metrics = SimpleNamespace(expire=lambda: looks.append(True)), SimpleNamespace(flush=flush)
    application = SimpleNamespace(batcher=batcher, metrics=metrics)
    application._sweep = functools.partial(Application._sweep, application)

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)
        loop.call_soon(application._sweep)
        for _ in range(100):
            await asyncio.sleep(0.1)
            if len(looks) >= 3:
                return

    asyncio.run(main())
    assert len(looks) >= 3


@pytest.mark.usefixtures("unchecked")
def test_a_job_that_is_late_or_given_up_makes_place_for_others():
    model = Doubling()

    async def scenario(batcher):
        late = asyncio.create_task(batcher.run(model, work(0.0), 0.0))
        left = asyncio.create_task(batcher.run(model, work(0.0), 1e9))
        await asyncio.sleep(0.01)
        assert batcher.waiting == 2
        left.cancel()
        batcher.expire()
        with pytest.raises(RequestError, match="no result within"):
            await late
        assert batcher.waiting == 0
        model.may_run.set()
        return (await batcher.run(model, work(4.0), 1e9))["s"].item()

    assert run(scenario) == 8.0


@pytest.mark.usefixtures("unchecked")
def test_a_job_that_is_late_while_it_runs_has_one_outcome():
    model, found = Doubling(), []

    async def scenario(batcher):
        batcher.submit(model, work(0.0), 0.0, found.append)
        while not batcher._batches.empty() or batcher._queue:
            await asyncio.sleep(0.001)
        batcher.expire()
        model.may_run.set()
        await batcher.run(model, work(1.0), 1e9)

    run(scenario)
    assert [type(each) for each in found] == [RequestError]


@pytest.mark.usefixtures("unchecked")
def test_more_functions_than_may_wait_are_refused():
    async def scenario(batcher):
        batcher.submit(model, work(1.0, 2.0, 3.0), 1e9, lambda outcome: None)
        try:
            await batcher.run(model, work(1.0, 2.0), 1e9)
        finally:
            model.may_run.set()

    model = Doubling()
    with pytest.raises(RequestError, match="3 functions are waiting and at most 4 may"):
        run(scenario, dataclasses.replace(Limits(), queue=4))
