"""The queue of the server: who gets which rows, and who is refused."""

import asyncio
import dataclasses
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest

from loca.serving.batching import Batcher, deliver
from loca.serving.protocol import Limits, RequestError


@pytest.mark.usefixtures("unchecked")
def test_every_request_gets_its_own_rows():
    jobs = [SimpleNamespace(work=SimpleNamespace(functions=count), future=Future()) for count in (2, 1, 3)]
    deliver(jobs, {"mean": np.arange(6.0)}, is_finite=True)
    assert [job.future.result()["mean"].tolist() for job in jobs] == [[0.0, 1.0], [2.0], [3.0, 4.0, 5.0]]


@pytest.mark.usefixtures("unchecked")
def test_more_functions_than_may_wait_are_refused():
    async def ask():
        batcher = Batcher(dataclasses.replace(Limits(), queue=4), observe=lambda count: None)
        batcher._loop, batcher.waiting = asyncio.get_running_loop(), 3
        await batcher.run(None, SimpleNamespace(functions=2), deadline=0.0)

    with pytest.raises(RequestError, match="3 functions are waiting and at most 4 may"):
        asyncio.run(asyncio.wait_for(ask(), timeout=5.0))
