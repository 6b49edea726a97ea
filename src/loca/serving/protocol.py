"""The Open Inference Protocol, version 2, over HTTP: tensors in requests and responses, as JSON and as bytes."""

import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Receive

Reply = tuple[int, bytes, list[tuple[bytes, bytes]]]
"""The status, the body and the header of a response."""

JSON = "application/json"

SHORT = 1024
"""Bytes of JSON that may be kept."""


class Tensor(NamedTuple):
    """The name and shape of an input or output of type FP32; −1 for sizes that requests choose, as the first."""

    name: str
    shape: list[int]
    parameters: Mapping[str, Any] = {}


class Document(BaseModel):
    """A part of a request: values are not converted, and fields without a name here have no effect."""

    model_config = ConfigDict(strict=True, frozen=True)


class Parameters(Document):
    """Parameters of a request, of an input or of an output."""

    binary_data_size: int | None = None
    binary_data: bool | None = None
    binary_data_output: bool = False
    shared_memory_region: None = None  # neither is there
    classification: None = None


class Input(Document):
    """A tensor that is sent, with its values unless they follow the JSON."""

    name: str
    datatype: str
    shape: Annotated[list[Annotated[int, Field(gt=0, lt=2**32)]], Field(max_length=8)]
    data: Any = None
    parameters: Parameters = Parameters()


class Output(Document):
    """A tensor that is requested."""

    name: str
    parameters: Parameters = Parameters()


class InferRequest(Document):
    """The JSON of an inference request."""

    id: str | None = None
    inputs: Annotated[list[Input], Field(min_length=1)]
    outputs: list[Output] = []
    parameters: Parameters = Parameters()


class Plan(NamedTuple):
    """What a request asks: its identifier, its inputs, and its outputs with whether they are wanted as bytes."""

    name: str | None
    inputs: list[Input]
    outputs: dict[str, bool]


def plan_request(inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], text: bytes, max_values: int) -> Plan:
    """Check all of the JSON of a request but values. Programs repeat it, with other bytes after it."""
    try:
        given = InferRequest.model_validate(orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise HTTPException(400, f"Invalid JSON: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        reason = "Input should be an object" if first["type"] == "model_type" else first["msg"]
        raise HTTPException(400, f"{where}: {reason}") from None
    found = set[str]()
    for each in given.inputs:
        name, shape, count, size = each.name, each.shape, math.prod(each.shape), each.parameters.binary_data_size
        if name not in inputs or name in found:
            reason = "is given twice" if name in found else f"is unknown; expected {', '.join(inputs)}"
            raise HTTPException(400, f"input {name!r} {reason}")
        if count > max_values:
            raise HTTPException(413, f"input {name!r} has {count} values, at most {max_values} are allowed")
        if each.datatype != "FP32" or [-1, *shape[1:]] != inputs[name].shape:
            raise HTTPException(400, f"input {name!r} is {each.datatype} {shape}, expected FP32 {inputs[name].shape}")
        if size is not None and (size != 4 * count or each.data is not None):
            raise HTTPException(400, f"input {name!r} needs {4 * count} bytes and no `data`; {size} are stated")
        found.add(name)
    if unknown := [each.name for each in given.outputs if each.name not in outputs]:
        raise HTTPException(400, f"unknown output {unknown[0]!r}; expected {', '.join(outputs)}")
    wanted = {each.name: each.parameters.binary_data for each in given.outputs} or dict.fromkeys(outputs)
    is_binary = given.parameters.binary_data_output
    return Plan(given.id, given.inputs, {name: is_binary if own is None else own for name, own in wanted.items()})


def parse_request(body: bytes, length: bytes | None, plan: Any, max_values: int) -> tuple[Plan, dict[str, np.ndarray]]:
    """What a request asks, and its inputs, whose bytes may follow the JSON. `plan` is a cached `plan_request`."""
    start = len(body)
    if length is not None:
        start = int(length) if length.isdigit() and len(length) < 12 else 0
    if not 0 < start <= len(body):
        raise HTTPException(400, f"the body has {len(body)} bytes, and its JSON cannot have {start} of them")
    asked = (plan if start <= SHORT else plan.__wrapped__)(body[:start], max_values)
    found: dict[str, np.ndarray] = {}
    for each in asked.inputs:
        size = each.parameters.binary_data_size
        if size is None:
            array = parse_values(each)
        elif size <= len(body) - start:
            array, start = np.ndarray(each.shape, "<f4", body, start), start + size
        else:
            raise HTTPException(400, f"input {each.name!r} needs {size} bytes; {len(body) - start} are left")
        if not is_finite(array):
            raise HTTPException(400, f"input {each.name!r} has values that are NaN or infinite")
        found[each.name] = array
    if len(body) > start:
        raise HTTPException(400, f"the body has {len(body) - start} bytes after its tensors; check binary_data_size")
    return asked, found


def is_finite(array: np.ndarray) -> bool:
    """Whether all values are finite. They are if the sum of their squares is, which takes less time."""
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def parse_values(given: Input) -> np.ndarray:
    """Values in row-major order, from one list or from lists that are nested as the shape.

    Lengths and kinds are checked before an array is made, so the JSON bounds the memory: in an array of strings, for
    example, each one would take as much as the longest.
    """
    shape, count, values = given.shape, math.prod(given.shape), [given.data]
    is_nested = isinstance(given.data, list) and bool(given.data) and isinstance(given.data[0], list)
    for size in shape if is_nested else [count]:
        if any(type(each) is not list or len(each) != size for each in values):
            reason = f"must hold {count} values, in one list or in lists that are nested as the shape {shape}"
            raise HTTPException(400, f"`data` of input {given.name!r} {reason}")
        values = list(itertools.chain.from_iterable(values))
    if not {int, float}.issuperset(map(type, values)):  # a truth value is no number
        raise HTTPException(400, f"`data` of input {given.name!r} must hold values of type float or int only")
    with np.errstate(over="ignore"):  # infinite values are refused later
        return np.array(values, np.float32).reshape(shape)


async def read_body(receive: Receive, most: int) -> bytes:
    """A body of at most some bytes."""
    body, message = bytearray(), {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "the connection was closed before the end of the body")
        body += message.get("body", b"")
        if len(body) > most:
            raise HTTPException(413, f"the body has more than {most} bytes, the limit")
    return bytes(body)


def reply(content: Any, status: int = 200, more: Mapping[str, str] | None = None, kind: str = JSON) -> Reply:
    """A response of bytes or JSON."""
    body = content if isinstance(content, bytes) else orjson.dumps(content)
    headers = {"content-type": kind, "content-length": str(len(body)), **(more or {})}
    return status, body, [(name.encode(), value.encode()) for name, value in headers.items()]


def write_response(about: Mapping[str, Any], wanted: Mapping[str, bool], results: Mapping[str, np.ndarray]) -> Reply:
    """A response: JSON, whose numbers have the fewest digits that their precision needs, and the bytes of tensors."""
    outputs, raw = [], []
    for name, is_binary in wanted.items():
        values = np.ascontiguousarray(results[name], "<f4")
        output = {"name": name, "datatype": "FP32", "shape": values.shape}
        outputs.append(output)
        if is_binary:
            raw.append(values)
            output["parameters"] = {"binary_data_size": values.nbytes}
        else:
            output["data"] = values.ravel()
    text = orjson.dumps({**about, "outputs": outputs}, option=orjson.OPT_SERIALIZE_NUMPY)
    if not raw:
        return reply(text)
    length = {"inference-header-content-length": str(len(text))}
    return reply(b"".join([text, *raw]), 200, length, "application/octet-stream")
