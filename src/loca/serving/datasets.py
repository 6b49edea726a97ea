"""Predictions for xarray data sets as JSON, in the form of `xarray.Dataset.to_dict`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import xarray
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import to_json

from loca.data import Labeled
from loca.models import Adaptation, canonical_name
from loca.prediction import QueryGrid, QueryPoints
from loca.serving.protocol import RequestError
from loca.serving.served_model import ServedModel
from loca.typing import Measurements, MultiInput

Name = Annotated[str, Field(min_length=1, max_length=100)]
"""The name of a variable or dimension."""


class ArrayDocument(BaseModel):
    """A variable in the form of `to_dict`."""

    model_config = ConfigDict(extra="ignore")
    dims: Annotated[list[Name], Field(max_length=8)]
    data: Any
    attrs: dict[str, str | float | int | bool | list[float | str] | None] = {}


class DatasetDocument(BaseModel):
    """A data set in the form of `to_dict`, and the queries of a prediction by the names of coordinates."""

    model_config = ConfigDict(extra="ignore")
    data_vars: Annotated[dict[Name, ArrayDocument], Field(max_length=100)]
    coords: Annotated[dict[Name, ArrayDocument], Field(max_length=100)] = {}
    queries: dict[Name, list[float]] | None = None
    outputs: list[Name] | None = None


class DatasetRequest(NamedTuple):
    """A data set as a request for a model.

    **Arguments:**

    - `inputs`: tensors, as in the protocol.
    - `outputs`: names of outputs.
    - `labels`: the coordinates of the functions.
    - `sample`: the dimension that counts the functions; None if the data set has only one and no such dimension.
    - `notes`: what was done to the data.
    """

    inputs: dict[str, np.ndarray]
    outputs: tuple[str, ...]
    labels: xarray.Dataset
    sample: str | None
    notes: tuple[str, ...]


def parse_dataset(given: Mapping[str, Any], model: ServedModel) -> DatasetRequest:
    """The tensors of a data set, in the order of the sensors and channels of the model."""
    try:
        document = DatasetDocument.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:200]
        raise RequestError(400, f"not a data set as of xarray.Dataset.to_dict(): {where}: {first['msg']}") from None
    try:
        dataset = dataset_of(document)
        names = [variable.name for variable in model.operator.inputs]
        sample = sample_dimension(dataset, names, model)
        together = dataset.expand_dims("sample") if sample is None else dataset
        records = Labeled(together, names, (), sample or "sample", source="the data set")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            adaptation = Adaptation.of(model.operator, records)
            u = adaptation.apply(records).load().u
        labels = records.label(np.zeros((len(records), 0, 0), np.float32))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise RequestError(400, str(error)[:1000]) from None
    inputs = {name: np.asarray(array) for name, array in zip(model.input_names, tensors_of(u), strict=True)}
    if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in inputs.values()):
        raise RequestError(400, "the inputs have values that are NaN or infinite", "not_finite")
    if document.queries is not None:
        inputs["y"] = queries_of(document.queries, model)
    outputs = tuple(document.outputs or model.outputs)
    if unknown := [name for name in outputs if name not in model.outputs]:
        raise RequestError(400, f"unknown output {unknown[0]!r}; expected {', '.join(model.outputs)}")
    notes = (*adaptation.notes, *(str(warning.message) for warning in caught))
    return DatasetRequest(inputs, outputs, labels, sample, notes)


def dataset_of(document: DatasetDocument) -> xarray.Dataset:
    """The data set; values must be numbers, coordinates may also be text."""

    def variable(name: str, array: ArrayDocument) -> xarray.Variable:
        values = np.asarray(array.data)
        if values.dtype.kind not in "fiubU" or values.ndim != len(array.dims):
            raise ValueError(f"{name!r} must hold numbers in lists nested as deep as its dims {array.dims}")
        return xarray.Variable(array.dims, values, array.attrs)

    parts = (
        {name: variable(name, array) for name, array in group.items()}
        for group in (document.data_vars, document.coords)
    )
    return xarray.Dataset(*parts)


def sample_dimension(dataset: xarray.Dataset, names: Sequence[str], model: ServedModel) -> str | None:
    """The dimension that counts the functions; None if there is a single function without one."""
    dims = dict.fromkeys(str(dim) for name in names if name in dataset for dim in dataset[name].dims)
    known = model.operator.signature
    parts = () if known is None else known.parts
    sensors = {canonical_name(name) for part in parts for name in part.coordinate_names}
    others = [dim for dim in dims if canonical_name(dim) not in sensors]
    if not sensors:
        others = [dim for dim in dims if dim == "sample"] or others[:1]
    if len(others) > 1:
        raise ValueError(
            f"any of {', '.join(others)} could count the functions; keep the dimensions of the model and one"
        )
    return others[0] if others else None


def tensors_of(u: Any) -> list[Any]:
    """The arrays of an input, in the order of the tensors of its model."""
    if isinstance(u, MultiInput):
        scalars = [] if u.scalars is None else [u.scalars]
        return [array for field in u.fields for array in tensors_of(field)] + scalars
    return [u.u, u.x, u.mask] if isinstance(u, Measurements) else [u]


def queries_of(given: Mapping[str, Sequence[float]], model: ServedModel) -> Float[np.ndarray, "P d_y"]:
    """Locations from one list for each coordinate."""
    names = [variable.name for variable in model.query_coordinates]
    if "y" not in model.inputs:
        raise RequestError(400, "this model predicts at its fixed queries only; leave `queries` out")
    if set(given) != set(names) or len({len(values) for values in given.values()}) != 1 or not given[names[0]]:
        raise RequestError(400, f"`queries` needs equally long lists of {', '.join(names)}, not empty")
    y = np.array([given[name] for name in names], np.float64).T.astype(np.float32)
    if not np.isfinite(y).all():
        raise RequestError(400, "`queries` has values that are NaN or infinite", "not_finite")
    return y


def write_dataset(request: DatasetRequest, model: ServedModel, results: Mapping[str, np.ndarray], notes: Any) -> bytes:
    """Predictions as a data set in the form of `to_dict`, with the coordinates of the functions and of the queries."""
    y = request.inputs.get("y")
    coordinates = model.query_coordinates
    if y is not None:
        units = tuple({"units": each.unit} if each.unit else {} for each in coordinates)
        queries = QueryPoints(tuple(each.name for each in coordinates), y.astype(np.float64), units)
    else:
        queries = model.queries
    assert isinstance(queries, QueryGrid | QueryPoints)
    sample = request.sample or "sample"
    found = xarray.Dataset(coords={**request.labels.coords, **queries.coordinates()})
    for name in request.outputs:
        if name == "in_distribution":
            found[name] = (sample, results[name])
            continue
        for i, output in enumerate(model.operator.outputs):
            values = results[name][..., i].reshape(-1, *queries.shape)
            attributes = {"units": output.unit} if output.unit else {}
            found[output.name + name.removeprefix("s")] = ((sample, *queries.dims), values, attributes)
    if request.sample is None:
        found = found.isel({sample: 0}, drop=True)
    version = {"model": model.name, "model_version": str(model.version), "digest": model.header.digest}
    found = found.assign_attrs({**version, **notes, **({"notes": list(request.notes)} if request.notes else {})})
    return to_json(found.to_dict(data="list"), inf_nan_mode="null")


def description(model: ServedModel) -> dict[str, Any]:
    """A model in the words of its data: variables, locations of sensors and queries, domain and errors."""
    known, queries = model.operator.signature, model.queries
    fields = () if known is None else known.parts
    sensors = [
        {"coordinates": list(field.coordinate_names), "x": None if field.x is None else np.asarray(field.x).tolist()}
        for field in fields
    ]
    coordinates = {} if queries is None else queries.coordinates()
    return {
        "name": model.name,
        "version": str(model.version),
        "model": model.header.model,
        "digest": model.header.digest,
        "metrics": dict(model.header.metrics),
        "domain": model.header.described_domain,
        "inputs": [variable._asdict() for variable in model.operator.inputs],
        "outputs": [variable._asdict() for variable in model.operator.outputs],
        "sensors": sensors,
        "query_coordinates": [variable._asdict() for variable in model.query_coordinates],
        "queries": {
            name: {"dims": [dims], "data": values.tolist(), "attrs": attributes}
            for name, (dims, values, attributes) in coordinates.items()
        },
    }
