"""Send malformed requests to a server: it must refuse each of them, and answer valid ones in between.

    python tools/serve_fuzz.py 127.0.0.1:8000 --model rods --count 100000 [--token TOKEN] [--seed 0]

The requests are a function of the seed. Every kind is listed in `KINDS`. The model needs fixed queries.
"""

import argparse
import collections
import contextlib
import http.client
import json
import random
import socket
import struct
import time

import numpy as np

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

HELD = 20
"""Slow connections that are open at the same time."""


class Fuzzer:
    """Requests to one model of a server, with what it answers.

    **Arguments:**

    - `address`: host and port.
    - `model`: the name of the model.
    - `token`: None if the server needs none.
    - `seed`: of all random choices.
    """

    def __init__(self, address, model, token=None, seed=0):
        self.address, self.model, self.token, self.rng = address, model, token, random.Random(seed)
        self.connection = None
        self.held = collections.deque()
        self.statuses = collections.Counter()
        metadata = json.loads(self.send("GET", f"/v2/models/{model}")[1])
        (u,) = [each for each in metadata["inputs"] if each["name"] == "u"]
        self.shape = [1, *u["shape"][1:]]
        self.path = f"/v2/models/{model}/infer"
        values = np.random.default_rng(seed).normal(size=self.shape).astype("<f4")
        self.valid = self.document(values)
        self.expected = json.loads(self.send("POST", self.path, self.valid)[1])["outputs"]

    def document(self, values):
        """A valid request."""
        tensor = {"name": "u", "datatype": "FP32", "shape": self.shape, "data": values.ravel().tolist()}
        return {"inputs": [tensor], "outputs": [{"name": "s"}]}

    def headers(self, **more):
        """The headers of a request, with the token."""
        return {**({"Authorization": f"Bearer {self.token}"} if self.token else {}), **more}

    def send(self, method, path, body=None, **headers):
        """The status and the body of a response, on a connection that is kept."""
        body = json.dumps(body).encode() if isinstance(body, dict | list) else body
        for attempt in range(2):  # a server may close a connection that it kept
            if self.connection is None:
                self.connection = http.client.HTTPConnection(*self.address, timeout=60)
            try:
                self.connection.request(method, path, body, self.headers() | headers)
                response = self.connection.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException):
                self.connection.close()
                self.connection = None
                if attempt:
                    raise
        raise AssertionError

    def raw(self, *pieces, patience=0.2):
        """The status of a response to bytes, on a connection of its own; None if none comes soon."""
        response = b""
        with contextlib.suppress(OSError), socket.create_connection(self.address, timeout=60) as connection:
            for piece in pieces:
                connection.sendall(piece)  # the server may have closed the connection, or wait for more
            connection.settimeout(patience)
            while len(response.removeprefix(CONTINUE)) < len(b"HTTP/1.1 200") and (more := connection.recv(4096)):
                response += more
        response = response.removeprefix(CONTINUE)
        return int(response[9:12]) if response[:5] == b"HTTP/" else None

    def head(self, length, *lines):
        """The bytes before a body."""
        token = [f"Authorization: Bearer {self.token}"] if self.token else []
        first = [f"POST {self.path} HTTP/1.1", "Host: a", f"Content-Length: {length}"]
        return "\r\n".join([*first, *token, *lines, "", ""]).encode()

    # ---- kinds ------------------------------------------------------------------------------------------------------

    def random_bytes(self):
        return self.send("POST", self.path, self.rng.randbytes(self.rng.randrange(300)))[0]

    def cut_json(self):
        text = json.dumps(self.valid)
        return self.send("POST", self.path, text[: self.rng.randrange(len(text))].encode())[0]

    def changed_bytes(self):
        text = bytearray(json.dumps(self.valid).encode())
        for _ in range(self.rng.randint(1, 4)):
            text[self.rng.randrange(len(text))] = self.rng.choice(b'{}[]",:0e-. \x00\xff\\')
        return self.send("POST", self.path, bytes(text))[0]

    def other_types(self):
        document = json.loads(json.dumps(self.valid))
        places = [(document, "inputs"), (document, "outputs"), (document, "id"), (document, "parameters")]
        places += [(document["inputs"][0], key) for key in ("name", "datatype", "shape", "data", "parameters")]
        place, key = self.rng.choice(
            [*places, (document["outputs"][0], "name"), (document["outputs"][0], "parameters")]
        )
        place[key] = self.rng.choice([None, True, 3, -1.5, "", "x" * 500, [], {}, [[]], [None], {"a": 1}, 10**40])
        return self.send("POST", self.path, document)[0]

    def shapes(self):
        document = json.loads(json.dumps(self.valid))
        size = lambda: self.rng.choice([-1, 0, 1, 2, 7, 2**31, 2**63, 10**30, True, 1.0, "1", None])  # noqa: E731
        document["inputs"][0]["shape"] = [size() for _ in range(self.rng.randrange(6))]
        return self.send("POST", self.path, document)[0]

    def datatypes(self):
        document = json.loads(json.dumps(self.valid))
        document["inputs"][0]["datatype"] = self.rng.choice(["FP64", "INT32", "BYTES", "BOOL", "fp32", "", "FP32 "])
        return self.send("POST", self.path, document)[0]

    def not_finite(self):
        text = json.dumps(self.valid).replace("[0", "[NaN", 1) if self.rng.random() < 0.3 else None
        if text is None:
            document = json.loads(json.dumps(self.valid))
            data = document["inputs"][0]["data"]
            data[self.rng.randrange(len(data))] = self.rng.choice([1e39, -1e300, float("nan"), float("inf"), 10**60])
            text = json.dumps(document)
        return self.send("POST", self.path, text.encode())[0]

    def binary(self):
        size = 4 * int(np.prod(self.shape))
        stated = self.rng.choice([size, size, 0, -4, size + 4, size - 1, 2**62, "28", None, True, 1.5])
        document = json.loads(json.dumps(self.valid))
        del document["inputs"][0]["data"]
        document["inputs"][0]["parameters"] = {"binary_data_size": stated}
        text = json.dumps(document).encode()
        values = [self.rng.choice([0.0, 1.0, float("nan"), float("inf"), -1e38]) for _ in range(size // 4)]
        raw = struct.pack(f"<{size // 4}f", *values)[: self.rng.choice([size, size, 0, size - 3])]
        length = self.rng.choice([len(text), len(text), 0, len(text) - 1, len(text) + 1, 10**9, -1, "x", "", "1" * 40])
        return self.send("POST", self.path, text + raw, **{"Inference-Header-Content-Length": str(length)})[0]

    def deep(self):
        depth = self.rng.choice([10, 300, 20_000])
        text = json.dumps(self.valid).replace('"outputs": [', '"outputs": [' + "[" * depth, 1)
        return self.send("POST", self.path, text.encode())[0]

    def large(self):
        return self.send("POST", self.path, b" " * self.rng.choice([2**20, 2**23]))[0]

    def stated_large(self):
        return self.raw(self.head(self.rng.choice([2**40, 2**62, 10**25])), b"{}")

    def queries(self):
        document = json.loads(json.dumps(self.valid))
        rows = self.rng.choice([1, 2, 20_000])
        y = {"name": "y", "datatype": "FP32", "shape": [rows, self.rng.choice([0, 1, 2, 3])], "data": [0.5] * rows}
        document["inputs"].append(y)
        return self.send("POST", self.path, document)[0]

    def paths(self):
        name = self.rng.choice(
            ["..", "../../etc/passwd", "%2e%2e%2fetc", "a" * 3000, "é", "\x7f", "", " ", "%00", "{}"]
        )
        path = self.rng.choice([f"/v2/models/{name}/infer", f"/v2/models/{self.model}/versions/{name}", f"/{name}"])
        token = f"Authorization: Bearer {self.token}\r\n" if self.token else ""
        line = f"{self.rng.choice(['GET', 'POST', 'PUT', 'TRACE', 'X'])} {path} HTTP/1.1\r\nHost: a\r\n{token}\r\n"
        return self.raw(line.encode("utf-8"))

    def headers_without_end(self):
        return self.raw(b"GET /v2 HTTP/1.1\r\nX: ", b"x" * self.rng.choice([100, 10_000, 200_000]), patience=0.01)

    def bad_http(self):
        return self.raw(
            self.rng.choice(
                [
                    self.rng.randbytes(60) + b"\r\n\r\n",
                    b"GET /v2 HTTP/9.9\r\n\r\n",
                    b"GET\r\n\r\n",
                    self.head("x"),
                    self.head(-1),
                    self.head(2, "Content-Length: 3") + b"{}",
                    self.head(2, "Transfer-Encoding: chunked") + b"zz\r\n",
                    self.head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"fffffffffffffff\r\n",
                    self.head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"5\r\n{}",
                    self.head(2, "Content-Encoding: gzip") + b"{}",
                    self.head(2, "Upgrade: websocket", "Connection: Upgrade") + b"{}",
                    self.head(2, "Expect: 100-continue") + b"{}",
                ]
            )
        )

    def cut_body(self):
        return self.raw(self.head(1000), b"{" * self.rng.randrange(999), patience=0.01)

    def slow_body(self):
        connection = socket.create_connection(self.address, timeout=60)
        connection.sendall(self.head(1000) + b"{")
        self.held.append(connection)
        if len(self.held) > HELD:
            self.held.popleft().close()

    def tokens(self):
        wrong = self.rng.choice(["", "Bearer", "Bearer x", "Basic x", "Bearer " + "x" * 2000, f"bearer {self.token}x"])
        status = self.send("POST", self.path, self.valid, Authorization=wrong)[0]
        assert not self.token or status == 401, status
        return status

    KINDS = (
        random_bytes, cut_json, changed_bytes, other_types, shapes, datatypes, not_finite, binary, deep, large,
        stated_large, queries, paths, headers_without_end, bad_http, cut_body, slow_body, tokens,
    )  # fmt: skip
    RARE = ("large", "deep", "headers_without_end")

    def check(self):
        """Send a valid request and compare its answer."""
        status, body = self.send("POST", self.path, self.valid)
        assert status == 200, (status, body)
        for one, other in zip(json.loads(body)["outputs"], self.expected, strict=True):
            np.testing.assert_allclose(one["data"], other["data"], rtol=1e-5, atol=1e-6)

    def run(self, count, every=20):
        """Send malformed requests and, now and then, a valid one; return how often each status came."""
        for number in range(count):
            kind = self.rng.choice(self.KINDS)
            if kind.__name__ in self.RARE and self.rng.random() < 0.8:
                kind = self.rng.choice([k for k in self.KINDS if k.__name__ not in self.RARE])
            status = kind(self)
            self.statuses[status] += 1
            assert status is None or status < 500, (kind.__name__, number, status)
            if number % every == 0:
                self.check()
        while self.held:
            self.held.popleft().close()
        self.check()
        return self.statuses

    def close(self):
        """Close the connection that is kept."""
        if self.connection is not None:
            self.connection.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="HOST:PORT")
    parser.add_argument("--model", required=True)
    parser.add_argument("--token")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    host, _, port = arguments.address.rpartition(":")
    start = time.monotonic()
    statuses = Fuzzer((host, int(port)), arguments.model, arguments.token, arguments.seed).run(arguments.count)
    listed = {str(status): count for status, count in sorted(statuses.items(), key=str)}
    print(json.dumps({"requests": arguments.count, "seconds": round(time.monotonic() - start), "statuses": listed}))


if __name__ == "__main__":
    main()
