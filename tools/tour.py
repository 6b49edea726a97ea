"""The commands of docs/tour.md, run as a new user would: in a fresh environment with nothing but the wheel.

    make tour

builds the wheel, makes an environment, runs every command in an empty directory, and writes the page with what they
said, and the pictures they drew.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH = "80"

INTRODUCTION = """# A first run

From nothing to pictures of a trained model, as a new user would do it: Darcy flow, 1000 functions of which 6 % of the
values are known. Everything below is what the commands said in an empty directory, in an environment with nothing but
the package ({versions}), on two cores of a virtual Intel Xeon. `make tour` writes this page.
"""

STEPS = [
    (
        "Two sets of functions, to learn from and to test with; on your own files `loca convert` would do the same, or"
        " the next commands read them as they are.",
        [
            "loca generate darcy --set preset=easy --count 1000 --out darcy.zarr",
            "loca generate darcy --set preset=easy --count 200 --seed 1 --out test.zarr",
        ],
        [],
    ),
    (
        "Training, with 61 labels of each function. Killed at any moment, `loca train --resume run` goes on and ends in"
        " the same model; in a terminal there is a bar in place of these lines.",
        ["loca train --data darcy.zarr --labels 61 --steps 5000 --out run"],
        [],
    ),
    (
        "Errors on functions that the model has never seen, at full resolution.",
        ["loca evaluate run test.zarr --out report.json"],
        [],
    ),
    (
        "Predictions, as NetCDF with coordinates, names and units.",
        ["loca predict run test.zarr --out prediction.nc"],
        [],
    ),
    (
        "And pictures: the spread of the errors, the course of the run, a typical function and the worst ones, and what"
        " the attention attends to.",
        ["loca figures run test.zarr --out figures"],
        ["spread", "curves", "fields", "attention"],
    ),
    (
        "The model is one file, without pickle or code; this is what it says of itself.",
        ["loca inspect run"],
        [],
    ),
]


def fresh_environment(place: Path) -> Path:
    """The directory of commands of an environment with the wheel in it, and what it needs at the locked versions."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    python = os.environ.get("PYTHON", "python3")
    subprocess.run([python, "-m", "venv", str(place)], check=True)
    lock = subprocess.run(
        ["make", "--silent", "print-lock"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    uv = Path(sys.executable).with_name("uv")
    install = [uv, "pip", "install", "--quiet", "--python", place / "bin/python", "--constraints", ROOT / lock, wheel]
    subprocess.run([str(word) for word in install], check=True)
    return place / "bin"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        commands = fresh_environment(Path(scratch) / "environment")
        work = Path(scratch) / "work"
        work.mkdir()
        path = f"{commands}:{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": scratch, "COLUMNS": WIDTH, "LANG": "C.UTF-8"}

        def said(command: str) -> str:
            done = subprocess.run(
                command,
                shell=True,
                cwd=work,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            if done.returncode:
                raise SystemExit(f"{command}\n{done.stdout}")
            return "\n".join(line.rstrip() for line in done.stdout.rstrip().splitlines())

        jax = said("python -c 'import jax; print(jax.__version__)'")
        page = INTRODUCTION.format(versions=f"{said('loca --version')}, JAX {jax}, {said('python --version')}")
        for text, lines, pictures in STEPS:
            page += f"\n{textwrap.fill(text, 120)}\n\n```console\n"
            for line in lines:
                began = time.perf_counter()
                page += f"$ {line}\n{said(line)}\n"
                print(f"{line}: {time.perf_counter() - began:.0f} s", flush=True)
            page += "```\n"
            for name in pictures:
                shutil.copy(work / f"figures/{name}.png", ROOT / f"docs/figures/tour_{name}.png")
                page += f"\n![{name.capitalize()}](figures/tour_{name}.png)\n"
        (ROOT / "docs/tour.md").write_text(page)


if __name__ == "__main__":
    main()
