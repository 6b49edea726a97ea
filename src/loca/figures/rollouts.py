"""Figures of rollouts: errors against lead time, spectra, fields over time, and animations."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.animation import FuncAnimation
from matplotlib.figure import Figure

from loca.data import Trajectories
from loca.evaluation import LeadTimes
from loca.figures.panels import MAPS, kind_of, norm_of
from loca.figures.style import ERROR_COLOR, INK, PALETTE, line_styles, log_axis, style, with_unit

GRAY = {"persistence": ":", "climatology": "--"}
"""Lines of what every forecast has to beat."""


def lead_times(reports: Mapping[str, LeadTimes] | LeadTimes, metric: str = "vrmse", channel: int = 0) -> Figure:
    """A metric of a field against lead time, one line per report, beside persistence and climatology in gray.

    **Arguments:**

    - `reports`: by the name of the stepper, or a single one.
    - `metric`: of `LeadTimes`; the spread of draws is a thin line beside the RMSE.
    - `channel`: the number of the field.
    """
    named = reports if isinstance(reports, Mapping) else {"forecast": reports}
    first, looks = next(iter(named.values())), line_styles(named)
    with style():
        figure = Figure(figsize=(3.4, 2.4), layout="constrained")
        ax = figure.subplots()
        for what, line in GRAY.items():
            if metric in first.errors[what]:
                ax.plot(first.times, first.of(metric, what)[:, channel], line, color="#777777", label=what)
        for name, report in named.items():
            ax.plot(report.times, report.of(metric)[:, channel], label=name, **looks[name])
            if metric == "rmse" and "spread" in report.errors["forecast"]:
                spread = report.of("spread")[:, channel]
                ax.plot(report.times, spread, linewidth=0.6, label=f"{name}, spread", **looks[name])
        unit = first.outputs[channel].unit if metric in ("rmse", "mae", "crps", "spread") else ""
        ax.set(xlabel=with_unit("lead time", first.unit), ylabel=with_unit(metric.replace("_", " "), unit))
        ax.set_title(first.outputs[channel].name)
        if metric != "correlation":
            log_axis(ax)
        ax.legend()
    return figure


def spectra(report: LeadTimes, channel: int = 0) -> Figure:
    """The power of the waves of a field at the first, a middle and the last lead time: forecasts; the truth is gray.

    **Arguments:**

    - `report`: on an even grid of a flat domain.
    - `channel`: the number of the field.
    """
    if not report.spectra:
        raise ValueError("this report has no spectra; these need an even grid of a flat domain with values everywhere")
    L = len(report.times)
    with style():
        figure = Figure(figsize=(3.4, 2.4), layout="constrained")
        ax = figure.subplots()
        for i, color in zip(sorted({0, L // 2, L - 1}), PALETTE, strict=False):
            label = f"{report.times[i]:g} {report.unit}".strip()
            waves = np.arange(report.spectra["truth"].shape[1])
            ax.plot(waves[1:], report.spectra["truth"][i, 1:, channel], color="#bbbbbb", linewidth=2.0)
            ax.plot(waves[1:], report.spectra["forecast"][i, 1:, channel], color=color, label=label)
        ax.set(xlabel="periods across the grid", ylabel="power", title=report.outputs[channel].name)
        log_axis(ax)
        log_axis(ax, "x")
        ax.legend(title="after")
    return figure


def over_time(
    truth: Float[np.ndarray, "T m d"], forecast: Float[np.ndarray, "T m d"], data: Trajectories, channel: int = 0
) -> Figure:
    """Truth, forecast and error of a field over time and its last coordinate: a Hovmöller diagram.

    Of more coordinates than one it shows the middle of the others.

    **Arguments:**

    - `truth`, `forecast`: the frames of a rollout.
    - `data`: trajectories with these locations.
    - `channel`: the number of the field.
    """
    shape, axes = _grid_of(data)
    middle = tuple(n // 2 for n in shape[:-1])
    both = [each.reshape(len(each), *shape, -1)[(slice(None), *middle)][..., channel] for each in (truth, forecast)]
    panels = dict(zip(("truth", "forecast", "error"), (*both, both[1] - both[0]), strict=True))
    extent = (axes[-1][0], axes[-1][-1], len(truth) * data.step, data.step)
    with style():
        figure = Figure(figsize=(6.9, 2.6), layout="constrained")
        for ax, (name, values) in zip(figure.subplots(1, 3, sharey=True), panels.items(), strict=True):
            colors = _colors(name, both[0], values)
            drawn = ax.imshow(values, aspect="auto", extent=extent, interpolation="nearest", **colors)
            figure.colorbar(drawn, ax=ax)
            ax.set(title=name, xlabel=str(data.coordinates[-1]))
        figure.axes[0].set_ylabel(with_unit("lead time", data.unit))
    return figure


def animation(
    truth: Float[np.ndarray, "T m d"], forecast: Float[np.ndarray, "T m d"], data: Trajectories, channel: int = 0
) -> FuncAnimation:
    """Truth, forecast and error of a field, frame by frame; save it with `.save("wave.gif", writer="pillow")`.

    Curves of one coordinate are drawn into one panel, with the error in another.

    **Arguments:** those of `over_time`.
    """
    shape, axes = _grid_of(data)
    if len(shape) > 2:
        raise ValueError(f"an animation needs one or two coordinates, these fields have {len(shape)}; choose a section")
    fields = [frames.reshape(len(frames), *shape, -1)[..., channel] for frames in (truth, forecast)]
    values = {"truth": fields[0], "forecast": fields[1], "error": fields[1] - fields[0]}
    with style():
        figure = Figure(figsize=(6.9, 2.5), layout="constrained")
        title, drawn = figure.suptitle(" "), []
        if len(shape) == 1:
            left, right = figure.subplots(1, 2)
            looks = {"truth": (left, INK), "forecast": (left, PALETTE[0]), "error": (right, ERROR_COLOR)}
            for name, (ax, color) in looks.items():
                drawn += ax.plot(axes[0], values[name][0], color=color, label=name)
                ax.set(xlabel=str(data.coordinates[0]))
                low, high = np.nanmin(values[name]), np.nanmax(values[name])
                ax.set_ylim(min(ax.get_ylim()[0], low), max(ax.get_ylim()[1], high))
                ax.legend()
        else:
            for ax, (name, each) in zip(figure.subplots(1, 3, sharey=True), values.items(), strict=True):
                extent = (*axes[0][[0, -1]], *axes[1][[0, -1]])
                image = ax.imshow(each[0].T, origin="lower", extent=extent, **_colors(name, fields[0], each))
                figure.colorbar(image, ax=ax)
                ax.set(title=name, xlabel=str(data.coordinates[0]))
                drawn.append(image)
            figure.axes[0].set_ylabel(str(data.coordinates[1]))

    def show(step: int) -> list[Any]:
        for artist, each in zip(drawn, values.values(), strict=True):
            artist.set_data(axes[0], each[step]) if len(shape) == 1 else artist.set_data(each[step].T)
        title.set_text(f"{with_unit('lead time', data.unit)} {data.step * (step + 1):.4g}")
        return [*drawn, title]

    return FuncAnimation(figure, show, frames=len(truth))


def _grid_of(data: Trajectories) -> tuple[tuple[int, ...], tuple[np.ndarray, ...]]:
    if data.shape is None or data.axes is None:
        raise ValueError("this figure needs fields on a grid, but these locations form none")
    return data.shape, data.axes


def _colors(name: str, truth: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Colors of the truth for truth and forecast; of an error, diverging."""
    kind = "error" if name == "error" else kind_of(truth[np.isfinite(truth)].ravel())
    norm = norm_of(kind, values if name == "error" else truth)
    return {"norm": norm, "cmap": MAPS[kind]}
