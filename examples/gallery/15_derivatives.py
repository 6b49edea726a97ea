# %% [markdown]
# # Training with derivatives
#
# My solver also returns derivatives: how many simulations does training with them save?
#
# The solver is Newton's method for −s″ + s³ = u with s = 0 at both ends. The derivative of s in a direction du is the
# solution of one more linear system, with the matrix of the last step.

# %%
import jax
import numpy as np
from matplotlib.figure import Figure

import loca

points = 32
x = np.linspace(0, 1, points + 2)[1:-1]
laplacian = (2 * np.eye(points) - np.eye(points, k=1) - np.eye(points, k=-1)) * (points + 1) ** 2


def slope(s, right):
    """The solution of the linear system at s."""
    matrix = laplacian + 3 * (s**2)[..., None] * np.eye(points)
    return np.linalg.solve(matrix, right[..., None])[..., 0]


def simulate(u):
    """s for many u, by ten steps of Newton's method from 0."""
    s = np.zeros_like(u)
    for _ in range(10):
        s = s - slope(s, s @ laplacian + s**3 - u)
    return s


def loads(random, *shape):
    """Smooth random functions."""
    k = np.arange(1, 9)
    return 150 * random.normal(size=(*shape, 8)) / (1 + (k / 3) ** 2) @ np.sin(np.pi * k[:, None] * x)


random = np.random.default_rng(0)
u, du = loads(random, 100), loads(random, 100, 2)  # two directions for each load
s = simulate(u)
ds = slope(s[:, None], du)
train = loca.Samples(u, x, s, x=x)

test_u, test_du = loads(random, 100), loads(random, 100)
test_s = simulate(test_u)
test_ds = slope(test_s, test_du)

# %% [markdown]
# The same network is trained on 25 to 100 simulations, with and without derivatives. `tangents` makes an operator and
# data that `fit` takes as any other.


# %%
def errors(model):
    """Mean relative L2 errors in percent of values and of derivatives, on 100 other loads."""
    u, du = test_u[..., None], test_du[..., None]
    pairs = (model.predict(u, x), test_s), (jax.vmap(model.jvp, (0, 0, None))(u, du, x), test_ds)
    return [100 * np.mean(np.linalg.norm(f[..., 0] - e, axis=1) / np.linalg.norm(e, axis=1)) for f, e in pairs]


found = {"LOCA": [], "LOCA with derivatives": []}
for count in (25, 50, 100):
    few = train.take(np.arange(count))
    model = loca.LOCA.create(few, key=jax.random.key(0), num_features=30, lift_size=30, lift_widths=(40,),
                             proposal_widths=(40,), feature_widths=(100,))  # fmt: skip
    plain, _ = loca.fit(model, few, steps=600)
    tangent, pairs = loca.sensitivity.tangents(model, few, du[:count], ds[:count])
    tangent, _ = loca.fit(tangent, pairs, steps=600)
    for name, each in zip(found, (plain, tangent.operator), strict=True):
        value, derivative = errors(each)
        found[name].append({"simulations": count, "value": value, "derivative": derivative})
        print(f"{count:4} simulations, {name:<22} error of values {value:5.2f} %, of derivatives {derivative:5.2f} %")

# %% [markdown]
# A Gaussian operator, which is solved for without derivatives, to compare with:

# %%
operator, report = loca.solve(train)
value, derivative = errors(operator)
found["Gaussian operator"] = [{"simulations": 100, "value": value, "derivative": derivative}]
print(f"error of values {value:.2f} %, of derivatives {derivative:.2f} %")

# %% [markdown]
# With two derivatives for each of them, 50 simulations are worth more to LOCA than 100 without. A derivative costs one
# linear system, a simulation ten. The Gaussian operator, which uses no derivatives, has the smallest errors.

# %%
looks = loca.figures.line_styles(found)
looks["LOCA with derivatives"]["color"] = looks["LOCA"]["color"]
with loca.figures.style():
    figure = Figure(figsize=(5.6, 2.4), layout="constrained")
    for panel, what in zip(figure.subplots(1, 2), ("value", "derivative"), strict=True):
        for name, look in looks.items():
            loca.figures.draw_line(panel, found[name], "simulations", what, label=name, **look)
        loca.figures.log_axis(panel)
        panel.set(xscale="log", xlabel="simulations", ylabel=f"error of {what}s (%)")
        panel.set_xticks([25, 50, 100], ["25", "50", "100"], minor=False)
        panel.minorticks_off()
    panel.legend()
figure
