"""Learn maps between functions from few, noisy measurements, and evaluate them anywhere.

Parts are imported when they are first used: `import loca` alone loads nothing else, not even JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loca import (
        attention,
        checks,
        choosing,
        comparing,
        data,
        devices,
        domains,
        encoders,
        evaluation,
        exporting,
        figures,
        gaussian,
        inversion,
        kernels,
        local,
        losses,
        metrics,
        models,
        nets,
        parameters,
        positions,
        prediction,
        problems,
        rules,
        runs,
        saving,
        sensitivity,
        symmetries,
        training,
        typing,
        uncertainty,
    )
    from loca import serving as serving
    from loca import sklearn as sklearn
    from loca.choosing import choose
    from loca.comparing import compare
    from loca.data import Samples, Trajectories
    from loca.evaluation import evaluate
    from loca.exporting import export
    from loca.gaussian import GaussianOperator, solve
    from loca.inversion import acquire, design, invert
    from loca.models import FNO, LOCA, DeepONet, Operator
    from loca.saving import load, save
    from loca.training import fit
    from loca.uncertainty import Ensemble, Probabilistic, calibrate

    __version__: str

_NAMES = {
    "choosing": ("choose",),
    "comparing": ("compare",),
    "data": ("Samples", "Trajectories"),
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
    "Trajectories",
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
    "local",
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
