# %% [markdown]
# # Which model for my data
#
# Six models could learn from the same simulations: which has the smallest error, and what does it cost to fit?
#
# The data are flows through porous ground with rough permeability, on a 12 × 12 grid. `loca.compare` takes any other
# data as well, and so does `loca compare data.nc` on the command line.

# %%
import jax

import loca

simulator = loca.problems.Darcy(resolution=12)
train = simulator.sample(jax.random.key(0), 200)
test = simulator.sample(jax.random.key(1), 100)
loca.figures.sheet(train, rows=2)

# %% [markdown]
# Models with a closed form take the time that they need; each of the others is trained for half a minute
# here. Settings are chosen on a fifth of the training functions, and the test functions are used once, for this
# table.

# %%
comparison = loca.compare(train, test, minutes=[0.5])
print(comparison)

# %% [markdown]
# The best model is low and far to the left. The ring marks the one that the validation functions prefer, and the
# dashed line is the error of the mean of all training outputs, which a model should stay well below.

# %%
loca.figures.comparison(comparison)

# %% [markdown]
# `loca.choose(train, minutes=...)` fits the same models and returns the best. On your own data, give more minutes to
# the models that are trained, and several seeds: `loca.compare(train, minutes=[1, 4, 16], seeds=3)` draws a line for
# each of them, which shows whether more time would help.
