"""The Open Inference Protocol, version 2, over HTTP: tensors in requests and responses, as JSON and as bytes."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NotRequired,  # those of Python 3.11 lack what pydantic needs
    TypeVar,
)

import numpy as np
import orjson
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from starlette.exceptions import HTTPException
from typing_extensions import TypedDict

DATATYPES = {"FP32": np.dtype("<f4"), "BOOL": np.dtype("?")}
"""The tensors of operators: little-endian numbers of single precision, and masks."""

NUMBERS, FLAGS = frozenset([int, float]), frozenset([bool])
"""The types of values in JSON; `True` is no number."""


class RequestError(HTTPException):
    """A request that is refused: HTTP status, reason, a short name of it for metrics, headers and more fields."""

    def __init__(
        self,
        status: int,
        reason: str,
        kind: str = "malformed",
        headers: Mapping[str, str] | None = None,
        **details: Any,
    ):
        super().__init__(status, reason, headers)
        self.kind, self.details = kind, details


class Tensor(NamedTuple):
    """The name, type and shape of an input or output; −1 for a size that a request chooses."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: Mapping[str, Any] = {}


Text = Annotated[str, Field(max_length=256)]
"""A name that responses repeat."""

STRICT = ConfigDict(strict=True)
"""Values are not converted; fields without a name here have no effect."""


@with_config(STRICT)
class Parameters(TypedDict, total=False):
    """Parameters of a request, of an input or of an output."""

    binary_data_size: int
    binary_data: bool
    binary_data_output: bool
    shared_memory_region: Any
    classification: Any


@with_config(STRICT)
class Input(TypedDict):
    """A tensor that is sent, with its values unless they follow the JSON."""

    name: Text
    datatype: Text
    shape: Annotated[list[Annotated[int, Field(gt=0)]], Field(max_length=8)]
    data: NotRequired[Any]
    parameters: NotRequired[Parameters]


@with_config(STRICT)
class Output(TypedDict):
    """A tensor that is requested."""

    name: Text
    parameters: NotRequired[Parameters]


@with_config(STRICT)
class InferRequest(TypedDict):
    """The JSON of an inference request."""

    id: NotRequired[Text | None]
    inputs: Annotated[list[Input], Field(min_length=1, max_length=100)]
    outputs: NotRequired[Annotated[list[Output], Field(max_length=100)]]
    parameters: NotRequired[Parameters]


INFER_REQUEST = TypeAdapter(InferRequest).validate_python

Document = TypeVar("Document")


def parse_json(text: bytes | memoryview, validate: Callable[[Any], Document]) -> Document:
    """A document in JSON; NaN and infinite numbers are no JSON."""
    try:
        return validate(orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise RequestError(400, f"the body is not JSON: {str(error)[:200]}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:200] or "the body"
        raise RequestError(400, f"{where}: {first['msg']}") from None


class Tensors(NamedTuple):
    """What an inference request asks for: its identifier, its inputs, and which outputs it wants as bytes."""

    id: str | None
    inputs: dict[str, np.ndarray]
    outputs: dict[str, bool]


def parse_request(
    body: bytes, header_length: int | None, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], max_values: int
) -> Tensors:
    """Parse and check a body, in which the bytes of tensors follow the JSON if the header has its length."""
    start = len(body) if header_length is None else header_length
    if not 0 < start <= len(body):
        raise RequestError(400, f"the JSON header has {start} bytes, but the body has {len(body)}")
    given, found = parse_json(memoryview(body)[:start], INFER_REQUEST), {}
    for each in given["inputs"]:
        name, size = each["name"], each.get("parameters", {}).get("binary_data_size")
        if name not in inputs or name in found:
            reason = "is given twice" if name in found else f"is unknown; expected {', '.join(inputs)}"
            raise RequestError(400, f"input {name!r} {reason}")
        dtype = check_tensor(each, inputs[name], max_values)
        if size is None:
            array = parse_values(each, dtype)
        elif len(body) < start + size:
            raise RequestError(400, f"input {name!r} needs {size} bytes, but only {len(body) - start} are left")
        else:
            array, start = np.ndarray(each["shape"], dtype, body, start), start + size
        if dtype.kind == "f" and not (math.isfinite(np.vdot(array, array)) or np.isfinite(array).all()):  # fast, exact
            raise RequestError(400, f"input {name!r} has values that are NaN or infinite", "not_finite")
        found[name] = array
    if len(body) > start:
        raise RequestError(400, f"the body has {len(body) - start} bytes more than its tensors; check binary_data_size")
    all_binary, chosen = given.get("parameters", {}).get("binary_data_output", False), {}
    for each in given.get("outputs", []):
        name, parameters = each["name"], each.get("parameters", {})
        if name not in outputs:
            raise RequestError(400, f"unknown output {name!r}; expected {', '.join(outputs)}")
        if "shared_memory_region" in parameters or "classification" in parameters:
            raise RequestError(400, f"output {name!r}: only values are returned, no classes or shared memory")
        chosen[name] = parameters.get("binary_data", all_binary)
    return Tensors(given.get("id"), found, chosen or dict.fromkeys(outputs, all_binary))


def check_tensor(given: Input, tensor: Tensor, max_values: int) -> np.dtype:
    """The type of the values of an input; raise unless it is one that the model accepts."""
    name, shape, parameters = tensor.name, given["shape"], given.get("parameters", {})
    count, dtype = math.prod(shape), DATATYPES[tensor.datatype]
    if given["datatype"] != tensor.datatype:
        raise RequestError(400, f"input {name!r} has datatype {given['datatype']!r}, expected {tensor.datatype}")
    if "shared_memory_region" in parameters:
        raise RequestError(400, "this server has no shared memory; send the values")
    if count > max_values:
        raise RequestError(413, f"input {name!r} has {count} values, at most {max_values} are allowed", "values")
    if len(shape) != len(tensor.shape) or any(n not in (-1, m) for n, m in zip(tensor.shape, shape, strict=True)):
        expected = f"{list(tensor.shape)}, −1 for any number"
        raise RequestError(400, f"input {name!r} has shape {shape}, expected {expected}")
    size, expected = parameters.get("binary_data_size"), count * dtype.itemsize
    if size is not None and (size != expected or "data" in given):
        raise RequestError(400, f"input {name!r} of shape {shape} needs {expected} bytes and no `data`, got {size}")
    return dtype


def parse_values(given: Input, dtype: np.dtype) -> np.ndarray:
    """Values in row-major order from nested lists or one list."""
    shape, count, array = given["shape"], math.prod(given["shape"]), np.empty(0)
    data = given.get("data")
    with contextlib.suppress(ValueError):
        if isinstance(data, list) and len(data) in (count, shape[0]):
            array = as_array(data, FLAGS if dtype.kind == "b" else NUMBERS)
    if array.shape not in (tuple(shape), (count,)):
        name = given["name"]
        raise RequestError(400, f"`data` of input {name!r} must hold {count} values in lists, for shape {shape}")
    with np.errstate(over="ignore"):  # infinite values are refused later
        return array.astype(dtype).reshape(shape)


def as_array(given: Any, types: frozenset[type]) -> np.ndarray:
    """The array of nested lists; raise `ValueError` unless they are regular and all values have one of these types.

    Types and lengths are checked before an array is made, so the JSON bounds the memory: in an array of strings, for
    example, each one would take as much as the longest.
    """
    values, shape = [given], []
    while values and type(values[0]) is list:
        length = len(values[0])
        if set(map(type, values)) != {list} or set(map(len, values)) != {length}:
            raise ValueError("lists must be nested regularly")
        values = list(itertools.chain.from_iterable(values))
        shape.append(length)
    found = set(map(type, values))
    if not types.issuperset(found):
        raise ValueError(f"expected values of type {' or '.join(sorted(each.__name__ for each in types))}")
    return np.array(values, object if str in found else None).reshape(shape)


def to_json(value: Any) -> bytes:
    """JSON; arrays are lists, whose numbers have the fewest digits that their precision needs."""
    return orjson.dumps(value, lambda array: array.tolist(), orjson.OPT_SERIALIZE_NUMPY)


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
