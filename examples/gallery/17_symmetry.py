# %% [markdown]
# # Symmetry for free
#
# Many problems look the same in a mirror: how many simulations does a model save that knows this?
#
# The data are flows through porous ground with rough permeability, on a 12 × 12 grid. Nobody tells the model which
# symmetries they have.

# %%
import jax
import jax.numpy as jnp
from matplotlib.figure import Figure

import loca
from loca.symmetries import Symmetries

simulator = loca.problems.Darcy(resolution=12)
train = simulator.sample(jax.random.key(0), 400)
test = simulator.sample(jax.random.key(1), 200)
operator, report = loca.solve(train.take(jnp.arange(200)), symmetries="auto", progress=False)
print(report.symmetries)

# %% [markdown]
# `"auto"` adopts a symmetry if it lowers the error of functions that are held out, by at least three standard errors,
# and if nothing in the residuals tells against it: the defect is at most 1.2 standard errors. A flow and its image in
# the mirror, both of which the model now learns from:

# %%
known = report.symmetries.adopted
mirror = Symmetries.of([name for name in known if name.startswith("reflect")], train)
loca.figures.sheet(mirror.augment(train.take(jnp.arange(1))), rows=2)

# %% [markdown]
# The same operator without and with these symmetries, solved for with more and more flows:

# %%
counts = [50, 100, 200, 400]
errors = {"without": [], "with symmetries": []}
for count in counts:
    for name, symmetries in (("without", None), ("with symmetries", known)):
        some, options = train.take(jnp.arange(count)), {"hyperparameters": report.hyperparameters, "progress": False}
        model, _ = loca.solve(some, symmetries=symmetries, **options)
        found = loca.evaluate(model, test, metrics=["relative_l2"])
        errors[name].append(100 * found.of("relative_l2", 0).mean())
for name, found in errors.items():
    print(name, *(f"{error:.3g} %" for error in found))

# %%
with loca.figures.style():
    figure = Figure(figsize=(3.8, 2.8), layout="constrained")
    ax = figure.subplots()
    for name, look in loca.figures.line_styles(errors).items():
        ax.plot(counts, errors[name], marker="o", **look)
        ax.annotate(name, (counts[1], errors[name][1]), xytext=(4, 4), textcoords="offset points", color=look["color"])
    ax.set(xscale="log", xlabel="flows that were simulated", ylabel="relative error on new flows (%)")
    ax.set_xticks(counts, counts)
    ax.minorticks_off()
    loca.figures.log_axis(ax)
    figure.draw_without_rendering()
figure

# %% [markdown]
# `loca.fit(network, train, symmetries="auto")` and `loca.choose(train, symmetries="auto")` do the same for every other
# model. If you know what holds, name it: `symmetries=["reflect y", "scale -1"]`; see [Symmetries](../symmetries.md).
