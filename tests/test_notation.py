"""Every place that docs/notation.md points to exists."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs/notation.md"


def rows() -> list[list[str]]:
    """The cells of every row of the notation table, below its head."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    start = cells.index(["paper", "code", "where", "shape", "meaning"])
    return cells[start + 2 :]


def find(path: str) -> object:
    """The module, function, class, method or field with this dotted name."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            fields = {field for base in getattr(thing, "__mro__", ()) for field in inspect.get_annotations(base)}
            thing = fields if name in fields else getattr(thing, name)
        return thing
    raise ModuleNotFoundError(path)


def test_rows_are_complete():
    assert len(rows()) > 20
    assert all(len(row) == 5 and all(row) for row in rows())


@pytest.mark.parametrize("path", sorted({path for row in rows() for path in re.findall(r"`(loca\.[\w.]+)`", row[2])}))
def test_where_exists(path):
    find(path)


@pytest.mark.parametrize("path", ["loca.kernels.Kernel.no_such_thing", "loca.no_such_part", "no_such_package"])
def test_a_wrong_place_is_found(path):
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        find(path)


def test_every_row_says_where():
    assert all(re.fullmatch(r"`loca\.[\w.]+`(, `loca\.[\w.]+`)*", row[2]) for row in rows())
