"""Checks of data before training."""

from loca.checks.check import check as check
from loca.checks.findings import CheckReport as CheckReport
from loca.checks.findings import Finding as Finding
from loca.checks.findings import Level as Level
from loca.checks.forecast import Forecast as Forecast
from loca.checks.forecast import check_memory as check_memory
from loca.checks.forecast import forecast as forecast

__all__ = ["CheckReport", "Finding", "Forecast", "check", "forecast"]
