"""The paper as an executable contract: every claim put to the test, and answered."""

from loca.claims.all import CLAIMS as CLAIMS
from loca.claims.claim import Claim as Claim
from loca.claims.claim import Verdict as Verdict
from loca.claims.comparison import Comparison as Comparison
from loca.claims.comparison import Condition as Condition
from loca.claims.reproduce import PRESETS as PRESETS
from loca.claims.reproduce import Reproduction as Reproduction
from loca.claims.reproduce import expected_verdict as expected_verdict
from loca.claims.reproduce import reproduce as reproduce
from loca.claims.workshop import Workshop as Workshop

__all__ = [
    "CLAIMS",
    "PRESETS",
    "Claim",
    "Comparison",
    "Condition",
    "Reproduction",
    "Verdict",
    "Workshop",
    "expected_verdict",
    "reproduce",
]
