"""Checks of data before training."""

from loca.checks.check import check as check
from loca.checks.findings import CheckReport as CheckReport
from loca.checks.findings import Finding as Finding

__all__ = ["CheckReport", "Finding", "check"]
