"""A real server in a process of its own, and a small model for it."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import xarray

import loca
from loca.data import Labeled
from loca.models import Regression

TOKEN = "a token of some length"
X = np.linspace(0.0, 1.0, 7)


def rods(count=40, seed=0, factor=1.0):
    """Temperatures that are not a linear function of the heating, times a factor."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(count, 2))
    q = a[:, :1] + a[:, 1:] * np.sin(3.0 * X)
    t = factor * (a[:, :1] * X + 0.2 * a[:, 1:] ** 2 * X * (1.0 - X))
    variables = {"q": (("run", "x"), q, {"units": "W"}), "t": (("run", "x"), t, {"units": "K"})}
    return Labeled(xarray.Dataset(variables, {"x": ("x", X, {"units": "m"})}), ["q"], ["t"], "run")


def save_model(folder, factor=1.0, *, calibrated=True):
    """Write a model of rods to a run directory, and return it."""
    model = Regression.fit(rods(factor=factor).load())
    if calibrated:
        model = loca.calibrate(model, rods(seed=1, factor=factor))
    Path(folder).mkdir(parents=True, exist_ok=True)
    loca.save(model, Path(folder) / "model.safetensors", data=rods())
    return model


class Server:
    """A server process: its address, what it has logged, and requests to it."""

    def __init__(self, process):
        self.process, self.log, self.address = process, [], None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)

    def lines(self, text):
        """The lines of the log with a text."""
        return [line for line in list(self.log) if text in line]

    def wait(self, condition, seconds=120.0):
        """Wait until a condition holds."""
        end = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, (self.process.returncode, self.log[-5:])
            assert time.monotonic() < end, self.log[-5:]
            time.sleep(0.02)

    def call(self, method, path, body=None, headers=(), *, token=TOKEN):
        """The status, the headers and the body of a response."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **dict(headers)}
        body = json.dumps(body).encode() if isinstance(body, dict) else body
        with contextlib.closing(connection):
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()

    def json(self, method, path, body=None, headers=(), *, status=200):
        """The JSON of a response that must have a status."""
        code, _, text = self.call(method, path, body, headers)
        assert code == status, (code, text)
        return json.loads(text)

    def infer(self, body, *, status=200, model="rods"):
        """The JSON of the response to an inference request."""
        return self.json("POST", f"/v2/models/{model}/infer", body, status=status)

    def close(self):
        """Read the rest of the log."""
        self.process.wait()
        self._reader.join()
        self.process.stderr.close()

    def stop(self):
        """End the process as systems do; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def is_open(address):
    """Whether a connection is accepted."""
    with contextlib.suppress(OSError), socket.create_connection(address, timeout=5):
        return True
    return False


def command_line(*arguments):
    """`loca serve` at a free port, as a process runs it."""
    return [sys.executable, "-c", "from loca.cli import main; main()", "serve", *map(str, arguments), "--port", "0"]


@contextlib.contextmanager
def running(*arguments, workers=1):
    """A server that listens, and all of its workers."""
    line = command_line(*arguments, "--workers", workers)
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    server = Server(process)
    try:
        server.wait(lambda: len(server.lines("startup complete")) == workers and server.lines("running on"))
        server.address = "127.0.0.1", int(server.lines("running on")[0].rpartition(":")[2].split()[0])
        server.wait(lambda: is_open(server.address))
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        server.close()


def tensor(name, array):
    """An input of a request, as JSON."""
    data = np.asarray(array)
    return {"name": name, "datatype": "FP32", "shape": list(data.shape), "data": data.ravel().tolist()}


def values(response, name="s"):
    """An output of a response."""
    (found,) = [each for each in response["outputs"] if each["name"] == name]
    return np.array(found["data"], np.float32).reshape(found["shape"])


def binary_request(arrays, outputs=("s",)):
    """The body of a binary request, and its headers."""
    tensors, raw = [], b""
    for name, array in arrays.items():
        data = np.asarray(array, "<f4").tobytes()
        shape, size = list(np.shape(array)), {"binary_data_size": len(data)}
        tensors.append({"name": name, "datatype": "FP32", "shape": shape, "parameters": size})
        raw += data
    wanted = [{"name": name, "parameters": {"binary_data": True}} for name in outputs]
    text = json.dumps({"inputs": tensors, "outputs": wanted}).encode()
    return text + raw, {"Inference-Header-Content-Length": str(len(text))}


def binary_values(headers, body):
    """The outputs of a binary response, by name."""
    length = int(headers["inference-header-content-length"])
    found, start = {}, length
    for output in json.loads(body[:length])["outputs"]:
        size = output["parameters"]["binary_data_size"]
        found[output["name"]] = np.frombuffer(body[start : start + size], "<f4").reshape(output["shape"])
        start += size
    assert start == len(body)
    return found
