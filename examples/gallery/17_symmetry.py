# %% [markdown]
# # Symmetry and scale
#
# Flow through porous ground looks the same in a mirror, and ten times the permeability means a tenth of the pressure.
# How much does a surrogate gain from that?
#
# 240 flows on a 16 × 16 grid; the inflow is the same along the second coordinate from either side.

# %%
import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import loca

simulator = loca.problems.Darcy(resolution=16)
train = simulator.sample(jax.random.key(0), 240)
test = simulator.sample(jax.random.key(1), 200)
plain, found = loca.solve(train)

# %% [markdown]
# `symmetries="auto"` tries reflections, the exchange of the coordinates, signs and the scale, and keeps what lowers the
# error on held-out functions. The hyperparameters are known already.

# %%
_, report = loca.solve(train, hyperparameters=found.hyperparameters, symmetries="auto")
print(report.symmetries)

# %% [markdown]
# Errors on new flows, for 60, 120 and 240 simulations, without and with them:

# %%
counts = [60, 120, 240]
choices = {"without": None, "with the reflection": [], "with both": []}
for name in report.symmetries.adopted:
    choices["with both"].append(name)
    if not name.startswith("scale"):
        choices["with the reflection"].append(name)
errors = {name: [] for name in choices}
for count in counts:
    some = train.take(jnp.arange(count))
    for name, symmetries in choices.items():
        model, _ = loca.solve(some, hyperparameters=found.hyperparameters, symmetries=symmetries)
        metric = loca.evaluate(model, test, metrics=["relative_l2"])
        errors[name].append(100 * metric.of("relative_l2", 0).mean())
for name, each in errors.items():
    print(name, *(f"{error:.3g} %" for error in each))

# %%
with loca.figures.style():
    figure = Figure(figsize=(3.8, 2.8), layout="constrained")
    ax = figure.subplots()
    for name, look in loca.figures.line_styles(errors).items():
        ax.plot(counts, errors[name], marker="o", **look)
        ax.annotate(name, (counts[0], errors[name][0]), xytext=(6, 2), textcoords="offset points", color=look["color"])
    ax.set(xscale="log", xlabel="simulations", ylabel="relative error on new flows (%)")
    ax.set_xticks(counts, counts)
    ax.minorticks_off()
    loca.figures.log_axis(ax)
    figure.draw_without_rendering()
figure
