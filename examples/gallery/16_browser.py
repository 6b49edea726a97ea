# %% [markdown]
# # From a run to the browser
#
# Does a model give the same numbers, error bars included, where neither this package nor Python is installed?
#
# A surrogate of Darcy flow with error bars, for permeabilities on a grid of 12 × 12 points:

# %%
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import loca

simulator = loca.problems.Darcy(resolution=12, preset="easy")
train, test = simulator.sample(jax.random.key(0), 150), simulator.sample(jax.random.key(1), 50)
operator, report = loca.solve(train)
print(loca.evaluate(operator, test, metrics=["relative_l2", "coverage"]))

# %% [markdown]
# `export` writes it as a program, with units, sensors and a SHA-256. As the locations are fixed, all work on them is
# done now. The file for ONNX Runtime is made if
# [jax2onnx has its environment](../deploy.md#the-environment-for-onnx).

# %%
names = ["darcy.stablehlo"] + ["darcy.onnx"] * ("LOCA_JAX2ONNX" in os.environ)
for name in names:
    Path(name).unlink(missing_ok=True)  # an existing file is never overwritten
    about = loca.export(operator, name, y=train.y.points).about
    print(f"{name}, {Path(name).stat().st_size / 1000:.0f} kB:", *about.inputs, "→", *about.outputs)

# %% [markdown]
# This reader knows nothing of this package. It needs JAX for one file, and ONNX Runtime for the other, which also
# exists for C++, C#, Java and JavaScript.

# %%
Path("reader.py").write_text("""
import json, sys
import numpy as np

name, u = sys.argv[1], np.load("u.npy")
if name.endswith(".onnx"):
    import onnxruntime
    session = onnxruntime.InferenceSession(name)
    found = dict(zip([each.name for each in session.get_outputs()], session.run(None, {"u": u})))
else:
    from jax import export
    contents = open(name, "rb").read()  # the length of the header, the header in JSON, and the arrays
    start = 8 + int.from_bytes(contents[:8], "little")
    begin, end = json.loads(contents[8:start])["program"]["data_offsets"]
    found = export.deserialize(bytearray(contents[start + begin : start + end])).call(u)
np.savez(name + ".npz", **found)
print(name, "read with", *sorted({"loca", "jax", "onnxruntime"} & set(sys.modules)))
""")
np.save("u.npy", test.u)
for name in names:
    run = subprocess.run([sys.executable, "reader.py", name], check=True, capture_output=True, text=True)
    print(run.stdout.strip())

# %% [markdown]
# In a browser, `onnxruntime-web` runs the file on the visitor's machine; no server computes anything:
#
# ```html
# <script type="module">
#   import * as ort from "https://cdn.jsdelivr.net/npm/onnxruntime-web/dist/ort.min.mjs";
#   const session = await ort.InferenceSession.create("darcy.onnx");
#   const u = new ort.Tensor("float32", permeability, [1, 144, 1]); // a Float32Array of 144 numbers
#   const { mean, std, lower, upper } = await session.run({ u });
#   console.log(mean.data, std.data);
# </script>
# ```
#
# One permeability, its pressure and standard deviation from the last of these processes, and how far all numbers for 50
# permeabilities differ from those of this package:

# %%
expected = operator.predict_error_bars(test.u, test.y, level=0.9)
reference = {"mean": expected.mean, "std": expected.std, "lower": expected.lower, "upper": expected.upper}
found = {name: dict(np.load(f"{name}.npz")) for name in names}

with loca.figures.style():
    figure = Figure(figsize=(7, 2.3), layout="constrained")
    *maps, right = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.5])
    last = found[names[-1]]
    shown = {"permeability": test.u[0], f"mean in {names[-1]}": last["mean"][0], f"std in {names[-1]}": last["std"][0]}
    for panel, (title, values) in zip(maps, shown.items(), strict=True):
        image = panel.imshow(np.reshape(values, (12, 12)).T, origin="lower", extent=(0, 1, 0, 1))
        panel.set(title=title, xlabel="$x_1$", ylabel="$x_2$", xticks=[0, 1], yticks=[0, 1])
        figure.colorbar(image, ax=panel, location="bottom")
    places = np.arange(len(reference))
    for i, (name, look) in enumerate(loca.figures.line_styles(names).items()):
        worst = [np.max(np.abs(found[name][key] - values)) / np.max(values) for key, values in reference.items()]
        right.bar(places + 0.4 * (i - 0.5 * (len(names) - 1)), worst, width=0.35, label=name, color=look["color"])
    right.axhline(1e-5, color=loca.figures.INK, linewidth=0.8)
    right.text(-0.4, 1.2e-5, "`export` allows 1e-5", va="bottom")
    right.set(yscale="log", ylim=(1e-9, 1e-3), ylabel="largest difference\nrelative to the largest value")
    right.set_xticks(places, reference)
    right.legend(loc="upper right")
figure
