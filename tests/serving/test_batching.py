"""The queue of the server: who gets which rows, what runs together, and who is refused."""

import asyncio
import threading
from unittest.mock import Mock

import numpy as np
import pytest
from starlette.exceptions import HTTPException

from loca.serving.batching import Batcher, shares
from loca.serving.model import Work

pytestmark = pytest.mark.usefixtures("unchecked")


class Doubling:
    """A model that doubles its input, and waits for permission."""

    def __init__(self):
        self.sizes, self.may_run = [], threading.Event()

    def run(self, works):
        assert self.may_run.wait(10.0)
        self.sizes.append(sum(len(work.arrays[0]) for work in works))
        return {"s": 2.0 * np.concatenate([work.arrays[0] for work in works])}


def work(*values):
    """Functions with one value each."""
    return Work((np.array(values)[:, None],), None, frozenset(["s"]))


def run(scenario, max_queue=1024, timeout=60.0):
    """Run a coroutine with a batcher."""

    async def main():
        return await asyncio.wait_for(scenario(Batcher(max_queue, timeout)), 10.0)

    return asyncio.run(main())


async def one_by_one(batcher, model, values, pause):
    """Tasks that begin in passes of the loop of their own."""
    tasks = []
    for value in values:
        tasks.append(asyncio.create_task(batcher.run(model, work(value))))
        await asyncio.sleep(pause)
    return tasks


def test_every_request_gets_its_own_rows_unless_they_are_not_finite():
    found = shares([2, 1, 3], {"s": np.arange(6.0)})
    assert [each["s"].tolist() for each in found] == [[0.0, 1.0], [2.0], [3.0, 4.0, 5.0]]
    first, second, third = shares([2, 1, 3], {"s": np.array([0.0, 1.0, np.nan, 3.0, 4.0, 5.0])})
    assert (first["s"].tolist(), second.status_code, third["s"].tolist()) == ([0.0, 1.0], 422, [3.0, 4.0, 5.0])


def test_jobs_that_arrive_while_the_model_runs_are_one_batch():
    model = Doubling()

    async def scenario(batcher):
        tasks = await one_by_one(batcher, model, [0.0, 1.0, 2.0, 3.0], 0.02)
        model.may_run.set()
        return [(await task)["s"].item() for task in tasks]

    assert run(scenario) == [0.0, 2.0, 4.0, 6.0]
    assert model.sizes == [1, 3]


def test_a_batch_starts_when_a_pass_of_the_loop_brings_no_more_jobs():
    model = Doubling()
    model.may_run.set()

    async def scenario(batcher):
        await asyncio.gather(*await one_by_one(batcher, model, [0.0, 1.0, 2.0], 0.0))

    run(scenario)
    assert model.sizes == [3]


def test_a_batch_that_cannot_be_counted_does_not_end_the_others(monkeypatch):
    model, counts = Doubling(), Mock(side_effect=[OSError("no space left"), None])
    model.may_run.set()
    monkeypatch.setattr("loca.serving.batching.BATCHES", Mock(observe=counts))

    async def scenario(batcher):
        with pytest.raises(OSError, match="no space left"):
            await batcher.run(model, work(1.0))
        return (await batcher.run(model, work(2.0)))["s"].item()

    assert run(scenario) == 4.0


def test_a_job_that_is_late_or_given_up_makes_place_for_others():
    model = Doubling()

    async def scenario(batcher):
        late, left = await one_by_one(batcher, model, [0.0, 0.0], 0.01)
        assert batcher.waiting == 2
        left.cancel()
        with pytest.raises(HTTPException, match="no result within"):
            await late
        assert batcher.waiting == 0
        model.may_run.set()
        return (await batcher.run(model, work(4.0)))["s"].item()

    assert run(scenario, timeout=0.2) == 8.0
    assert model.sizes == [1, 1]  # the late one ran, the other did not


def test_more_functions_than_may_wait_are_refused():
    async def scenario(batcher):
        first = asyncio.create_task(batcher.run(model, work(1.0, 2.0, 3.0)))
        await asyncio.sleep(0)
        try:
            await batcher.run(model, work(1.0, 2.0))
        finally:
            model.may_run.set()
            await first

    model = Doubling()
    with pytest.raises(HTTPException, match="3 functions are waiting and at most 4 may"):
        run(scenario, max_queue=4)
