# %% [markdown]
# # A part with a hole
#
# Two hundred runs of a thermal simulation, one mesh file each and a table of their parameters: what is the temperature
# of a design that has not been simulated, at every node, and how wrong may it be?
#
# The part is an aluminum plate of 200 mm × 100 mm. A component heats a spot of it, and a coolant flows through the
# hole. The runs differ in the place of the spot, its power, and the cooling of the hole. First the mesh: rings of nodes
# from the circle to the edge.

# %%
from pathlib import Path

import jax
import meshio
import numpy as np
from scipy.sparse import coo_array, diags_array
from scipy.sparse.linalg import spsolve

import loca

center, radius, x, y = np.array([70.0, 50.0]), 22.0, np.arange(0, 200, 10), np.arange(0, 100, 10)
edge = [(a, 0) for a in x] + [(200, b) for b in y] + [(200 - a, 100) for a in x] + [(0, 100 - b) for b in y]
outwards = np.array(edge) - center
circle = radius * outwards / np.linalg.norm(outwards, axis=1, keepdims=True)
share = np.linspace(0, 1, 8)[:, None, None]
nodes = (center + (1 - share) * circle + share * outwards).reshape(-1, 2)

a = np.arange(7 * len(edge))
b = a - a % len(edge) + (a + 1) % len(edge)  # the neighbor in the same ring
cells = np.concatenate([np.stack([a, b, b + len(edge)], 1), np.stack([a, b + len(edge), a + len(edge)], 1)])
part = loca.domains.Mesh(nodes, cells)
print(part)

# %% [markdown]
# A small finite element solver stands for yours. It writes one file for each run, and a table.

# %%
sides = nodes[cells][:, [2, 0, 1]] - nodes[cells][:, [1, 2, 0]]
area = np.abs(np.linalg.det(sides[:, :2])) / 2
local = np.einsum("cid,cjd->cij", sides, sides) / (4 * area[:, None, None])
row, column = np.repeat(cells, 3, axis=1).ravel(), np.tile(cells, 3).ravel()
conduction = 0.8 * coo_array((local.ravel(), (row, column))).tocsc()  # W/K: 4 mm of aluminum
areas = loca.domains.area_weights(part, nodes)  # mm², of each node
rim = np.zeros(len(nodes))
rim[: len(edge)] = 4 * 2 * np.pi * radius / len(edge)  # mm², of the wall of the hole


def simulate(spot_x, spot_y, power, cooling):
    """The temperature at the nodes, in °C."""
    heat = areas * np.exp(-np.sum((nodes - [spot_x, spot_y]) ** 2, axis=1) / (2 * 15**2))
    losses = diags_array(2e-5 * areas + 1e-3 * cooling * rim)  # W/K, into air and coolant of 20 °C
    return 20 + spsolve((conduction + losses).tocsc(), power * heat / heat.sum())


designs = np.random.default_rng(0).uniform([110, 15, 5, 0.5], [185, 85, 30, 5], (200, 4))
Path("runs").mkdir(exist_ok=True)
for i, design in enumerate(designs):
    mesh = meshio.Mesh(np.pad(nodes, ((0, 0), (0, 1))), [("triangle", cells)], {"temperature": simulate(*design)})
    mesh.write(f"runs/run_{i:03d}.vtu")
np.savetxt("runs/designs.csv", designs, delimiter=",", header="spot_x,spot_y,power,cooling", comments="")

# %% [markdown]
# From here on, nothing is specific to this part: a folder with your files and your table works the same way. Forty runs
# calibrate the error bars.

# %%
runs = loca.data.open("runs", outputs="temperature")
train, held, test = runs.load().split(jax.random.key(0), 130, 40, 30)
operator, report = loca.solve(train)
print(report)
model = loca.calibrate(operator, held)
print(loca.evaluate(model, test, weights=areas, metrics=["relative_l2", "rmse", "max_absolute", "coverage"]))

# %% [markdown]
# A design that was not simulated, as a file for ParaView with temperature, standard deviation and bands at the nodes:

# %%
Path("new.csv").write_text("spot_x,spot_y,power,cooling\n150,60,20,2\n")
new = loca.data.open("new.csv", unsolved=True)
prediction = loca.prediction.predict_dataset(model, new)
loca.prediction.write_dataset(prediction, "new.vtu", runs.domain)
print(meshio.read("new.vtu"))

# %% [markdown]
# Three runs that the model has not seen. The bands contain as much as they should on average, but σ hardly shows where
# on the part errors are largest: near the spot.

# %%
loca.figures.error_bars(model, test, rows=3)
