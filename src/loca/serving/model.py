"""The models that a server has: found in files and directories, compiled for few sizes, replaced when files change."""

import functools
import itertools
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from starlette.exceptions import HTTPException

from loca.data import Shared, Variable
from loca.models import (
    LEVEL,
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
from loca.prediction import read_points
from loca.saving import MODEL_FILE, Classes, Header, inspect, load
from loca.serving.protocol import Tensor, plan_request
from loca.typing import has_own_sensors
from loca.uncertainty import Calibrated

LOG = logging.getLogger("uvicorn.loca")
"""A logger whose messages uvicorn writes as its own."""

SIZES = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
"""Numbers of functions that predictions at fixed queries are compiled for. Batches are padded to the next one."""

FEW_SIZES = (SIZES[0], SIZES[-1])
"""Numbers of functions that everything else is compiled for."""

QUERY_SIZES = (128, 2048)
"""Numbers of free queries that programs are compiled for. More queries are answered in blocks of the last one."""

BARS = ("s", "s_std", "s_lower", "s_upper")
"""The outputs of a model that knows its error, in the order of `loca.models.ErrorBars`."""


class Work(NamedTuple):
    """Input functions as the tensors of a model, free queries or None for the fixed ones, and the wanted outputs."""

    arrays: tuple[np.ndarray, ...]
    y: Float[np.ndarray, "P d_y"] | None
    wanted: frozenset[str]


class ServedModel:
    """An operator, its tensors and its compiled programs. It never changes; another version is another object.

    Queries are fixed by a file, or those that its training data shared; without them, every request must have some.
    """

    def __init__(self, name: str, version: int, operator: Operator, header: Header, at: Path | None, level: float):
        self.name, self.version, self.operator, self.header = name, version, operator, header
        if operator.signature is None:
            raise ValueError(f"{name}: the model does not know its domain and sensors; create it from data")
        self.signature = operator.signature
        y = self.signature.y
        if at is not None:
            points = read_points(at, self.signature.query_coordinates)
            y = points.points(tuple(slice(0, size) for size in points.shape))
        if y is None and not operator.is_pointwise:
            raise ValueError(
                f"{name}: the model knows no query locations of its own, and it cannot take any from requests; give "
                "them with --at FILE"
            )
        example = example_of(self.signature, 0 if knows_sensors(self.signature) else count_sensors(operator))
        if has_own_sensors(example):
            raise ValueError(f"{name}: every function has sensors of its own, which no server takes; use `loca export`")
        self._structure = jax.tree.structure(example)
        variables, about = iter(operator.inputs), described(operator.outputs)
        inputs = [
            Tensor(each, [-1, *map(int, sizes)], described(list(itertools.islice(variables, array.shape[-1]))))
            for each, array, sizes in named_arrays(example)
        ]
        self.input_names = tuple(tensor.name for tensor in inputs)
        if operator.is_pointwise:
            columns = [variable.name for variable in self.signature.query_coordinates]
            parameters = {"optional": y is not None, "columns": columns}
            inputs.append(Tensor("y", [-1, self.signature.domain.dimension], parameters))
        self.fixed = [] if y is None else [Shared(jnp.asarray(y))]
        if self.fixed:
            arrays, rest = eqx.partition(at_queries(operator, self.fixed[0].y), eqx.is_array)
            self._leaves, tree = jax.tree.flatten(arrays)  # a list takes less time to pass than a pytree
            self._predict = jax.jit(lambda leaves, u: jax.vmap(eqx.combine(jax.tree.unflatten(tree, leaves), rest))(u))
        radius = operator.radius(level) if isinstance(operator, Uncertain) else None
        self._radius = None if radius is None or not np.isfinite(np.asarray(radius)).all() else radius
        shape = [-1, -1 if y is None or operator.is_pointwise else len(y), len(operator.outputs)]
        outputs = [Tensor("s", shape, about)]
        if self._radius is not None:
            outputs += [Tensor(bar, shape, {**about, "level": level}) for bar in BARS[1:]]
        if isinstance(operator, Calibrated):
            outputs.append(Tensor("in_distribution", [-1]))
        self.inputs, self.outputs = ({tensor.name: tensor for tensor in each} for each in (inputs, outputs))
        self.plan = functools.lru_cache(256)(functools.partial(plan_request, self.inputs, self.outputs))
        # read once, as attributes of modules take time
        self._channels, self._fixed_queries = len(operator.outputs), self.fixed[0].count if self.fixed else 0
        self._has_domain = bool(operator.normalization.u_transforms)  # inputs may be outside of that of a transform

    def metadata(self, versions: Sequence[int]) -> dict[str, Any]:
        """The metadata of the protocol."""
        return {
            "name": self.name,
            "versions": [str(version) for version in versions],
            "platform": "loca_safetensors",
            "inputs": [{**tensor._asdict(), "datatype": "FP32"} for tensor in self.inputs.values()],
            "outputs": [{**tensor._asdict(), "datatype": "FP32"} for tensor in self.outputs.values()],
            "parameters": {
                "version": str(self.version),
                "model": self.header.model,
                "digest": self.header.digest,
                "domain": self.header.described_domain,
            },
        }

    def work(self, inputs: Mapping[str, np.ndarray], wanted: frozenset[str], max_values: int) -> Work:
        """The tensors of a request, checked against each other."""
        y = inputs.get("y")
        needed = self.input_names if self.fixed else (*self.input_names, "y")
        if missing := [name for name in needed if name not in inputs]:
            raise HTTPException(400, f"missing input {', '.join(missing)}; the model needs {', '.join(self.inputs)}")
        work = Work(tuple(inputs[name] for name in self.input_names), y, wanted)
        if len(set(map(len, work.arrays))) > 1:
            counts = dict(zip(self.input_names, map(len, work.arrays), strict=True))
            raise HTTPException(400, f"inputs have different numbers of functions in their first axis: {counts}")
        queries = self._fixed_queries if y is None else len(y)
        total = len(work.arrays[0]) * queries * self._channels * len(wanted)
        if total > max_values:
            raise HTTPException(413, f"the response would have {total} values, at most {max_values} are allowed")
        if self._has_domain:
            try:
                u = jax.tree.unflatten(self._structure, work.arrays)
                self.operator.normalization.check_input(u, self.operator.inputs)
            except ValueError as error:  # such as the logarithm of a negative number
                raise HTTPException(400, str(error)) from None
        return work

    def run(self, works: Sequence[Work]) -> dict[str, np.ndarray]:
        """The results of works with equal keys, in pieces of at most as many functions as programs are compiled for."""
        y, wanted = works[0].y, works[0].wanted
        arrays = [np.concatenate(column) for column in zip(*(work.arrays for work in works), strict=True)]
        starts = range(0, len(arrays[0]), SIZES[-1])
        pieces = [self._run([array[i : i + SIZES[-1]] for array in arrays], y, wanted) for i in starts]
        return {name: np.concatenate([piece[name] for piece in pieces]) for name in wanted}

    def _run(
        self, arrays: Sequence[np.ndarray], y: Float[np.ndarray, "P d_y"] | None, wanted: frozenset[str]
    ) -> dict[str, np.ndarray]:
        """The wanted outputs of some functions; predictions alone at fixed queries are the fast case."""
        found: dict[str, Any] = {}
        radius = self._radius if wanted.intersection(BARS[1:]) else None
        is_fast = y is None and radius is None
        sizes = SIZES if is_fast and wanted == {"s"} else FEW_SIZES
        u: Any = jax.tree.unflatten(self._structure, [padded(array, sizes) for array in arrays])
        if is_fast and "s" in wanted:
            found["s"] = self._predict(self._leaves, u)
        elif wanted.intersection(BARS):
            pieces = [] if y is None else np.split(y, range(QUERY_SIZES[-1], len(y), QUERY_SIZES[-1]))
            blocks = [Shared(jnp.asarray(padded(piece, QUERY_SIZES))) for piece in pieces] or self.fixed
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
        shapes = [self.inputs[name].shape[1:] for name in self.input_names]
        d_y = self.signature.domain.dimension
        queries = [np.zeros((size, d_y), np.float32) for size in QUERY_SIZES * self.operator.is_pointwise]
        fixed = [(size, None) for size in SIZES if self.fixed]
        for size, y in (*fixed, *itertools.product(FEW_SIZES, queries)):
            arrays = tuple(np.ones((size, *shape), np.float32) for shape in shapes)
            for wanted in (["s"], self.outputs) if size in FEW_SIZES else (["s"],):
                self.run([Work(arrays, y, frozenset(wanted))])


def described(variables: Sequence[Variable]) -> dict[str, Any]:
    """Names and units of channels, in the parameters of a tensor."""
    return {"channels": [variable.name for variable in variables], "units": [variable.unit for variable in variables]}


def padded(array: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """An array with the next of some numbers of rows; those that are added repeat the first one."""
    more = next(size for size in sizes if size >= len(array)) - len(array)
    return np.concatenate([array, np.broadcast_to(array[:1], (more, *array.shape[1:]))]) if more else array


def find_models(paths: Sequence[Path], *, is_start: bool = False) -> dict[tuple[str, int], Path]:
    """The model files of some paths, by name and version; at the start, every path must have some.

    A path is a model file, a run directory, or a directory of models. The latter has a run directory `NAME`, or a run
    directory `NAME/VERSION` with a number for every version, for each model.
    """
    found: dict[tuple[str, int], Path] = {}
    for path in paths:
        files = [((path.stem, 1), path)] if path.is_file() else []
        if (path / MODEL_FILE).is_file():
            files = [((path.resolve().name, 1), path / MODEL_FILE)]
        elif path.is_dir():
            for file in [*path.glob(f"*/{MODEL_FILE}"), *path.glob(f"*/*/{MODEL_FILE}")]:
                name, *version = file.relative_to(path).parts[:-1]
                if not version or re.fullmatch(r"[1-9]\d{0,8}", version[0]):
                    files.append(((name, int(version[0]) if version else 1), file))
        if is_start and not files:
            raise ValueError(
                f"{path} {'holds no model' if path.exists() else 'does not exist'}; pass a model file, a run "
                f"directory, or a directory with NAME/{MODEL_FILE} or NAME/VERSION/{MODEL_FILE}"
            )
        for place, file in files:
            if place in found:
                raise ValueError(f"{found[place]} and {file} are both version {place[1]} of {place[0]}; rename one")
            found[place] = file
    return found


class Repository:
    """Loaded models by name and version.

    Requests keep the version with which they began: a `ServedModel` never changes, and is deleted after its last one.
    """

    def __init__(self, paths: Sequence[Path], *, at: Path | None = None, level: float = LEVEL, classes: Classes = ()):
        self.paths, self.at, self.level, self.classes = paths, at, level, classes
        self.models: Mapping[tuple[str, int], ServedModel] = {}
        self._seen: dict[tuple[str, int], tuple[int, ...]] = {}

    def refresh(self, *, is_start: bool = False) -> None:
        """Load files that are new or have changed, and compile them.

        At the start, raise if one cannot be loaded. Later that is logged once, and the model before stays.
        """
        found = find_models(self.paths, is_start=is_start)
        for place, file in found.items():
            try:
                status = file.stat()  # before the file is read, so that one that is replaced meanwhile is loaded again
                seen = status.st_mtime_ns, status.st_size, status.st_ino
                if seen != self._seen.get(place):
                    self._seen[place] = seen
                    operator = load(file, classes=self.classes)
                    model = ServedModel(*place, operator, inspect(file), self.at, self.level)
                    model.compile()
                    self.models = {**self.models, place: model}  # requests see the old models or the new ones
                    LOG.info("loaded version %d of %s from %s", *place[::-1], file)
            except Exception as error:
                if is_start:
                    raise
                LOG.warning("version %d of %s is not loaded: %s: %s", *place[::-1], type(error).__name__, error)
        for place in set(self.models) - set(found):
            self.models = {other: model for other, model in self.models.items() if other != place}
            self._seen.pop(place, None)
            LOG.info("removed version %d of %s", *place[::-1])

    def get(self, name: str, version: str | None = None) -> ServedModel:
        """A version of a model, the latest unless given; raise `HTTPException` if it does not exist."""
        models = self.models
        known = [number for other, number in models if other == name and version in (None, str(number))]
        if not known:
            which = "" if version is None else f"version {version[:20]!r} of "
            listed = ", ".join(sorted({name for name, _ in models}))
            raise HTTPException(404, f"there is no {which}model {name[:100]!r}; the models are {listed}")
        return models[name, max(known)]
