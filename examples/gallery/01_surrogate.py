# %% [markdown]
# # A surrogate in ten lines
#
# From 300 simulations to a fast surrogate with error bars: how much code, and how long?
#
# The simulations are flows through porous ground: permeability in, pressure out, solved by finite elements on a
# 16 × 16 grid.

# %%
import jax

import loca

simulator = loca.problems.Darcy(resolution=16, preset="easy")
train = simulator.sample(jax.random.key(0), 300)
test = simulator.sample(jax.random.key(2), 50)

operator, report = loca.solve(train)
print(report)

# %% [markdown]
# The operator was solved for, not trained. `evaluate` compares it with simulations that it has not seen, at all 256
# locations, and counts how often its bands of 90 % contain the truth.

# %%
print(loca.evaluate(operator, test, metrics=["relative_l2", "coverage"]))

# %% [markdown]
# One prediction anywhere, with its standard deviation, and the file that keeps the operator:

# %%
y = jax.numpy.array([[0.123, 0.456]])
print(operator(test.u[0], y), operator.std(test.u[0], y))
loca.save(operator, "darcy.safetensors", data=train)

# %% [markdown]
# Three flows that it has not seen: input, truth, prediction and error.

# %%
loca.figures.fields(operator, test, rows=3)
