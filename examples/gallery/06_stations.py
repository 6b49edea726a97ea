# %% [markdown]
# # Scattered stations to a field
#
# Every event was measured by other stations, at other places: can one model make a map of each?
#
# Rain gauges in a catchment of 60 × 40 km, and the groundwater level some days after the rain. Of each of 300 events,
# 30 to 60 gauges have reported. The level h solves h − (8 km)² Δh = 0.2 · rain, without flow through the sides.

# %%
import numpy as np
from matplotlib.figure import Figure
from scipy.fft import dctn, idctn

import loca

random, events = np.random.default_rng(0), 400
east, north = (np.arange(48) + 0.5) * 1.25, (np.arange(32) + 0.5) * 1.25
k = np.pi * np.hypot(np.arange(48)[:, None] / 60, np.arange(32) / 40)


def cosines(fields, factor):
    return idctn(dctn(fields, axes=(1, 2), norm="ortho") * factor, axes=(1, 2), norm="ortho")


noise = random.normal(size=(events, 48, 32))
rain = 5 * np.exp(cosines(noise, 9 / (1 + (5 * k) ** 2) ** 2))
level = cosines(rain, 0.2 / (1 + (8 * k) ** 2))

# %% [markdown]
# `Measurements` holds values, places and a mask, because not all events have the same number of gauges. Names and
# units appear in figures and predictions.

# %%
y = loca.domains.grid(east[1::3], north[::2])
cells = np.argsort(random.random((events, 48 * 32)))[:, :60]  # 60 places of its own for each event
gauges = loca.domains.grid(east, north)[cells]
readings = np.take_along_axis(rain.reshape(events, -1), cells, axis=1)
reported = np.arange(60) < random.integers(30, 61, (events, 1))


def samples(chosen, reported):
    return loca.Samples(
        loca.typing.Measurements(readings[chosen], gauges[chosen], reported[chosen]),
        y,
        level[chosen, 1::3, ::2].reshape(-1, len(y)),
        inputs=[("rain", "mm/day")],
        outputs=[("groundwater level", "m")],
        sensor_coordinates=[("east", "km"), ("north", "km")],
        query_coordinates=[("east", "km"), ("north", "km")],
    )


train, new = slice(300), slice(300, 400)
operator, report = loca.solve(samples(train, reported))
print(loca.evaluate(operator, samples(new, reported), metrics=["relative_l2", "rmse", "coverage"]))

# %% [markdown]
# The same events with fewer gauges, without solving again. Fewer than the 30 that every event of the data had are not
# enough:

# %%
counts = [15, 30, 45, 60]
errors = [
    100 * loca.evaluate(operator, samples(new, np.arange(60) < np.full((events, 1), count))).of("relative_l2", 0)
    for count in counts
]
for count, error in zip(counts, errors, strict=True):
    print(f"{count} gauges: {error.mean():.1f} %")

# %% [markdown]
# One event: its rain and the gauges, the true groundwater level, and the maps from 15 and from 60 gauges.

# %%
event = 307
few, many = (loca.typing.Measurements(readings[event], gauges[event], np.arange(60) < count) for count in (15, 60))
shape = (16, 16)
panels = [
    ("rain (mm/day)", rain[event], "Blues", 60),
    ("true level (m)", level[event, 1::3, ::2], "viridis", 0),
    ("level from 15 gauges (m)", np.reshape(operator(few, y), shape), "viridis", 15),
    ("level from 60 gauges (m)", np.reshape(operator(many, y), shape), "viridis", 60),
]
low, high = level[event].min(), level[event].max()
with loca.figures.style():
    figure = Figure(figsize=(6.2, 3.9), layout="constrained")
    for ax, (title, field, colors, count) in zip(
        figure.subplots(2, 2, sharex=True, sharey=True).flat, panels, strict=True
    ):
        limits = {} if colors == "Blues" else {"vmin": low, "vmax": high}
        drawn = ax.imshow(
            field.T, origin="lower", extent=(0, 60, 0, 40), cmap=colors, interpolation="bilinear", **limits
        )
        ax.scatter(*gauges[event, :count].T, s=9, color="white", edgecolor="black", linewidth=0.5)
        ax.set_title(title)
        figure.colorbar(drawn, ax=ax, shrink=0.8)
    figure.supxlabel("east (km)", fontsize=7)
    figure.supylabel("north (km)", fontsize=7)
    figure.draw_without_rendering()
figure
