"""Files around the package: workflows, hooks before a commit, and the metadata of both distributions."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
if not WORKFLOWS:
    pytest.skip("a source distribution has no workflows", allow_module_level=True)


def jobs_of(path):
    return yaml.safe_load(path.read_text())["jobs"].values()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_only_read_and_are_stopped(path):
    assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 90 for job in jobs_of(path))
    actions = [step["uses"] for job in jobs_of(path) for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in actions), "pin actions by their hash"


@pytest.mark.parametrize("name", ["tests", "weekly"])
def test_workflows_run_the_gate_and_nothing_else(name):
    (job,) = jobs_of(ROOT / f".github/workflows/{name}.yml")
    assert job["steps"][-1]["run"] == ".ci/run"


def test_hooks_have_the_locked_versions():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    versions = {Path(hook["repo"]).name.removesuffix("-pre-commit"): hook["rev"] for hook in hooks}
    for lock in ("py311", "py312"):
        locked = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / f"requirements/{lock}.txt").read_text(), re.MULTILINE))
        for tool in ("ruff", "codespell"):
            assert versions[tool] == f"v{locked[tool]}", "run `make lock`"


@pytest.mark.parametrize("folder", ["", "reproduction"])
def test_metadata_for_the_package_index(folder):
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11", "a cap would make installers choose an old release"
    assert project["authors"]
    (repository,) = re.findall(r"^repository-code: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert project["urls"]["Repository"] == repository
    assert all(re.match(rf"{repository}|https://loca-jax\.github\.io/loca/", url) for url in project["urls"].values())


def test_links_of_the_readme_are_absolute():
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text())
    assert [link for link in links if not link.startswith(("https://", "#"))] == [], "the package index has no files"
