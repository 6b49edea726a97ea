"""Promises of the package as a whole: what importing it costs, what its source never does, what it says of itself."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import jax.numpy as jnp
import jaxtyping
import pytest

import loca

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src/loca").rglob("*.py"))


def run_fresh(code: str) -> str:
    """What a fresh process prints, in its own directory. It may write bytecode, as any installed package has it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as place:
        busy = "ignore:Error reading persistent compilation cache entry"  # of one that another test is writing
        line = [sys.executable, "-W", "error", "-W", busy, "-c", code]
        done = subprocess.run(line, env=environment, cwd=place, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_touches_no_device():
    code = """
import loca
for name in loca.__all__:  # parts are imported when they are first used
    getattr(loca, name)
from jax._src import xla_bridge  # there is no public way to ask without starting a device
assert not xla_bridge.backends_are_initialized(), "importing loca started a device"
import jax
assert jax.live_arrays() == [], "importing loca made arrays"
assert not jax.config.jax_enable_x64, "importing loca turned 64-bit mode on"
"""
    run_fresh(code)


def test_import_is_quick():
    # Beside the libraries that nobody can do without here, in turn: a slow or busy machine is slow for both.
    def seconds(code: str) -> float:
        return float(run_fresh(f"import time; start = time.process_time(); {code}; print(time.process_time() - start)"))

    # the parts that `import loca` loaded before it became lazy, all of them used
    parts = "from loca import LOCA, Samples, checks, evaluation, figures, fit, load, prediction, problems"
    turns = [(seconds(parts), seconds("import jax, equinox, optax")) for _ in range(3)]
    ours, libraries = map(min, zip(*turns, strict=True))
    assert ours < 1.5 * libraries


def test_shapes_are_checked_in_tests_only():
    with pytest.raises(jaxtyping.TypeCheckError):
        loca.losses.mean_squared(jnp.ones(3), jnp.ones(3))
    run_fresh("import loca, jax.numpy as jnp; loca.losses.mean_squared(jnp.ones(3), jnp.ones(3))")


def test_numbers_are_single_precision():
    assert jnp.asarray(1.0).dtype == jnp.float32


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("pickle", r"\b(c?[Pp]ickle|dill|joblib)\b"),
        ("NumPy's pickles", r"allow_pickle\s*=\s*True"),
        ("eval", r"(?<![\w.])(eval|exec)\("),
        ("64-bit mode for everybody", r"jax_enable_x64"),
    ],
)
def test_source_never_uses(what, pattern):
    found = [str(file.relative_to(ROOT)) for file in SOURCES if re.search(pattern, file.read_text())]
    assert SOURCES
    assert found == [], f"{what} in {found}"


def test_version_is_the_same_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert loca.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def python_blocks() -> list:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [
        (page, code) for page in pages for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    return [pytest.param(code, id=f"{page.relative_to(ROOT)}-{i}") for i, (page, code) in enumerate(blocks)]


@pytest.mark.parametrize("code", python_blocks())
def test_code_in_the_docs_runs(code):
    run_fresh(code)


def test_the_readme_says_what_the_tour_did():
    block = re.search(r"```sh\n(loca generate.*?)```", (ROOT / "README.md").read_text(), re.DOTALL).group(1)
    commands = [line.split("   #")[0] for line in block.splitlines()]
    done = re.findall(r"^\$ (.*)$", (ROOT / "docs/tour.md").read_text(), re.MULTILINE)
    assert commands == done, "run `make tour`"


def test_types_are_shipped():
    assert (ROOT / "src/loca/py.typed").exists()


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ('def f():\n    """Says what it does."""', []),
        ("def f(): ...", ["loca.part.f"]),
        ("class f: ...", ["loca.part.f"]),
        ('class f:\n    """A thing."""\n    def method(self): ...', ["loca.part.f.method"]),
        ('class f:\n    """A thing."""\n    def _private(self): ...\n    def __call__(self): ...', []),
        ('class b:\n    def m(self):\n        """Does."""\nclass f(b):\n    """A thing."""\n    def m(self): ...', []),
        ("", ["loca.part.f (listed in __all__ but not defined)"]),
    ],
)
def test_a_public_name_without_docstring_stops_the_docs(tmp_path, source, missing):
    pytest.importorskip("griffe", reason="needs the `docs` extra")
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "tools/docstrings.py")
    docstrings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docstrings)

    (tmp_path / "loca").mkdir()
    (tmp_path / "loca/__init__.py").write_text('"""The package."""\n')
    (tmp_path / "loca/part.py").write_text(f'"""A part."""\n\n__all__ = ["f"]\n\n{source}\n')
    assert docstrings.undocumented(tmp_path) == missing

    docstrings.SOURCE = tmp_path
    if missing:
        with pytest.raises(docstrings.PluginError, match=re.escape(missing[0])):
            docstrings.on_pre_build(config=None)
    else:
        docstrings.on_pre_build(config=None)
