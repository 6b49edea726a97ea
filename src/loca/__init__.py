"""Learn maps between functions from few, noisy measurements, and evaluate them anywhere.

Parts are imported when they are first used: `import loca` alone loads nothing else, not even JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loca import attention as attention
    from loca import checks as checks
    from loca import choosing as choosing
    from loca import comparing as comparing
    from loca import data as data
    from loca import devices as devices
    from loca import domains as domains
    from loca import encoders as encoders
    from loca import evaluation as evaluation
    from loca import exporting as exporting
    from loca import figures as figures
    from loca import gaussian as gaussian
    from loca import inversion as inversion
    from loca import kernels as kernels
    from loca import losses as losses
    from loca import metrics as metrics
    from loca import models as models
    from loca import nets as nets
    from loca import parameters as parameters
    from loca import positions as positions
    from loca import prediction as prediction
    from loca import problems as problems
    from loca import rules as rules
    from loca import runs as runs
    from loca import saving as saving
    from loca import sensitivity as sensitivity
    from loca import serving as serving
    from loca import sklearn as sklearn
    from loca import symmetries as symmetries
    from loca import training as training
    from loca import typing as typing
    from loca import uncertainty as uncertainty
    from loca.choosing import choose as choose
    from loca.comparing import compare as compare
    from loca.data import Samples as Samples
    from loca.evaluation import evaluate as evaluate
    from loca.exporting import export as export
    from loca.gaussian import GaussianOperator as GaussianOperator
    from loca.gaussian import solve as solve
    from loca.inversion import acquire as acquire
    from loca.inversion import design as design
    from loca.inversion import invert as invert
    from loca.models import FNO as FNO
    from loca.models import LOCA as LOCA
    from loca.models import DeepONet as DeepONet
    from loca.models import Operator as Operator
    from loca.saving import load as load
    from loca.saving import save as save
    from loca.training import fit as fit
    from loca.uncertainty import Ensemble as Ensemble
    from loca.uncertainty import Probabilistic as Probabilistic
    from loca.uncertainty import calibrate as calibrate

    __version__: str

_NAMES = {
    "choosing": ("choose",),
    "comparing": ("compare",),
    "data": ("Samples",),
    "evaluation": ("evaluate",),
    "exporting": ("export",),
    "gaussian": ("GaussianOperator", "solve"),
    "inversion": ("acquire", "design", "invert"),
    "models": ("FNO", "LOCA", "DeepONet", "Operator"),
    "saving": ("load", "save"),
    "serving": (),
    "sklearn": (),
    "training": ("fit",),
    "uncertainty": ("Ensemble", "Probabilistic", "calibrate"),
}
"""Names by the part that defines them; without its extra, `serving` or `sklearn` names it in an error."""

__all__ = [
    "FNO",
    "LOCA",
    "DeepONet",
    "Ensemble",
    "GaussianOperator",
    "Operator",
    "Probabilistic",
    "Samples",
    "acquire",
    "attention",
    "calibrate",
    "checks",
    "choose",
    "choosing",
    "compare",
    "comparing",
    "data",
    "design",
    "devices",
    "domains",
    "encoders",
    "evaluate",
    "evaluation",
    "export",
    "exporting",
    "figures",
    "fit",
    "gaussian",
    "inversion",
    "invert",
    "kernels",
    "load",
    "losses",
    "metrics",
    "models",
    "nets",
    "parameters",
    "positions",
    "prediction",
    "problems",
    "rules",
    "runs",
    "save",
    "saving",
    "sensitivity",
    "solve",
    "symmetries",
    "training",
    "typing",
    "uncertainty",
]


def __getattr__(name: str) -> Any:
    """Import a part, or a name from its part, at first use."""
    if name == "__version__":
        from importlib.metadata import version  # slow to import

        return version("loca-jax")
    for part, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"loca.{part}"), name)
    if name in __all__ or name in _NAMES:
        return importlib.import_module(f"loca.{name}")  # which makes it an attribute of the package
    raise AttributeError(f"module 'loca' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_NAMES, "__version__"])
