"""Print the size of the package, part by part: lines, statements, exported names, long functions, many parameters.

A docstring is a statement to Python's `ast`, and is counted as one; the column beside says how many of them are.

python tools/size.py                     # src/loca
python tools/size.py reproduction/src/loca_reproduction --json
"""

import argparse
import ast
import json
from pathlib import Path

LONG = 60
"""A function with more lines than this is long."""
MANY = 8
"""A function with more parameters than this has many."""
COLUMNS = ("files", "lines", "statements", "docstrings", "exported", "long functions", "many parameters")
ROOT = Path(__file__).parents[1]


def exported(tree: ast.Module) -> set[str]:
    """The names in `__all__` of a module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The number of named parameters, without `self` and `cls`."""
    every = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    return sum(argument.arg not in ("self", "cls") for argument in every)


def is_docstring(node: ast.AST) -> bool:
    """Whether a node is a text of its own, under a definition or a constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def measure(files: list[Path]) -> tuple[dict[str, int], list[str]]:
    """The row of these files, and the functions that are long or have many parameters."""
    row = dict.fromkeys(COLUMNS, 0)
    found = []
    names: set[str] = set()
    for file in files:
        text = file.read_text()
        tree = ast.parse(text)
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        row["files"] += 1
        row["lines"] += len(text.splitlines())
        row["statements"] += sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
        row["docstrings"] += sum(map(is_docstring, ast.walk(tree)))
        names |= exported(tree)
        for function in functions:
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            count = parameters(function)
            row["long functions"] += length > LONG
            row["many parameters"] += count > MANY
            if length > LONG or count > MANY:
                found.append(f"{file}:{function.lineno} {function.name}: {length} lines, {count} parameters")
    row["exported"] = len(names)
    return row, found


def part_of(path: Path) -> str:
    """`kernels` for both kernels.py and kernels/rbf.py."""
    return path.parts[0].removesuffix(".py")


def main() -> None:
    """Measure a package and print the table."""
    parser = argparse.ArgumentParser(description="Print the size of a package, part by part.")
    parser.add_argument("package", nargs="?", type=Path, default=ROOT / "src/loca")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--list", action="store_true", help="also list long functions and those with many parameters")
    given = parser.parse_args()
    parts: dict[str, list[Path]] = {}
    for file in sorted(given.package.rglob("*.py")):
        parts.setdefault(part_of(file.relative_to(given.package)), []).append(file)
    measured = {part: measure(files) for part, files in parts.items()}
    table = {part: row for part, (row, _) in measured.items()}
    total = {column: sum(row[column] for row in table.values()) for column in COLUMNS}
    # A name that several parts export, as the door does, is one name to its readers; a part itself is none.
    every = [ast.parse(file.read_text()) for files in parts.values() for file in files]
    total["exported"] = len(set().union(*map(exported, every)) - set(parts))
    if given.json:
        print(json.dumps({**table, "total": total}, indent=2))
        return
    width = max(map(len, table), default=5)
    print(" " * width, *(f"{column:>{max(len(column), 6)}}" for column in COLUMNS), sep="  ")
    for part, row in (*table.items(), ("total", total)):
        print(f"{part:<{width}}", *(f"{row[column]:>{max(len(column), 6)}}" for column in COLUMNS), sep="  ")
    if given.list:
        print(*sorted(line for _, lines in measured.values() for line in lines), sep="\n")


if __name__ == "__main__":
    main()
