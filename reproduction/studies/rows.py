"""Results of a study: a JSON file to which rows are added one at a time, so that the same command resumes."""

import json
from pathlib import Path

import jax

from loca_reproduction.machine import commit, hardware, write


def read_rows(path: Path) -> list[dict]:
    """All rows of a file, none if it does not exist."""
    return json.loads(path.read_text()) if path.exists() else []


class Rows:
    """The rows of a file.

    **Arguments:**

    - `path`: the file.
    """

    def __init__(self, path: Path):
        self.path, self.done = path, read_rows(path)
        self.made = {"commit": commit(), "hardware": hardware(), "jax": jax.__version__}  # now: the checkout may change

    def __contains__(self, key: dict) -> bool:
        return any(all(row.get(name) == key[name] for name in key) for row in self.done)

    def add(self, row: dict) -> None:
        """Print a row and write it, with the commit, the hardware and the version of JAX.

        Rows that other processes have added meanwhile are kept.
        """
        self.done = [*read_rows(self.path), row | self.made]
        print(json.dumps(self.done[-1]), flush=True)
        write(self.path, json.dumps(self.done, indent=1) + "\n")


def markdown(head: list[str], lines: list[list[str]], words: int = 1) -> str:
    """A table whose first columns are words, and the others numbers."""
    rows = [head, ["---"] * words + ["---:"] * (len(head) - words), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
