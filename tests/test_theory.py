"""Every link of docs/theory.md to the code names a function or class that the file defines."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINKS = re.findall(
    r"\[`([\w.]+)`\]\(https://github\.com/loca-jax/loca/blob/main/([\w/]+\.py)\)",
    (ROOT / "docs/theory.md").read_text(),
)


def defines(tree: ast.AST, name: str) -> bool:
    """Whether a module or a class defines a function or class, or a method `Class.method`."""
    first, _, rest = name.partition(".")
    kinds = ast.ClassDef | ast.FunctionDef
    found = [each for each in ast.iter_child_nodes(tree) if isinstance(each, kinds) and each.name == first]
    return bool(found) and (not rest or defines(found[0], rest))


@pytest.mark.parametrize(("name", "path"), sorted(set(LINKS)))
def test_the_code_of_an_equation_exists(name, path):
    assert defines(ast.parse((ROOT / path).read_text()), name), f"{path} does not define {name}"


def test_every_link_to_the_code_names_what_it_shows():
    text = (ROOT / "docs/theory.md").read_text()
    assert len(LINKS) == text.count("https://github.com") > 40


def test_a_wrong_name_is_found():
    tree = ast.parse("class A:\n    def f(self): ...\n")
    assert [defines(tree, name) for name in ("A", "A.f", "f", "A.g")] == [True, True, False, False]
