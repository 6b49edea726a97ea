"""The configuration of a run: data, model and training, checked before anything is computed."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

Names = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]
"""Names of variables: a list, or a single name as a string."""

Count = Annotated[int, Field(strict=True, gt=0, lt=2**31)]
Number = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Widths = Annotated[tuple[Count, ...], Field(max_length=64)]


class ConfigurationError(ValueError):
    """An invalid configuration; the message names each wrong field and the reason."""


class Table(BaseModel):
    """A table of the TOML file; unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfiguration(Table):
    """Where the functions come from: the arguments of `loca.data.open`, and which part of the data is used."""

    path: str
    inputs: Names | None = None
    outputs: Names | None = None
    sample: str | None = None
    format: str | None = None
    labels: Count | None = None
    """P, the number of labels kept for each training function; all of them unless given."""
    validation: str | None = None
    """A file with validation data; unless given, part of `path` is set aside."""
    validation_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    test: str | None = None
    """A file on which the trained model is evaluated."""
    stream: bool | None = None
    """Whether to read batches from the file during training; unless given, only if the data would fill half the
    memory."""


class ModelConfiguration(Table):
    """The sizes of a model: given one by one, left to the defaults of `create`, or all taken from a paper setting."""

    setting: Literal["antiderivative", "darcy", "mechanical-mnist", "shallow-water", "climate"] | None = None

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes that are given."""
        return self.model_dump(exclude={"kind", "setting"}, exclude_none=True)

    @model_validator(mode="after")
    def check_sizes(self) -> ModelConfiguration:
        """Refuse sizes beside a setting, which fixes all of them."""
        if self.setting is not None and self.sizes:
            raise ValueError(f"setting {self.setting!r} fixes all sizes; leave out {', '.join(self.sizes)}")
        return self


class LOCAConfiguration(ModelConfiguration):
    """The sizes of LOCA."""

    kind: Literal["loca"] = "loca"
    num_features: Count | None = None
    lift_size: Count | None = None
    lift_widths: Widths | None = None
    proposal_widths: Widths | None = None
    feature_widths: Widths | None = None


class DeepONetConfiguration(ModelConfiguration):
    """The sizes of DeepONet."""

    kind: Literal["deeponet"]
    num_features: Count | None = None
    branch_widths: Widths | None = None
    trunk_widths: Widths | None = None


class FNOConfiguration(ModelConfiguration):
    """The sizes of FNO."""

    kind: Literal["fno"]
    modes: Count | None = None
    width: Count | None = None
    depth: Count | None = None
    padding: Annotated[int, Field(strict=True, ge=0, lt=2**31)] | None = None


class TrainingConfiguration(Table):
    """The arguments of `loca.fit`."""

    steps: Count = 20_000
    batch_size: Count = 100
    optimizer: Literal["default", "paper"] = "default"
    rate: Number | None = None
    """The highest learning rate; that of the optimizer unless given."""
    loss: Literal["mean_squared", "relative_l2"] = "mean_squared"
    weights: Literal["equal", "area"] = "equal"
    """How much each location counts: all equally, or in proportion to its area, for data on a sphere."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """The precision of the factors in matrix products; sums and everything else are in single precision."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    every: Count | None = None
    """Steps between two moments of the history; as in `fit` unless given."""
    checkpoint_seconds: Number = 30.0
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Loggers that record losses and errors besides history.jsonl; each is an optional dependency of the package."""


class RunConfiguration(Table):
    """A complete run: data, model and training."""

    data: DataConfiguration
    model: Annotated[LOCAConfiguration | DeepONetConfiguration | FNOConfiguration, Field(discriminator="kind")] = (
        LOCAConfiguration()
    )
    training: TrainingConfiguration = TrainingConfiguration()
    transforms: Annotated[str | dict[str, str] | None, BeforeValidator(lambda given: check_transforms(given))] = None
    """Transforms of variables, by name, or "auto"; see `loca.data.TransformNames`."""


def check_transforms(given: Any) -> Any:
    """Refuse transforms that are neither "auto" nor text by the names of variables."""
    named = isinstance(given, dict) and all(isinstance(text, str) for pair in given.items() for text in pair)
    if given is None or given == "auto" or named:
        return given
    raise ValueError(f'expected "auto", or a table such as {{permeability = "log"}}, got {short(given)}')


TABLES: dict[tuple[Any, ...], type[Table]] = {
    (): RunConfiguration,
    ("data",): DataConfiguration,
    ("model", "loca"): LOCAConfiguration,
    ("model", "deeponet"): DeepONetConfiguration,
    ("model", "fno"): FNOConfiguration,
    ("training",): TrainingConfiguration,
}
"""The tables, by the place at which pydantic finds errors in them."""


def read_configuration(path: Path | None, changes: dict[str, Any]) -> RunConfiguration:
    """Read a run from a TOML file and replace some of its fields.

    **Arguments:**

    - `path`: the file; None if `changes` describe the complete run.
    - `changes`: values by table and field, or by name outside of tables; those that are None change nothing.

    Raises `ConfigurationError` if the result is not a valid run.
    """
    content: dict[str, Any] = {}
    if path is not None:
        try:
            content = tomllib.loads(path.read_text())
        except (OSError, ValueError, RecursionError) as error:  # ValueError: not TOML, or not even text
            raise ConfigurationError(f"{path}: {error}") from error
    for table, fields in changes.items():
        if not isinstance(fields, dict):
            content |= {} if fields is None else {table: fields}
            continue
        given = {name: value for name, value in fields.items() if value is not None}
        before = content.get(table, {})
        if table == "transforms" and before == "auto":
            before = {}
        if isinstance(before, dict) and given:
            content[table] = {**before, **given}
    return check_configuration(content, str(path) if path is not None else "options")


def check_configuration(content: Any, source: str) -> RunConfiguration:
    """Validate the content of a configuration; the error names every wrong field."""
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        content = {**content, "model": {"kind": "loca", **content["model"]}}
    try:
        return RunConfiguration.model_validate(content)
    except ValidationError as error:
        raise ConfigurationError(f"{source}: {'; '.join(map(in_words, error.errors()))}") from None


EXPECTED = {
    "int": "an integer",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "model": "a table",
}
"""What was expected, by the first word of pydantic's types of errors."""


def in_words(error: Mapping[str, Any]) -> str:
    """One error that pydantic found: the field, what is expected and what was given."""
    # the location in a model of several kinds contains the kind, which is no field
    table, *rest = [part for i, part in enumerate(error["loc"]) if i != 1 or error["loc"][0] != "model"] or [""]
    field = f"{table}" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)
    given, limits = short(error["input"]), error.get("ctx", {})
    match error["type"]:
        case "missing" if not rest:
            return f"the table [{field}] is missing" if error["loc"] else "the run is missing"
        case "missing":
            return f"{field} is missing"
        case "extra_forbidden":
            return f"{field} is unknown{suggestion(error['loc'])}"
        case "value_error":
            return f"{field}: {limits['error']}"
        case "union_tag_invalid":
            return f"{field}.kind: expected {limits['expected_tags']}, got {short(limits['tag'])}"
        case "union_tag_not_found" | "model_attributes_type":
            expected = "a table"
        case "literal_error":
            expected = limits["expected"]
        case "greater_than":
            expected = f"a number greater than {limits['gt']:g}"
        case "greater_than_equal":
            expected = f"a number that is at least {limits['ge']:g}"
        case "less_than":
            expected = f"a number less than {limits['lt']:g}"
        case "too_long":
            expected = f"at most {limits['max_length']} numbers"
        case kind:
            expected = EXPECTED.get(kind.partition("_")[0], "another value")
    return f"{field or 'the run'}: expected {expected}, got {given}"


def suggestion(location: Sequence[int | str]) -> str:
    """The name that was probably meant, or all names."""
    *table, name = location
    names = [name for name in TABLES[tuple(table)].model_fields if name != "kind"]
    close = difflib.get_close_matches(str(name), names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; choose one of {', '.join(names)}"


def short(value: Any) -> str:
    """A value, at most 60 characters long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
