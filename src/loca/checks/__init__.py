"""Checks of data before training."""

from loca.checks.check import check
from loca.checks.findings import CheckReport, Finding

__all__ = ["CheckReport", "Finding", "check"]
