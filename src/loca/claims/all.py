"""The claims of the paper, one file each, or one for two that share their runs."""

from loca.claims.claim import Claim
from loca.claims.r1_coupling import Coupling
from loca.claims.r2_labels import FewLabelsBeatMany, VeryFewLabels
from loca.claims.r4_darcy import DarcyError
from loca.claims.r5_shallow_water import Waves
from loca.claims.r6_noise import FirstWeights, Noise
from loca.claims.r8_climate import Pressure
from loca.claims.r9_shift import ManyScales, Shift
from loca.claims.r11_counts import Counts
from loca.claims.r12_minutes import Minutes
from loca.claims.r13_growth import Growth

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        Coupling(), FewLabelsBeatMany(), VeryFewLabels(), DarcyError(), Waves(), Noise(), FirstWeights(), Pressure(),
        Shift(), ManyScales(), Counts(), Minutes(), Growth(),
    )
}  # fmt: skip
"""All of them, R1 to R13."""

__all__ = ["CLAIMS"]
