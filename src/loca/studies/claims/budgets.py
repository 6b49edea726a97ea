"""How long models train."""

from loca.studies.claim import Preset


def darcy_steps(preset: Preset) -> dict[str, int]:
    """A step of FNO takes some thirty times as long as one of LOCA here: with fewer it still has the most time."""
    slow, others = (20, 200) if preset == "quick" else (1000, 5000)
    return {"LOCA": others, "LOCA without coupling": others, "DeepONet": others, "FNO": slow}
