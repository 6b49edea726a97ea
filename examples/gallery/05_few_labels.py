# %% [markdown]
# # Few labels
#
# Often only some output values of each run are stored or measured: how does the error depend on their number?
#
# 100 flows through porous ground on a 10 × 10 grid. Of every pressure field, 4 to 100 values are kept, at locations
# that differ from one run to the next.

# %%
import jax
from matplotlib.figure import Figure

import loca

simulator = loca.problems.Darcy(resolution=10, preset="easy")
full = simulator.sample(jax.random.key(0), 100)
test = simulator.sample(jax.random.key(1), 100)
loca.figures.sheet(full.observe(jax.random.key(2), count=16), rows=2)

# %% [markdown]
# A Gaussian operator and LOCA learn from the labels of all functions together, wherever they are. Ridge regression
# fits each location alone, to the functions with a label there. The hyperparameters of the Gaussian operator are
# searched for once, with 16 labels; ridge regression gets the same transforms of variables.

# %%
_, report = loca.solve(full.observe(jax.random.key(2), count=16))
transforms = dict(report.hyperparameters.transforms)
counts = [4, 16, 100]
errors = {"Gaussian operator": [], "LOCA": [], "ridge regression": []}
for count in counts:
    train = full.observe(jax.random.key(2), count)
    network = loca.LOCA.create(train, key=jax.random.key(3), num_features=50, lift_size=50, transforms=transforms)
    models = {
        "Gaussian operator": loca.solve(train, hyperparameters=report.hyperparameters)[0],
        "LOCA": loca.fit(network, train, steps=400, progress=False)[0],
        "ridge regression": loca.models.Regression.fit(train, transforms=transforms),
    }
    for name, model in models.items():
        found = loca.evaluate(model, test, metrics=["relative_l2"])
        errors[name].append(100 * found.of("relative_l2", 0).mean())
for name, found in errors.items():
    print(name, *(f"{error:.2g} %" for error in found))

# %% [markdown]
# Errors on new functions, over all 100 locations:

# %%
with loca.figures.style():
    figure = Figure(figsize=(3.8, 2.8), layout="constrained")
    ax = figure.subplots()
    for name, look in loca.figures.line_styles(errors).items():
        ax.plot(counts, errors[name], marker="o", **look)
        ax.annotate(name, (counts[1], errors[name][1]), xytext=(4, 4), textcoords="offset points", color=look["color"])
    ax.set(xscale="log", xlabel="labels of each function (of 100)", ylabel="relative error on new functions (%)")
    ax.set_xticks(counts, counts)
    ax.minorticks_off()
    loca.figures.log_axis(ax)
    figure.draw_without_rendering()
figure
