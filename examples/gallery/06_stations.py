# %% [markdown]
# # Scattered stations to a field
#
# Every event was measured by other stations, at other places: can one model make a map of each?
#
# Rain gauges in a catchment of 60 × 40 km, and the groundwater level some days after the rain. Of each of 200 events,
# 20 to 40 gauges have reported. The level h solves h − (8 km)² Δh = 0.2 · rain, without flow through the sides.

# %%
import numpy as np
from matplotlib.figure import Figure
from scipy.fft import dctn, idctn

import loca

random, events = np.random.default_rng(0), 300
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
y = loca.domains.grid(east[1::4], north[1::3])
cells = np.argsort(random.random((events, 48 * 32)))[:, :40]  # 40 places of its own for each event
gauges = loca.domains.grid(east, north)[cells]
readings = np.take_along_axis(rain.reshape(events, -1), cells, axis=1)
reported = np.arange(40) < random.integers(20, 41, (events, 1))


def samples(chosen, reported):
    return loca.Samples(
        loca.typing.Measurements(readings[chosen], gauges[chosen], reported[chosen]),
        y,
        level[chosen, 1::4, 1::3].reshape(-1, len(y)),
        inputs=[("rain", "mm/day")],
        outputs=[("groundwater level", "m")],
        sensor_coordinates=[("east", "km"), ("north", "km")],
        query_coordinates=[("east", "km"), ("north", "km")],
    )


train, new = slice(200), slice(200, 300)
operator, report = loca.solve(samples(train, reported))
print(loca.evaluate(operator, samples(new, reported), metrics=["relative_l2", "rmse", "coverage"]))

# %% [markdown]
# The same events with fewer gauges, without solving again. Fewer than the 20 that every event of the data had are not
# enough:

# %%
counts = [15, 20, 30, 40]
errors = [
    100 * loca.evaluate(operator, samples(new, np.arange(40) < np.full((events, 1), count))).of("relative_l2", 0)
    for count in counts
]
for count, error in zip(counts, errors, strict=True):
    print(f"{count} gauges: {error.mean():.1f} %")

# %% [markdown]
# The event with the median error: its rain and the gauges, the true groundwater level, and the maps from 20 and from 40
# gauges.

# %%
event = new.start + np.argsort(errors[-1])[50]
few, many = (loca.typing.Measurements(readings[event], gauges[event], np.arange(40) < count) for count in (20, 40))
shape = (12, 11)
panels = [
    ("rain (mm/day)", rain[event], "Blues", 40),
    ("true level (m)", level[event, 1::4, 1::3], "viridis", 0),
    ("level from 20 gauges (m)", np.reshape(operator(few, y), shape), "viridis", 20),
    ("level from 40 gauges (m)", np.reshape(operator(many, y), shape), "viridis", 40),
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
