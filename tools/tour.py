"""Write docs/tour.md by running its commands as a new user would, in a new environment with only the wheel.

    make tour

builds the wheel, makes an environment, runs every command in an empty directory, and writes the page with their output
and figures.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
WIDTH = "80"
SCALE = 0.4  # of pictures on the page, so that letters have the same size in all of them

INTRODUCTION = """---
description: "From data to figures of a trained model on the command line, with the output of every command."
search:
  boost: 2
---

# A first run

From data to figures of a trained model, on the command line. The problem is Darcy flow, with 1000 training functions of
which 6 % of the values are known. The output below was recorded in an empty directory, in an environment with only the
package ({versions}), on two cores of a virtual Intel Xeon, which other
programs used too. `make tour` writes this page.
"""

STEPS = [
    (
        "Generate training and test functions. For your own data, `loca convert` writes files of the same kind, or the"
        " next commands read your files directly.",
        [
            "loca generate darcy --set preset=easy --count 1000 --out darcy.zarr",
            "loca generate darcy --set preset=easy --count 200 --seed 1 --out test.zarr",
        ],
        [],
    ),
    (
        "Train with 61 labels per function. If training is killed, `loca train --resume run` continues to the same"
        " model. In a terminal, a progress bar replaces these lines.",
        ["loca train --data darcy.zarr --labels 61 --steps 5000 --out run"],
        [],
    ),
    (
        "Evaluate the errors on new functions, at full resolution.",
        ["loca evaluate run test.zarr --out report.json"],
        [],
    ),
    (
        "Write predictions as NetCDF with coordinates, names and units.",
        ["loca predict run test.zarr --out prediction.nc"],
        [],
    ),
    (
        "Draw figures: box plots of the errors, the loss and validation error, a typical function and the worst ones,"
        " and the attention weights.",
        ["loca figures run test.zarr --out figures"],
        ["box_plots", "curves", "fields", "attention"],
    ),
    (
        "Inspect the model. It is one file, without pickle or code.",
        ["loca inspect run"],
        [],
    ),
]


def fresh_environment(place: Path) -> Path:
    """Make an environment with the wheel and its dependencies at the locked versions; return its `bin` directory."""
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

        def output_of(command: str) -> str:
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

        jax = output_of("python -c 'import jax; print(jax.__version__)'")
        page = INTRODUCTION.format(
            versions=f"{output_of('loca --version')}, JAX {jax}, {output_of('python --version')}"
        )
        for text, lines, pictures in STEPS:
            page += f"\n{textwrap.fill(text, 120)}\n\n```console\n"
            for line in lines:
                began = time.perf_counter()
                page += f"$ {line}\n{output_of(line)}\n"
                print(f"{line}: {time.perf_counter() - began:.0f} s", flush=True)
            page += "```\n"
            for name in pictures:
                shutil.copy(work / f"figures/{name}.png", ROOT / f"docs/figures/tour_{name}.png")
                with Image.open(work / f"figures/{name}.png") as image:
                    width = round(SCALE * image.width)
                title = name.replace("_", " ").capitalize()
                page += f'\n![{title}](figures/tour_{name}.png){{ width="{width}" }}\n'
        (ROOT / "docs/tour.md").write_text(page)


if __name__ == "__main__":
    main()
