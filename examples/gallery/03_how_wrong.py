# %% [markdown]
# # How wrong may it be
#
# A surrogate comes with error bars: do bands of 90 % contain 90 % of the truth, and are errors large where bands are
# wide?
#
# Flows through porous ground again. The operator is solved for from 150 simulations; 100 more, which it has not seen,
# calibrate its bands, and 200 others test them.

# %%
import jax
import numpy as np
from matplotlib.figure import Figure

import loca

simulator = loca.problems.Darcy(resolution=12)
train, held, test = (simulator.sample(jax.random.key(i), count) for i, count in enumerate([150, 100, 200]))

operator, report = loca.solve(train)
model = loca.calibrate(operator, held)

# %% [markdown]
# Any model can be calibrated, also one that knows nothing of its error, such as ridge regression. Its bands are then
# right on average, but they have the same width everywhere.

# %%
transforms = dict(report.hyperparameters.transforms)
ridge = loca.calibrate(loca.models.Regression.fit(train, transforms=transforms), held)
models = {
    "Gaussian operator, as solved": operator,
    "Gaussian operator, calibrated": model,
    "ridge regression, calibrated": ridge,
}
reports = {name: loca.evaluate(each, test) for name, each in models.items()}
for name, report in reports.items():
    print(f"{name}: {report.of('coverage', 0).mean():.1%} inside, mean width {report.of('width', 0).mean():.2g}")

# %% [markdown]
# The share of the truth inside bands of all levels. *Pointwise* bands are for single values; a *simultaneous* band is
# to contain a whole function.

# %%
loca.figures.reliability(reports)

# %% [markdown]
# A right share alone is worth little if bands are wide where they need not be. So compare the half width of a band
# with the actual error at the same place: of equally wide bands, the error should be smaller in nine of ten cases.
# The line is the 90 % quantile of errors. On the diagonal it is exactly as the bands claim; where it is above, bands
# are too narrow. Calibration guarantees the average over all of them, not every width.

# %%
bars = model.predict_error_bars(test.u, test.y, level=0.9)
width = np.ravel(bars.upper - bars.lower) / 2
error = np.abs(np.ravel(bars.mean - test.s))
inner = width > np.quantile(width, 0.15)  # pressure is given at two sides of the square

with loca.figures.style():
    figure = Figure(figsize=(3.6, 2.8), layout="constrained")
    ax = figure.subplots()
    color = loca.figures.line_styles(["Gaussian operator"])["Gaussian operator"]["color"]
    ax.scatter(width[inner][::10], error[inner][::10], s=1, alpha=0.3, color=color, linewidth=0, label="a value")
    groups = np.array_split(np.argsort(width[inner]), 12)
    middle = [np.median(width[inner][group]) for group in groups]
    ax.plot(
        middle, [np.quantile(error[inner][group], 0.9) for group in groups], "o-", color=color, label="90 % quantile"
    )
    ends = np.array([min(middle) / 1.5, max(middle) * 2])
    ax.plot(ends, ends, color=loca.figures.INK, linewidth=0.6, label="error = half width")
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=(ends[0] / 30, ends[1] * 2))
    ax.set_xticks([0.02, 0.05, 0.1], ["0.02", "0.05", "0.1"])
    ax.set_xticks([], minor=True)
    ax.set(xlabel="half width of the 90 % band (pressure)", ylabel="|error| (pressure)")
    legend = ax.legend(loc="lower right")
    legend.legend_handles[0].set(alpha=1, sizes=[6])
    figure.draw_without_rendering()
figure
