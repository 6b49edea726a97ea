# %% [markdown]
# # Where to observe next
#
# There is money for five more wells: where do they tell most about the permeability, and how much more than five wells
# anywhere?

# %%
import jax
import numpy as np
from matplotlib.figure import Figure

import loca

simulator = loca.problems.Darcy(resolution=12, preset="easy")
train = simulator.sample(jax.random.key(0), 200)
operator, report = loca.solve(train)
print(report)

# %% [markdown]
# Six wells exist. Candidates are all other places, and `design` chooses those with the largest expected information
# about the permeability, one after another. No pressure need be known for it.

# %%
noise, points = 0.01, np.asarray(train.y.points)
inside = np.flatnonzero(np.all((points > 0) & (points < 1), axis=1))
random = np.random.default_rng(2)
wells = points[random.choice(inside, 6, replace=False)]
chosen = loca.design(operator, points[inside], count=5, noise=noise, prior=train, existing=wells)
print(chosen)

# %% [markdown]
# Was it worth it? Twenty truths are observed in the old wells alone, in the five chosen ones as well, or in five others
# anywhere, which differ from truth to truth. From each, the permeability is inferred.

# %%
truths = simulator.sample(jax.random.key(1), 20)


def infer(truth, rows):
    """The standard deviation of the permeability everywhere, from pressures at some points."""
    s = truth.s[0][rows] + noise * random.normal(size=(len(rows), 1))
    return loca.invert(operator, (points[rows], s), noise=noise, prior=train, method="laplace").std[:, 0]


def rows_of(places):
    """The numbers of places among all points."""
    return [int(np.argmin(np.sum((points - place) ** 2, axis=1))) for place in places]


old, new = rows_of(wells), rows_of(chosen.y)
free = np.setdiff1d(inside, old)
found = {"six wells": [], "and five chosen": [], "and five anywhere": []}
for i in range(len(truths)):
    truth = truths.take(np.array([i]))
    cases = old, old + new, old + random.choice(free, 5, replace=False).tolist()
    for name, rows in zip(found, cases, strict=True):
        found[name].append(infer(truth, np.array(rows)))
size = {name: np.mean(stds, axis=1) for name, stds in found.items()}  # of each truth
for name, each in size.items():
    less = 1 - each.mean() / size["six wells"].mean()
    print(f"{name:<18} mean standard deviation {each.mean():.3f}, {less:.0%} less")

# %% [markdown]
# The standard deviation of the permeability, its mean over the truths. White circles are the six wells, and numbers
# show the chosen ones in their order.

# %%
with loca.figures.style():
    figure = Figure(figsize=(7, 2.2), layout="constrained")
    *maps, bars = figure.subplots(1, 4, width_ratios=[1, 1, 1, 0.9])
    top = np.mean(found["six wells"], axis=0).max()
    for panel, (name, stds) in zip(maps, found.items(), strict=True):
        field = np.mean(stds, axis=0).reshape(12, 12)
        image = panel.imshow(field.T, origin="lower", extent=(0, 1, 0, 1), vmin=0, vmax=top)
        panel.plot(*wells.T, "o", color="none", markeredgecolor="white", markersize=4)
        panel.set(title=name, xlabel="$x_1$", xticks=[0, 1], yticks=[0, 1])
    for number, place in enumerate(chosen.y, 1):
        maps[1].text(*place, str(number), color="white", weight="bold", ha="center", va="center")
    maps[0].set_ylabel("$x_2$")
    figure.colorbar(image, ax=maps, location="bottom", aspect=50, label="standard deviation of the permeability")
    line = {"color": loca.figures.INK, "linewidth": 0.6}
    looks = {f"{part}props": line for part in ("box", "whisker", "cap", "median")}
    bars.boxplot(list(size.values()), widths=0.6, flierprops={"markersize": 2}, **looks)
    bars.set(xticks=[1, 2, 3], xticklabels=["six", "chosen", "anywhere"], ylim=(0, None), title="its mean, 20 truths")
figure
