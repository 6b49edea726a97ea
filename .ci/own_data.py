"""Own files with the installed command `loca`: train, evaluate, draw, and predict cases that are not solved."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import xarray

LOCA = Path(sys.executable).with_name("loca")


def loca(*line, code=0):
    """Run a command, and return its output on one line."""
    done = subprocess.run([LOCA, *map(str, line)], capture_output=True, text=True, check=False)
    assert done.returncode == code, (line, done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    return " ".join((done.stdout + done.stderr).replace("│", " ").split())


def wells(count):
    """Pressure for a permeability."""
    x, y = np.linspace(0.0, 1.0, 7), np.linspace(0.0, 2.0, 6)
    a = np.random.default_rng(count).normal(size=(2, count, 1, 1))
    u, v = np.meshgrid(x, y, indexing="ij")
    fields = {"permeability": a[0] * np.sin(u) + a[1] * v, "pressure": a[0] * np.cos(u) - a[1] * v}
    return xarray.Dataset(
        {name: (("case", "x", "y"), f.astype("float32")) for name, f in fields.items()}, {"x": x, "y": y}
    )


test = wells(8)
files = {"train": wells(40), "test": test, "inputs": test[["permeability"]]}
for name, content in files.items():
    content.to_netcdf(f"{name}.nc", engine="h5netcdf")
Path("at.csv").write_text("x,y\n0.25,0.5\n0.5,1.5\n")

roles = ["--inputs", "permeability", "--outputs", "pressure", "--sample", "case", "--format", "netcdf"]
model = ["--model", "deeponet", "--rate", 0.002, "--seed", 1, "--steps", 20, "--every", 5]
loca("train", "--data", "train.nc", *roles, *model, "--test", "test.nc", "--out", "run")
assert len(Path("run/history.jsonl").read_text().splitlines()) == 4
loca("predict", "run", "inputs.nc", "--at", "at.csv", "--out", "points.csv")
assert Path("points.csv").read_text().startswith("case,x,y,pressure\n0,0.25,0.5,")
assert ".csv, .parquet" in loca("predict", "run", "inputs.nc", "--out", "p.txt", code=2)
loca("figures", "run", "test.nc", "--out", "figures")
assert {file.name for file in Path("figures").iterdir()} == {"box_plots.png", "curves.png", "fields.png"}
print("own data: trained, evaluated, drawn and predicted by commands")
