# %% [markdown]
# # Weather
#
# From today's pressure to tomorrow's on the whole globe: how good is the forecast, and where?
#
# The data are ten winters of a climate model, SPEEDY: surface pressure every day, as the anomaly from the mean
# winter. `reproduction/studies/speedy_daily.py` runs the model for an hour and writes `speedy_daily.npz`. Without this
# file in the folder `LOCA_GALLERY_DATA`, waves that drift and decay stand in.

# %%
import os
from pathlib import Path

import numpy as np
import xarray
from matplotlib.figure import Figure
from scipy.special import sph_harm_y

import loca

folder = Path(os.environ.get("LOCA_GALLERY_DATA", "examples/gallery/data"))


def winters_of(file):
    with np.load(file) as speedy:
        days = speedy["time"].astype("datetime64[s]").astype("datetime64[ns]")
        values = 0.02 * speedy["p_2Pa"][:, ::3, ::3]  # hPa, at every third point
        lat, lon = speedy["lat"][::3], (speedy["lon"][::3] + 180) % 360 - 180
    pressure = xarray.DataArray(values, {"day": days, "lat": lat, "lon": lon}).sortby("lon")
    winters = pressure[pressure.day.dt.month.isin([12, 1, 2])]
    return xarray.Dataset({"anomaly": winters - winters.mean("day")})


def drifting_waves(days=900):  # Rossby–Haurwitz waves, renewed a little every day
    lat, lon = np.linspace(-86.25, 86.25, 24), np.arange(-180, 180, 7.5)
    degree, order = (i[1:] for i in np.tril_indices(10))
    modes = sph_harm_y(degree[:, None, None], order[:, None, None], np.radians(90 - lat)[:, None], np.radians(lon))
    new = np.random.default_rng(0).normal(size=(days, len(degree), 2)) @ [1, 1j] * 20 / degree
    for day in range(1, days):
        new[day] = 0.5 * new[day] + 0.85 * new[day - 1] * np.exp(4j * np.pi * order / (degree * (degree + 1)))
    dates = np.datetime64("2000-12-01", "ns") + np.arange(days) * np.timedelta64(1, "D")
    values = np.einsum("nk,kyx->nyx", new, modes).real
    return xarray.Dataset({"anomaly": (("day", "lat", "lon"), values)}, {"day": dates, "lat": lat, "lon": lon})


file = folder / "speedy_daily.npz"
winters = winters_of(file) if file.exists() else drifting_waves()
print(dict(winters.sizes), "of", file.name if file.exists() else "waves")

# %% [markdown]
# A pair is a day and the next one. The first 600 days are for the model, and the last 250, almost three winters,
# for the test. Latitude and longitude are recognized, so the operator lives on the sphere.

# %%
follows = np.flatnonzero(np.diff(winters.day) == np.timedelta64(1, "D"))
pairs = winters.isel(day=follows).rename(anomaly="today")
pairs["tomorrow"] = pairs.today.dims, winters.anomaly.values[follows + 1], winters.anomaly.attrs
records = loca.data.Labeled(pairs, "today", "tomorrow", "day")
train, test = records.load(slice(600)), records.load(slice(len(follows) - 250, None))
operator, report = loca.solve(train)

# %% [markdown]
# Skill is 1 for a perfect forecast and 0 for one that is as good as the mean winter. Persistence predicts that
# tomorrow is as today.

# %%
truth, today = np.asarray(test.s)[:, :, 0], np.asarray(test.u)[:, :, 0]
forecast = np.asarray(operator.predict(test.u, test.y))[:, :, 0]
area = loca.domains.area_weights(test.domain, test.y.points)
skill = {}
for name, each in {"Gaussian operator": forecast, "persistence": today}.items():
    squares, reference = ((each - truth) ** 2).mean(axis=0), (truth**2).mean(axis=0)
    skill[name] = 1 - squares / reference
    total = 1 - np.average(squares, weights=area) / np.average(reference, weights=area)
    print(f"{name}: skill {total:.2f}, error {np.average(squares, weights=area) ** 0.5:.1f} hPa")

# %% [markdown]
# One forecast, the one with the median error, and where forecasts are good on average. Coastlines are those of
# [Natural Earth](https://www.naturalearthdata.com).

# %%
day = np.argsort(((forecast - truth) ** 2) @ area)[len(truth) // 2]
maps = [
    ("today (hPa)", today[day], "RdBu_r"),
    ("tomorrow, forecast (hPa)", forecast[day], "RdBu_r"),
    ("tomorrow, truth (hPa)", truth[day], "RdBu_r"),
    ("error of the forecast (hPa)", forecast[day] - truth[day], "PuOr"),
    ("skill of persistence", skill["persistence"], "viridis"),
    ("skill of the Gaussian operator", skill["Gaussian operator"], "viridis"),
]
largest = np.abs(maps[2][1]).max()
coast = folder / "coastlines.csv"
coast = np.genfromtxt(coast, delimiter=",", skip_header=1) if coast.exists() else np.zeros((0, 2))
with loca.figures.style():
    figure = Figure(figsize=(7, 4.8), layout="constrained")
    for ax, (title, values, colors) in zip(figure.subplots(3, 2, sharex=True, sharey=True).flat, maps, strict=True):
        limits = (0, 1) if colors == "viridis" else (-largest, largest)
        values = values.reshape(winters.lat.size, winters.lon.size)
        drawn = ax.pcolormesh(
            winters.lon, winters.lat, values, cmap=colors, vmin=limits[0], vmax=limits[1], shading="gouraud"
        )
        ax.plot(*coast.T, color="black", linewidth=0.4)
        ax.set(title=title, xticks=range(-120, 181, 60), yticks=[-60, -30, 0, 30, 60], aspect="equal")
        ax.set(xlim=winters.lon[[0, -1]], ylim=winters.lat[[0, -1]])
        figure.colorbar(drawn, ax=ax, shrink=0.8, extend="min" if colors == "viridis" else "neither")
    figure.supxlabel("longitude (°)", fontsize=7)
    figure.supylabel("latitude (°)", fontsize=7)
    figure.draw_without_rendering()
figure
