"""The configuration of a run: one schema for TOML files, the command line and Python.

The docstring of a field is also the help of its option. Nothing is computed here, so that `loca --help` starts quickly.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

Count = Annotated[int, Field(strict=True, gt=0, lt=2**31)]
Number = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Widths = Annotated[tuple[Count, ...], Field(max_length=64)]


def split_names(given: Any) -> Any:
    """`a,b` as a list of names; anything else as it is."""
    return tuple(name.strip() for name in given.split(",")) if isinstance(given, str) else given


Names = Annotated[tuple[str, ...], BeforeValidator(split_names)]
"""Names of variables: a list, or text in which commas separate them."""


class ConfigurationError(ValueError):
    """An invalid configuration; the message names each wrong field and the reason."""


class Table(BaseModel):
    """A table of the TOML file; unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class FileConfiguration(Table):
    """How to read a file: the arguments of `loca.data.open`."""

    inputs: Names | None = None
    """Input variables of the file, separated by commas."""
    outputs: Names | None = None
    """Output variables of the file, separated by commas."""
    sample: str | None = None
    """The dimension of the file that counts the functions."""
    format: str | None = None
    """The format of the file; detected unless given."""


class DataConfiguration(FileConfiguration):
    """Where the functions come from, and which part of the data is used."""

    path: str
    """The file with training data."""
    labels: Count | None = None
    """The number of labels kept for each training function; all of them unless given."""
    validation: str | None = None
    """A file with validation data; unless given, part of the training data is set aside."""
    validation_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    """The part of the training data that is set aside for validation."""
    test: str | None = None
    """A file on which the model is evaluated."""
    time: str | None = None
    """The dimension of time of trajectories: learn a step of the output variables, for `loca forecast`."""
    static: Names | None = None
    """Variables of trajectories that do not change with time; those that the format defines unless given."""
    forcing: Names | None = None
    """Variables of trajectories that are known in advance; those that the format defines unless given."""
    cycles: Annotated[tuple[Number, ...], Field(max_length=8)] = ()
    """Periods of time that act on trajectories, such as 365.25 days."""
    stream: bool | None = None
    """Read batches from the file during training; unless given, only if the data would fill half the memory."""


class ModelConfiguration(Table):
    """The sizes of a model that is trained: given one by one, or left to the defaults."""

    kind: str

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes that are given."""
        return self.model_dump(exclude={"kind"}, exclude_none=True)


class LOCAConfiguration(ModelConfiguration):
    """The sizes of LOCA."""

    kind: Literal["loca"] = "loca"
    num_features: Count | None = None
    """The number of features n, of LOCA and DeepONet."""
    lift_size: Count | None = None
    """The dimension l to which LOCA lifts locations."""
    lift_widths: Widths | None = None
    """Widths of the hidden layers of q, of LOCA."""
    proposal_widths: Widths | None = None
    """Widths of the hidden layers of g, of LOCA."""
    feature_widths: Widths | None = None
    """Widths of the hidden layers of f, of LOCA."""


class DeepONetConfiguration(ModelConfiguration):
    """The sizes of DeepONet."""

    kind: Literal["deeponet"]
    num_features: Count | None = None
    branch_widths: Widths | None = None
    """Widths of the hidden layers of the branch, of DeepONet."""
    trunk_widths: Widths | None = None
    """Widths of the hidden layers of the trunk, of DeepONet."""


class FNOConfiguration(ModelConfiguration):
    """The sizes of FNO."""

    kind: Literal["fno"]
    modes: Count | None = None
    """The number of modes along each axis, of FNO."""
    width: Count | None = None
    """The number of channels, of FNO."""
    depth: Count | None = None
    """The number of layers, of FNO."""
    padding: Annotated[int, Field(strict=True, ge=0, lt=2**31)] | None = None
    """Points that are added to each axis, of FNO."""


class GaussianConfiguration(Table):
    """A Gaussian operator, which is solved for; see `loca.solve`."""

    kind: Literal["gaussian"]


class BestConfiguration(Table):
    """The best of several models on validation functions; see `loca.choose`."""

    kind: Literal["best"]
    minutes: Number = 5.0
    """The time budget of the model `best`."""


AnyModel = LOCAConfiguration | DeepONetConfiguration | FNOConfiguration | GaussianConfiguration | BestConfiguration


class TrainingConfiguration(Table):
    """The arguments of `loca.fit`."""

    steps: Count = 20_000
    """The number of training steps."""
    batch_size: Count | None = None
    """Functions per step; as in `fit` unless given."""
    optimizer: Literal["default", "paper"] = "default"
    """The optimizer, with its learning rates."""
    rate: Number | None = None
    """The highest learning rate; that of the optimizer unless given."""
    loss: Literal["mean_squared", "relative_l2"] | None = None
    """What training minimizes; as in `fit` unless given."""
    weights: Literal["equal", "area"] = "equal"
    """How much each location counts: all equally, or in proportion to its area, for data on a sphere."""
    history: Count = 1
    """Frames of a trajectory that a step sees."""
    noise: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """Noise of the frames that a step sees, in standard deviations of each field."""
    unroll: Count = 1
    """Steps of the short rollouts that are trained on."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """The precision of the factors in matrix products; everything else is in single precision."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    """The seed of all random choices."""
    every: Count | None = None
    """The number of steps between two validations; as in `fit` unless given."""
    checkpoint_seconds: Number = 30.0
    """Seconds between two checkpoints."""
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """A logger besides history.jsonl, as an optional dependency of the package; repeatable."""


class RunConfiguration(Table):
    """A complete run: data, model and training."""

    data: DataConfiguration
    model: Annotated[AnyModel, Field(discriminator="kind")] = LOCAConfiguration()
    training: TrainingConfiguration = TrainingConfiguration()
    transforms: Literal["auto"] | dict[str, str] | None = None
    """Transforms of variables, by name, or "auto"; see `loca.data.TransformNames`."""
    symmetries: Names | None = None
    """Symmetries of the problem by name, or "auto" for those that are found; see `loca.symmetries`."""

    @model_validator(mode="after")
    def check_solved(self) -> "RunConfiguration":
        """Refuse settings of training for models that choose them on their own."""
        if not isinstance(self.model, ModelConfiguration):
            fields = TrainingConfiguration.model_fields.items()
            given = [name for name, field in fields if name != "seed" and getattr(self.training, name) != field.default]
            given += [] if self.transforms is None else ["transforms"]
            if given:
                raise ValueError(f"the model {self.model.kind!r} does not take {', '.join(given)}; leave them out")
        return self


MODEL_TABLES: dict[str, type[Table]] = {
    "loca": LOCAConfiguration,
    "deeponet": DeepONetConfiguration,
    "fno": FNOConfiguration,
    "gaussian": GaussianConfiguration,
    "best": BestConfiguration,
}
"""The tables of models, by the kind that names them."""


def read_configuration(path: Path | None, changes: Mapping[str, Any]) -> RunConfiguration:
    """Read a run from a TOML file and replace some of its fields.

    **Arguments:**

    - `path`: the file; None if `changes` describe the complete run.
    - `changes`: values of options by table and field, or by name outside of tables; None changes nothing.

    Raises `ConfigurationError` if the result is not a valid run.
    """
    content: dict[str, Any] = {}
    if path is not None:
        try:
            content = tomllib.loads(path.read_text())
        except (OSError, ValueError, RecursionError) as error:  # ValueError: not TOML, or not even text
            raise ConfigurationError(f"{path}: {error}") from error
    options = set()
    for table, fields in changes.items():
        if isinstance(fields, str):
            content[table] = fields
            continue
        given = {name: value for name, value in (fields or {}).items() if value is not None}
        options |= {(table, name) for name in given}
        before = content.get(table, {})
        if isinstance(before, str):  # `model = "fno"`, or `transforms = "auto"`, which names of variables replace
            before = {"kind": before} if table == "model" else {}
        if isinstance(before, dict) and given:
            content[table] = {**before, **given}
    return check_configuration(content, "" if path is None else f"{path}: ", options)


def check_configuration(content: Any, source: str, options: Set[tuple[str, str]] = frozenset()) -> RunConfiguration:
    """Validate the content of a configuration; the error begins with `source` and names every wrong field.

    Messages name the `options` of a command, by table and field, as they are spelled there.
    """
    match content:
        case {"model": str(kind)}:
            content = {**content, "model": {"kind": kind}}
        case {"model": dict(table)}:
            content = {**content, "model": {"kind": "loca", **table}}
    try:
        return RunConfiguration.model_validate(content)
    except ValidationError as error:
        raise ConfigurationError(source + "; ".join(in_words(each, options) for each in error.errors())) from None


def in_words(error: Mapping[str, Any], options: Set[tuple[str, str]]) -> str:
    """One error that pydantic found: the field, what is wrong with it, and what was given."""
    location, given, kind = error["loc"], error["input"], error["type"]
    message = re.sub("a valid dictionary.*", "a table", error["msg"])
    message = (message[:1].lower() + message[1:]).replace("tuple", "list")
    if location[:1] in (("model",), ("transforms",)):  # of several kinds: the location contains the kind
        location = (location[0], *location[2:])
    if kind == "union_tag_invalid":
        location, given = ("model", "kind"), error["ctx"]["tag"]
        message = f"expected one of {error['ctx']['expected_tags']}"
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    field = option_of(location[1]) if location[:2] in options else field or "the run"
    match kind:
        case "missing":
            return f"{field} is missing"
        case "extra_forbidden":
            return f"{field} is unknown{suggestion(error['loc'])}"
        case "value_error":
            return f"{field}: {error['ctx']['error']}"
    return f"{field}: {message}, got {repr(given)[:60]}"


def suggestion(location: tuple[str, ...]) -> str:
    """The name that was probably meant, or all names."""
    *place, name = location
    tables: dict[str, type[Table]] = {"data": DataConfiguration, "training": TrainingConfiguration, **MODEL_TABLES}
    names = [each for each in tables.get(place[-1] if place else "", RunConfiguration).model_fields if each != "kind"]
    close = difflib.get_close_matches(name, names, n=1)
    if not names:
        return "; leave it out"
    return f"; did you mean {close[0]}?" if close else f"; choose one of {', '.join(names)}"


OPTIONS = {"path": "--data", "kind": "--model", "loggers": "--log"}
"""Options with another name than their field."""


def option_of(field: str) -> str:
    """The option of a field, as it is spelled on the command line."""
    return OPTIONS.get(field, f"--{field.replace('_', '-')}")
