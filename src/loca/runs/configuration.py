"""The configuration of a run: data, model and training, checked before anything is computed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

Names = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]
"""Names of variables: a list, or a single name as a string."""

Widths = Annotated[tuple[PositiveInt, ...], Field(max_length=64)]


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
    labels: PositiveInt | None = None
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
    num_features: PositiveInt | None = None
    lift_size: PositiveInt | None = None
    lift_widths: Widths | None = None
    proposal_widths: Widths | None = None
    feature_widths: Widths | None = None


class DeepONetConfiguration(ModelConfiguration):
    """The sizes of DeepONet."""

    kind: Literal["deeponet"]
    num_features: PositiveInt | None = None
    branch_widths: Widths | None = None
    trunk_widths: Widths | None = None


class FNOConfiguration(ModelConfiguration):
    """The sizes of FNO."""

    kind: Literal["fno"]
    modes: PositiveInt | None = None
    width: PositiveInt | None = None
    depth: PositiveInt | None = None
    padding: Annotated[int, Field(ge=0)] | None = None


class TrainingConfiguration(Table):
    """The arguments of `loca.fit`."""

    steps: PositiveInt = 20_000
    batch_size: PositiveInt = 100
    optimizer: Literal["default", "paper"] = "default"
    rate: PositiveFloat | None = None
    """The highest learning rate; that of the optimizer unless given."""
    loss: Literal["mean_squared", "relative_l2"] = "mean_squared"
    weights: Literal["equal", "area"] = "equal"
    """How much each location counts: all equally, or in proportion to its area, for data on a sphere."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """The precision of the factors in matrix products; sums and everything else are in single precision."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    every: PositiveInt = 1000
    checkpoint_seconds: PositiveFloat = 30.0
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Loggers that record losses and errors besides history.jsonl; each is an optional dependency of the package."""


class RunConfiguration(Table):
    """A complete run: data, model and training."""

    data: DataConfiguration
    model: Annotated[LOCAConfiguration | DeepONetConfiguration | FNOConfiguration, Field(discriminator="kind")] = (
        LOCAConfiguration()
    )
    training: TrainingConfiguration = TrainingConfiguration()


def read_configuration(path: Path | None, changes: dict[str, dict[str, Any]]) -> RunConfiguration:
    """Read a run from a TOML file and replace some of its fields.

    **Arguments:**

    - `path`: the file; None if `changes` describe the complete run.
    - `changes`: values by table and field; those that are None change nothing.

    Raises `ConfigurationError` if the result is not a valid run.
    """
    content: dict[str, Any] = {}
    if path is not None:
        try:
            content = tomllib.loads(path.read_text())
        except (OSError, ValueError, RecursionError) as error:  # ValueError: not TOML, or not even text
            raise ConfigurationError(f"{path}: {error}") from error
    for table, fields in changes.items():
        given = {name: value for name, value in fields.items() if value is not None}
        if isinstance(content.get(table, {}), dict) and given:
            content[table] = {**content.get(table, {}), **given}
    return check_configuration(content, str(path) if path is not None else "options")


def check_configuration(content: Any, source: str) -> RunConfiguration:
    """Validate the content of a configuration; the error names every wrong field."""
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        content = {**content, "model": {"kind": "loca", **content["model"]}}
    try:
        return RunConfiguration.model_validate(content)
    except ValidationError as error:
        problems = []
        for each in error.errors():
            # pydantic would name the Python class, which a user has never seen
            message = "Input should be a table" if each["type"].startswith("model_") else each["msg"]
            problems.append(f"{'.'.join(map(str, each['loc'])) or 'the file'}: {message}")
        raise ConfigurationError(f"{source}: {'; '.join(problems)}") from None
