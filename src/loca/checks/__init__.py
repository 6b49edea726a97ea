"""Whether data is fit to train on, before an hour is spent."""

from loca.checks.check import check as check
from loca.checks.finding import Finding as Finding
from loca.checks.finding import Level as Level
from loca.checks.finding import Report as Report
from loca.checks.forecast import Forecast as Forecast
from loca.checks.forecast import check_memory as check_memory
from loca.checks.forecast import forecast as forecast
from loca.checks.forecast import memory_available as memory_available

__all__ = ["Finding", "Forecast", "Level", "Report", "check", "check_memory", "forecast", "memory_available"]
