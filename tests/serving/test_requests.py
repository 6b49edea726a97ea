"""Requests, directories of models, files of tokens and command lines, without a server."""

import contextlib
import functools
import json
import time

import numpy as np
import orjson
import pytest
from servers import binary_request, save_model, tensor
from starlette.exceptions import HTTPException

from commands import command, words
from loca.serving.application import Server, Settings
from loca.serving.model import Repository, find_models
from loca.serving.protocol import Tensor, parse_request, plan_request

U = Tensor("u", [-1, 7, 1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name in ("rods/1", "rods/2", "plain", "rods/next"):
        save_model(folder / name, calibrated=False)
    return folder


def parsed(body, length=None, max_values=1000):
    plan = functools.lru_cache(functools.partial(plan_request, {"u": U}, {"s": Tensor("s", [-1, 7, 1])}))
    return parse_request(body, length, plan, max_values)[1]["u"]


def test_a_parsed_request_is_the_one_that_was_sent():
    u = np.random.default_rng(0).normal(size=(2, 7, 1)).astype(np.float32)
    body, headers = binary_request({"u": u})
    length = headers["Inference-Header-Content-Length"].encode()
    assert (parsed(body, length) == u).all()
    with pytest.raises(HTTPException, match="at most 10 are allowed"):
        parsed(body, length, max_values=10)
    nested = json.dumps({"inputs": [{**tensor("u", u), "data": u.tolist()}]}).encode()
    assert (parsed(nested) == u).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        ["a" * 10_000] + [""] * 50_000,  # an array of strings has room for the longest one in each place
        [True, 1.0, *[0.0] * 5],
        [[]] * 1_000_000,
        [[0.0] * 7, [0.0] * 6],
        [None] * 7,
        [[[[0.0]]]],
    ],
    ids=["strings", "a truth value", "empty lists", "different lengths", "null", "too deep"],
)
def test_kinds_of_values_are_checked_before_an_array_is_made(data):
    body = json.dumps({"inputs": [{"name": "u", "datatype": "FP32", "shape": [1, 7, 1], "data": data}]}).encode()
    began = time.process_time()
    orjson.loads(body)
    alone = time.process_time() - began
    with pytest.raises(HTTPException, match="must hold"):
        parsed(body)
    assert time.process_time() - began < 5.0 * alone + 0.5


def test_refusals_before_listening(folder, tmp_path):
    assert "give --tokens" in words(command("serve", folder, "--host", "0.0.0.0", code=2))
    assert "does not exist" in command("serve", tmp_path / "none", "--port", 0, code=1)
    (tmp_path / "short").write_text("short\n")
    assert "at least 16 characters" in command("serve", folder, "--tokens", tmp_path / "short", code=1)


def test_models_are_found_by_name_and_version(folder, tmp_path):
    assert set(find_models([folder])) == {("rods", 1), ("rods", 2), ("plain", 1)}
    assert set(find_models([folder / "plain", folder / "rods/1/model.safetensors"])) == {("plain", 1), ("model", 1)}
    with pytest.raises(ValueError, match="both version 1 of plain"):
        find_models([folder, folder / "plain"])
    with pytest.raises(ValueError, match="holds no model"):
        find_models([tmp_path], is_start=True)


@pytest.mark.slow
def test_one_defective_or_missing_path_leaves_the_others_alone(tmp_path, caplog):
    for name in ("a", "b"):
        save_model(tmp_path / name, calibrated=False)
    repository = Repository([tmp_path / "a", tmp_path / "b"])
    repository.refresh(is_start=True)
    (tmp_path / "a/model.safetensors").write_bytes(b"defective")
    for _ in range(2):
        repository.refresh()
    assert caplog.text.count("version 1 of a is not loaded") == 1  # and the model before stays
    before = dict(repository.models)
    (tmp_path / "a/model.safetensors").unlink()
    save_model(tmp_path / "b", factor=2.0, calibrated=False)
    repository.refresh()
    assert set(repository.models) == {("b", 1)}
    assert repository.get("b") is not before["b", 1]
    (tmp_path / "b/model.safetensors").unlink()
    repository.refresh()
    assert repository.models == {}  # the only one


def test_a_model_that_fails_in_any_way_is_logged(tmp_path, monkeypatch, caplog):
    def fail(*arguments):
        raise ZeroDivisionError("in a compilation")

    save_model(tmp_path / "a", calibrated=False)
    monkeypatch.setattr("loca.serving.model.ServedModel.compile", fail)
    Repository([tmp_path / "a"]).refresh()
    assert "ZeroDivisionError: in a compilation" in caplog.text


def test_tokens_may_be_replaced(tmp_path):
    def is_accepted(token):
        with contextlib.suppress(HTTPException):
            server.authorize(b"Bearer " + token)
            return True
        return False

    file, first, second = tmp_path / "tokens", b"the first token of all", b"another token that is longer"
    file.write_text("# of a test\nthe first token of all\n")
    server = Server(Settings(models=[], tokens=file))
    assert [is_accepted(token) for token in (first, first[:-1], b"")] == [True, False, False]
    file.write_bytes(second)
    server.refresh_tokens()
    assert [is_accepted(token) for token in (first, second)] == [False, True]
    file.write_text("")
    with pytest.raises(ValueError, match="must hold one token"):
        server.refresh_tokens()
    assert is_accepted(second)  # those before stay
