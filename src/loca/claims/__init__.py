"""The paper's claims as experiments that anyone can repeat, each with a rule for its verdict fixed beforehand."""

from loca.claims.claim import PRESETS as PRESETS
from loca.claims.claim import Claim as Claim
from loca.claims.claim import Finding as Finding
from loca.claims.claim import Preset as Preset
from loca.claims.claim import Reproduction as Reproduction
from loca.claims.claim import Verdict as Verdict
from loca.claims.claim import expected_verdict as expected_verdict
from loca.claims.claim import reproduce as reproduce
from loca.claims.comparison import Comparison as Comparison
from loca.claims.comparison import Condition as Condition
from loca.claims.cost import Growth, Minutes
from loca.claims.counts import Counts
from loca.claims.darcy import Coupling, DarcyError, FewLabelsBeatMany, VeryFewLabels
from loca.claims.geophysics import Pressure, Waves
from loca.claims.results import Results as Results
from loca.claims.robustness import FirstWeights, ManyScales, Noise, Shift

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Coupling(), FewLabelsBeatMany(), VeryFewLabels(), DarcyError(), Waves(), Noise(), FirstWeights(), Pressure(),
        Shift(), ManyScales(), Counts(), Minutes(), Growth(),
    )
}  # fmt: skip
"""The claims by name, R1 to R13."""

__all__ = [
    "CLAIMS",
    "PRESETS",
    "Claim",
    "Comparison",
    "Condition",
    "Finding",
    "Preset",
    "Reproduction",
    "Results",
    "Verdict",
    "expected_verdict",
    "reproduce",
]
