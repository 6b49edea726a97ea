"""Imports go down only, as drawn in docs/architecture.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP = ("__init__", "__main__")  # above every layer: may import anything, and no part may import them


def drawn_layers(page: str) -> list[tuple[str, int]]:
    """(part, layer) for every name in the first text block of the page."""
    block = re.search(r"```text\n(.*?)```", page, re.DOTALL)
    assert block, "docs/architecture.md must hold the layers in a ```text block"
    return [(part, int(layer)) for layer, *parts in map(str.split, block[1].splitlines()) for part in parts]


def part_of(path: Path) -> str:
    """`kernels` for both kernels.py and kernels/rbf.py, given relative to the package."""
    return path.parts[0].removesuffix(".py")


def imported_parts(tree: ast.AST, path: Path) -> Iterator[tuple[int, str]]:
    """(line, part) for every import of the package, at the top of the file or inside a function."""
    package = ("loca", *path.parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = [*start, *(node.module.split(".") if node.module else [])]
            targets = [[*module, alias.name] for alias in node.names]
        else:
            continue
        for target in targets:
            if target[0] == "loca":
                yield node.lineno, target[1] if len(target) > 1 else "__init__"


def violations(package: Path, layers: dict[str, int]) -> list[str]:
    found = []
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(package)
        here = part_of(path)
        if here in TOP:
            continue
        if here not in layers:
            found.append(f"{path}: the part `{here}` is not drawn in docs/architecture.md")
            continue
        for line, there in imported_parts(ast.parse(file.read_text()), path):
            if there == here:
                continue
            if there not in layers:
                found.append(f"{path}:{line}: imports `{there}`, which is not a part; import from the part itself")
            elif layers[there] >= layers[here]:
                found.append(f"{path}:{line}: {here} (layer {layers[here]}) imports {there} (layer {layers[there]})")
    return found


@pytest.fixture(scope="module")
def layers() -> dict[str, int]:
    return dict(drawn_layers((ROOT / "docs/architecture.md").read_text()))


def test_every_part_is_drawn_once():
    names = [part for part, _ in drawn_layers((ROOT / "docs/architecture.md").read_text())]
    assert sorted(names) == sorted(set(names))


def test_imports_go_down(layers):
    found = violations(ROOT / "src/loca", layers)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "line", "allowed"),
    [
        ("models/loca.py", "from loca.attention import coupling", True),
        ("models/loca.py", "from loca.models.operator import Operator", True),
        ("models/loca.py", "import jax, numpy as np", True),
        ("__init__.py", "from loca.models import LOCA", True),
        ("kernels/rbf.py", "from loca.models import LOCA", False),  # up
        ("kernels/rbf.py", "from loca.rules import Rule", False),  # sideways
        ("kernels/rbf.py", "def late():\n    import loca.training", False),  # up, late
        ("kernels/rbf.py", "from loca import models", False),
        ("kernels/rbf.py", "from ..models import LOCA", False),
        ("kernels/rbf.py", "import loca", False),  # the door of the whole package is above every part
        ("nets.py", "from .kernels import RBF", False),
        ("utilities.py", "", False),  # not drawn
    ],
)
def test_a_planted_import_is_judged(tmp_path, layers, file, line, allowed):
    planted = tmp_path / "loca" / file
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(line + "\n")
    assert (violations(tmp_path / "loca", layers) == []) is allowed
