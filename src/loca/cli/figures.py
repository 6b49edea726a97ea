"""`loca figures`: figures of what a model does well and where it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loca.cli.arguments import (
    ClassOption,
    FileArgument,
    ModelArgument,
    RegridOption,
    check_directory,
    concerning,
    load_model,
    model_file,
    open_records,
)
from loca.cli.options import Files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from loca.data import Records
    from loca.evaluation import Report
    from loca.models import Operator
    from loca.training import History


def figures(
    model: ModelArgument,
    data: FileArgument,
    files: Files,
    out: Annotated[Path, typer.Option(help="The directory for the figures.")],
    beside: Annotated[
        list[Path] | None,
        typer.Option(metavar="MODEL", help="Another model for box plots and curves; repeatable."),
    ] = None,
    count: Annotated[int, typer.Option(min=2, help="The number of functions: a typical one, then the worst.")] = 3,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write .pdf instead of .png.")] = False,
    regrid: RegridOption = False,
    classes: ClassOption = None,
) -> None:
    """Draw the errors of a model on data, its predictions beside the truth, its training curves, and its attention.

    `box_plots` has the relative errors of all functions; `fields` the input, truth, prediction and error of
    the function with the median error and of the worst ones; `curves` the loss and the validation error, for a run
    directory; `attention` the attention weights of a LOCA. For a model that knows its error, `reliability` has the
    coverage of its bands and `error_bars` the bands of the same functions, or σ beside their errors.
    """
    from loca.evaluation import evaluate
    from loca.models import Uncertain

    check_directory(out)
    paths = [model, *(beside or [])]
    names = names_of(paths)
    operators = [load_model(path, classes) for path in paths]
    records = open_records(data, files, model, operators[0], regrid=regrid)
    reports = {}
    for name, operator in zip(names, operators, strict=True):
        metrics = ["relative_l2", "coverage"] if isinstance(operator, Uncertain) else ["relative_l2"]
        with concerning(data):
            reports[name] = evaluate(operator, records, metrics=metrics, regrid=regrid)
    out.mkdir(parents=True, exist_ok=True)
    histories = {name: read for name, path in zip(names, paths, strict=True) if (read := history_of(path))}
    for name, figure in draw(operators[0], records, reports, histories, count):
        file = out / f"{name}.{'pdf' if pdf else 'png'}"
        figure.savefig(file, dpi=300)
        typer.echo(str(file))


def draw(
    operator: Operator, records: Records, reports: dict[str, Report], histories: dict[str, History], count: int
) -> Iterator[tuple[str, Figure]]:
    """Draw every figure that these models have, and yield it with its name."""
    from loca.figures import attention, box_plots, curves, error_bars, fields, reliability
    from loca.models import LOCA, Uncertain
    from loca.uncertainty import Calibrated

    yield "box_plots", box_plots(reports)
    if histories:
        yield "curves", curves(histories)
    captions = typical_and_worst(next(iter(reports.values())), count)
    samples = records.load(list(captions))
    yield "fields", fields(operator, samples, rows=len(samples), captions=list(captions.values()))
    if isinstance(operator, Uncertain):
        yield "reliability", reliability(reports)
        yield "error_bars", error_bars(operator, samples, rows=len(samples), captions=list(captions.values()))
    if isinstance(operator, Calibrated):
        operator = operator.operator
    if isinstance(operator, LOCA):
        yield "attention", attention(operator, samples)


def typical_and_worst(report: Report, count: int) -> dict[int, str]:
    """The numbers of the function with the median error and of the worst ones, with captions.

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
    """The names of models in figures: that of the run or file, or all of the path where names are the same."""
    from loca.saving import MODEL_FILE

    files = [model_file(path).resolve() for path in paths]
    names = [file.parent.name if file.name == MODEL_FILE else file.stem for file in files]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def history_of(path: Path) -> History | None:
    """The history of the run that produced a model, if it is in the same directory."""
    from loca.runs import HISTORY_FILE
    from loca.saving import MODEL_FILE
    from loca.training import History

    file = model_file(path)
    history = file.with_name(HISTORY_FILE)
    return History.read(history) if file.name == MODEL_FILE and history.exists() else None
