"""A model that is ready to serve: its tensors, its fixed queries, and programs that are compiled for few sizes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from loca.data import Shared, Variable
from loca.domains import Domain
from loca.models import Operator, Uncertain, at_queries, predict, predict_error_bars
from loca.prediction import QueryGrid, QueryPoints
from loca.saving import Header
from loca.serving.protocol import Limits, Plans, RequestError, Tensor
from loca.serving.tensors import input_tensors, named
from loca.typing import Input, Measurements, MultiInput, PyTree
from loca.uncertainty import Calibrated

SIZES = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
"""Numbers of functions that predictions at fixed queries are compiled for. Batches are padded to the next one."""

FEW_SIZES = (SIZES[0], SIZES[-1])
"""Numbers of functions that everything else is compiled for."""

QUERY_SIZES = (128, 2048)
"""Numbers of free queries that programs are compiled for. More queries are answered in blocks of the last one."""

SENSOR_SIZES = (64, 256, 1024, 4096, 16384)
"""Numbers of sensors that functions with sensors of their own are padded to."""

TOLERANCE = 1e-4
"""How far outside the domain a query may lie before the response reports it, in units of the domain's extent."""

BARS = ("s", "s_std", "s_lower", "s_upper")
"""The outputs of a model that knows its error, in the order of `loca.models.ErrorBars`."""


class Work(NamedTuple):
    """The checked content of a request.

    **Arguments:**

    - `arrays`: the tensors of the input functions, in the order of `ServedModel.input_names`.
    - `y`: free queries; None for the fixed ones.
    - `wanted`: names of outputs.
    - `notes`: what the response reports besides.
    """

    arrays: tuple[np.ndarray, ...]
    y: Float[np.ndarray, "P d_y"] | None
    wanted: frozenset[str]
    notes: dict[str, Any]

    @property
    def functions(self) -> int:
        """N."""
        return len(self.arrays[0])

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for requests that can be answered together."""
        return self.wanted, None if self.y is None else self.y.tobytes(), *(a.shape[1:] for a in self.arrays)


class Structure:
    """A pytree without its arrays. Structures of models that differ in their arrays alone are equal.

    A call of a compiled function with a list of arrays and a structure takes 0.4 ms less than one with the pytree, and
    another version of a model needs no compilation.
    """

    def __init__(self, tree: PyTree):
        arrays, others = eqx.partition(tree, eqx.is_array)
        self.arrays, (self.others, self.rest) = jax.tree.structure(arrays), jax.tree.flatten(others)

    def __hash__(self) -> int:
        return hash(self.arrays)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Structure):
            return self is other
        return (self.arrays, self.rest, self.others) == (other.arrays, other.rest, other.others)

    def rebuild(self, leaves: Sequence[Array]) -> PyTree:
        """The tree with other arrays."""
        return eqx.combine(jax.tree.unflatten(self.arrays, leaves), jax.tree.unflatten(self.rest, self.others))


@functools.partial(jax.jit, static_argnums=0)
def predict_at(structure: Structure, leaves: list[Array], u: Input) -> Float[Array, "N P d_s"]:
    """Predictions of an operator at fixed queries."""
    return jax.vmap(structure.rebuild(leaves))(u)


class ServedModel:
    """An operator, its tensors and its compiled programs. It never changes; another version is another object.

    **Arguments:**

    - `name`, `version`: what clients call it.
    - `operator`, `header`: the model and the header of its file.
    - `queries`: fixed queries, of requests that have none; None if every request must have some.
    - `level`: of bands.
    """

    def __init__(
        self,
        name: str,
        version: int,
        operator: Operator,
        header: Header,
        queries: QueryGrid | QueryPoints | None,
        level: float,
    ):
        self.name, self.version, self.operator, self.header = name, version, operator, header
        self.queries, self.level = queries, level
        self.domain = operator.domain or header.domain
        self.is_calibrated = isinstance(operator, Calibrated)
        # attributes of modules are slow to look up
        self.channels, self.has_transforms = len(operator.outputs), bool(operator.normalization.u_transforms)
        self.has_many_fields = operator.signature is not None and bool(operator.signature.fields)
        self.fields, self.scalars, inputs = input_tensors(operator)
        self.input_names = tuple(tensor.name for tensor in inputs)
        self.has_own_sensors = any(field.mask is not None for field in self.fields)
        self.is_free = operator.is_pointwise and self.domain is not None
        if queries is None and not self.is_free:
            raise ValueError(
                f"{name}: the model knows no query locations of its own, and it cannot take any from requests; give "
                "them with --at FILE"
            )
        radius = operator.radius(level) if isinstance(operator, Uncertain) else None
        self.radius = None if radius is None or not np.isfinite(np.asarray(radius)).all() else radius
        self.num_fixed = 0 if queries is None else queries.count
        if queries is not None:
            self.fixed = Shared(jnp.asarray(queries.points(tuple(slice(0, n) for n in queries.shape))))
            at = at_queries(operator, self.fixed.y)
            self._structure, self._leaves = Structure(at), jax.tree.leaves(eqx.filter(at, eqx.is_array))
        self.inputs = {tensor.name: tensor for tensor in (*inputs, *self._query_tensor())}
        self.outputs = {tensor.name: tensor for tensor in self._output_tensors()}
        self.plans = Plans(self.inputs, tuple(self.outputs))

    def _query_tensor(self) -> tuple[Tensor, ...]:
        if not self.is_free or self.domain is None:
            return ()
        names = [variable.name for variable in self.query_coordinates]
        return (
            Tensor("y", "FP32", (-1, self.domain.dimension), {"optional": self.queries is not None, "columns": names}),
        )

    def _output_tensors(self) -> list[Tensor]:
        P = -1 if self.is_free or self.queries is None else self.queries.count
        shape, names = (-1, P, len(self.operator.outputs)), named(self.operator.outputs)
        found = [Tensor("s", "FP32", shape, names)]
        if self.radius is not None:
            found += [Tensor(bar, "FP32", shape, {**names, "level": self.level}) for bar in BARS[1:]]
        return [*found, Tensor("in_distribution", "FP32", (-1,))] if self.is_calibrated else found

    @property
    def query_coordinates(self) -> tuple[Variable, ...]:
        """Names and units of the columns of y."""
        if self.operator.signature is not None:
            return self.operator.signature.query_coordinates
        domain = self.domain
        return () if domain is None else tuple(map(Variable, domain.coordinate_names, domain.coordinate_units))

    def metadata(self, versions: Sequence[int]) -> dict[str, Any]:
        """The metadata of the protocol."""
        return {
            "name": self.name,
            "versions": [str(version) for version in versions],
            "platform": "loca_safetensors",
            "inputs": [tensor.to_json() for tensor in self.inputs.values()],
            "outputs": [tensor.to_json() for tensor in self.outputs.values()],
            "parameters": {"model": self.header.model, "digest": self.header.digest, "version": str(self.version)},
        }

    def work(self, inputs: Mapping[str, np.ndarray], wanted: frozenset[str], limits: Limits) -> Work:
        """The tensors of a request, checked against each other and padded to equal numbers of sensors."""
        found = self._with_masks(inputs) if self.has_own_sensors else inputs
        try:
            arrays = tuple([found[name] for name in self.input_names])
        except KeyError:
            missing = ", ".join(name for name in self.input_names if name not in found)
            raise RequestError(400, f"missing input {missing}; the model needs {', '.join(self.inputs)}") from None
        if len({len(array) for array in arrays}) > 1:
            counts = {name: len(found[name]) for name in self.input_names}
            raise RequestError(400, f"inputs have different numbers of functions in their first axis: {counts}")
        y, notes = self._queries(inputs.get("y"), limits)
        P = self.num_fixed if y is None else len(y)
        total = len(arrays[0]) * P * self.channels * len(wanted)
        if total > limits.values:
            raise RequestError(
                413, f"the response would have {total} values, at most {limits.values} are allowed", "values"
            )
        if self.has_transforms:
            self._check_transforms(found)
        return Work(arrays, y, wanted, notes)

    def _with_masks(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The tensors of the input functions; fields with sensors of their own get masks and are padded."""
        found = dict(inputs)
        for values, locations, mask in self.fields:
            if locations is None or mask is None or values not in found or locations not in found:
                continue
            found.setdefault(mask, np.ones(found[values].shape[:2], bool))
            shapes = {name: found[name].shape[:2] for name in (values, locations, mask)}
            if len(set(shapes.values())) > 1:
                raise RequestError(
                    400, f"{values}, {locations} and {mask} must agree in their first axes, got {shapes}"
                )
            sensors = found[values].shape[1]
            if sensors > SENSOR_SIZES[-1] or not found[mask].any(axis=1).all():
                raise RequestError(
                    400, f"{values} needs 1 to {SENSOR_SIZES[-1]} sensors per function that its mask counts"
                )
            more = next(size for size in SENSOR_SIZES if size >= sensors) - sensors
            for name in shapes:
                found[name] = np.pad(found[name], [(0, 0), (0, more), *[(0, 0)] * (found[name].ndim - 2)])
        return found

    def _queries(
        self, y: Float[np.ndarray, "P d_y"] | None, limits: Limits
    ) -> tuple[Float[np.ndarray, "P d_y"] | None, dict[str, Any]]:
        if y is None:
            if self.queries is None:
                raise RequestError(400, "missing input y: the model has no fixed queries")
            return None, {}
        if len(y) > limits.queries:
            raise RequestError(413, f"{len(y)} queries, at most {limits.queries} are allowed", "queries")
        count = 0 if self.domain is None else num_outside(self.domain, y)
        return y, {"queries_outside_the_domain": count} if count else {}

    def _check_transforms(self, found: Mapping[str, np.ndarray]) -> None:
        """Refuse values that cannot be transformed, such as the logarithm of a negative number."""
        fields = tuple(
            found[each.values] if each.mask is None else np.where(found[each.mask][..., None], found[each.values], 1.0)
            for each in self.fields
        )
        u: Any = fields[0]
        if self.has_many_fields:
            scalars: Any = None if self.scalars is None else found[self.scalars]
            u = MultiInput(fields, scalars)  # pyright: ignore[reportArgumentType]
        try:
            self.operator.normalization.check_input(u, self.operator.inputs)
        except ValueError as error:
            raise RequestError(400, str(error)) from None

    def input_of(self, arrays: Sequence[np.ndarray], sizes: Sequence[int]) -> Input:
        """The input functions of the operator from their tensors, padded to one of some numbers of functions."""
        found = {name: padded(array, sizes) for name, array in zip(self.input_names, arrays, strict=True)}
        fields = tuple(
            found[each.values]
            if each.locations is None or each.mask is None
            else Measurements(found[each.values], found[each.locations], found[each.mask])  # pyright: ignore[reportArgumentType]
            for each in self.fields
        )
        if not self.has_many_fields:
            return fields[0]  # pyright: ignore[reportReturnType]
        return MultiInput(fields, None if self.scalars is None else found[self.scalars])  # pyright: ignore[reportArgumentType]

    def run(self, work: Work) -> dict[str, np.ndarray]:
        """All wanted outputs."""
        if work.functions <= SIZES[-1]:
            return self._run_some(work)
        pieces = [self._run_some(piece) for piece in in_pieces(work)]
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}

    def _run_some(self, work: Work) -> dict[str, np.ndarray]:
        """The outputs of at most as many functions as programs are compiled for."""
        has_bars = bool(work.wanted.intersection(BARS[1:]))
        is_fast = work.y is None and not has_bars
        u = self.input_of(work.arrays, SIZES if is_fast else FEW_SIZES)
        found: dict[str, np.ndarray] = {}
        if is_fast and "s" in work.wanted:
            found["s"] = np.asarray(predict_at(self._structure, self._leaves, u))
        elif work.wanted.intersection(BARS):
            blocks = [self.fixed] if work.y is None else [Shared(y) for y in in_blocks(work.y)]
            parts = zip(*(self._predict(u, block, has_bars) for block in blocks), strict=True)
            count = self.fixed.count if work.y is None else len(work.y)
            found = {bar: np.concatenate(each, axis=1)[:, :count] for bar, each in zip(BARS, parts, strict=False)}
        if "in_distribution" in work.wanted and isinstance(self.operator, Calibrated):
            inputs = self.input_of(work.arrays, FEW_SIZES) if is_fast else u
            found["in_distribution"] = np.asarray(self.operator.in_distribution(inputs))
        return {name: found[name][: work.functions] for name in work.wanted}

    def _predict(self, u: Input, queries: Shared, has_bars: bool) -> tuple[Float[Array, "N P d_s"], ...]:
        """Predictions with or without error bars, without any work done in advance."""
        if has_bars and self.radius is not None and isinstance(self.operator, Uncertain):
            return predict_error_bars(self.operator, u, queries, self.radius)
        return (predict(self.operator, u, queries),)

    def compile(self) -> None:
        """Run every program once, so that no request waits for a compilation."""
        shapes = [tuple(64 if n < 0 else n for n in self.inputs[name].shape[1:]) for name in self.input_names]
        wanted = [("s",), *([BARS] if self.radius is not None else []), *([("in_distribution",)] * self.is_calibrated)]
        free = [np.zeros((size, self.inputs["y"].shape[1]), np.float32) for size in QUERY_SIZES * self.is_free]
        fixed = [(size, None) for size in SIZES if self.queries is not None]
        for size, y in (*fixed, *itertools.product(FEW_SIZES, free)):
            arrays = tuple(
                np.ones((size, *shape), np.float32 if self.inputs[name].datatype == "FP32" else bool)
                for name, shape in zip(self.input_names, shapes, strict=True)
            )
            for names in wanted if size in FEW_SIZES else wanted[:1]:
                self.run(Work(arrays, y, frozenset(names), {}))


def num_outside(domain: Domain, y: Float[np.ndarray, "P d_y"]) -> int:
    """The number of queries outside the domain."""
    inside: Bool[np.ndarray, " P"] = np.asarray(domain.contains(y.astype(np.float64), TOLERANCE))
    return int((~inside).sum())


def padded(array: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """An array with the next of some numbers of rows; those that are added repeat the first one."""
    more = next(size for size in sizes if size >= len(array)) - len(array)
    return np.concatenate([array, np.broadcast_to(array[:1], (more, *array.shape[1:]))]) if more else array


def in_pieces(work: Work) -> list[Work]:
    """Work in pieces of at most as many functions as programs are compiled for."""
    starts = range(0, work.functions, SIZES[-1])
    return [work._replace(arrays=tuple(array[i : i + SIZES[-1]] for array in work.arrays)) for i in starts]


def in_blocks(y: Float[np.ndarray, "P d_y"]) -> list[Array]:
    """Queries in blocks of the sizes that programs are compiled for; the last one is padded."""
    size = QUERY_SIZES[-1]
    return [jnp.asarray(padded(y[start : start + size], QUERY_SIZES)) for start in range(0, len(y), size)]
