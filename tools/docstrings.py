"""Fail the documentation build if a public name has no docstring.

A name is public if `loca` or one of its parts lists it in `__all__`. Methods of a public class count as well, unless a
base class documents them. MkDocs runs this file as a hook (see mkdocs.yml).
"""

from collections.abc import Iterator
from pathlib import Path

import griffe
from mkdocs.exceptions import PluginError

SOURCE = Path(__file__).parents[1] / "src"


def undocumented(source: Path, package: str = "loca") -> list[str]:
    """The dotted names of public objects without a docstring, for a package in the folder `source`."""
    root = griffe.load(package, search_paths=[str(source)], resolve_aliases=True)
    doors = [root, *(module for name, module in root.modules.items() if not name.startswith("_"))]
    missing = {name for door in doors for name in _missing_in(door)}
    return sorted(missing)


def _missing_in(door: griffe.Module) -> Iterator[str]:
    if not door.has_docstring:
        yield door.path
    for name in door.exports or []:
        member = door.members.get(str(name))
        if member is None:
            yield f"{door.path}.{name} (listed in __all__ but not defined)"
            continue
        if member.is_alias and member.target_path.split(".")[0] != door.path.split(".")[0]:
            continue  # documented by the package that defines it
        thing = member.final_target if member.is_alias else member
        if not thing.has_docstring:
            yield thing.path
        if thing.is_class:
            yield from _missing_in_class(thing)


def _missing_in_class(thing: griffe.Class) -> Iterator[str]:
    for name, member in thing.members.items():
        if name.startswith("_") or not (member.is_function or "property" in member.labels):
            continue
        declared = [base.members[name] for base in thing.mro() if name in base.members]
        implements = "property" in member.labels and declared  # a property may implement a field of the base class
        if not (member.has_docstring or implements or any(base.has_docstring for base in declared)):
            yield member.path


def on_pre_build(config: object) -> None:
    """Run before the build: raise an error that lists the names without a docstring."""
    if missing := undocumented(SOURCE):
        raise PluginError("public names without a docstring:\n  " + "\n  ".join(missing))
