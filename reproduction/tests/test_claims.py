"""Every claim at its quick preset: it runs, and the verdict is the released one."""

import json
from pathlib import Path

import pytest

from loca_reproduction.claims import CLAIMS, expected_verdict
from loca_reproduction.claims.claim import RESULT_FILE
from reproducing import command

SHARED = Path(__file__).parents[3] / "shared/data"

NEEDED = {
    "R6": "mnist.npz",
    "R7": "mnist.npz",
    "R8": "erainterim_daily_weurope.npz",
}
"""Files that some claims need."""

TOGETHER = {
    **dict.fromkeys(("R1", "R2", "R3", "R4"), "Darcy flow"),
    **dict.fromkeys(("R6", "R7"), "Mechanical MNIST"),
    **dict.fromkeys(("R9", "R10"), "antiderivatives"),
}
"""Claims that share runs or compiled programs, and so a worker."""

LONGEST_FIRST = ["R5", "R8", *TOGETHER, *(name for name in CLAIMS if name not in {"R5", "R8", *TOGETHER})]
"""What takes long begins early, so that both workers end at about the same time."""


@pytest.fixture(scope="session")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduced")


@pytest.mark.full
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(TOGETHER.get(name, name))) for name in LONGEST_FIRST]
)
def test_every_claim_has_its_released_verdict(name, directory, monkeypatch):
    if name in NEEDED and not (SHARED / NEEDED[name]).exists():
        pytest.skip(f"{name} needs {NEEDED[name]} in ../shared/data")
    monkeypatch.setenv("LOCA_DATA", str(SHARED))
    monkeypatch.setenv("LOCA_MNIST", str(SHARED / "mnist.npz"))
    output = command(name, "--preset", "quick", "--out", directory)
    assert "Verdict: " in output
    assert "…" not in output  # no number is cut, however narrow the terminal
    content = json.loads((directory / f"{name}-quick" / RESULT_FILE).read_text())
    if name != "R12":  # the verdict on a clock's times may vary
        assert content["verdict"]["answer"] == expected_verdict(name, "quick")
    assert "continue it with --resume" in command(name, "--out", directory, code=1)
