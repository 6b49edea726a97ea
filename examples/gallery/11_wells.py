# %% [markdown]
# # Permeability from wells
#
# The pressure was measured in 24 wells: what is the permeability of the ground between them, and how sure is that?
#
# The simulator needs permeability and returns pressure. A surrogate of it is solved for once; it is fast enough to be
# run backwards.

# %%
import jax
import numpy as np

import loca

simulator = loca.problems.Darcy(resolution=16, preset="easy")
train = simulator.sample(jax.random.key(0), 250)
operator, report = loca.solve(train)
print(report)

# %% [markdown]
# The truth to be found, which nobody knows in practice, and what was measured: pressures with a noise of 0.01 anywhere
# in the domain.

# %%
truth, noise = simulator.sample(jax.random.key(1), 1), 0.01
inside = np.flatnonzero(np.all((simulator.x > 0) & (simulator.x < 1), axis=1))
rows = np.random.default_rng(0).choice(inside, 24, replace=False)
wells = train.y.points[rows]
pressures = truth.s[0][rows] + noise * np.random.default_rng(1).normal(size=(24, 1))

# %% [markdown]
# `invert` draws permeabilities that explain the pressures. They are plausible a priori, as those of the training data,
# and the error of the surrogate is counted as noise.

# %%
posterior = loca.invert(operator, (wells, pressures), noise=noise, prior=train)
print(posterior)
lower, upper = np.quantile(posterior.draws, [0.05, 0.95], axis=0)
print(f"between the 5 % and the 95 % quantile: {np.mean((lower < truth.u[0]) & (truth.u[0] < upper)):.0%} of the truth")

# %% [markdown]
# The mean of the draws is the estimate, and every draw may be the truth. The standard deviation shows where the wells
# say little. Circles are wells.

# %%
figure = loca.figures.posterior(posterior, truth=truth.u[0])
for panel in figure.axes:
    if panel.get_label() != "<colorbar>":
        panel.plot(*wells.T, "o", color="none", markeredgecolor="white", markeredgewidth=0.7, markersize=3)
figure
