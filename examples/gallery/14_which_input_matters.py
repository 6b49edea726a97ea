# %% [markdown]
# # Which input matters
#
# A simulation of an epidemic has four uncertain parameters: which of them decides about the share of infected people,
# and when?
#
# The simulation is a model of susceptible and infected people; yours may take hours.

# %%
import jax
import numpy as np
import scipy.stats
from matplotlib.figure import Figure

import loca

names = ["contacts", "days infectious", "infected at first", "vaccinated"]
low, high = np.array([0.3, 5, 0.02, 0]), np.array([0.5, 9, 0.2, 30])  # 1/day, days, %, %
days = np.linspace(0, 120, 61)


def simulate(p):
    """The share of infected people in percent over 120 days, for many parameters at once."""
    contacts, infectious, first, vaccinated = np.asarray(p).T
    y = np.stack([1 - vaccinated / 100 - first / 100, first / 100])
    h, shares = 0.25, [y[1]]

    def slope(y):
        new, gone = contacts * y[0] * y[1], y[1] / infectious
        return np.stack([-new, new - gone])

    for step in range(480):  # Runge and Kutta
        k1 = slope(y)
        k2 = slope(y + h / 2 * k1)
        k3 = slope(y + h / 2 * k2)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + h * k3))
        if step % 8 == 7:
            shares.append(y[1])
    return 100 * np.stack(shares, axis=-1)


p = low + (high - low) * scipy.stats.qmc.Sobol(4, rng=0).random(512)
data = loca.Samples(
    p[:, None], days, simulate(p), inputs=list(zip(names, ["1/day", "", "%", "%"], strict=True)),
    outputs=[("infected", "%")], query_coordinates=[("time", "days")],
)  # fmt: skip
train, test = data.split(jax.random.key(0), 400, 100)
operator, report = loca.solve(train)
print(report)
print(loca.evaluate(operator, test, metrics=["relative_l2", "rmse", "coverage"]))

# %% [markdown]
# Sobol indices need thousands of runs, which the operator makes in a second. The total index of a parameter is the
# share of the variance that would remain if all others were known.

# %%
uniform = [scipy.stats.uniform(*ends) for ends in zip(low, high - low, strict=True)]
key = jax.random.key(1)
indices = loca.sensitivity.sobol(operator, lambda p: p[None], days, distributions=uniform, count=1024, key=key)
first, total = indices.overall()
for name, *shares in zip(names, first[:, 0], total[:, 0], strict=True):
    print("{:<18} alone {:4.0%}, with others {:4.0%}".format(name, *shares))

# %% [markdown]
# This simulation is fast, so its own indices can be computed as well, from 6144 runs of it: they are the dots. Both
# agree until few people are infected: then the operator is less accurate relative to them.

# %%
exact = scipy.stats.sobol_indices(func=lambda p: simulate(p.T).T, n=1024, dists=uniform, rng=0)

with loca.figures.style():
    figure = Figure(figsize=(6.5, 2.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    middle, lower, upper = (np.quantile(train.s[..., 0], q, axis=0) for q in (0.5, 0.05, 0.95))
    left.fill_between(days, lower, upper, alpha=0.2, linewidth=0, label="90 % of the runs")
    left.plot(days, middle, label="median")
    left.set(xlabel="time (days)", ylabel="infected (%)", ylim=(0, None), title="uncertain result")
    left.legend()
    for i, (name, look) in enumerate(loca.figures.line_styles(names).items()):
        right.plot(days, indices.total[i, :, 0], label=name, **look)
        right.plot(days[::4], exact.total_order[::4, i], "o", color=look["color"])
    right.set(xlabel="time (days)", ylabel="total index", ylim=(0, 1), title="which parameter is responsible")
    right.legend(loc="upper left", bbox_to_anchor=(1, 1))
figure
