# %% [markdown]
# # From a run to the browser
#
# Does a surrogate give the same numbers, error bars included, where neither this package nor Python is installed?
#
# First a surrogate: flows through porous ground, permeability in, pressure out, on a grid of 12 × 12 points.

# %%
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import loca

simulator = loca.problems.Darcy(resolution=12)
train, test = simulator.sample(jax.random.key(0), 150), simulator.sample(jax.random.key(1), 50)
operator, report = loca.solve(train)
print(loca.evaluate(operator, test, metrics=["relative_l2", "coverage"]))

# %% [markdown]
# `export` writes it as a program, with units, sensors and a SHA-256. As the locations are fixed, all work on them is
# done now. The file for ONNX Runtime is made if
# [jax2onnx has its environment](../deploy.md#the-environment-for-onnx). It goes into a directory that a
# [Triton](https://docs.nvidia.com/deeplearning/triton-inference-server) server can read as its repository of models.

# %%
repository = Path("models/darcy/1")
repository.mkdir(parents=True, exist_ok=True)
files = {"JAX": Path("darcy.stablehlo")}
if "LOCA_JAX2ONNX" in os.environ:
    files["ONNX Runtime"] = repository / "model.onnx"
for file in files.values():
    file.unlink(missing_ok=True)  # an existing file is never overwritten
    about = loca.export(operator, file, y=train.y.points).about
    print(f"{file}, {file.stat().st_size / 1000:.0f} kB:", *about.inputs, "→", *about.outputs)

# %% [markdown]
# The configuration for Triton repeats names and sizes. There, and from a server of your own by `loca serve`, clients
# get predictions [by the same protocol](../deploy.md#requests).


# %%
def ports(listed):
    """Name, type and sizes of arrays; -1 is a size that is free."""
    sizes = [", ".join("-1" if isinstance(size, str) else str(size) for size in each.shape) for each in listed]
    rows = zip(listed, sizes, strict=True)
    return ",\n".join(f'  {{ name: "{each.name}" data_type: TYPE_FP32 dims: [{size}] }}' for each, size in rows)


config = f"""backend: "onnxruntime"
max_batch_size: 0
input [
{ports(about.inputs)}
]
output [
{ports(about.outputs)}
]
"""
(repository.parent / "config.pbtxt").write_text(config)
print(config)

# %% [markdown]
# This reader knows nothing of this package. It needs JAX for one file, and ONNX Runtime for the other, which also
# exists for C++, C#, Java and JavaScript.

# %%
Path("reader.py").write_text("""
import json, sys
import numpy as np

name, result, u = *sys.argv[1:], np.load("u.npy")
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
np.savez(result, **found)
print(name, "read with", *sorted({"loca", "jax", "onnxruntime"} & set(sys.modules)))
""")
np.save("u.npy", test.u)
found = {}
for runtime, file in files.items():
    line = [sys.executable, "reader.py", str(file), "result.npz"]
    print(subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip())
    found[runtime] = dict(np.load("result.npz"))

# %% [markdown]
# A page of a few lines makes predictions in the browser, on the visitor's machine; no server computes anything.
# Chromium opens it here without a window, if it is installed and `LOCA_ORT_WEB` names the directory `dist` of
# onnxruntime-web.

# %%
Path("index.html").write_text("""
<script type="module">
  import * as ort from "./ort/ort.wasm.min.mjs"; // of the npm package onnxruntime-web
  const session = await ort.InferenceSession.create("models/darcy/1/model.onnx");
  const values = await (await fetch("u.json")).json(); // 144 numbers for each permeability
  const u = new ort.Tensor("float32", Float32Array.from(values), [values.length / 144, 144, 1]);
  const found = await session.run({ u });
  const numbers = Object.entries(found).map(([name, tensor]) => [name, Array.from(tensor.data)]);
  document.body.textContent = JSON.stringify(Object.fromEntries(numbers));
</script>
<body></body>
""")
Path("u.json").write_text(json.dumps(np.ravel(test.u).tolist()))
chromium, web = shutil.which("chromium"), os.environ.get("LOCA_ORT_WEB")
if chromium and web and "ONNX Runtime" in files:
    Path("ort").unlink(missing_ok=True)
    Path("ort").symlink_to(web)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        line = [chromium, "--headless", "--no-sandbox", "--virtual-time-budget=20000", "--dump-dom"]
        line.append(f"http://127.0.0.1:{server.server_port}/index.html")
        page = subprocess.run(line, check=True, capture_output=True, text=True, timeout=120).stdout
        server.shutdown()
    numbers = json.loads(re.search(r"<body>(.*?)</body>", page, re.DOTALL)[1])
    found["Chromium"] = {name: np.reshape(each, (50, 144, 1)) for name, each in numbers.items()}
    print("Chromium:", *(f"{name} {values.shape}" for name, values in found["Chromium"].items()))

# %% [markdown]
# One permeability, with its pressure and standard deviation from the last of these programs. On the right, how far all
# numbers for 50 permeabilities differ from those of this package, at most, relative to the largest value.

# %%
expected = operator.predict_error_bars(test.u, test.y, level=0.9)
reference = {"mean": expected.mean, "std": expected.std, "lower": expected.lower, "upper": expected.upper}
last = list(found)[-1]

with loca.figures.style():
    figure = Figure(figsize=(7, 2.3), layout="constrained")
    *maps, right = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.5])
    shown = {"permeability": test.u[0], f"mean in {last}": found[last]["mean"][0]}
    shown[f"std in {last}"] = found[last]["std"][0]
    for panel, (title, values) in zip(maps, shown.items(), strict=True):
        image = panel.imshow(np.reshape(values, (12, 12)).T, origin="lower", extent=(0, 1, 0, 1))
        panel.set(title=title, xlabel="$x_1$", xticks=[0, 1], yticks=[0, 1])
        figure.colorbar(image, ax=panel, location="bottom")
    maps[0].set_ylabel("$x_2$")
    for name, marker in zip(found, "osx", strict=False):
        worst = [np.max(np.abs(found[name][key] - each)) / np.max(np.abs(each)) for key, each in reference.items()]
        right.plot(worst, marker, label=name, markersize=5, markerfacecolor="none")
    right.axhline(1e-5, color=loca.figures.INK, linestyle="--", linewidth=0.6)
    right.text(0.5, 1.2e-5, "more is refused", transform=right.get_yaxis_transform(), ha="center", va="bottom")
    right.set(yscale="log", ylim=(1e-8, 1e-3), xlim=(-0.5, 3.5), ylabel="largest relative difference")
    right.set_xticks(range(4), reference)
    right.legend(loc="upper right")
figure
