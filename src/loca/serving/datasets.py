"""Predictions for xarray data sets as JSON, in the form of `xarray.Dataset.to_dict`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, NotRequired

import jax
import numpy as np
import xarray
from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from loca.data import Labeled
from loca.models import Adaptation, canonical_name
from loca.prediction import QueryPoints
from loca.serving.model import ServedModel
from loca.serving.protocol import NUMBERS, RequestError, Text, as_array, to_json


class ArrayDocument(TypedDict):
    """A variable in the form of `to_dict`."""

    dims: Annotated[list[Text], Field(max_length=8)]
    data: Any
    attrs: NotRequired[dict[Text, str | float | int | bool | list[float | str] | None]]


class DatasetDocument(TypedDict):
    """A data set in the form of `to_dict`, and the queries of a prediction by the names of coordinates."""

    data_vars: Annotated[dict[Text, ArrayDocument], Field(max_length=100)]
    coords: NotRequired[Annotated[dict[Text, ArrayDocument], Field(max_length=100)]]
    queries: NotRequired[dict[Text, list[float]] | None]
    outputs: NotRequired[list[Text] | None]


DATASET = TypeAdapter(DatasetDocument).validate_python


def as_dataset(given: DatasetDocument) -> xarray.Dataset:
    """The data set; values must be numbers, coordinates may also be text."""
    parts: list[dict[str, Any]] = [{}, {}]
    groups = (given["data_vars"], NUMBERS), (given.get("coords", {}), NUMBERS | {bool, str})
    for part, (group, types) in zip(parts, groups, strict=True):
        for name, each in group.items():
            values, dims = as_array(each["data"], types), each["dims"]
            if values.ndim != len(dims):
                raise ValueError(f"{name!r} must have lists that are nested as deep as its dims {dims}")
            part[name] = dims, values, each.get("attrs")
    return xarray.Dataset(*parts)


class DatasetRequest(NamedTuple):
    """A data set as a request: tensors, the labels of the functions along `sample`, and what was done to the data."""

    inputs: dict[str, np.ndarray]
    outputs: tuple[str, ...]
    queries: QueryPoints | None
    labels: xarray.Dataset
    sample: str | None
    notes: list[str]


def parse_dataset(given: DatasetDocument, model: ServedModel) -> DatasetRequest:
    """The tensors of a data set, in the order of the sensors and channels of the model."""
    try:
        dataset, names = as_dataset(given), [variable.name for variable in model.operator.inputs]
        sample = sample_dimension(dataset, names, model)
        records = Labeled(
            dataset.expand_dims("sample") if sample is None else dataset, names, (), sample or "sample", source="data"
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            adaptation = Adaptation.of(model.operator, records)
            u = adaptation.apply(records).load().u
        labels = records.label(np.zeros((len(records), 0, 0), np.float32))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise RequestError(400, f"not a data set for this model: {error}"[:1000]) from None
    inputs = dict(zip(model.input_names, map(np.asarray, jax.tree.leaves(u)), strict=True))
    queries = parse_queries(listed, model) if (listed := given.get("queries")) is not None else None
    if queries is not None:
        inputs["y"] = queries.y.astype(np.float32)
    if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in inputs.values()):
        raise RequestError(400, "the inputs have values that are NaN or infinite", "not_finite")
    outputs = tuple(dict.fromkeys(given.get("outputs") or model.outputs))
    if unknown := [name for name in outputs if name not in model.outputs]:
        raise RequestError(400, f"unknown output {unknown[0]!r}; expected {', '.join(model.outputs)}")
    notes = [*adaptation.notes, *(str(warning.message) for warning in caught)]
    return DatasetRequest(inputs, outputs, queries, labels, sample, notes)


def sample_dimension(dataset: xarray.Dataset, names: list[str], model: ServedModel) -> str | None:
    """The dimension that counts the functions; None if there is a single function without one."""
    dims = dict.fromkeys(str(dim) for name in names if name in dataset for dim in dataset[name].dims)
    sensors = {canonical_name(name) for part in model.signature.parts for name in part.coordinate_names}
    others = [dim for dim in dims if canonical_name(dim) not in sensors]
    if not sensors:
        others = [dim for dim in dims if dim == "sample"] or others[:1]
    if len(others) > 1:
        raise ValueError(
            f"any of {', '.join(others)} could count the functions; keep the dimensions of the model and one"
        )
    return others[0] if others else None


def parse_queries(given: Mapping[str, list[float]], model: ServedModel) -> QueryPoints:
    """Locations from one list for each coordinate."""
    coordinates = model.signature.query_coordinates
    names = [variable.name for variable in coordinates]
    if "y" not in model.inputs:
        raise RequestError(400, "this model predicts at its fixed queries only; leave `queries` out")
    if set(given) != set(names) or len({len(values) for values in given.values()}) != 1 or not given[names[0]]:
        raise RequestError(400, f"`queries` needs equally long lists of {', '.join(names)}, not empty")
    units = tuple({"units": each.unit} if each.unit else {} for each in coordinates)
    return QueryPoints(tuple(names), np.array([given[name] for name in names], np.float64).T, units)


def write_dataset(request: DatasetRequest, model: ServedModel, results: Mapping[str, np.ndarray], notes: Any) -> bytes:
    """Predictions as a data set in the form of `to_dict`, with the coordinates of the functions and of the queries."""
    queries, sample = request.queries or model.queries, request.sample or "sample"
    assert queries is not None
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
    about = {"model": model.name, "model_version": str(model.version), "digest": model.header.digest, **notes}
    return to_json(found.assign_attrs({**about, "notes": request.notes}).to_dict(data="array"))


def description(model: ServedModel) -> dict[str, Any]:
    """A model in the words of its data: variables, locations of sensors and queries, domain and errors."""
    operator, signature, queries = model.operator, model.signature, model.queries
    return {
        "name": model.name,
        "version": str(model.version),
        "model": model.header.model,
        "digest": model.header.digest,
        "metrics": dict(model.header.metrics),
        "domain": model.header.described_domain,
        "inputs": [variable._asdict() for variable in operator.inputs],
        "outputs": [variable._asdict() for variable in operator.outputs],
        "sensors": [
            {"coordinates": part.coordinate_names, "x": None if part.x is None else np.asarray(part.x)}
            for part in signature.parts
        ],
        "query_coordinates": [variable._asdict() for variable in signature.query_coordinates],
        "queries": {
            name: {"dims": [dims], "data": values, "attrs": attributes}
            for name, (dims, values, attributes) in ({} if queries is None else queries.coordinates()).items()
        },
    }
