"""The Open Inference Protocol, version 2, over HTTP: tensors in requests and responses, as JSON and as bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError
from starlette.exceptions import HTTPException

DATATYPES = {"FP32": np.dtype("<f4"), "BOOL": np.dtype("?")}
"""The tensors of operators: little-endian numbers of single precision, and masks."""


class Tensor(NamedTuple):
    """The name, type and shape of an input or output; −1 for a size that a request chooses."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: Mapping[str, Any] = {}


Text = Annotated[str, Field(max_length=256)]
"""A name that responses repeat."""


class Document(BaseModel):
    """A part of a request: values are not converted, and fields without a name here have no effect."""

    model_config = ConfigDict(strict=True)


class Parameters(Document):
    """Parameters of a request, of an input or of an output."""

    binary_data_size: int | None = None
    binary_data: bool | None = None
    binary_data_output: bool = False
    shared_memory_region: None = None  # neither is there
    classification: None = None


class Input(Document):
    """A tensor that is sent, with its values unless they follow the JSON."""

    name: Text
    datatype: Text
    shape: Annotated[list[PositiveInt], Field(max_length=8)]
    data: Any = None
    parameters: Parameters = Parameters()


class Output(Document):
    """A tensor that is requested."""

    name: Text
    parameters: Parameters = Parameters()


class InferRequest(Document):
    """The JSON of an inference request."""

    id: Text | None = None
    inputs: Annotated[list[Input], Field(min_length=1, max_length=100)]
    outputs: Annotated[list[Output], Field(max_length=100)] = []
    parameters: Parameters = Parameters()


class Tensors(NamedTuple):
    """What an inference request asks for: its identifier, its inputs, and which outputs it wants as bytes."""

    id: str | None
    inputs: dict[str, np.ndarray]
    outputs: dict[str, bool]


def parse_request(
    body: bytes | bytearray,
    header_length: int | None,
    inputs: Mapping[str, Tensor],
    outputs: Mapping[str, Tensor],
    max_values: int,
) -> Tensors:
    """Parse and check a body, in which the bytes of tensors follow the JSON if the header has its length."""
    start = len(body) if header_length is None else header_length
    if not 0 < start <= len(body):
        raise HTTPException(400, f"the JSON header has {start} bytes, but the body has {len(body)}")
    try:
        given = InferRequest.model_validate_json(body[:start])
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:200] or "the body"
        raise HTTPException(400, f"{where}: {first['msg'][:200]}") from None
    found: dict[str, np.ndarray] = {}
    for each in given.inputs:
        name, size = each.name, each.parameters.binary_data_size
        if name not in inputs or name in found:
            reason = "is given twice" if name in found else f"is unknown; expected {', '.join(inputs)}"
            raise HTTPException(400, f"input {name!r} {reason}")
        check_tensor(each, inputs[name], max_values)
        dtype = DATATYPES[each.datatype]
        if size is None:
            array = parse_values(each, dtype)
        elif len(body) < start + size:
            raise HTTPException(400, f"input {name!r} needs {size} bytes, but only {len(body) - start} are left")
        else:
            array, start = np.ndarray(each.shape, dtype, body, start), start + size
        if not np.isfinite(array).all():
            raise HTTPException(400, f"input {name!r} has values that are NaN or infinite")
        found[name] = array
    if len(body) > start:
        raise HTTPException(400, f"the body has {len(body) - start} bytes after its tensors; check binary_data_size")
    all_binary, chosen = given.parameters.binary_data_output, dict[str, bool]()
    for each in given.outputs:
        if each.name not in outputs:
            raise HTTPException(400, f"unknown output {each.name!r}; expected {', '.join(outputs)}")
        is_binary = each.parameters.binary_data
        chosen[each.name] = all_binary if is_binary is None else is_binary
    return Tensors(given.id, found, chosen or dict.fromkeys(outputs, all_binary))


def check_tensor(given: Input, tensor: Tensor, max_values: int) -> None:
    """Raise unless an input has the type, the shape and the number of bytes of a tensor of the model."""
    name, shape, count = given.name, given.shape, math.prod(given.shape)
    if given.datatype != tensor.datatype:
        raise HTTPException(400, f"input {name!r} has datatype {given.datatype!r}, expected {tensor.datatype}")
    if count > max_values:
        raise HTTPException(413, f"input {name!r} has {count} values, at most {max_values} are allowed")
    if len(shape) != len(tensor.shape) or any(n not in (-1, m) for n, m in zip(tensor.shape, shape, strict=True)):
        expected = f"{list(tensor.shape)}, −1 for any number"
        raise HTTPException(400, f"input {name!r} has shape {shape}, expected {expected}")
    size, expected = given.parameters.binary_data_size, count * DATATYPES[tensor.datatype].itemsize
    if size is not None and (size != expected or given.data is not None):
        raise HTTPException(400, f"input {name!r} of shape {shape} needs {expected} bytes and no `data`, got {size}")


def parse_values(given: Input, dtype: np.dtype) -> np.ndarray:
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
    if not (kinds := {bool} if dtype.kind == "b" else {int, float}).issuperset(map(type, values)):
        expected = " or ".join(sorted(kind.__name__ for kind in kinds))
        raise HTTPException(400, f"`data` of input {given.name!r} must hold values of type {expected} only")
    try:
        with np.errstate(over="ignore"):  # infinite values are refused later
            return np.array(values, dtype).reshape(shape)
    except OverflowError:  # an integer that no float can hold
        raise HTTPException(400, f"input {given.name!r} has values that are NaN or infinite") from None


def to_json(value: Any) -> bytes:
    """JSON; arrays are lists, whose numbers have the fewest digits that their precision needs."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def write_response(
    request: Tensors, about: Mapping[str, Any], results: Mapping[str, np.ndarray]
) -> tuple[bytes, int | None]:
    """The body of a response, and the length of its JSON if the bytes of tensors follow it."""
    outputs, raw = [], []
    for name, is_binary in request.outputs.items():
        values = np.ascontiguousarray(results[name], "<f4")
        output = {"name": name, "datatype": "FP32", "shape": values.shape}
        if is_binary:
            raw.append(values.tobytes())
            outputs.append({**output, "parameters": {"binary_data_size": len(raw[-1])}})
        else:
            outputs.append({**output, "data": values.ravel()})
    header = {**about, "outputs": outputs}
    text = to_json(header if request.id is None else {"id": request.id, **header})
    return (b"".join([text, *raw]), len(text)) if raw else (text, None)
