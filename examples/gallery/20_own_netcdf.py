# %% [markdown]
# # From your NetCDF file to a calibrated surrogate
#
# You have a file with inputs and outputs of simulations: how does it become a surrogate with error bars that hold?
#
# The steps are: open, check, solve, evaluate, calibrate, predict. Put the names of your own file and variables into
# the second cell, and the rest stays as it is.
#
# First, an example file: permeability and pressure of 450 flows through porous ground, and another file with 20
# permeabilities for which nothing has been simulated.

# %%
import jax
import numpy as np
import xarray
from matplotlib.figure import Figure

import loca
from loca.prediction import predict_dataset, write_dataset

flows = loca.problems.Darcy(resolution=16).sample(jax.random.key(0), 470)
axis = np.linspace(0, 1, 16)
example = xarray.Dataset(
    {
        "permeability": (("case", "x", "y"), np.reshape(flows.u, (-1, 16, 16)), {"units": "mD"}),
        "pressure": (("case", "x", "y"), np.reshape(flows.s, (-1, 16, 16)), {"units": "bar"}),
    },
    {"x": ("x", axis, {"units": "km"}), "y": ("y", axis, {"units": "km"})},
)
example.isel(case=slice(0, 450)).to_netcdf("simulations.nc", engine="h5netcdf")
example[["permeability"]].isel(case=slice(450, 470)).to_netcdf("new.nc", engine="h5netcdf")

# %% [markdown]
# ## Open
#
# Name the variables and the dimension that counts the cases. Sizes, coordinates and units are read from the file.

# %%
roles = {"inputs": "permeability", "outputs": "pressure", "sample": "case"}
simulations = loca.data.open("simulations.nc", **roles).load()
train, held, test = simulations.split(jax.random.key(0), 250, 100, 100)
loca.figures.sheet(train, rows=2)

# %% [markdown]
# ## Check
#
# Fill values, constant or repeated functions, outputs that do not depend on inputs: training would not fail on them,
# but the surrogate would be wrong.

# %%
print(loca.checks.check(train, test))

# %% [markdown]
# ## Solve
#
# `loca.solve` is a good first choice for hundreds of cases. `loca.choose(train, minutes=5)` would compare it with
# networks that are trained, and return the best.

# %%
operator, report = loca.solve(train)
print(report)

# %% [markdown]
# ## Calibrate and evaluate
#
# Held-out cases set the width of the bands, and test cases, of which nothing was used before, measure errors and
# coverage.

# %%
model = loca.calibrate(operator, held, train=train)
print(loca.evaluate(model, test))
loca.figures.reliability(loca.evaluate(model, test))

# %% [markdown]
# Save the model: the file has the variables, units, bands and everything else that predictions need.

# %%
loca.save(model, "surrogate.safetensors", data=train)

# %% [markdown]
# ## Predict
#
# Anyone with the file can now predict. The result has the dimensions of the input and, beside the pressure, its
# standard deviation, the ends of the band of 90 %, and how usual each input is.

# %%
model = loca.load("surrogate.safetensors")
new = loca.data.open("new.nc", **roles, unsolved=True)
prediction = predict_dataset(model, new, level=0.9)
write_dataset(prediction, "prediction.nc")
print(prediction)

# %% [markdown]
# Maps of the first four cases, with xarray:

# %%
maps = prediction.pressure.isel(case=slice(4)).plot(x="x", y="y", col="case", vmin=0, size=2.2, aspect=1.1)

# %% [markdown]
# Cuts through the same cases with their bands, and the truth, which the simulator knows. On average, nine of ten points
# are inside.

# %%
cuts, truth = (each.sel(y=0.5, method="nearest") for each in (prediction, example.pressure.isel(case=slice(450, 470))))
with loca.figures.style():
    figure = Figure(figsize=(6.6, 2.3), layout="constrained")
    axes = figure.subplots(1, 4, sharey=True)
    for case, ax in enumerate(axes):
        cut = cuts.isel(case=case)
        ax.fill_between(cut.x, cut.pressure_lower, cut.pressure_upper, alpha=0.3, linewidth=0, label="band of 90 %")
        ax.plot(cut.x, cut.pressure, "--", label="prediction")
        ax.plot(cut.x, truth.isel(case=case), ".", color=loca.figures.INK, markersize=4, label="truth")
        ax.set(title=f"case {case}", xlabel="x (km)")
    axes[0].set_ylabel("pressure at y = 0.5 km (bar)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.draw_without_rendering()
figure
