"""A model that is ready to serve: its tensors, its fixed queries, and programs that are compiled for few sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from starlette.exceptions import HTTPException

from loca.data import Shared, Variable
from loca.models import (
    Operator,
    Uncertain,
    at_queries,
    count_sensors,
    example_of,
    knows_sensors,
    named_arrays,
    predict,
    predict_error_bars,
)
from loca.saving import Header
from loca.serving.protocol import DATATYPES, Tensor
from loca.typing import Input
from loca.uncertainty import Calibrated

SIZES = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
"""Numbers of functions that predictions at fixed queries are compiled for. Batches are padded to the next one."""

FEW_SIZES = (SIZES[0], SIZES[-1])
"""Numbers of functions that everything else is compiled for."""

QUERY_SIZES = (128, 2048)
"""Numbers of free queries that programs are compiled for. More queries are answered in blocks of the last one."""

FEWEST_SENSORS = 64
"""Functions with sensors of their own are padded to this number, or to a larger power of two."""

BARS = ("s", "s_std", "s_lower", "s_upper")
"""The outputs of a model that knows its error, in the order of `loca.models.ErrorBars`."""


class Work(NamedTuple):
    """Input functions as the tensors of a model, free queries or None for the fixed ones, and the wanted outputs."""

    arrays: tuple[np.ndarray, ...]
    y: Float[np.ndarray, "P d_y"] | None
    wanted: frozenset[str]

    @property
    def functions(self) -> int:
        """N."""
        return len(self.arrays[0])

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for requests that can be answered together."""
        return self.wanted, None if self.y is None else self.y.tobytes(), *(a.shape[1:] for a in self.arrays)


class ServedModel:
    """An operator, its tensors and its compiled programs. It never changes; another version is another object.

    Without fixed queries y, every request must have some.
    """

    def __init__(self, name: str, version: int, operator: Operator, header: Header, y: np.ndarray | None, level: float):
        self.name, self.version, self.operator, self.header = name, version, operator, header
        if operator.signature is None:
            raise ValueError(f"{name}: the model does not know its domain and sensors; create it from data")
        if y is None and not operator.is_pointwise:
            raise ValueError(
                f"{name}: the model knows no query locations of its own, and it cannot take any from requests; give "
                "them with --at FILE"
            )
        self.signature = operator.signature
        example = example_of(self.signature, 0 if knows_sensors(self.signature) else count_sensors(operator))
        self._structure = jax.tree.structure(example)
        inputs, about = list(input_tensors(operator, example)), described(operator.outputs)
        self.input_names = tuple(tensor.name for tensor in inputs)
        if operator.is_pointwise:
            columns = [variable.name for variable in self.signature.query_coordinates]
            parameters = {"optional": y is not None, "columns": columns}
            inputs.append(Tensor("y", "FP32", (-1, self.signature.domain.dimension), parameters))
        self.fixed = None if y is None else Shared(jnp.asarray(y))
        if self.fixed is not None:
            arrays, rest = eqx.partition(at_queries(operator, self.fixed.y), eqx.is_array)
            self._leaves, tree = jax.tree.flatten(arrays)  # a list takes less time to pass than a pytree
            self._predict = jax.jit(lambda leaves, u: jax.vmap(eqx.combine(jax.tree.unflatten(tree, leaves), rest))(u))
        radius = operator.radius(level) if isinstance(operator, Uncertain) else None
        self._radius = None if radius is None or not np.isfinite(np.asarray(radius)).all() else radius
        shape = (-1, -1 if y is None or operator.is_pointwise else len(y), len(operator.outputs))
        outputs = [Tensor("s", "FP32", shape, about)]
        if self._radius is not None:
            outputs += [Tensor(bar, "FP32", shape, {**about, "level": level}) for bar in BARS[1:]]
        if isinstance(operator, Calibrated):
            outputs.append(Tensor("in_distribution", "FP32", (-1,)))
        self.inputs, self.outputs = ({tensor.name: tensor for tensor in each} for each in (inputs, outputs))

    def metadata(self, versions: Sequence[int]) -> dict[str, Any]:
        """The metadata of the protocol."""
        return {
            "name": self.name,
            "versions": [str(version) for version in versions],
            "platform": "loca_safetensors",
            "inputs": [tensor._asdict() for tensor in self.inputs.values()],
            "outputs": [tensor._asdict() for tensor in self.outputs.values()],
            "parameters": {
                "version": str(self.version),
                "model": self.header.model,
                "digest": self.header.digest,
                "domain": self.header.described_domain,
            },
        }

    def work(self, inputs: Mapping[str, np.ndarray], wanted: frozenset[str], max_values: int) -> Work:
        """The tensors of a request, checked against each other and padded to equal numbers of sensors."""
        found, y = dict(inputs), inputs.get("y")
        for name in self.input_names:
            if name.startswith("mask"):
                add_mask(found, *(f"{each}{name.removeprefix('mask')}" for each in ("u", "x", "mask")))
        needed = self.input_names if self.fixed is not None else (*self.input_names, "y")
        if missing := [name for name in needed if name not in found]:
            raise HTTPException(400, f"missing input {', '.join(missing)}; the model needs {', '.join(self.inputs)}")
        counts = {name: len(found[name]) for name in self.input_names}
        if len(set(counts.values())) > 1:
            raise HTTPException(400, f"inputs have different numbers of functions in their first axis: {counts}")
        work = Work(tuple(found[name] for name in self.input_names), y, wanted)
        queries = self.fixed.count if y is None and self.fixed is not None else len(found["y"])
        total = work.functions * queries * len(self.operator.outputs) * len(wanted)
        if total > max_values:
            raise HTTPException(413, f"the response would have {total} values, at most {max_values} are allowed")
        try:
            self.operator.normalization.check_input(self._joined(work.arrays), self.operator.inputs)
        except ValueError as error:  # such as the logarithm of a negative number
            raise HTTPException(400, str(error)) from None
        return work

    def _joined(self, arrays: Sequence[np.ndarray]) -> Any:
        """The input functions of the operator from their tensors."""
        return jax.tree.unflatten(self._structure, arrays)

    def run(self, work: Work) -> dict[str, np.ndarray]:
        """All wanted outputs, computed for at most as many functions at a time as programs are compiled for."""
        starts = range(0, work.functions, SIZES[-1])
        pieces = [self._run([array[i : i + SIZES[-1]] for array in work.arrays], work.y, work.wanted) for i in starts]
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in work.wanted}

    def _run(
        self, arrays: Sequence[np.ndarray], y: Float[np.ndarray, "P d_y"] | None, wanted: frozenset[str]
    ) -> dict[str, np.ndarray]:
        """The wanted outputs of some functions; predictions alone at fixed queries are the fast case."""
        found: dict[str, Any] = {}
        radius = self._radius if wanted.intersection(BARS[1:]) else None
        is_fast = y is None and radius is None
        u = self._joined([padded(array, SIZES if is_fast and wanted == {"s"} else FEW_SIZES) for array in arrays])
        if is_fast and "s" in wanted:
            found["s"] = self._predict(self._leaves, u)
        elif wanted.intersection(BARS):
            blocks = (
                list(map(Shared, in_blocks(y))) if y is not None else [self.fixed] if self.fixed is not None else []
            )
            if radius is not None and isinstance(self.operator, Uncertain):
                parts = [predict_error_bars(self.operator, u, block, radius) for block in blocks]
            else:
                parts = [(predict(self.operator, u, block),) for block in blocks]
            for bar, part in zip(BARS, zip(*parts, strict=True), strict=False):
                found[bar] = np.concatenate(part, axis=1)[:, : None if y is None else len(y)]
        if "in_distribution" in wanted and isinstance(self.operator, Calibrated):
            found["in_distribution"] = self.operator.in_distribution(u)
        return {name: np.asarray(values)[: len(arrays[0])] for name, values in found.items()}

    def compile(self) -> None:
        """Run every program once, so that no request waits for a compilation."""
        tensors = [self.inputs[name] for name in self.input_names]
        shapes = [tuple(FEWEST_SENSORS if n < 0 else n for n in tensor.shape[1:]) for tensor in tensors]
        d_y = self.signature.domain.dimension
        queries = [np.zeros((size, d_y), np.float32) for size in QUERY_SIZES * self.operator.is_pointwise]
        fixed = [(size, None) for size in SIZES if self.fixed is not None]
        for size, y in (*fixed, *itertools.product(FEW_SIZES, queries)):
            arrays = tuple(np.ones((size, *s), DATATYPES[t.datatype]) for s, t in zip(shapes, tensors, strict=True))
            for wanted in (["s"], self.outputs) if size in FEW_SIZES else (["s"],):
                self.run(Work(arrays, y, frozenset(wanted)))


def input_tensors(operator: Operator, example: Input) -> Iterator[Tensor]:
    """The tensors of input functions that are like an example."""
    variables, parts = iter(operator.inputs), () if operator.signature is None else operator.signature.fields
    for name, array, sizes in named_arrays(example):
        shape = (-1, *(-1 if isinstance(size, str) else size for size in sizes))
        if name.startswith("mask"):
            yield Tensor(name, "BOOL", shape, {"optional": True})
        elif name.startswith("x"):
            yield Tensor(name, "FP32", shape, {"columns": parts[int(name[1:] or 1) - 1].coordinate_names})
        else:
            yield Tensor(name, "FP32", shape, described(list(itertools.islice(variables, array.shape[-1]))))


def described(variables: Sequence[Variable]) -> dict[str, Any]:
    """Names and units of channels, in the parameters of a tensor."""
    return {"channels": [variable.name for variable in variables], "units": [variable.unit for variable in variables]}


def add_mask(found: dict[str, np.ndarray], u: str, x: str, mask: str) -> None:
    """Pad the tensors of a field whose functions have sensors of their own, with a mask, to one of some sizes."""
    if u not in found or x not in found:
        return
    found.setdefault(mask, np.ones(found[u].shape[:2], bool))
    shapes = {name: found[name].shape[:2] for name in (u, x, mask)}
    sensors = found[u].shape[1]
    if len(set(shapes.values())) > 1:
        raise HTTPException(400, f"{u}, {x} and {mask} must agree in their first axes, got {shapes}")
    if not found[mask].any(axis=1).all():
        raise HTTPException(400, f"{u} needs a sensor per function that its mask counts")
    more = max(FEWEST_SENSORS, 1 << (sensors - 1).bit_length()) - sensors
    for name in shapes:
        found[name] = np.pad(found[name], [(0, 0), (0, more), *[(0, 0)] * (found[name].ndim - 2)])


def padded(array: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """An array with the next of some numbers of rows; those that are added repeat the first one."""
    more = next(size for size in sizes if size >= len(array)) - len(array)
    return np.concatenate([array, np.broadcast_to(array[:1], (more, *array.shape[1:]))]) if more else array


def in_blocks(y: Float[np.ndarray, "P d_y"]) -> Iterator[jax.Array]:
    """Queries in blocks of the sizes that programs are compiled for; the last one is padded."""
    for start in range(0, len(y), QUERY_SIZES[-1]):
        yield jnp.asarray(padded(y[start : start + QUERY_SIZES[-1]], QUERY_SIZES))
