"""The paper as an executable contract: every claim put to the test, and answered."""

from loca.studies.claim import Claim as Claim
from loca.studies.claim import Verdict as Verdict
from loca.studies.claims import CLAIMS as CLAIMS
from loca.studies.comparison import Comparison as Comparison
from loca.studies.comparison import Condition as Condition
from loca.studies.reproduce import PRESETS as PRESETS
from loca.studies.reproduce import Reproduction as Reproduction
from loca.studies.reproduce import expected_verdict as expected_verdict
from loca.studies.reproduce import reproduce as reproduce
from loca.studies.workshop import Workshop as Workshop

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
