"""The paper's claims as experiments that anyone can repeat, each with a rule for its verdict fixed beforehand."""

from loca_reproduction.claims.claim import PRESETS as PRESETS
from loca_reproduction.claims.claim import Claim as Claim
from loca_reproduction.claims.claim import Finding as Finding
from loca_reproduction.claims.claim import Preset as Preset
from loca_reproduction.claims.claim import Reproduction as Reproduction
from loca_reproduction.claims.claim import Verdict as Verdict
from loca_reproduction.claims.claim import expected_verdict as expected_verdict
from loca_reproduction.claims.claim import reproduce as reproduce
from loca_reproduction.claims.comparison import Comparison as Comparison
from loca_reproduction.claims.comparison import Condition as Condition
from loca_reproduction.claims.cost import Growth, Minutes
from loca_reproduction.claims.counts import Counts
from loca_reproduction.claims.darcy import Coupling, DarcyError, FewLabelsBeatMany, VeryFewLabels
from loca_reproduction.claims.geophysics import Pressure, Waves
from loca_reproduction.claims.results import Results as Results
from loca_reproduction.claims.robustness import FirstWeights, ManyScales, Noise, Shift

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Coupling(), FewLabelsBeatMany(), VeryFewLabels(), DarcyError(), Waves(), Noise(), FirstWeights(), Pressure(),
        Shift(), ManyScales(), Counts(), Minutes(), Growth(),
    )
}  # fmt: skip
"""The claims by name, R1 to R13."""
