"""Requests, directories of models and command lines, without a server."""

import json
import socket

import numpy as np
import pytest
from servers import binary_request, rods, save_model, tensor

import loca
from commands import command, words
from loca.models import Regression
from loca.serving import Limits, RequestError, Tensor, find_models
from loca.serving.exchange import is_plain
from loca.serving.protocol import Plans, is_finite, parse_request
from loca.serving.tensors import count_sensors


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in ("rods/1", "rods/2", "plain", "rods/next"):
        save_model(folder / name, calibrated=False)
    return folder


def test_a_parsed_request_is_the_one_that_was_sent():
    u = np.random.default_rng(0).normal(size=(2, 7, 1)).astype(np.float32)
    plans = Plans({"u": Tensor("u", "FP32", (-1, 7, 1))}, ["s"])
    body, headers = binary_request({"u": u})
    length, limits = int(headers["Inference-Header-Content-Length"]), Limits()
    for _ in range(2):  # the second time its JSON is known
        assert (parse_request(body, length, plans, limits).inputs["u"] == u).all()
    with pytest.raises(RequestError, match="at most 10 are allowed"):
        parse_request(body, length, plans, Limits(values=10))
    nested = json.dumps({"inputs": [{**tensor("u", u), "data": u.tolist()}]}).encode()
    assert (parse_request(nested, None, plans, Limits()).inputs["u"] == u).all()
    ragged = json.dumps({"inputs": [{**tensor("u", u), "data": [u[0].tolist(), u[1, 1:].tolist()]}]}).encode()
    with pytest.raises(RequestError, match="14 values in lists"):
        parse_request(ragged, None, plans, Limits())


def test_values_are_finite_if_their_squares_overflow_but_not_if_they_are_infinite():
    large = np.array([[1e30, -1e30, 0.0]], np.float32)
    assert is_finite(large)
    for value in (np.inf, -np.inf, np.nan):
        assert not is_finite(np.append(large, np.float32(value)))


def test_refusals_before_listening(folder, tmp_path):
    assert "give --tokens" in words(command("serve", folder, "--host", "0.0.0.0", code=2))
    assert "both --certificate and --key" in words(command("serve", folder, "--key", "a", code=2))
    assert "does not exist" in command("serve", tmp_path / "none", "--port", 0, code=1)
    (tmp_path / "short").write_text("short\n")
    assert "at least 16 characters" in command("serve", folder, "--tokens", tmp_path / "short", code=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen" in command("serve", folder, "--port", taken.getsockname()[1], code=1)


def test_models_are_found_by_name_and_version(folder, tmp_path):
    assert set(find_models([folder])) == {("rods", 1), ("rods", 2), ("plain", 1)}
    assert set(find_models([folder / "plain", folder / "rods/1/model.safetensors"])) == {("plain", 1), ("model", 1)}
    with pytest.raises(ValueError, match="both version 1 of plain"):
        find_models([folder, folder / "plain"])
    with pytest.raises(ValueError, match="holds no model"):
        find_models([tmp_path])


def test_sensors_that_a_model_does_not_know_are_counted():
    whole = rods().load()
    bare = loca.Samples(whole.u, whole.y, whole.s)
    assert count_sensors(Regression.fit(bare)) == 7


@pytest.mark.parametrize(
    ("more", "version", "is_kept"),
    [
        ([], "1.1", True),
        ([(b"connection", b"Keep-Alive")], "1.1", True),
        ([(b"connection", b"close")], "1.1", False),
        ([(b"expect", b"100-continue")], "1.1", False),
        ([(b"transfer-encoding", b"chunked")], "1.1", False),
        ([(b"content-length", b"7")], "1.1", False),
        ([], "1.0", False),
    ],
)
def test_only_headers_that_say_nothing_else_are_remembered(more, version, is_kept):
    headers = [(b"content-length", b"7"), (b"x-request-id", b"3"), *more]
    assert is_plain({"headers": headers, "http_version": version}, 7) == is_kept
