"""A server under malformed requests, killed workers and a signal to end, each with requests all the time."""

import collections
import http.client
import importlib.util
import json
import os
import signal
import socket
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from servers import TOKEN, X, binary_request, binary_values, rods, running, save_model

import loca

ROOT = Path(__file__).parents[2]


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "rods", calibrated=False)
    (folder / "tokens").write_text(TOKEN)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return loca.load(folder / "rods/model.safetensors")


def memory(process):
    """Megabytes of memory of a process."""
    (line,) = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


@pytest.fixture(scope="module")
def server(folder):
    with running(folder, "--tokens", folder / "tokens", "--timeout", "3") as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("sent_binary", [False, True])
@pytest.mark.parametrize("received_binary", [False, True])
def test_the_client_of_triton(server, model, sent_binary, received_binary):
    triton = pytest.importorskip("tritonclient.http", reason="needs tritonclient")
    u = np.asarray(rods(3, seed=5).load().u)
    y = np.array([[0.2], [0.8]], np.float32)
    token = {"headers": {"Authorization": f"Bearer {TOKEN}"}}
    client = triton.InferenceServerClient("{}:{}".format(*server.address))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("rods", **token)
    assert client.get_server_metadata(**token)["name"] == "loca"
    assert client.get_model_metadata("rods", **token)["inputs"][0]["shape"] == [-1, 7, 1]
    inputs = [triton.InferInput(name, array.shape, "FP32") for name, array in (("u", u), ("y", y))]
    for each, array in zip(inputs, (u, y), strict=True):
        each.set_data_from_numpy(array, binary_data=sent_binary)
    outputs = [triton.InferRequestedOutput("s", binary_data=received_binary)]
    found = client.infer("rods", inputs, outputs=outputs, request_id="one", model_version="1", **token)
    assert found.get_response()["id"] == "one"
    np.testing.assert_allclose(found.as_numpy("s"), model.predict(u, y), rtol=1e-5, atol=1e-6)
    with pytest.raises(triton.InferenceServerException, match="no model 'other'"):
        client.infer("other", inputs, **token)
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize("count", [300, pytest.param(100_000, marks=pytest.mark.full)])
def test_malformed_requests_are_refused(server, count):
    fuzzer = tool("serve_fuzz").Fuzzer(server.address, "rods", TOKEN, seed=count)
    fuzzer.run(100)
    before = memory(server.process.pid)
    statuses = fuzzer.run(count)
    fuzzer.close()
    assert not server.lines("ERROR")
    assert {400, 401, 404, 405, 413} <= set(statuses)
    assert memory(server.process.pid) < before + 100  # a body of the largest size takes tens as JSON


@pytest.mark.slow
def test_responses_of_reset_connections_are_forgotten(server):
    u, y = np.asarray(rods(256, seed=5).load().u), np.zeros((2**13, 1))
    body, fields = binary_request({"u": u, "y": y})  # for 8 MiB
    fields |= {"Host": "test", "Authorization": f"Bearer {TOKEN}", "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())

    def ask():
        with socket.create_connection(server.address, timeout=60) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets it
            connection.sendall(f"POST /v2/models/rods/infer HTTP/1.1\r\n{lines}\r\n".encode() + body)
            assert connection.recv(12) == b"HTTP/1.1 200"

    for _ in range(4):
        ask()
    before = memory(server.process.pid)
    for _ in range(12):
        ask()
    assert memory(server.process.pid) < before + 60


class Clients:
    """Threads that send valid requests on connections that they keep, until they are stopped."""

    def __init__(self, address, model, count=4):
        self.address, self.is_over = address, False
        self.u = np.asarray(rods(3, seed=5).load().u)
        self.expected = np.asarray(model.predict(self.u, X[:, None]))
        self.done = collections.Counter()
        self.lost = []  # how requests failed
        self.threads = [threading.Thread(target=self.work) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self):
        body, headers = binary_request({"u": self.u})
        headers["Authorization"] = f"Bearer {TOKEN}"
        connection = None
        while not self.is_over:
            is_new = connection is None
            try:
                if connection is None:
                    connection = http.client.HTTPConnection(*self.address, timeout=60)
                    connection.connect()
            except OSError:
                connection = None
                self.done["not accepted"] += 1
                time.sleep(0.01)
                continue
            try:
                connection.request("POST", "/v2/models/rods/infer", body, headers)
                response = connection.getresponse()
                found = binary_values(dict(response.getheaders()), response.read())["s"]
                np.testing.assert_allclose(found, self.expected, rtol=1e-5, atol=1e-5)
                self.done["answered"] += 1
                if response.getheader("connection") == "close":
                    self.done["said goodbye"] += 1
                    connection.close()
                    connection = None
            except (OSError, http.client.HTTPException) as error:
                # the system may accept a new connection which the server never sees
                self.lost.append(("new" if is_new else "kept", repr(error)))
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def stop(self):
        self.is_over = True
        for thread in self.threads:
            thread.join(60)


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, pytest.param(20, marks=pytest.mark.full)])
def test_sigterm_under_load_loses_no_accepted_request(folder, model, times):
    for _ in range(times):
        with running(folder, "--tokens", folder / "tokens") as server:
            check_end(server, model)


def check_end(server, model):
    """End a server that has idle connections and busy ones, and see that none of their requests is lost."""
    with socket.create_connection(server.address):
        kept = http.client.HTTPConnection(*server.address, timeout=60)
        kept.request("GET", "/v2/health/live")
        assert kept.getresponse().read()
        clients = Clients(server.address, model)
        server.wait(lambda: clients.done["answered"] > 20)
        server.process.send_signal(signal.SIGTERM)
        server.wait(lambda: server.lines("SIGTERM"))
        time.sleep(0.3)
        kept.request("GET", "/v2/health/live")  # was under way when the signal came
        response = kept.getresponse()
        code = server.process.wait(60)
        clients.stop()
    assert code == 0
    assert (response.status, response.getheader("connection")) == (200, "close")
    assert [failure for failure in clients.lost if failure[0] == "kept"] == []
    assert clients.done["said goodbye"] >= 1
    server.close()
    assert len(server.lines("SIGTERM")) == len(server.lines("shutdown complete")) == 1


@pytest.mark.full
@pytest.mark.parametrize("kills", [20])
def test_a_killed_worker_is_started_again_while_others_answer(folder, model, kills):
    with running(folder, "--tokens", folder / "tokens", workers=2) as server:
        clients = Clients(server.address, model, count=8)
        waits, killed = [], []
        for kill in range(kills):
            started = [int(line.split("[")[1].split("]")[0]) for line in server.lines("Started server process")]
            alive = [process for process in started if process not in killed]
            killed.append(alive[kill % 2])
            os.kill(killed[-1], signal.SIGKILL)
            began, answered = time.monotonic(), clients.done["answered"]
            server.wait(lambda: clients.done["answered"] > answered + 20)  # noqa: B023 (the other one answers)
            waits.append(time.monotonic() - began)
            server.wait(lambda: len(server.lines("startup complete")) == 3 + kill)  # noqa: B023
        metrics = server.call("GET", "/metrics")[2].decode()
        assert server.stop() == 0
        clients.stop()
    assert max(waits) < 5.0, waits
    assert len(clients.lost) <= 8 * (kills + 1)  # one for each connection to the killed process
    assert clients.done["answered"] > 20
    (line,) = [
        line for line in metrics.splitlines() if line.startswith('loca_requests_total{model="rods",status="200"}')
    ]
    assert float(line.rpartition(" ")[2]) >= 20.0  # of all workers


def test_the_documentation_has_the_measured_load():
    load = tool("load")
    results, text = json.loads(load.RESULTS.read_text()), (ROOT / "docs/deploy.md").read_text()
    assert load.table(results) in text, "run `python tools/load.py --table`"
    assert load.soak_sentence(results) in text.replace("\n", " "), "run `python tools/load.py --table`"
