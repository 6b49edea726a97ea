"""Imports go down the layers of docs/architecture.md, through the doors of the parts, and never in a circle."""

import ast
import graphlib
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


def imports(tree: ast.AST, path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(line, dotted name) for every import of the package, at the top of the file or inside a function."""
    package = ("loca", *path.parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            module = (*start, *(node.module.split(".") if node.module else ()))
            targets = [(*module, alias.name) for alias in node.names]
        else:
            continue
        yield from ((node.lineno, target) for target in targets if target[0] == "loca")


def door_names(door: Path) -> set[str]:
    """The names of a part's `__init__.py`: in `__all__` for users, only imported or defined for other parts."""
    names = set()
    for node in ast.parse(door.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names |= set(ast.literal_eval(node.value))
        elif isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"loca.{door.parent.name}."):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def is_public(package: Path, target: tuple[str, ...]) -> bool:
    """Whether a dotted name is a part or a name of its door, or of the door of a folder that is itself such a name."""
    place = package
    for depth, name in enumerate(target[1:]):
        door = place / "__init__.py"
        if depth and (not door.is_file() or name not in door_names(door)):
            return place.with_suffix(".py").is_file()  # a part of one file has no door
        place = place / name
    return True


def violations(package: Path, layers: dict[str, int]) -> list[str]:
    """Imports that go up or sideways, and imports that bypass a part's door."""
    found = []
    for file in sorted(package.rglob("*.py")):
        path = file.relative_to(package)
        here = part_of(path)
        if here in TOP:
            continue
        if here not in layers:
            found.append(f"{path}: the part `{here}` is not drawn in docs/architecture.md")
            continue
        for line, target in imports(ast.parse(file.read_text()), path):
            there = target[1] if len(target) > 1 else "__init__"
            if there == here:
                continue
            if there not in layers:
                found.append(f"{path}:{line}: imports `{there}`, which is not a part; import from the part itself")
            elif layers[there] >= layers[here]:
                found.append(f"{path}:{line}: {here} (layer {layers[here]}) imports {there} (layer {layers[there]})")
            elif not is_public(package, target):
                found.append(f"{path}:{line}: `{'.'.join(target)}` is not a name of the door loca/{there}/__init__.py")
    return found


def file_of(package: Path, target: tuple[str, ...]) -> Path | None:
    """The file that an import of this dotted name runs: that of the module, or of the module that has the name."""
    for parts in (target[1:], target[1:-1]):
        for file in (package.joinpath(*parts, "__init__.py"), package.joinpath(*parts).with_suffix(".py")):
            if parts and file.is_file():
                return file
    return None


def circle(package: Path) -> list[str]:
    """Files that import each other in a circle, wherever the imports stand; empty if there is none."""
    graph = {
        file: {
            there
            for _, target in imports(ast.parse(file.read_text()), file.relative_to(package))
            if (there := file_of(package, target)) not in (None, file)
        }
        for file in package.rglob("*.py")
        if file != package / "__init__.py"
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [str(file.relative_to(package)) for file in error.args[1]]
    return []


@pytest.fixture(scope="module")
def layers() -> dict[str, int]:
    return dict(drawn_layers((ROOT / "docs/architecture.md").read_text()))


def test_every_part_is_drawn_once():
    names = [part for part, _ in drawn_layers((ROOT / "docs/architecture.md").read_text())]
    assert sorted(names) == sorted(set(names))


def test_every_drawn_part_exists(layers):
    missing = [part for part in layers if not any((ROOT / f"src/loca/{part}{end}").exists() for end in ("", ".py"))]
    assert not missing


def test_every_named_file_exists():
    named = set(re.findall(r"`([\w/]+\.py)`", (ROOT / "docs/architecture.md").read_text()))
    assert "data/samples.py" in named
    assert not [file for file in named if not any((ROOT / at / file).exists() for at in ("", "src/loca"))]


def test_no_file_is_part_of_an_import_circle():
    assert circle(ROOT / "src/loca") == []


def test_imports_go_down_and_through_doors(layers):
    found = violations(ROOT / "src/loca", layers)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("file", "line", "allowed"),
    [
        ("models/loca.py", "from loca.attention import Attention", True),
        ("models/loca.py", "from loca.attention.coupling import kappa", False),  # past the door
        ("models/loca.py", "from loca.attention import kappa", False),  # not in the door
        ("models/loca.py", "from loca.attention import attend", True),  # in the door for other parts
        ("__init__.py", "from loca.models import LOCA", True),
        ("kernels/rbf.py", "from loca.models import LOCA", False),  # up
        ("kernels/rbf.py", "from loca.rules import Rule", False),  # sideways
        ("kernels/rbf.py", "def late():\n    import loca.training", False),  # up, late
        ("kernels/rbf.py", "from ..models import LOCA", False),
        ("kernels/rbf.py", "import loca", False),  # the door of the whole package is above every part
        ("utilities.py", "", False),  # not drawn
    ],
)
def test_a_planted_import_is_judged(tmp_path, layers, file, line, allowed):
    door = tmp_path / "loca/attention/__init__.py"
    door.parent.mkdir(parents=True)
    door.write_text('from loca.attention.coupling import attend\n__all__ = ["Attention"]\n')
    planted = tmp_path / "loca" / file
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(line + "\n")
    assert (violations(tmp_path / "loca", layers) == []) is allowed


def exported_names(package: Path, part: str) -> set[str]:
    """The names in `__all__` of a part, or of the whole package."""
    door = package / part / "__init__.py"
    file = door if door.is_file() else (package / part).with_suffix(".py")
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def not_exported(source: str, package: Path) -> list[str]:
    """What a file outside the package uses of it that no user is offered: unlisted names and files behind doors."""
    parts, tree = exported_names(package, ""), ast.parse(source)
    found = []
    for line, (_, *names) in imports(tree, Path("outside.py")):
        if not names or (len(names) == 1 and names[0] in parts):
            continue
        if len(names) != 2 or names[0] not in parts or names[1] not in exported_names(package, names[0]):
            found.append(f"{line}: loca.{'.'.join(names)}")
    for node in ast.walk(tree):  # `loca.fit`, `loca.data.open`
        chain = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else []
        if len(chain) == 2 and chain[0] == "loca" and chain[1] not in parts:
            found.append(f"{node.lineno}: {'.'.join(chain)}")
        of_a_part = len(chain) == 3 and chain[0] == "loca" and (package / chain[1] / "__init__.py").is_file()
        if of_a_part and chain[2] not in exported_names(package, chain[1]):
            found.append(f"{node.lineno}: {'.'.join(chain)}")
    return found


@pytest.mark.parametrize("folder", ["src", "studies", "parity", "tools"])
def test_the_reproduction_uses_exported_names_only(folder):
    files = sorted((ROOT / "reproduction" / folder).rglob("*.py"))
    assert files
    found = [
        f"{file.relative_to(ROOT)}:{each}"
        for file in files
        for each in not_exported(file.read_text(), ROOT / "src/loca")
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("import loca", True),
        ("import loca; loca.data.open", True),
        ("from loca.models import LOCA", True),
        ("from loca.models.loca import LOCA", False),  # behind the door
        ("from loca.models import no_such_name", False),
        ("import loca.models.loca", False),
        ("def late():\n    from loca import cli", False),  # not a part for users
        ("import loca; loca.no_such_name", False),
        ("import loca; loca.data.no_such_name", False),
    ],
)
def test_a_planted_use_of_the_package_is_judged(line, allowed):
    assert (not_exported(line, ROOT / "src/loca") == []) is allowed


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ({"a.py": "import loca.b", "b.py": "import loca.c", "c.py": ""}, False),
        ({"a.py": "import loca.b", "b.py": "def late():\n    from loca.a import x"}, True),
        ({"p/__init__.py": "from loca.p.q import x", "p/q.py": "x = 1"}, False),
        ({"p/__init__.py": "from loca.p.q import x", "p/q.py": "from loca.p import y"}, True),
    ],
)
def test_a_planted_circle_is_found(tmp_path, imports, expected):
    for name, text in imports.items():
        file = tmp_path / "loca" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert bool(circle(tmp_path / "loca")) is expected
