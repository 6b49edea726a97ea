"""What a run is: data, model and training, checked before anything is computed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

Widths = Annotated[tuple[PositiveInt, ...], Field(max_length=64)]


class ConfigurationError(ValueError):
    """A description of a run that cannot be one; says which field, and why."""


class Table(BaseModel):
    """A table of the file; a name that is not known in it is an error, not a wish."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataTable(Table):
    """Where functions come from: arguments of `loca.data.open`, and what is kept of them."""

    path: str
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    sample: str | None = None
    format: str | None = None
    labels: PositiveInt | None = None
    """P, labels kept of every training function; all by default."""
    validation: str | None = None
    """Another file; by default a part of the first one is set aside."""
    validation_fraction: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    test: str | None = None
    """A file on which the trained model is evaluated."""
    stream: bool | None = None
    """Whether training reads its batches from the file instead of memory; by default if it would take half of it."""


class ModelTable(Table):
    """Sizes of a model: each given, or left to its `create`, or all those of one of the paper's experiments."""

    setting: Literal["antiderivative", "darcy", "mechanical-mnist", "shallow-water", "climate"] | None = None

    @property
    def sizes(self) -> dict[str, Any]:
        """Those that are given."""
        return self.model_dump(exclude={"kind", "setting"}, exclude_none=True)

    @model_validator(mode="after")
    def check_sizes(self) -> ModelTable:
        """A setting has all sizes."""
        if self.setting is not None and self.sizes:
            raise ValueError(f"setting {self.setting!r} has all sizes; leave out {', '.join(self.sizes)}")
        return self


class LOCATable(ModelTable):
    """Sizes of LOCA."""

    kind: Literal["loca"] = "loca"
    num_features: PositiveInt | None = None
    lift_size: PositiveInt | None = None
    lift_widths: Widths | None = None
    proposal_widths: Widths | None = None
    feature_widths: Widths | None = None


class DeepONetTable(ModelTable):
    """Sizes of DeepONet."""

    kind: Literal["deeponet"]
    num_features: PositiveInt | None = None
    branch_widths: Widths | None = None
    trunk_widths: Widths | None = None


class FNOTable(ModelTable):
    """Sizes of FNO."""

    kind: Literal["fno"]
    modes: PositiveInt | None = None
    width: PositiveInt | None = None
    depth: PositiveInt | None = None
    padding: Annotated[int, Field(ge=0)] | None = None


class TrainingTable(Table):
    """Arguments of `loca.fit`."""

    steps: PositiveInt = 20_000
    batch_size: PositiveInt = 100
    optimizer: Literal["default", "paper"] = "default"
    rate: PositiveFloat | None = None
    loss: Literal["mean_squared", "relative_l2"] = "mean_squared"
    weights: Literal["equal", "area"] = "equal"
    """How much locations count: all the same, or as much as the area they stand for, on a sphere."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the factors of matrix products; sums, and all else, are in single precision."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    every: PositiveInt = 1000
    checkpoint_seconds: PositiveFloat = 30.0
    loggers: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Who else is told of losses and errors, besides history.jsonl; each is an extra to install."""


class RunConfiguration(Table):
    """All of it."""

    data: DataTable
    model: Annotated[LOCATable | DeepONetTable | FNOTable, Field(discriminator="kind")] = LOCATable()
    training: TrainingTable = TrainingTable()


def read_configuration(path: Path | None, changes: dict[str, dict[str, Any]]) -> RunConfiguration:
    """The run that a TOML file describes, with some fields said otherwise; `ConfigurationError` if it is none."""
    described: dict[str, Any] = {}
    if path is not None:
        try:
            described = tomllib.loads(path.read_text())
        except (OSError, ValueError, RecursionError) as error:  # ValueError: no TOML, or no text at all
            raise ConfigurationError(f"{path}: {error}") from error
    for table, fields in changes.items():
        given = {name: value for name, value in fields.items() if value is not None}
        if isinstance(described.get(table, {}), dict) and given:
            described[table] = {**described.get(table, {}), **given}
    return check_configuration(described, str(path) if path is not None else "options")


def check_configuration(described: Any, source: str) -> RunConfiguration:
    """The run that some values describe; every wrong field is named in the error."""
    if isinstance(described, dict) and isinstance(described.get("model"), dict):
        described = {**described, "model": {"kind": "loca", **described["model"]}}
    try:
        return RunConfiguration.model_validate(described)
    except ValidationError as error:
        said = [f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg']}" for each in error.errors()]
        raise ConfigurationError(f"{source}: {'; '.join(said)}") from None
