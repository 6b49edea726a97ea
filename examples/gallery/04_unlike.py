# %% [markdown]
# # Is this input unlike my data
#
# A surrogate answers any input, also one for which it was not made: can one tell before the simulation is run?
#
# A calibrated model compares every input with the held-out ones. The result is a p-value: of inputs like the data, 5
# % have p ≤ 0.05.

# %%
import warnings

import jax
import numpy as np
from matplotlib.figure import Figure

import loca
from loca.prediction import predict_dataset

simulator = loca.problems.Darcy(resolution=16, preset="easy")
train, held = simulator.sample(jax.random.key(0), 200), simulator.sample(jax.random.key(1), 200)
operator, _ = loca.solve(train)
model = loca.calibrate(operator, held, train=train)

# %% [markdown]
# Three sets of new permeabilities: one like the data, one with twice the contrast, and one with a finer structure.

# %%
others = {
    "like the data": simulator,
    "twice the contrast": loca.problems.Darcy(resolution=16, preset="easy", amplitude=4 * simulator.amplitude),
    "finer structure": loca.problems.Darcy(resolution=16),
}
new = {name: each.sample(jax.random.key(2), 100) for name, each in others.items()}
p = {name: np.asarray(model.in_distribution(samples.u)) for name, samples in new.items()}
errors = {name: 100 * loca.evaluate(operator, samples).of("relative_l2", 0) for name, samples in new.items()}
for name in new:
    print(f"{name}: {np.mean(p[name] <= 0.05):.0%} have p ≤ 0.05, mean error {errors[name].mean():.2g} %")

# %% [markdown]
# Predictions of many inputs come with their p-values, and with a warning if more of them are small than chance
# explains:

# %%
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    prediction = predict_dataset(model, new["twice the contrast"])
print(caught[-1].category.__name__, caught[-1].message, sep=": ")
print(prediction.in_distribution.values[:5])

# %% [markdown]
# Each point is an input: its p-value, which is known before anything is simulated, and the error of its prediction,
# which is not. Left of the line are those that `loca` reports.

# %%
with loca.figures.style():
    figure = Figure(figsize=(4.2, 3.0), layout="constrained")
    ax = figure.subplots()
    spread = np.exp(np.random.default_rng(0).uniform(-0.08, 0.08, 100))  # so that equal p-values do not hide each other
    for (name, look), marker in zip(loca.figures.line_styles(new).items(), "o^s", strict=True):
        ax.scatter(
            p[name] * spread, errors[name], s=9, marker=marker, color=look["color"], alpha=0.6, linewidth=0, label=name
        )
    ax.axvline(0.05, color=loca.figures.INK, linestyle="--", linewidth=0.6)
    ax.set(xscale="log", xlabel="p-value of the input", ylabel="relative error of the prediction (%)")
    ax.set_xticks([0.005, 0.05, 0.5, 1], ["0.005", "0.05", "0.5", "1"])
    ax.set_xticks([], minor=True)
    loca.figures.log_axis(ax)
    figure.legend(loc="outside upper center", ncols=3)
    figure.draw_without_rendering()
figure
