"""Draw the figures of docs/your-data.md by running its examples as they are printed there.

    make examples                      # all of them, a few minutes
    python tools/your_data.py mesh     # one of them

Every example saves its figure in the current directory, under the name that the page shows below it.
"""

import contextlib
import re
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/your-data.md"


def examples(page: str) -> dict[str, str]:
    """The code of every example, by the name of the figure that it saves."""
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return {name[1]: code for code in blocks if (name := re.search(r'savefig\("(\w+)\.png"', code))}


def main() -> None:
    found = examples(PAGE.read_text())
    for name in sys.argv[1:] or found:
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
            exec(compile(found[name], name, "exec"), {"__name__": "__main__"})
            with Image.open(f"{name}.png") as image:
                image.convert("RGB").save(ROOT / f"docs/figures/your_data_{name}.png", optimize=True)


if __name__ == "__main__":
    main()
