"""The Open Inference Protocol, version 2, over HTTP: tensors in requests and responses, as JSON and as bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response


class Tensor(NamedTuple):
    """The name and shape of an input or output of type FP32; −1 for a size that a request chooses."""

    name: str
    shape: tuple[int, ...]
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


class Tensors(NamedTuple):
    """What an inference request asks for: its identifier, its inputs, and which outputs it wants as bytes."""

    id: str | None
    inputs: dict[str, np.ndarray]
    outputs: dict[str, bool]


def parse_request(
    body: bytes, length: str | None, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], max_values: int
) -> Tensors:
    """Parse and check a body, in which the bytes of tensors follow the JSON if a header has its length."""
    start = len(body)
    if length is not None:
        start = int(length) if length.isdecimal() and len(length) < 12 else 0
    if not 0 < start <= len(body):
        stated = "" if length is None else f", and Inference-Header-Content-Length is {length[:12]}"
        raise HTTPException(400, f"the body has {len(body)} bytes{stated}")
    try:
        given = InferRequest.model_validate_json(body[:start])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise HTTPException(400, f"{where}: {first['msg']}") from None
    found: dict[str, np.ndarray] = {}
    for each in given.inputs:
        name, size = each.name, each.parameters.binary_data_size
        if name not in inputs or name in found:
            reason = "is given twice" if name in found else f"is unknown; expected {', '.join(inputs)}"
            raise HTTPException(400, f"input {name!r} {reason}")
        check_tensor(each, inputs[name], max_values)
        if size is None:
            array = parse_values(each)
        elif size == 4 * math.prod(each.shape) <= len(body) - start and each.data is None:
            array, start = np.ndarray(each.shape, "<f4", body, start), start + size
        else:
            needed = f"{4 * math.prod(each.shape)} bytes and no `data`"
            raise HTTPException(400, f"input {name!r} needs {needed}; {size} are stated, {len(body) - start} are left")
        if not np.isfinite(array).all():
            raise HTTPException(400, f"input {name!r} has values that are NaN or infinite")
        found[name] = array
    if len(body) > start:
        raise HTTPException(400, f"the body has {len(body) - start} bytes after its tensors; check binary_data_size")
    if unknown := [each.name for each in given.outputs if each.name not in outputs]:
        raise HTTPException(400, f"unknown output {unknown[0]!r}; expected {', '.join(outputs)}")
    wanted = {each.name: each.parameters.binary_data for each in given.outputs} or dict.fromkeys(outputs)
    is_binary = given.parameters.binary_data_output
    return Tensors(given.id, found, {name: is_binary if own is None else own for name, own in wanted.items()})


def check_tensor(given: Input, tensor: Tensor, max_values: int) -> None:
    """Raise unless an input is a tensor that the model accepts."""
    shape, count = given.shape, math.prod(given.shape)
    if count > max_values:
        raise HTTPException(413, f"input {given.name!r} has {count} values, at most {max_values} are allowed")
    fits = len(shape) == len(tensor.shape) and all(n in (-1, m) for n, m in zip(tensor.shape, shape, strict=True))
    if given.datatype != "FP32" or not fits:
        expected = f"expected FP32 {list(tensor.shape)}, −1 for any number"
        raise HTTPException(400, f"input {given.name!r} is {given.datatype} {shape}, {expected}")


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
    try:
        with np.errstate(over="ignore"):  # infinite values are refused later
            return np.array(values, np.float32).reshape(shape)
    except OverflowError:  # an integer that no float can hold
        raise HTTPException(400, f"input {given.name!r} has values that are NaN or infinite") from None


def document(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response; arrays are lists, whose numbers have the fewest digits that their precision needs."""
    return Response(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY), status, headers, "application/json")


def write_response(request: Tensors, about: Mapping[str, Any], results: Mapping[str, np.ndarray]) -> Response:
    """The response to a request: JSON, after which come the bytes of tensors if there are any."""
    outputs, raw = [], []
    for name, is_binary in request.outputs.items():
        values = np.ascontiguousarray(results[name], "<f4")
        output = {"name": name, "datatype": "FP32", "shape": values.shape}
        if is_binary:
            raw.append(values.tobytes())
            outputs.append({**output, "parameters": {"binary_data_size": len(raw[-1])}})
        else:
            outputs.append({**output, "data": values.ravel()})
    header = {**({} if request.id is None else {"id": request.id}), **about, "outputs": outputs}
    response = document(header)
    if not raw:
        return response
    headers = {"inference-header-content-length": str(len(response.body))}
    return Response(b"".join([response.body, *raw]), 200, headers, "application/octet-stream")
