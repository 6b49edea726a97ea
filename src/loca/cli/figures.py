"""`loca figures`: pictures of what a model does well and where it fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loca.cli.models import FileArgument, ModelArgument, file_of, opened
from loca.cli.runs import MODEL
from loca.cli.sources import FormatOption, InputsOption, OutputsOption, SampleOption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from loca.data import Records
    from loca.evaluation import Report
    from loca.models import Operator
    from loca.training import History

HISTORY = "history.jsonl"
"""The file in which a run keeps its losses."""


def figures(
    model: ModelArgument,
    data: FileArgument,
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")],
    beside: Annotated[
        list[Path] | None,
        typer.Option(metavar="MODEL", help="Another model for box plots and curves; may be given several times."),
    ] = None,
    count: Annotated[int, typer.Option(min=2, help="Functions to show: a typical one, then the worst.")] = 3,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write .pdf instead of .png.")] = False,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    sample: SampleOption = None,
    format: FormatOption = None,  # noqa: A002
) -> None:
    """Draw the errors of a model on data, its predictions beside the truth, how it learned, and its attention.

    `box_plots` shows the relative errors of all functions; `fields` the inputs, truth, prediction and error of the
    function whose error is the median and of the worst ones; `curves` the loss and the validation error, for the
    directory of a run; `attention` the attention weights of a LOCA.
    """
    from loca.evaluation import evaluate

    paths = [model, *(beside or [])]
    names = names_of(paths)
    pairs = [opened(path, data, inputs, outputs, sample, format) for path in paths]
    try:
        reports = {
            name: evaluate(operator, records, metrics=["relative_l2"])
            for name, (operator, records) in zip(names, pairs, strict=True)
        }
        out.mkdir(parents=True, exist_ok=True)
        histories = {name: read for name, path in zip(names, paths, strict=True) if (read := history_of(path))}
        for name, figure in drawn(*pairs[0], reports, histories, count):
            file = out / f"{name}.{'pdf' if pdf else 'png'}"
            figure.savefig(file, dpi=300)
            typer.echo(str(file))
    except (ValueError, TypeError, OSError, RuntimeError) as problem:
        raise typer.BadParameter(f"{data}: {problem}", param_hint="DATA") from problem


def drawn(
    operator: Operator, records: Records, reports: dict[str, Report], histories: dict[str, History], count: int
) -> Iterator[tuple[str, Figure]]:
    """Every picture that these models have, by its name."""
    from loca.figures import attention, box_plots, curves, fields
    from loca.models import LOCA

    yield "box_plots", box_plots(reports)
    if histories:
        yield "curves", curves(histories)
    captions = typical_and_worst(next(iter(reports.values())), count)
    samples = records.load(list(captions))
    yield "fields", fields(operator, samples, rows=len(samples), captions=list(captions.values()))
    if isinstance(operator, LOCA):
        yield "attention", attention(operator, samples)


def typical_and_worst(report: Report, count: int) -> dict[int, str]:
    """The number of the function whose error is the median, then those of the worst; and what to write beside them.

    The error of a function is the mean over its channels.
    """
    import numpy as np

    from loca.evaluation import short

    errors = report.errors["relative_l2"].mean(axis=1)
    order = np.argsort(np.where(np.isfinite(errors), errors, np.inf), kind="stable")  # from the best to the worst
    known = order[np.isfinite(errors[order])]
    typical = [int(known[(len(known) - 1) // 2])] if len(known) else []
    worst = [int(number) for number in order[::-1] if number not in typical][: count - len(typical)]
    return {
        number: f"{kind} (#{number})\nerror {short(float(errors[number]))}"
        for kind, numbers in (("typical", typical), ("worst", worst))
        for number in numbers
    }


def names_of(paths: list[Path]) -> list[str]:
    """What models are called in pictures: their run or file, and as much of the path as tells two of them apart."""
    files = [file_of(path).resolve() for path in paths]
    places = [file.parent if file.name == MODEL else file.with_suffix("") for file in files]
    if len({place.name for place in places}) == len(places):
        return [place.name for place in places]
    common = os.path.commonpath([place.parent for place in places])
    return [str(place.relative_to(common)) for place in places]


def history_of(path: Path) -> History | None:
    """The history of the run that made a model, if it lies beside it."""
    from loca.training import History

    file = file_of(path)
    history = file.with_name(HISTORY)
    return History.read(history) if file.name == MODEL and history.exists() else None
