"""A server with real requests: the protocol, predictions, limits, tokens and reloads."""

import json
import math
import subprocess
import time

import jax.numpy as jnp
import numpy as np
import pytest
from servers import TOKEN, X, binary_request, binary_values, command_line, rods, running, save_model, tensor, values

import loca

pytestmark = pytest.mark.slow  # a server takes seconds to start

Y = np.array([[0.1], [0.55], [0.9]], np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "rods/1")
    save_model(folder / "rods/2", factor=10.0)
    save_model(folder / "plain", calibrated=False)
    (folder / "tokens").write_text(f"# of the tests\nanother token of some length\n{TOKEN}\n")
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return loca.load(folder / "rods/2/model.safetensors")


@pytest.fixture(scope="module")
def server(folder):
    limits = ["--max-body", "100000", "--max-values", "20000", "--max-queries", "500", "--timeout", "5"]
    with running(folder, "--tokens", folder / "tokens", *limits) as server:
        yield server


@pytest.fixture(scope="module")
def u():
    return np.asarray(rods(3, seed=5).load().u)


def test_metadata(server):
    assert server.json("GET", "/v2")["extensions"][0] == "binary_tensor_data"
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/rods/ready", "/v2/models/rods/versions/1/ready"):
        assert server.call("GET", path)[0] == 200
    found = server.json("GET", "/v2/models/rods")
    assert found["versions"] == ["1", "2"]
    assert found["parameters"]["version"] == "2"  # the latest, unless given
    assert found["parameters"]["domain"] == "Box(low=(0.0,), high=(1.0,))"
    assert server.json("GET", "/v2/models/rods/versions/1")["parameters"]["version"] == "1"
    assert [(each["name"], each["datatype"], each["shape"]) for each in found["inputs"]] == [
        ("u", "FP32", [-1, 7, 1]),
        ("y", "FP32", [-1, 1]),
    ]
    assert [each["name"] for each in found["outputs"]] == ["s", "s_std", "s_lower", "s_upper", "in_distribution"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/other", 404),
        ("GET", "/v2/models/rods/versions/3", 404),
        ("GET", "/v2/models/rods/versions/one", 404),
        ("GET", "/v2/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v2/models/rods/ready/", 404),
        ("GET", "/elsewhere", 404),
        ("GET", "/v2/models/rods/infer", 405),
        ("DELETE", "/v2", 405),
    ],
)
def test_errors_are_json_with_a_reason(server, method, path, status):
    assert server.json(method, path, status=status)["error"]


def test_predictions_are_those_of_the_model(server, model, u):
    found = server.infer({"id": "seven", "inputs": [tensor("u", u)]})
    assert found["id"] == "seven"
    assert (found["model_name"], found["model_version"]) == ("rods", "2")
    lower, upper = model.bands(u[1], X[:, None], 0.9)
    expected = {
        "s": model(u[1], X[:, None]), "s_std": model.std(u[1], X[:, None]), "s_lower": lower, "s_upper": upper
    }  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(values(found, name)[1], value, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(values(found, "in_distribution"), model.in_distribution(jnp.asarray(u)), atol=1e-6)


def test_free_queries(server, model, u):
    for y in (Y, np.linspace(0.0, 1.0, 500)[:, None]):
        found = server.infer({"inputs": [tensor("u", u), tensor("y", y)], "outputs": [{"name": "s"}]})
        np.testing.assert_allclose(values(found), model.predict(u, y), rtol=1e-5, atol=1e-5)


def test_binary_tensors_carry_the_same_numbers(server, model, u):
    body, headers = binary_request({"u": u, "y": Y}, ["s_upper", "s"])
    status, sent, found = server.call("POST", "/v2/models/rods/versions/1/infer", body, headers)
    assert status == 200
    assert sent["content-type"] == "application/octet-stream"
    document = server.json(
        "POST",
        "/v2/models/rods/versions/1/infer",
        {"inputs": [tensor("u", u), tensor("y", Y)], "outputs": [{"name": "s_upper"}, {"name": "s"}]},
    )
    for name, array in binary_values(sent, found).items():
        assert (array == values(document, name)).all()
        assert not np.allclose(array, model.predict(u, Y), rtol=0.5)  # version 1 is another model


def test_a_request_may_have_more_functions_than_a_batch(server, model):
    u = np.asarray(rods(70, seed=6).load().u)
    found = server.infer({"inputs": [tensor("u", u)], "outputs": [{"name": "s"}]})
    np.testing.assert_allclose(values(found), model.predict(u, X[:, None]), rtol=1e-5, atol=1e-5)


ONE = tensor("u", np.ones((1, 7, 1)))
BAD = {
    "no JSON": (b"{", 400, "Invalid JSON"),
    "no object": (b"[]", 400, "should be an object"),
    "NaN": (json.dumps({"inputs": [{**ONE, "data": [math.nan]}]}).encode(), 400, "Invalid JSON"),
    "no inputs": ({}, 400, "inputs: Field required"),
    "unknown input": ({"inputs": [tensor("z", [1.0])]}, 400, "input 'z' is unknown; expected u, y"),
    "missing input": ({"inputs": [tensor("y", Y)]}, 400, "missing input u"),
    "twice": ({"inputs": [ONE] * 2}, 400, "given twice"),
    "datatype": ({"inputs": [{**ONE, "datatype": "FP64"}]}, 400, "is FP64 [1,"),
    "shape": ({"inputs": [tensor("u", np.ones((1, 8, 1)))]}, 400, "expected FP32 [-1, 7, 1]"),
    "no functions": ({"inputs": [{**ONE, "shape": [0, 7, 1]}]}, 400, "shape.0: Input should be greater than 0"),
    "enormous": ({"inputs": [{**ONE, "shape": [10**18] * 3}]}, 400, "less than"),
    "overflow": ({"inputs": [{**ONE, "data": [10**400] * 7}]}, 400, "number is infinity"),
    "infinite": ({"inputs": [tensor("u", np.full((1, 7, 1), 1e300))]}, 400, "NaN or infinite"),
    "text": ({"inputs": [{**ONE, "data": ["1"] * 7}]}, 400, "type float or int only"),
    "true": ({"inputs": [{**ONE, "data": [True] * 7}]}, 400, "type float or int only"),
    "values": ({"inputs": [{**ONE, "shape": [10**9, 7, 1]}]}, 413, "at most 20000"),
    "response": ({"inputs": [tensor("u", np.ones((600, 7, 1)))]}, 413, "the response would have"),
    "queries": ({"inputs": [ONE, tensor("y", np.ones((501, 1)))]}, 413, "more than 500"),
    "output": ({"inputs": [ONE], "outputs": [{"name": "t"}]}, 400, "unknown output 't'"),
    "memory": (
        {"inputs": [{**ONE, "parameters": {"shared_memory_region": "/a"}}]},
        400,
        "Input should be None",
    ),
    "body": (b" " * 100001, 413, "more than 100000 bytes"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_defective_request_is_refused_with_the_reason(server, case):
    body, status, reason = BAD[case]
    assert reason in server.infer(body, status=status)["error"]


@pytest.mark.parametrize("length", ["0", "-1", "x", "9" * 30, "5", "100000"])
def test_a_wrong_length_is_refused(server, length):
    body, right = binary_request({"u": np.ones((1, 7, 1))})
    wrong = {"Inference-Header-Content-Length": length}
    for sent, headers in ((body, wrong), (body[:-4], right), (body + b"1234", right)):
        status, _, text = server.call("POST", "/v2/models/rods/infer", sent, headers)
        assert status == 400, text


@pytest.mark.parametrize("given", [None, "Bearer wrong", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", TOKEN, "Basic a"])
def test_a_token_is_required_except_for_health(server, given):
    headers = {} if given is None else {"Authorization": given}
    assert server.call("GET", "/v2", headers=headers, token=None)[0] == 401
    assert server.call("GET", "/metrics", headers=headers, token=None)[0] == 401
    assert server.call("GET", "/v2/health/ready", headers=headers, token=None)[0] == 200


def test_metrics_count_requests(server, u):
    def counts():
        lines = server.call("GET", "/metrics")[2].decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}

    server.infer({}, status=400)
    before = counts()
    for _ in range(3):
        server.infer({"inputs": [tensor("u", u)]})
    server.infer({}, status=400)
    after = counts()
    expected = {
        'loca_requests_total{model="rods",status="200"}': 3,
        'loca_requests_total{model="rods",status="400"}': 1,
        "loca_batch_functions_sum": 3 * len(u),
    }
    assert {name: after[name] - before.get(name, 0) for name in expected} == expected
    assert not server.lines(TOKEN)


def test_reload_under_load_loses_no_request_and_mixes_no_versions(server, folder, u):
    expected = {}
    for factor in (1.0, 10.0):
        model = save_model(folder / "changing", factor, calibrated=False)
        expected[factor] = np.asarray(model.predict(np.repeat(u[:1], 40, axis=0), X[:, None]))

    def loaded():
        return server.lines("loaded version 1 of changing")

    server.wait(loaded)  # a new model is found
    seen, end = set(), time.monotonic() + 120
    body = {"inputs": [tensor("u", np.repeat(u[:1], 40, axis=0))]}  # in two batches
    while len(loaded()) < 4:
        assert time.monotonic() < end
        if len(loaded()) % 2 == (factor == 10.0):
            factor = 11.0 - factor
            save_model(folder / "changing", factor, calibrated=False)
        found = values(server.infer(body, model="changing"))
        (one,) = [factor for factor, s in expected.items() if np.allclose(found, s, rtol=1e-4, atol=1e-4)]
        seen.add(one)
    assert seen == {1.0, 10.0}
    (folder / "changing/model.safetensors").write_bytes(b"defective")
    server.wait(lambda: server.lines("version 1 of changing is not loaded"))
    server.infer(body, model="changing")  # by the model before
    (folder / "changing/model.safetensors").unlink()
    server.wait(lambda: server.lines("removed version 1 of changing"))
    server.infer(body, model="changing", status=404)


@pytest.mark.full
def test_a_file_has_the_fixed_queries(folder, tmp_path, u):
    (tmp_path / "points.csv").write_text("x\n0.25\n0.5\n")
    with running(folder / "rods/1", "--at", tmp_path / "points.csv") as server:
        found = server.infer({"inputs": [tensor("u", u)], "outputs": [{"name": "s"}]}, model="1")
        model = loca.load(folder / "rods/1/model.safetensors")
        np.testing.assert_allclose(values(found), model.predict(u, [[0.25], [0.5]]), rtol=1e-5, atol=1e-5)
        assert server.stop() == 0


@pytest.mark.full
def test_workers_that_cannot_start_end_the_command(folder, tmp_path):
    (tmp_path / "points.csv").write_text("other\n0.25\n")  # which only workers read
    line = command_line(folder / "rods/1", "--at", tmp_path / "points.csv", "--workers", 2)
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 1
    assert "no worker could start" in done.stderr
