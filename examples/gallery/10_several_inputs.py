# %% [markdown]
# # Several inputs and numbers
#
# A field on one grid, a curve on another, and two numbers decide together about the result: can one model take all of
# them as they are?
#
# A rod of 20 cm starts with some temperature profile. A heater at 6 cm follows a program over ten minutes. The
# diffusivity of the material and the loss to the air are two numbers. The result is the temperature over place and
# time, here from a series of cosines.

# %%
import jax
import numpy as np

import loca
from loca.typing import MultiInput

random, count = np.random.default_rng(0), 300
x, t = np.linspace(0, 20, 31), np.linspace(0, 10, 21)  # cm, min
diffusivity, loss = random.uniform(2, 20, count), random.uniform(0.05, 0.4, count)  # cm²/min, 1/min

k = np.pi * np.arange(24) / 20
modes = np.cos(k * x[:, None])
start = random.normal(size=(count, 24)) * 15 / (1 + (4 * k) ** 2)
swing = 0.5 * random.normal(size=(count, 6)) / np.arange(1, 7)
program = 100 * np.exp(swing @ np.cos(np.pi * np.arange(6)[:, None] * t / 10))  # W
heater = np.exp(-((4 * k) ** 2) / 8) * np.cos(6 * k) * np.where(k > 0, 2, 1) / 20  # K cm/(W min), a bump at 6 cm

rate, dt = diffusivity[:, None] * k**2 + loss[:, None], t[1] - t[0]
c, temperature = start, [start @ modes.T]
for power in (program[:, 1:] + program[:, :-1]).T / 2:
    c = c * np.exp(-rate * dt) + power[:, None] * heater * (1 - np.exp(-rate * dt)) / rate
    temperature.append(c @ modes.T)
temperature = np.stack(temperature, axis=1)

# %% [markdown]
# Every field keeps its own grid, and the numbers stand beside the fields.

# %%
data = loca.Samples(
    MultiInput((temperature[:, 0], program), np.stack([diffusivity, loss], axis=1)),
    loca.domains.grid(t, x),
    temperature.reshape(count, -1),
    x=(x, t),
    inputs=[("profile", "K"), ("heater", "W"), ("diffusivity", "cm2 min-1"), ("loss", "min-1")],
    outputs=[("temperature", "K")],
    sensor_coordinates=[("x", "cm"), ("t", "min")],
    query_coordinates=[("t", "min"), ("x", "cm")],
)
train, test = data.split(jax.random.key(0), 250, 50)
operator, report = loca.solve(train)
print(report)
print(loca.evaluate(operator, test, metrics=["relative_l2", "rmse", "coverage"]))

# %% [markdown]
# Rods that the operator has not seen, from the one with the median error to the worst:

# %%
errors = loca.evaluate(operator, test).of("relative_l2")
rows = np.argsort(errors)[[len(errors) // 2, -len(errors) // 10, -1]]
loca.figures.fields(operator, test, rows=rows, captions=[f"{100 * errors[row]:.2g} %" for row in rows])
