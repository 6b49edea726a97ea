"""Those of the paper's experiments that read data of others: climate records, and digits as stiff inclusions."""

from loca_reproduction.problems.climate import Climate, Climatology
from loca_reproduction.problems.mechanical_mnist import MechanicalMNIST

__all__ = ["Climate", "Climatology", "MechanicalMNIST"]
