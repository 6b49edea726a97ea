"""An operator as a function of named arrays, which is what other programs call."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.api_util import debug_info
from jax.core import ShapedArray
from jax.export import SymbolicScope, symbolic_shape
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.extend.linear_util import wrap_init
from jax.interpreters.partial_eval import PartialVal, trace_to_jaxpr_nounits
from jaxtyping import Array, Float

from loca.data import Shared, as_input, as_numbers
from loca.domains import warn_outside
from loca.models import (
    FIELD_ARRAYS,
    LEVEL,
    ErrorBars,
    Operator,
    Signature,
    Uncertain,
    check_level,
    example_of,
    knows_sensors,
    named_arrays,
    predict,
    predict_error_bars,
)
from loca.saving import Strict
from loca.typing import Input, Measurements, MultiInput, Numbers, PyTree
from loca.uncertainty import Calibrated

Outputs = dict[str, Array]
"""The outputs of a program by name."""

CHUNK = 16
"""Functions that are encoded at a time, where their number is free: a chunk of scattering fits in the cache."""

PROBES, PROBE_QUERIES, PROBE_SENSORS = 3, 5, 40
"""Functions, queries, and sensors of functions with their own, on which a program is compared with its model."""


class Port(Strict):
    """An array that a program takes or returns; sizes that are free are letters: N functions, P queries, m sensors."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(map(str, self.shape))})"


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """(u, y) ↦ predictions in the units of the data, for arrays with a free number of functions and queries.

    With fixed queries the program takes u alone, and everything that depends on y alone is a constant of it.
    """

    operator: Operator
    example: Input  # one input function in the form that the operator takes
    y: Float[Array, "P d_y"] | None  # fixed queries; None if the program takes them
    level: float | None  # of bands; None for an operator that does not know its error

    @classmethod
    def of(
        cls,
        operator: Operator,
        y: Numbers | None = None,
        level: float = LEVEL,
        u: Numbers | Measurements | MultiInput | None = None,
    ) -> "Program":
        """The program of an operator; see `export` for the arguments."""
        signature = operator.signature
        if signature is None:
            raise ValueError("this model does not know its domain and sensors; create it from data, and train it again")
        if u is None and not knows_sensors(signature):
            raise ValueError(
                "this model does not know its sensors, because its training data had no `x`; pass an input function as "
                "`u`: loca.export(operator, path, u=data.u[0])"
            )
        example = example_of(signature) if u is None else as_input(u, many=False)
        if y is not None:
            y = as_numbers(y, "y", "(P, d_y)", "(P,)")
            warn_outside(signature.domain, y, signature.query_coordinate_names)
        if not isinstance(operator, Uncertain):
            return cls(operator, example, y, None)
        if not np.isfinite(operator.radius(check_level(level))).all():
            raise ValueError(
                f"bands of level {level} are infinite: too few functions were held out for the calibration of this "
                "model; choose a lower level, or calibrate with more functions"
            )
        return cls(operator, example, y, level)

    @property
    def inputs(self) -> list[Port]:
        """The arrays that the program takes, in their order."""
        arrays = named_arrays(self.example)
        ports = [Port(name=name, shape=("N", *shape), dtype=str(array.dtype)) for name, array, shape in arrays]
        if self.y is None:
            ports.append(Port(name="y", shape=("P", self.signature.domain.dimension), dtype=ports[0].dtype))
        return ports

    @property
    def signature(self) -> Signature:
        """That of the operator."""
        assert self.operator.signature is not None
        return self.operator.signature

    @property
    def outputs(self) -> list[Port]:
        """The arrays that the program returns."""
        count = "P" if self.y is None else len(self.y)
        shape, dtype = ("N", count, len(self.operator.outputs)), self.inputs[0].dtype
        names = ErrorBars._fields[: 1 if self.level is None else None]
        ports = [Port(name=name, shape=shape, dtype=dtype) for name in names]
        if isinstance(self.operator, Calibrated):
            ports.append(Port(name="in_distribution", shape=("N",), dtype=dtype))
        return ports

    def specifications(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Shapes and dtypes of the inputs for tracing."""
        scope = SymbolicScope()  # in which N is the same for all inputs
        shapes = [symbolic_shape(",".join(map(str, port.shape)), scope=scope) for port in self.inputs]
        return tuple(jax.ShapeDtypeStruct(shape, port.dtype) for shape, port in zip(shapes, self.inputs, strict=True))

    def function(self, *, in_chunks: bool) -> Callable[..., Outputs]:
        """The program as a function of its inputs, in their order; in chunks it is faster, but has no derivative."""
        if self.y is None:
            return lambda *arrays: self._evaluate(
                arrays[:-1], in_chunks, lambda codes: self._respond(codes, arrays[-1])
            )
        y, code = self.y, jax.eval_shape(self.operator.encode, self.example)
        # one function at a time: sizes that are free cannot be evaluated
        each = partially_evaluated(lambda code: jax.tree.map(lambda s: s[0], self._respond(code[None], y)), code)
        return lambda *arrays: self._evaluate(arrays, in_chunks, jax.vmap(each))

    def _evaluate(self, arrays: Sequence[Array], in_chunks: bool, respond: Callable[[Array], Outputs]) -> Outputs:
        u = self.joined(arrays)
        found = respond((chunked if in_chunks else jax.vmap)(self.operator.encode)(u))
        if isinstance(self.operator, Calibrated):
            found["in_distribution"] = jax.vmap(self.operator.familiarity.p_value)(u)
        return found

    def _respond(self, codes: Array, y: Array) -> Outputs:
        if self.level is None:
            queries = Shared(y)
            return {"mean": self.operator.normalization.at(queries).restore(self.operator.respond(codes, queries))}
        assert isinstance(self.operator, Uncertain)
        return self.operator.error_bars(codes, Shared(y), self.operator.radius(self.level))._asdict()

    def joined(self, arrays: Sequence[Array]) -> Input:
        """Input functions as the operator takes them, from arrays as the program does."""
        return jax.tree.unflatten(jax.tree.structure(self.example), arrays)

    def predictions(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the package itself predicts for inputs by name, as the program should."""
        operator, queries = self.operator, Shared(jnp.asarray(inputs["y"]) if self.y is None else self.y)
        u = self.joined([jnp.asarray(inputs[port.name]) for port in self.inputs if port.name != "y"])
        if self.level is None:
            found = {"mean": predict(operator, u, queries)}
        else:
            assert isinstance(operator, Uncertain)
            found = predict_error_bars(operator, u, queries, operator.radius(self.level))._asdict()
        if isinstance(operator, Calibrated):
            found["in_distribution"] = operator.in_distribution(u)
        return {name: np.asarray(values) for name, values in found.items()}

    def probe(self) -> dict[str, np.ndarray]:
        """Inputs to compare the program with the package: normal random numbers, scaled as the training data."""
        rng, sizes = np.random.default_rng(0), {"N": PROBES, "P": PROBE_QUERIES}
        found = {}
        for port in self.inputs:
            shape = tuple(sizes.get(n, PROBE_SENSORS) if isinstance(n, str) else n for n in port.shape)
            if port.name[0] in "xy":  # locations
                t, domain = rng.uniform(size=shape).astype(port.dtype), self.signature.domain
                found[port.name] = np.asarray(domain.from_unit(jnp.asarray(t))) if domain.dimension == shape[-1] else t
            elif port.dtype == "bool":
                found[port.name] = np.arange(shape[1]) < shape[1] - np.arange(PROBES)[:, None]  # some do not count
            else:
                found[port.name] = rng.normal(size=shape).astype(port.dtype)
        u = self.joined([jnp.asarray(found[port.name]) for port in self.inputs if port.name != "y"])
        restored = self.operator.normalization.restore_input(u)
        return found | {name: np.asarray(array) for name, array, _ in named_arrays(restored)}


def example_in(probe: Mapping[str, np.ndarray]) -> Input:
    """The first of the input functions of a probe."""

    def field(number: str) -> Array | Measurements:
        arrays = {name: jnp.asarray(probe[name + number][0]) for name in FIELD_ARRAYS if name + number in probe}
        return Measurements(**arrays) if "mask" in arrays else arrays["u"]

    if "u" in probe:
        return field("")
    numbers = itertools.takewhile(lambda i: f"u{i}" in probe, itertools.count(1))
    scalars = jnp.asarray(probe["scalars"][0]) if "scalars" in probe else None
    return MultiInput(tuple(field(str(i)) for i in numbers), scalars)


def chunked(encode: Callable[[Input], Array]) -> Callable[[Input], Array]:
    """`jax.vmap(encode)` for a free number of functions, `CHUNK` at a time, and those that are left together.

    A scan cannot have a length that may be zero, so this is a loop, which has no derivative in reverse mode.
    """
    many = jax.vmap(encode)

    def in_chunks(u: Input) -> Array:
        count = jax.tree.leaves(u)[0].shape[0]
        whole = count // CHUNK * CHUNK
        rest = many(jax.tree.map(lambda array: array[whole:], u))
        # a slice must not be longer than what it is taken from
        padded = jax.tree.map(lambda array: jnp.pad(array, [(0, CHUNK)] + [(0, 0)] * (array.ndim - 1)), u)

        def add(i: Array, codes: Array) -> Array:
            part = jax.tree.map(lambda array: jax.lax.dynamic_slice_in_dim(array, i * CHUNK, CHUNK), padded)
            return jax.lax.dynamic_update_slice_in_dim(codes, many(part), i * CHUNK, axis=0)

        start = jnp.zeros((count + CHUNK, *rest.shape[1:]), rest.dtype)
        codes = jax.lax.fori_loop(0, jnp.asarray(count // CHUNK), add, start)
        return jnp.concatenate([codes[:whole], rest])

    return in_chunks


def partially_evaluated(
    function: Callable[[Array], PyTree], argument: jax.ShapeDtypeStruct
) -> Callable[[Array], PyTree]:
    """The function with everything evaluated that does not depend on its argument.

    JAX stages all of a traced function, also what depends on constants alone. Only its partial evaluation, which
    reverse-mode derivatives are made of, tells the two apart.
    """
    # `jax.interpreters.partial_eval` is public but not documented. If JAX renames these functions, importing this file
    # fails; if they change, `test_fixed_queries_leave_no_work_on_them` does.
    structure = jax.tree.structure(jax.eval_shape(function, argument))

    def flat(array: Array) -> list[Array]:
        return jax.tree.leaves(function(array))

    wrapped = wrap_init(flat, debug_info=debug_info("export", flat, (argument,), {}))
    unknown = PartialVal.unknown(ShapedArray(argument.shape, argument.dtype))
    jaxpr, _, constants = trace_to_jaxpr_nounits(wrapped, [unknown], instantiate=True)
    rest = jaxpr_as_fun(ClosedJaxpr(jaxpr, constants))

    def evaluate(array: Array) -> PyTree:
        with jax.enable_x64(True):  # as traced, also where that is in double precision
            return jax.tree.unflatten(structure, rest(array))

    return evaluate
