"""∫_Y: nodes and weights on the output domain."""

from loca.rules.defaults import rule_on as rule_on
from loca.rules.monte_carlo import MonteCarlo as MonteCarlo
from loca.rules.monte_carlo import OwnQueries as OwnQueries
from loca.rules.monte_carlo import QuasiMonteCarlo as QuasiMonteCarlo
from loca.rules.product_rules import GaussLegendre as GaussLegendre
from loca.rules.product_rules import SphereProduct as SphereProduct
from loca.rules.product_rules import Trapezoid as Trapezoid
from loca.rules.rule import CellRule as CellRule
from loca.rules.rule import FixedRule as FixedRule
from loca.rules.rule import Rule as Rule

__all__ = [
    "CellRule",
    "FixedRule",
    "GaussLegendre",
    "MonteCarlo",
    "OwnQueries",
    "QuasiMonteCarlo",
    "Rule",
    "SphereProduct",
    "Trapezoid",
    "rule_on",
]
