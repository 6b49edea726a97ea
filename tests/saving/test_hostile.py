"""Damaged, truncated and forged files: a `ModelFileError` each time, quickly and in little memory."""

import contextlib
import copy
import json
import os
import random
import re
import time
from pathlib import Path

import pytest

from forging import forged, taken_apart
from loca.saving import ModelFileError, inspect, load
from loca.saving.container import MAX_HEADER

NUMBERS = [-1, 0, 1, 2, 3, 7, 255, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64 - 1, 1.5, True, None, "1", [], {}]
TEXTS = [
    *["", "F64", "F32", "C64", "I64", "F4", "a" * 5000, "\0", "\x1b[2J", "__class__", "q.weights.0"],
    *["../../etc/passwd", "/etc/passwd", "os.system", "builtins.eval"],
    *["loca.kernels.RBF", "RBF", "kernels.RBF", "nets.MLP", "jax.nn.gelu"],
]


@contextlib.contextmanager
def little_memory():
    """Fails if the process has at any moment 100 MB more than at the beginning; as Linux counts."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the highest mark so far
    before = highest()
    yield
    assert highest() - before < 100e6


def highest() -> int:
    """The most memory in bytes since the mark was forgotten."""
    return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])


def refused(path, contents: bytes) -> str:
    """The message with which a file is refused."""
    path.write_bytes(contents)
    with pytest.raises(ModelFileError) as error:
        load(path)
    return str(error.value)


@pytest.mark.slow
def test_every_flipped_bit_is_noticed(contents, tmp_path):
    rng = random.Random(0)
    length = int.from_bytes(contents[:8], "little")
    everywhere = rng.sample(range(8 * len(contents)), 800)
    start = [*range(64), *(8 * i + rng.randrange(8) for i in range(8, 120))]  # length, beginning and digest
    padding = [8 * (length + 7) + bit for bit in range(8)]
    bits = [*everywhere, *start, *padding, *range(8 * len(contents) - 16, 8 * len(contents))]
    assert len(bits) == 1000
    for bit in bits:
        flipped = bytearray(contents)
        flipped[bit // 8] ^= 1 << bit % 8
        refused(tmp_path / "a", bytes(flipped))
        with pytest.raises(ModelFileError):
            inspect(tmp_path / "a")


def places(tree, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(tree, dict | list):
        for key in tree if isinstance(tree, dict) else range(len(tree)):
            yield from places(tree[key], (*path, key))


def mutate(rng: random.Random, tree):
    """The same JSON value with one thing in it replaced, removed, renamed, doubled or swapped for another part."""
    tree = copy.deepcopy(tree)
    every = [path for path in places(tree) if path]
    *inside, key = rng.choice(every)
    parent = tree
    for step in inside:
        parent = parent[step]
    match rng.randrange(6):
        case 0:
            parent[key] = rng.choice(NUMBERS)
        case 1:
            parent[key] = rng.choice(TEXTS)
        case 2:
            del parent[key]
        case 3 if isinstance(parent, dict):
            parent[rng.choice(TEXTS)] = parent.pop(key)
        case 4:
            other = tree
            for step in rng.choice(every):
                other = other[step]
            parent[key] = copy.deepcopy(other)
        case _:
            if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[key]))
            else:
                parent[rng.choice(TEXTS)] = copy.deepcopy(parent[key])
    return tree


def fuzz(rng: random.Random, contents: bytes) -> bytes:
    """Some file made of a good one, most of them with the right digest."""
    document, table, body = taken_apart(contents)
    match rng.randrange(12):
        case 0:
            return contents[: rng.randrange(len(contents))]
        case 1:
            return forged(document, table, body[: rng.randrange(len(body))])
        case 2:
            return forged(document, table, body + rng.randbytes(rng.choice([1, 8, 4096])))
        case 3:
            return forged(
                document, table, body, length=rng.choice([0, 1, MAX_HEADER, MAX_HEADER + 1, 2**40, 2**63, 2**64 - 1])
            )
        case 4:
            damaged = bytearray(contents)
            for _ in range(rng.randrange(1, 30)):
                damaged[rng.randrange(110, len(damaged))] = rng.randrange(256)
            return bytes(damaged)
        case 5:
            return rng.randbytes(rng.randrange(3000))
        case 6 | 7:
            return forged(document, mutate(rng, table), body)
        case 8:
            entry = rng.choice(list(table.values()))
            key = rng.choice(["shape", "data_offsets"])
            entry[key] = [rng.choice(NUMBERS[:13]) for _ in range(rng.randrange(5))]
            return forged(document, table, body)
        case _:
            document["model"] = mutate(rng, document["model"])
            return forged(document, table, body)


@pytest.mark.parametrize("expected", [250, pytest.param(2000, marks=pytest.mark.full)])
def test_fuzzed_files_raise_a_model_file_error(expected, contents, tmp_path):
    rng = random.Random(1)
    path = tmp_path / "a"
    count, rejected, messages = 0, 0, set()
    slowest = 0.0
    with little_memory():
        while rejected < expected:
            count += 1
            made = fuzz(rng, contents)
            path.write_bytes(made)
            begin = time.process_time()
            try:
                load(path)  # any other error ends the test
            except ModelFileError as error:
                rejected += 1
                messages.add(str(error).removeprefix(str(path))[:30])
            else:
                assert sound(made, contents), taken_apart(made)[0]
            slowest = max(slowest, time.process_time() - begin)
    assert count < 1.15 * expected  # others are equal or valid models
    assert len(messages) > 15
    assert slowest < 2.0


def sound(made: bytes, original: bytes) -> bool:
    """Whether a forged file still is a model: its arrays are the same, only plain values of its parts have changed."""
    (document, _, body), (document_, _, body_) = taken_apart(made), taken_apart(original)
    return body == body_ and arrays_of(document["model"]) == arrays_of(document_["model"])


def arrays_of(tree) -> list:
    if isinstance(tree, list):
        return [array for item in tree for array in arrays_of(item)]
    if isinstance(tree, dict):
        return [tree["array"]] if "array" in tree else [array for item in tree.values() for array in arrays_of(item)]
    return []


BIG = MAX_HEADER - 4000
HOSTILE = {
    "deep lists": "[" * BIG,
    "deep but closed": "[" * 200 + "]" * 200,
    "many objects": "[" + "{}," * (BIG // 3 - 1) + "{}]",
    "many keys": "{" + ",".join(f'"{i}":0' for i in range(BIG // 12)) + "}",
    "many keys, the last twice": "{" + ",".join(f'"{i}":0' for i in range(BIG // 12)) + ',"0":1}',
    "endless string": '"' + '\\"' * (BIG // 3),
    "wide characters": '["' + "😀" * (BIG // 5) + '"]',
    "not a number": '{"format":NaN}',
    "infinity": '{"format":1e999}',
    "huge integer": '{"format":' + "9" * (BIG // 2) + "}",
    "twice": '{"format":1,"format":1}',
    "half a character": '{"format":1,"a":"\\ud800"}',
    "nothing": "",
    "no end": '{"format":1',
    "more after the end": '{"format":1} {"format":1}',
    "many unknown fields": '{"format":1,' + ",".join(f'"{i}":0' for i in range(BIG // 12)) + "}",
    "many bad metrics": '{"format":1,"metrics":{' + ",".join(f'"{i}":""' for i in range(BIG // 12)) + "}}",
}


SLOW = ("many objects", "many keys", "many unknown fields", "many keys, the last twice")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in HOSTILE]
)
def test_hostile_json_costs_little(name, contents, tmp_path):
    _, table, body = taken_apart(contents)
    inside = forged(HOSTILE[name], table, body)
    header = b'{"__metadata__":{"loca":"{}"},"a":' + HOSTILE[name].encode() + b"}"
    outside = len(header).to_bytes(8, "little") + header + body
    for made in (inside, outside):
        begin = time.process_time()
        with little_memory():
            refused(tmp_path / "a", made)
        assert time.process_time() - begin < 20.0  # tests check the types of every call, which takes most of the time


def test_a_newer_format_says_what_to_install(contents, tmp_path):
    document, table, body = taken_apart(contents)
    document |= {"format": 2, "something": "new"}
    document["versions"]["loca-jax"] = "3.1.4"
    message = refused(tmp_path / "a", forged(document, table, body))
    assert "format 2" in message
    assert "'loca-jax': '3.1.4'" in message
    assert "pip install --upgrade loca-jax" in message


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("metrics", None, "'metrics' in the header: field required"),
        ("more", 1, "'more' in the header: extra inputs are not permitted"),
        ("parameters", True, "'parameters' in the header: input should be a valid integer"),
        ("metrics", {"error": "0.1"}, "'metrics.error' in the header: input should be a valid number, got '0.1'"),
        ("domain", {"class": "kernels.RBF", "fields": {}}, "a kernels.RBF has the fields"),
        ("domain", {"array": ["float32", 2]}, r"described as \['float32', 2\], but is None"),
        ("model", {"dict": {}}, "expected a class and its fields"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(field, value, message, contents, tmp_path):
    document, table, body = taken_apart(contents)
    document[field] = value
    if value is None:
        del document[field]
    assert re.search(message, refused(tmp_path / "a", forged(document, table, body)))


def test_an_unknown_class_of_the_package_says_which_version_has_it(contents, tmp_path):
    document, table, body = taken_apart(contents)
    document["model"]["fields"]["k"]["class"] = "kernels.Periodic"
    assert "kernels.Periodic" in refused(tmp_path / "a", forged(document, table, body))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("k", {"class": "domains.Sphere", "fields": {}}),
        ("f", 3),
        ("f", None),
        ("output_size", 1.0),
        ("output_size", True),
        ("output_size", [1]),
        ("attention", {"class": "attention.Blocked", "fields": {"block": "7"}}),
        ("attention", {"class": "attention.Dense", "fields": {"block": 7}}),
        ("attention", {"class": "rules.FixedRule", "fields": {}}),
        ("attention", {"function": "jax.nn.gelu"}),
        ("attention", {"class": "attention.Dense"}),
        ("attention", {"class": "attention.Dense", "fields": {}, "extra": 1}),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused(field, value, contents, tmp_path):
    document, table, body = taken_apart(contents)
    document["model"]["fields"][field] = value
    refused(tmp_path / "a", forged(document, table, body))


def test_arrays_that_no_part_has_are_refused(contents, tmp_path):
    document, table, body = taken_apart(contents)
    document["model"]["fields"]["q"]["fields"]["biases"][0] = 1.0
    refused(tmp_path / "a", forged(document, table, body))
    document, table, body = taken_apart(contents)
    assert "damaged" in refused(tmp_path / "a", forged(document, table, body + b"\0" * 8))
    table["more"] = {"dtype": "F32", "shape": [2], "data_offsets": [len(body), len(body) + 8]}
    assert "no part of the model has" in refused(tmp_path / "a", forged(document, table, body + b"\0" * 8))


def test_a_part_is_not_a_model(contents, tmp_path):
    document, _, _ = taken_apart(contents)
    document["model"] = {"class": "domains.Sphere", "fields": {"south": -90.0, "north": 90.0}}
    assert "not a model" in refused(tmp_path / "a", forged(document, {}, b""))


def test_huge_empty_arrays_are_refused(contents, tmp_path):
    document, table, body = taken_apart(contents)
    table["q.biases.0"]["shape"] = shape = [0, 2**63 - 1, 2**63 - 1]
    document["model"]["fields"]["q"]["fields"]["biases"][0]["array"] = ["float32", *shape]
    refused(tmp_path / "a", forged(document, table, body))


def test_only_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ModelFileError, match="a single file"):
            load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")
    assert "ends before" in refused(tmp_path / "a", b"")


def test_weights_of_others_are_not_a_model(tmp_path):
    header = json.dumps({"__metadata__": {"format": "pt"}}).encode()
    message = refused(tmp_path / "a", len(header).to_bytes(8, "little") + header)
    assert "not a model file of loca" in message
