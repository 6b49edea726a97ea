"""Scripts of the gallery run, and every one has its page, its pictures and its notebook."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples/gallery").glob("*.py"))
PAGES = ROOT / "docs/gallery"
IN_GATE = ("surrogate", "unlike", "which_input_matters")


def name_of(script):
    return script.stem.partition("_")[2]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            script, marks=pytest.mark.slow if name_of(script) in IN_GATE else pytest.mark.full, id=name_of(script)
        )
        for script in SCRIPTS
    ],
)
def test_script_runs(script, tmp_path):
    environment = os.environ | {"MPLBACKEND": "Agg"}
    line = [sys.executable, "-W", "error", "-W", "ignore:Error reading persistent compilation cache entry", str(script)]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=name_of)
def test_script_has_a_page_with_a_picture_and_a_notebook(script):
    name, title = name_of(script), script.read_text().partition("# # ")[2].partition("\n")[0]
    page = (PAGES / f"{name}.md").read_text()
    assert f"# {title}\n" in page
    assert f"]({name}_0.png)" in page
    for picture in PAGES.glob(f"{name}_*.png"):
        assert picture.name in page
    cells = json.loads((PAGES / f"{name}.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells[2:] if cell["cell_type"] == "code")
    assert all(line in code for line in script.read_text().splitlines() if line and not line.startswith("#"))
    assert f"]({name}.md)" in (PAGES / "index.md").read_text()
