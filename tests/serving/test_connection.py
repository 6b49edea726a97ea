"""Connections of clients that send the same requests again, in the process of the test."""

import asyncio
import contextlib
import json
import re

import numpy as np
import pytest
import uvicorn
from servers import X, binary_request, rods, save_model
from uvicorn.server import ServerState

from loca.serving import Application, Repository
from loca.serving.connection import Connection


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "rods", calibrated=False)
    return folder


def with_client(folder, scenario, keep_alive=75.0):
    """Run a coroutine with a connection to a server in this process."""

    async def main():
        application = Application(Repository([folder]))
        application.repository.refresh()
        application.start()
        config = uvicorn.Config(application, http=Connection, lifespan="off", interface="asgi3", log_config=None)
        config.load()
        config.timeout_keep_alive = keep_alive
        loop, state = asyncio.get_running_loop(), ServerState()
        state.default_headers = [(b"date", b"Thu, 01 Jan 1970 00:00:00 GMT")]
        server = await loop.create_server(lambda: Connection(config, state, {}, loop), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            return await asyncio.wait_for(scenario(application, reader, writer), 60.0)
        finally:
            writer.close()
            server.close()
            application.stop()

    return asyncio.run(main())


def request(arrays):
    """An inference request as it is sent."""
    body, headers = binary_request(arrays)
    headers |= {"Host": "test", "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /v2/models/rods/infer HTTP/1.1\r\n{lines}\r\n".encode() + body


async def exchange(reader, writer, sent):
    """The header and the body of the response to a request."""
    writer.write(sent)
    header = await reader.readuntil(b"\r\n\r\n")
    return header, await reader.readexactly(int(re.search(rb"\ncontent-length: (\d+)", header)[1]))


@pytest.mark.usefixtures("unchecked")
def test_repeated_requests_have_equal_responses(folder):
    sent = request({"u": np.asarray(rods(2).load().u)})

    async def scenario(application, reader, writer):
        found = [await exchange(reader, writer, sent) for _ in range(4)]
        assert len(application.known_headers) == 1
        return found

    first, *others = with_client(folder, scenario)
    assert first[0].startswith(b"HTTP/1.1 200 OK\r\n")
    for header, body in others:
        assert body == first[1]
        assert sorted(header.lower().split(b"\r\n")) == sorted(first[0].lower().split(b"\r\n"))


@pytest.mark.usefixtures("unchecked")
def test_what_a_response_reports_is_of_its_own_request(folder):
    u = np.asarray(rods(1).load().u)
    inside, outside = (request({"u": u, "y": y}) for y in (X[:, None], X[:, None] + 0.5))

    async def scenario(application, reader, writer):
        found = [await exchange(reader, writer, sent) for sent in (inside, inside, outside, inside)]
        assert len(application.known_headers) == 1
        return [body.decode("latin-1") for _, body in found]

    texts = [json.JSONDecoder().raw_decode(body)[0] for body in with_client(folder, scenario)]
    counts = [text.get("parameters", {}).get("queries_outside_the_domain", 0) for text in texts]
    assert counts == [0, 0, 3, 0]


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_connection_that_is_used_stays_open(folder):
    sent = request({"u": np.asarray(rods(1).load().u)})

    async def scenario(application, reader, writer):
        loop = asyncio.get_running_loop()
        end = loop.time() + 2.0
        while loop.time() < end:
            await exchange(reader, writer, sent)
            await asyncio.sleep(0.1)
        last = loop.time()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        return loop.time() - last

    assert 0.3 < with_client(folder, scenario, keep_alive=0.5) < 1.5
