"""The Open Inference Protocol, version 2, over HTTP: tensors in requests and responses, as JSON and as bytes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pydantic_core import from_json, to_json

DATATYPES = {"FP32": np.dtype("<f4"), "BOOL": np.dtype("?")}
"""The tensors of operators: little-endian numbers of single precision, and masks."""

LONGEST_NAME = 256
"""Characters of an identifier that a response repeats, at most."""


LONGEST_KNOWN, MOST_KNOWN = 1000, 256
"""Bytes of the JSON of a request that is kept, and how many are kept, at most."""


class RequestError(Exception):
    """A request that is refused, with its HTTP status and the reason.

    **Arguments:**

    - `status`: 400 to 499.
    - `reason`: what was given, what is expected and what to do.
    - `kind`: a short name of the reason, for metrics.
    - `details`: further fields of the response.
    """

    def __init__(self, status: int, reason: str, kind: str = "malformed", **details: Any):
        super().__init__(reason)
        self.status, self.reason, self.kind, self.details = status, reason, kind, details


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a request may cost. Anything larger is refused before memory is allocated for it.

    **Arguments:**

    - `body`: bytes of a request; all bodies that are being read may have 16 times as many together.
    - `values`: numbers in a tensor of a request, or in all outputs of a response together.
    - `queries`: locations in a request.
    - `queue`: input functions that wait for the model, of all requests together.
    - `timeout`: seconds from the header of a request to its response.
    - `connections`: open at the same time.
    """

    body: int = 2**22
    values: int = 2**22
    queries: int = 2**14
    queue: int = 1024
    timeout: float = 10.0
    connections: int = 1000


class Tensor(NamedTuple):
    """The name, type and shape of an input or output; −1 for a size that a request chooses."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: Mapping[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        """The tensor in the metadata of its model."""
        described = {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}
        return {**described, "parameters": dict(self.parameters)} if self.parameters else described


class Planned(NamedTuple):
    """An input whose values are in the JSON, or follow it as `size` bytes."""

    tensor: Tensor
    shape: tuple[int, ...]
    values: np.ndarray | None
    size: int


@dataclasses.dataclass(eq=False, slots=True)
class Plan:
    """The JSON of a request, checked within some limits; a client repeats it with other bytes.

    **Arguments:**

    - `id`: the identifier of the request.
    - `inputs`: its tensors.
    - `outputs`: names of outputs, and whether they are sent as bytes.
    - `limits`: of the request.
    - `start`: of a response, between the date and the bytes of the outputs; kept if that is all that changes.
    """

    id: str | None
    inputs: tuple[Planned, ...]
    outputs: dict[str, bool]
    limits: Limits
    wanted: frozenset[str] = dataclasses.field(init=False)
    start: bytes | None = None

    def __post_init__(self):
        self.wanted = frozenset(self.outputs)


class InferRequest(NamedTuple):
    """A parsed request: its JSON and its tensors."""

    plan: Plan
    inputs: dict[str, np.ndarray]


class Plans:
    """The plans of requests for one model.

    **Arguments:**

    - `inputs`, `outputs`: those of the model.
    """

    def __init__(self, inputs: Mapping[str, Tensor], outputs: Sequence[str]):
        self.inputs, self.outputs = inputs, tuple(outputs)
        self._known: dict[bytes, Plan] = {}

    def __call__(self, text: bytes, limits: Limits) -> Plan:
        """The plan of a request; those without values in the JSON are kept."""
        plan = self._known.get(text)
        if plan is None or plan.limits is not limits:
            plan = parse_header(text, self.inputs, self.outputs, limits)
            if len(text) <= LONGEST_KNOWN and all(each.values is None for each in plan.inputs):
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known[text] = plan
        return plan


def parse_request(body: bytes, header_length: int | None, plans: Plans, limits: Limits) -> InferRequest:
    """Parse and check the body of an inference request; raise `RequestError` if anything is wrong with it.

    **Arguments:**

    - `body`: JSON, followed by the bytes of tensors if there is a header length.
    - `header_length`: the length of the JSON, from the header Inference-Header-Content-Length; None if all is JSON.
    - `plans`: of the model.
    - `limits`: of tensors.
    """
    start = len(body) if header_length is None else header_length
    if not 0 < start <= len(body):
        raise RequestError(400, f"the JSON header has {start} bytes, but the body has {len(body)}")
    plan, found = plans(body[:start], limits), {}
    for tensor, shape, array, size in plan.inputs:
        name = tensor.name
        if array is None:
            if len(body) < start + size:
                raise RequestError(400, f"input {name!r} needs {size} bytes, but only {len(body) - start} are left")
            array = np.ndarray(shape, DATATYPES[tensor.datatype], body, start)
        if array.dtype.kind == "f" and not is_finite(array):
            raise RequestError(400, f"input {name!r} has values that are NaN or infinite", "not_finite")
        found[name], start = array, start + size
    if len(body) > start:
        raise RequestError(400, f"the body has {len(body) - start} bytes more than its tensors; check binary_data_size")
    return InferRequest(plan, found)


def is_finite(array: np.ndarray) -> bool:
    """Whether all values are finite. They are if the sum of their squares is, which takes a third of the time."""
    return math.isfinite(np.vdot(array, array)) or bool(np.isfinite(array).all())


def parse_header(text: bytes, inputs: Mapping[str, Tensor], outputs: Sequence[str], limits: Limits) -> Plan:
    """Parse and check the JSON of a request."""
    given = parse_json(text)
    name, tensors, requested = given.get("id"), given.get("inputs"), given.get("outputs", [])
    if name is not None and (not isinstance(name, str) or len(name) > LONGEST_NAME):
        raise RequestError(400, f"`id` must be a string of at most {LONGEST_NAME} characters")
    if not isinstance(tensors, list) or not tensors or not isinstance(requested, list):
        raise RequestError(400, "expected a list of `inputs` that is not empty and, optionally, a list of `outputs`")
    planned = tuple(parse_input(each, inputs, limits) for each in tensors)
    names = [each.tensor.name for each in planned]
    if len(set(names)) < len(names):
        raise RequestError(400, f"an input is given twice: {', '.join(names)}")
    all_binary = flag(parameters_of(given), "binary_data_output")
    chosen = dict(parse_output(each, outputs, all_binary) for each in requested)
    return Plan(name, planned, chosen or dict.fromkeys(outputs, all_binary), limits)


def parse_json(text: bytes) -> dict[str, Any]:
    """A JSON object; NaN and infinite numbers are no JSON."""
    try:
        found = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise RequestError(400, f"the body is not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise RequestError(400, f"expected a JSON object, got {type(found).__name__}")
    return found


def parse_input(given: Any, known: Mapping[str, Tensor], limits: Limits) -> Planned:
    """An input in the JSON of a request."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise RequestError(400, "every input must be an object with a `name`")
    if given["name"] not in known:
        raise RequestError(400, f"unknown input {given['name'][:LONGEST_NAME]!r}; expected {', '.join(known)}")
    tensor = known[given["name"]]
    if given.get("datatype") != tensor.datatype:
        found = str(given.get("datatype"))[:LONGEST_NAME]
        raise RequestError(400, f"input {tensor.name!r} has datatype {found}, expected {tensor.datatype}")
    shape, parameters = parse_shape(given.get("shape"), tensor, limits), parameters_of(given)
    if "shared_memory_region" in parameters:
        raise RequestError(400, "this server has no shared memory; send the values")
    size, dtype = parameters.get("binary_data_size"), DATATYPES[tensor.datatype]
    if size is None:
        return Planned(tensor, shape, parse_values(given.get("data"), dtype, shape, tensor.name), 0)
    expected = math.prod(shape) * dtype.itemsize
    if size != expected or isinstance(size, bool | float) or "data" in given:
        raise RequestError(
            400, f"input {tensor.name!r} of shape {list(shape)} needs {expected} bytes and no `data`, got {size!r}"
        )
    return Planned(tensor, shape, None, expected)


def parse_shape(given: Any, tensor: Tensor, limits: Limits) -> tuple[int, ...]:
    """The shape of an input, if it is one that the model accepts."""
    whole = isinstance(given, list) and all(type(size) is int and size > 0 for size in given)
    if not whole or len(given) != len(tensor.shape):
        raise RequestError(400, f"input {tensor.name!r} needs a shape like {list(tensor.shape)}, −1 for any number")
    if math.prod(given) > limits.values:
        raise RequestError(
            413, f"input {tensor.name!r} has {math.prod(given)} values, at most {limits.values} are allowed", "values"
        )
    if any(size not in (-1, found) for size, found in zip(tensor.shape, given, strict=True)):
        raise RequestError(400, f"input {tensor.name!r} has shape {given}, expected {list(tensor.shape)}, −1 for any")
    return tuple(given)


def parse_values(given: Any, dtype: np.dtype, shape: tuple[int, ...], name: str) -> np.ndarray:
    """Values in row-major order from nested lists or one list."""
    kinds = "fiu" if dtype.kind == "f" else "b"
    try:
        array = np.asarray(given)
    except (ValueError, TypeError, OverflowError):  # lists of different lengths, numbers of thousands of digits
        array = np.asarray(None)
    if array.dtype.kind not in kinds or array.size != math.prod(shape) or array.shape not in (shape, (array.size,)):
        raise RequestError(
            400, f"`data` of input {name!r} must hold {math.prod(shape)} values in lists, for shape {list(shape)}"
        )
    with np.errstate(over="ignore"):  # infinite values are refused later
        return array.astype(dtype).reshape(shape)


def parse_output(given: Any, known: Sequence[str], all_binary: bool) -> tuple[str, bool]:
    """The name of a requested output, and whether it is sent as bytes."""
    name = given.get("name") if isinstance(given, dict) else None
    if not isinstance(name, str) or name not in known:
        raise RequestError(400, f"unknown output {str(name)[:LONGEST_NAME]!r}; expected {', '.join(known)}")
    parameters = parameters_of(given)
    if "shared_memory_region" in parameters or "classification" in parameters:
        raise RequestError(400, f"output {name!r}: only values are returned, no classification or shared memory")
    return name, flag(parameters, "binary_data", all_binary)


def parameters_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a request or tensor."""
    found = given.get("parameters", {})
    if not isinstance(found, dict):
        raise RequestError(400, "`parameters` must be an object")
    return found


def flag(parameters: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """A parameter that is true or false."""
    found = parameters.get(name, default)
    if not isinstance(found, bool):
        raise RequestError(400, f"the parameter {name!r} must be true or false")
    return found


def write_response(
    plan: Plan, model: str, version: str, results: Mapping[str, np.ndarray], parameters: Mapping[str, Any]
) -> tuple[bytes, int | None]:
    """The body of a response, and the length of its JSON if the bytes of tensors follow it."""
    raw, outputs = raw_values(plan, results), []
    for name, is_binary in plan.outputs.items():
        output = {"name": name, "datatype": "FP32", "shape": results[name].shape}
        if is_binary:
            output["parameters"] = {"binary_data_size": len(raw[name])}
        else:
            output["data"] = results[name].ravel().tolist()
        outputs.append(output)
    header: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if plan.id is not None:
        header["id"] = plan.id
    if parameters:
        header["parameters"] = parameters
    text = to_json(header)
    return (b"".join([text, *raw.values()]), len(text)) if raw else (text, None)


def raw_values(plan: Plan, results: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """The outputs that are sent as bytes."""
    return {
        name: results[name].astype("<f4", copy=False).tobytes() for name, is_binary in plan.outputs.items() if is_binary
    }
