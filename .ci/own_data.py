"""Own files with the installed command `loca`: train, stop, reorder, interpolate, draw, and predict unsolved cases."""

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import xarray

from loca.evaluation import Report

LOCA = Path(sys.executable).with_name("loca")


def loca(*line, code=0):
    """Run a command, and return its output on one line."""
    done = subprocess.run([LOCA, *map(str, line)], capture_output=True, text=True, check=False)
    assert done.returncode == code, (line, done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    return " ".join((done.stdout + done.stderr).replace("│", " ").split())


def wells(count, x):
    """Pressure for a permeability."""
    y = np.linspace(0.0, 2.0, 6)
    a = np.random.default_rng(count).normal(size=(2, count, 1, 1))
    u, v = np.meshgrid(x, y, indexing="ij")
    fields = {"permeability": a[0] * np.sin(u) + a[1] * v, "pressure": a[0] * np.cos(u) - a[1] * v}
    return xarray.Dataset(
        {name: (("case", "x", "y"), f.astype("float32")) for name, f in fields.items()}, {"x": x, "y": y}
    )


x = np.linspace(0.0, 1.0, 7)
test = wells(8, x)
files = {
    "train": wells(40, x),
    "test": test,
    "other": test.isel(y=slice(None, None, -1)).transpose("case", "y", "x"),
    "fine": wells(8, np.linspace(0.0, 1.0, 13)),
    "inputs": test[["permeability"]],
}
for name, content in files.items():
    content.to_netcdf(f"{name}.nc", engine="h5netcdf")
Path("at.csv").write_text("x,y\n0.25,0.5\n0.5,1.5\n")

roles = ["--inputs", "permeability", "--outputs", "pressure", "--sample", "case", "--format", "netcdf"]
train = ["train", "--data", "train.nc", *roles, "--model", "deeponet", "--rate", 0.002, "--seed", 1]
short = [*train, "--steps", 20, "--every", 5, "--test", "test.nc", "--out", "run"]
loca(*short)
assert len(Path("run/history.jsonl").read_text().splitlines()) == 4
assert "reordered" in loca("evaluate", "run", "other.nc", "--out", "other.json")
one, two = (Report.load(file).errors["relative_l2"] for file in ("run/report.json", "other.json"))
np.testing.assert_allclose(one, two, rtol=1e-4)
assert "made for a grid of 7 × 6" in loca("evaluate", "run", "fine.nc", code=2)
assert "interpolated" in loca("predict", "run", "fine.nc", "--regrid", "--grid", "5x4", "--out", "grid.nc")
assert dict(xarray.open_dataset("grid.nc").sizes) == {"case": 8, "x": 5, "y": 4}
loca("predict", "run", "inputs.nc", "--at", "at.csv", "--out", "points.csv")
assert Path("points.csv").read_text().startswith("case,x,y,pressure\n0,0.25,0.5,")
assert ".csv, .parquet" in loca("predict", "run", "inputs.nc", "--out", "p.txt", code=2)
loca("figures", "run", "other.nc", "--out", "figures")
assert {file.name for file in Path("figures").iterdir()} == {"box_plots.png", "curves.png", "fields.png"}

(-files["train"]).to_netcdf("train.nc", engine="h5netcdf")
assert "other data" in loca(*short, code=1)
long = [LOCA, *map(str, train), "--steps", "1000000", "--out", "long"]
with subprocess.Popen(long, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
    assert process.stdout is not None
    assert process.stdout.readline().startswith("step ")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
assert process.returncode == 130, process.returncode
assert "can be extended, but not shortened" in loca("train", "--resume", "long", "--steps", 40, code=1)
print("own data: trained, stopped, reordered, interpolated, drawn and predicted by commands")
