# %% [markdown]
# # Which model for my data
#
# Several models could learn from the same simulations: which has the smallest error, and how long does it take to fit?
#
# The data are flows through porous ground with rough permeability, on a 10 × 10 grid. `loca.compare` takes any other
# data as well, and so does `loca compare data.nc` on the command line.

# %%
import jax

import loca

simulator = loca.problems.Darcy(resolution=10)
train = simulator.sample(jax.random.key(0), 150)
test = simulator.sample(jax.random.key(1), 100)
loca.figures.sheet(train, rows=2)

# %% [markdown]
# Models with a closed form take the time that they need. Each of the others is trained for 24 seconds. Settings are
# chosen on a fifth of the training functions, and the test functions are used once, for this table.

# %%
comparison = loca.compare(train, test, minutes=[0.4])
print(comparison)

# %% [markdown]
# The best model is far down and far to the left. The ring marks the one that the validation functions prefer. The
# dashed line is the error of the mean of all training outputs, which any useful model is well below.

# %%
loca.figures.comparison(comparison)

# %% [markdown]
# `loca.choose(train, minutes=...)` fits the same models and returns the best. On your own data, use several seeds and
# more minutes: `loca.compare(train, minutes=[1, 4, 16], seeds=3)` draws a line for each model that is trained, which
# shows whether more time would help.
