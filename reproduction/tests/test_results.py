"""The results page and its figures follow from the committed numbers."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from loca_reproduction.claims import CLAIMS, Reproduction, expected_verdict

ROOT = Path(__file__).parents[2]


def results_tool(name="results"):
    spec = importlib.util.spec_from_file_location(f"{name}_tool", ROOT / f"reproduction/tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_rebuilt_from_the_numbers_alone():
    tool = results_tool()
    assert tool.page(tool.reproductions()) == (ROOT / "docs/results.md").read_text()


def test_the_comparisons_and_the_table_of_the_readme_are_rebuilt_from_the_numbers_alone():
    tool = results_tool("compared")
    comparisons = tool.all_comparisons()
    assert tool.page(comparisons) == (ROOT / "docs/comparisons.md").read_text()
    assert tool.readme(comparisons) == (ROOT / "README.md").read_text()


@pytest.mark.full
def test_figures_are_rebuilt_from_the_numbers_alone(tmp_path, monkeypatch):
    for tool, pictures in (results_tool(), "FIGURES"), (results_tool("compared"), "PICTURES"):
        monkeypatch.setattr(tool, "PAGE", tmp_path / "page.md")
        monkeypatch.setattr(tool, pictures, tmp_path / "results")
        monkeypatch.setattr(tool, "README", Path(shutil.copy(ROOT / "README.md", tmp_path)), raising=False)
        tool.main()
    drawn = {path.name for path in (tmp_path / "results").iterdir()}
    assert drawn == {path.name for path in (ROOT / "docs/results").iterdir()}
    for name in drawn:
        np.testing.assert_allclose(
            imread(tmp_path / "results" / name), imread(ROOT / "docs/results" / name), atol=2 / 255, err_msg=name
        )


def test_verdicts_follow_from_the_numbers():
    """The committed verdicts are those of today's rules, and those of the release."""
    for path in sorted((ROOT / "reproduction/results").glob("*.json")):
        found = Reproduction.from_json(json.loads(path.read_text()), CLAIMS)
        assert found.claim.judge(found.numbers) == found.verdict
        assert found.verdict.answer == expected_verdict(found.claim.name, found.preset)
