"""Run the scripts of examples/gallery, and write a page, its pictures and a notebook for each into docs/gallery.

    make gallery                                       # all of them
    python tools/gallery.py surrogate few_labels       # some of them
    python tools/gallery.py --index                    # only the overview, docs/gallery/index.md

A script in jupytext's percent format is page, notebook and test: the first cell holds the title and the question.
"""

import os
import re
import resource
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from PIL import Image

ROOT = Path(__file__).parents[1]
SCRIPTS, PAGES = ROOT / "examples/gallery", ROOT / "docs/gallery"
SOURCE = "https://github.com/loca-jax/loca/blob/main/examples/gallery"
SETUP = '%matplotlib inline\n%config InlineBackend.figure_formats = ["retina"]'
SCALE = 0.65  # of pictures on a page, so that letters have the same size in all of them
INDEX = """---
description: Small complete examples, each with the picture that answers a question.
---

# Gallery

Each example answers a question with a picture, on real or solved data. Every one is complete: download it as a
notebook or a script, and put your own file in its place.

<div class="grid cards" markdown>

{cards}

</div>
"""


def scripts() -> list[Path]:
    """All scripts, in the order of their numbers."""
    return sorted(SCRIPTS.glob("*.py"))


def name_of(script: Path) -> str:
    """The name without its number, which only orders the gallery."""
    return script.stem.partition("_")[2]


def opening(script: Path) -> tuple[str, str]:
    """The title and the question of a script."""
    lines = [line.removeprefix("#").strip() for line in script.read_text().splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("# "))
    question = " ".join(lines[start + 2 : lines.index("", start + 2)])
    return lines[start].removeprefix("# "), question


def core_seconds() -> float:
    """What all programs that this one has started took, once they have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(script: Path) -> None:
    """Execute a script as a notebook, and write its page."""
    name, (title, question) = name_of(script), opening(script)
    notebook = jupytext.read(script)
    notebook.cells.insert(1, nbformat.v4.new_code_cell(SETUP))
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # the same in every run
    nbformat.write(notebook, PAGES / f"{name}.ipynb")
    begun = core_seconds()
    with tempfile.TemporaryDirectory() as place:
        NotebookClient(notebook, timeout=900, resources={"metadata": {"path": place}}).execute()
    for cell in notebook.cells:  # without lines of progress
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    seconds = core_seconds() - begun
    del notebook.cells[1]
    body, resources = MarkdownExporter().from_notebook_node(notebook)
    for old in PAGES.glob(f"{name}_*.png"):
        old.unlink()
    order = sorted(resources["outputs"], key=lambda picture: [int(part) for part in re.findall(r"\d+", picture)])
    for number, picture in enumerate(order):
        target = PAGES / f"{name}_{number}.png"
        target.write_bytes(resources["outputs"][picture])
        with Image.open(target) as image:
            width = round(SCALE * image.width)
        body = body.replace(f"![png]({picture})", f'![{title}]({target.name}){{ width="{width}" }}')
    body = re.sub(r"<pre[^>]*></pre>", "", body)  # what a progress bar leaves behind
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    about = f"*{seconds:.0f} s of one core.* [Notebook]({name}.ipynb) · [Script]({SOURCE}/{script.name})"
    body = body.replace(f"# {title}\n", f"# {title}\n\n{about}\n", 1)
    (PAGES / f"{name}.md").write_text(f'---\ndescription: "{question}"\nhide: [toc]\n---\n\n{body}\n')
    print(f"{name}: {seconds:.0f} s of one core")


def write_index() -> None:
    """The overview: title, question and last picture of every page."""
    cards = []
    for script in scripts():
        name, (title, question) = name_of(script), opening(script)
        pictures = sorted(PAGES.glob(f"{name}_*.png"))
        picture = f"\n\n    [![{title}]({pictures[-1].name})]({name}.md)" if pictures else ""
        cards.append(f"-   **[{title}]({name}.md)**\n\n    {question}{picture}")
    (PAGES / "index.md").write_text(INDEX.format(cards="\n\n".join(cards)))


def main() -> None:
    chosen = [argument for argument in sys.argv[1:] if argument != "--index"]
    if unknown := set(chosen) - {name_of(script) for script in scripts()}:
        sys.exit(f"no such script: {', '.join(sorted(unknown))}; there are {', '.join(map(name_of, scripts()))}")
    PAGES.mkdir(exist_ok=True)
    os.environ["PYTHONWARNINGS"] = "ignore"
    os.environ.setdefault("LOCA_GALLERY_DATA", str(SCRIPTS / "data"))
    if "--index" not in sys.argv:
        for script in scripts():
            if not chosen or name_of(script) in chosen:
                run(script)
    write_index()


if __name__ == "__main__":
    main()
