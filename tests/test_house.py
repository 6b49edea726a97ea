"""Properties of the whole package: the cost of importing it, forbidden constructs, documentation that runs."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from pathlib import Path

import jax.numpy as jnp
import jaxtyping
import pytest

import loca

ROOT = Path(__file__).parents[1]
YOUR_DATA = ROOT / "docs/your-data.md"
SOURCES = [file for folder in ("src/loca", "reproduction/src") for file in sorted((ROOT / folder).rglob("*.py"))]


def module_of(path):
    """A program of the repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_fresh(code: str, text: str = "", timeout: float = 240.0) -> str:
    """The output of a new process in its own directory, given `text` as input.

    It may write bytecode. With the full tests, it compiles with optimization: the documentation trains for minutes.
    """
    dropped = {"PYTHONDONTWRITEBYTECODE", *(["XLA_FLAGS"] if os.environ.get("LOCA_FULL") else [])}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    with tempfile.TemporaryDirectory() as place:
        busy = "ignore:Error reading persistent compilation cache entry"  # if another test is writing the entry
        line = [sys.executable, "-W", "error", "-W", busy, "-c", code]
        done = subprocess.run(
            line, env=environment, cwd=place, input=text, capture_output=True, text=True, timeout=timeout
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_import_touches_no_device():
    code = """
import loca
for name in loca.__all__:  # parts are imported when they are first used
    getattr(loca, name)
from jax._src import xla_bridge  # there is no public function for this that does not start a device
assert not xla_bridge.backends_are_initialized(), "importing loca started a device"
import jax
assert jax.live_arrays() == [], "importing loca made arrays"
assert not jax.config.jax_enable_x64, "importing loca turned 64-bit mode on"
"""
    run_fresh(code)


@pytest.mark.full
def test_import_is_quick():
    # Relative to the libraries that it depends on, in turn: a busy machine slows both.
    def seconds(code: str) -> float:
        return float(run_fresh(f"import time; start = time.process_time(); {code}; print(time.process_time() - start)"))

    libraries = "import jax, equinox, optax, xarray"
    turns = [(seconds("from loca import LOCA, Samples, evaluate, fit, load"), seconds(libraries)) for _ in range(3)]
    ours, theirs = map(min, zip(*turns, strict=True))
    assert ours < 1.5 * theirs


def test_shapes_are_checked_in_tests_only():
    with pytest.raises(jaxtyping.TypeCheckError):
        loca.losses.mean_squared(jnp.ones(3), jnp.ones(3))
    run_fresh("import loca, jax.numpy as jnp; loca.losses.mean_squared(jnp.ones(3), jnp.ones(3))")


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("pickle", r"\b(c?[Pp]ickle|dill|joblib)\b"),
        ("NumPy's pickles", r"allow_pickle\s*=\s*True"),
        ("eval", r"(?<![\w.])(eval|exec)\("),
        ("global 64-bit mode", r"jax_enable_x64"),
    ],
)
def test_source_never_uses(what, pattern):
    found = [str(file.relative_to(ROOT)) for file in SOURCES if re.search(pattern, file.read_text())]
    assert SOURCES
    assert found == [], f"{what} in {found}"


def test_version_is_the_same_everywhere():
    projects = [tomllib.loads((ROOT / folder / "pyproject.toml").read_text()) for folder in ("", "reproduction")]
    (version,) = {project["project"]["version"] for project in projects}
    assert loca.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


QUICK_START = "docs/quick-start.md"
OWN_FILE = ("README.md", "docs/index.md")
"""Pages that begin with a file of the reader: the first block of `QUICK_START` makes one."""


def blocks_of(text: str, *languages: str) -> list[tuple[str, str]]:
    """The language and the code of every block of a page, those in tabs too."""
    found = re.findall(r"^( *)```(\w+)\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE)
    return [(language, textwrap.dedent(code)) for _, language, code in found if language in languages]


def as_python(commands: str) -> str:
    """Code that runs the commands of a block."""
    lines = [shlex.split(line)[1:] for line in commands.splitlines()]
    run = "assert not app(line, standalone_mode=False), line"
    return f"from loca.cli.app import app\nfor line in {lines}:\n    {run}\n"


def python_blocks() -> dict[str, str]:
    """All Python code in the documentation, by page and number.

    Commands of `YOUR_DATA` run after the code above. All code and commands of `QUICK_START` are one block.
    """
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = {
        f"{page.relative_to(ROOT)}-{i}": code
        for page in pages
        for i, (_, code) in enumerate(blocks_of(page.read_text(), "python"))
    }
    ((_, commands),) = blocks_of(YOUR_DATA.read_text(), "sh")
    found["docs/your-data.md-0"] += as_python(commands)
    for page in OWN_FILE:
        found[f"{page}-0"] = found[f"{QUICK_START}-0"] + found[f"{page}-0"]
    parts = blocks_of((ROOT / QUICK_START).read_text(), "python", "sh")
    code = "".join(as_python(text) if language == "sh" else text for language, text in parts)
    return {name: each for name, each in found.items() if not name.startswith(QUICK_START)} | {QUICK_START: code}


def blocks_to_run() -> dict[str, str]:
    """The blocks that run: all of them in the full tests, those that users meet first in the gate."""
    first = "README.md"
    return {
        name: code for name, code in python_blocks().items() if os.environ.get("LOCA_FULL") or name.startswith(first)
    }


RUN_BLOCKS = """
import contextlib, io, json, sys, tempfile, traceback

failures = {}
for name, code in json.load(sys.stdin).items():
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()):
        tempfile.tempdir = place  # where a block makes temporary directories
        try:
            exec(compile(code, name, "exec"), {"__name__": "__main__"})
        except Exception:
            failures[name] = traceback.format_exc()
        tempfile.tempdir = None
print(json.dumps(failures))
"""
"""Runs blocks of code one after another, each in a new namespace and directory, and prints the errors."""


@pytest.fixture(scope="module")
def failed_blocks() -> dict[str, str]:
    """The tracebacks of blocks that failed. All run in one process, which imports and compiles everything once."""
    blocks = blocks_to_run()
    if not os.environ.get("LOCA_FULL"):  # few steps and functions show as well that the code runs
        blocks = {name: re.sub(r"(steps(?:=|', '))\d{3,}", r"\g<1>2", code) for name, code in blocks.items()}
        blocks = {name: re.sub(r"\b(\d\d+)0\b(?![.\d])", r"\1", code) for name, code in blocks.items()}
    return json.loads(run_fresh(RUN_BLOCKS, json.dumps(blocks), timeout=1800.0).splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks_to_run())
def test_code_in_the_docs_runs(block, failed_blocks):
    assert block not in failed_blocks, failed_blocks[block]


def test_the_tour_has_the_commands_of_its_tool():
    commands = [line for _, lines, _ in module_of("tools/tour.py").STEPS for line in lines]
    done = re.findall(r"^\$ (.*)$", (ROOT / "docs/tour.md").read_text(), re.MULTILINE)
    assert commands == done, "run `make tour`"


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("solved", "benchmarks"),
        ("chosen", "benchmarks"),
        ("growth", "solving"),
        ("search", "solving"),
        ("derivatives", "sensitivities"),
        ("error_bars", "uncertainty"),
        ("symmetries", "symmetries"),
        ("standard", "symmetries"),
    ],
)
def test_the_documentation_has_the_tables_of_a_study(name, page, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "reproduction/studies")
    study = module_of(f"reproduction/studies/{name}.py")
    results = json.loads(study.RESULTS.read_text())
    pages = dict.fromkeys(study.tables(results) if hasattr(study, "tables") else [study.table(results)], page)
    if name == "solved":
        pages[study.bands_table(results)] = "uncertainty"
    for table, each in pages.items():
        assert table in (ROOT / f"docs/{each}.md").read_text(), f"run `studies/{name}.py --table`"


def cells_of(path):
    """The rows of all tables of a page, as lists of cells."""
    return [line.strip("| ").split(" | ") for line in (ROOT / path).read_text().splitlines() if line.startswith("|")]


def test_the_benchmarks_quote_the_results():
    """Errors of networks are those of docs/results.md, those of Gaussian operators of solved.py; the best is bold."""
    sections = dict(re.findall(r"^## (R\d+)\.(.*?)(?=^## |\Z)", (ROOT / "docs/results.md").read_text(), re.M | re.S))
    solved = [cells for cells in cells_of("docs/benchmarks.md") if len(cells) == 6]
    rows = [row for row in cells_of("docs/benchmarks.md") if "`R" in row[-1]]
    assert len(rows) == 8
    for _, gaussian, *trained, claim in rows:
        errors = [float(cell.strip("* %")) for cell in (gaussian, *trained)]
        for model, error in zip(("LOCA", "DeepONet", "FNO"), errors[1:], strict=True):
            lines = [line for line in sections[claim.strip("`")].splitlines() if f"| {model} |" in line]
            quoted = re.findall(r"([\d.]+) ±", "".join(lines))
            assert error in map(float, quoted), (claim, model)
        assert any(is_quoted(errors[0], cells[1]) for cells in solved), (claim, gaussian)
        assert [cell.startswith("**") for cell in (gaussian, *trained)] == [error == min(errors) for error in errors]


def is_quoted(error, cell):
    """Whether an error is one of those in a cell of a table."""
    return f"{float(error):.3g} %" in re.findall(r"\S+ %", cell)


def test_the_page_of_commands_is_that_of_the_command_line():
    commands = module_of("tools/commands.py")
    assert commands.PAGE.read_text() == commands.page(), "run `python tools/commands.py --write`"


def test_every_planted_defect_still_fits_the_source():
    done = subprocess.run([sys.executable, "tools/mutants.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
