"""The server behind nginx, configured by deploy/nginx.conf: what the pair withstands, and the server does not."""

import contextlib
import http.client
import re
import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from servers import TOKEN, X, binary_request, binary_values, is_open, rods, running, save_model

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NGINX is None, reason="needs nginx, as in `apt-get install nginx`")]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The server, the address of the proxy without encryption and the port with it, the certificate, and the model."""
    folder = tmp_path_factory.mktemp("proxy")
    model = save_model(folder / "models/rods", calibrated=False)
    (folder / "tokens").write_text(TOKEN)
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    line += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(line, cwd=folder, check=True, capture_output=True)
    plain, encrypted = free_port(), free_port()
    with running(folder / "models", "--tokens", folder / "tokens") as server:
        changes = {
            "/run/nginx-loca.pid;": f"{folder}/pid;",
            "/var/log/nginx/loca.log;": "off;",
            "/etc/ssl/loca": str(folder),
            "127.0.0.1:8000;": f"127.0.0.1:{server.address[1]};",
            "listen 443 ssl http2;": f"listen 127.0.0.1:{encrypted} ssl http2; listen 127.0.0.1:{plain};",
            "rate=1000r/s": "rate=10r/s",
            "burst=200": "burst=500",
            "_timeout 10s;": "_timeout 1s;",  # of headers, bodies and responses
            "http {": "http {" + "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy")),
        }
        text = (ROOT / "deploy/nginx.conf").read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        (folder / "nginx.conf").write_text(text)
        command = [NGINX, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off; user root;"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as nginx:
            try:
                server.wait(lambda: nginx.poll() is not None or is_open(("127.0.0.1", plain)))
                assert nginx.poll() is None, nginx.stderr.read()
                yield server, ("127.0.0.1", plain), encrypted, folder / "cert.pem", model
            finally:
                nginx.terminate()


U = np.asarray(rods(2, seed=5).load().u)


def request_bytes(*more, inputs=None):
    """An inference request as it travels."""
    body, fields = binary_request(inputs or {"u": U})
    fields |= {"Host": "loca.example", "Authorization": f"Bearer {TOKEN}", "Content-Length": str(len(body))}
    lines = [*(f"{name}: {value}" for name, value in fields.items()), *more]
    return "\r\n".join(["POST /v2/models/rods/infer HTTP/1.1", *lines, "", ""]).encode() + body


def response_of(connection):
    """The status, the headers and the body of a response."""
    found = http.client.HTTPResponse(connection)
    found.begin()
    return found.status, dict(found.getheaders()), found.read()


def check(response, model):
    status, headers, body = response
    assert status == 200, body
    np.testing.assert_allclose(binary_values(headers, body)["s"], model.predict(U, X[:, None]), rtol=1e-5, atol=1e-5)


def test_connections_are_encrypted(pair):
    _, _, port, certificate, model = pair
    context = ssl.create_default_context(cafile=certificate)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1") as connection:
        connection.sendall(request_bytes())
        check(response_of(connection), model)
    context.set_alpn_protocols(["h2"])
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1") as connection:
        assert connection.selected_alpn_protocol() == "h2"


@pytest.mark.parametrize(
    "lines", [[], ["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"]]
)
def test_clients_that_close_their_half_or_offer_an_upgrade_are_answered(pair, lines):
    _, address, _, _, model = pair
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(request_bytes(*lines))
        connection.shutdown(socket.SHUT_WR)
        check(response_of(connection), model)


@pytest.mark.parametrize("sent", [b"", b"POST /v2", b"POST / HTTP/1.1\r\nHost: a\r\nX: ", request_bytes()[:-9]])
def test_slow_clients_are_cut_off(pair, sent):
    began = time.monotonic()
    with socket.create_connection(pair[1], timeout=30) as connection:
        connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert re.match(rb"$|HTTP/1.1 408", connection.recv(4096))
    assert time.monotonic() - began < 10.0
    assert pair[0].json("GET", "/v2")["name"] == "loca"


def test_responses_that_nobody_reads_are_given_up(pair):
    u, y = np.repeat(U[:1], 256, axis=0), np.zeros((2**14, 1))
    sent = request_bytes(inputs={"u": u, "y": y})  # for 16 MiB
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(3)]
        for connection in held:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(pair[1])
            connection.sendall(sent)
        server, done = pair[0], 'loca_requests_total{model="rods",status="200"}'
        count = lambda: re.search(re.escape(done) + r" ([\d.]+)", server.call("GET", "/metrics")[2].decode())  # noqa: E731
        server.wait(lambda: (found := count()) and float(found[1]) >= len(held))
        time.sleep(3.0)  # the proxy has the responses, and none of them was read for more than a second
        for connection in held:
            connection.settimeout(30)
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while more := connection.recv(2**20):
                    received += len(more)
            assert received < 2**24


def test_large_headers_and_bodies_are_refused(pair):
    with socket.create_connection(pair[1], timeout=30) as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000 + b"\r\n\r\n")
        assert response_of(connection)[0] == 400
    connection = http.client.HTTPConnection(*pair[1], timeout=30)
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):
        connection.request("POST", "/v2/models/rods/infer", b" " * (2**22 + 1))
        assert connection.getresponse().status == 413


def test_a_flood_is_refused_and_others_are_answered(pair):
    connection = http.client.HTTPConnection(*pair[1], timeout=30, source_address=("127.0.0.2", 0))
    statuses = []
    with contextlib.closing(connection):
        for _ in range(700):
            connection.request("GET", "/v2/health/live")
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
    assert set(statuses) == {200, 429}
    with socket.create_connection(pair[1], timeout=30) as other:
        other.sendall(request_bytes())
        check(response_of(other), pair[4])


def test_a_server_that_ends_loses_no_request_of_the_proxy(pair):
    """Last of this file."""
    server, address, _, _, model = pair
    answered = 0
    with socket.create_connection(address, timeout=30) as connection:
        server.process.terminate()
        while server.process.poll() is None and not server.lines("Shutting down"):
            connection.sendall(request_bytes())
            response = response_of(connection)
            if response[0] == 502:  # sent after the server had said so, and before its line was read here
                break
            check(response, model)
            answered += 1
            time.sleep(0.01)
    assert answered > 10
    assert server.process.wait(30) == 0
    assert len(server.lines("SIGTERM")) == 1
