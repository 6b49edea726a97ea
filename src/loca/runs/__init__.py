"""Runs: data, a model and training settings become a trained model with its errors, in a directory of its own.

The command line describes a run in a `RunConfiguration` and carries it out with `execute`.
"""

from loca.configuration import ConfigurationError as ConfigurationError
from loca.configuration import DataConfiguration as DataConfiguration
from loca.configuration import RunConfiguration as RunConfiguration
from loca.configuration import TrainingConfiguration as TrainingConfiguration
from loca.configuration import check_configuration as check_configuration
from loca.configuration import read_configuration as read_configuration
from loca.runs.execution import HISTORY_FILE as HISTORY_FILE
from loca.runs.execution import MODEL_FILE as MODEL_FILE
from loca.runs.execution import REPORT_FILE as REPORT_FILE
from loca.runs.execution import RUN_FILE as RUN_FILE
from loca.runs.execution import RunResult as RunResult
from loca.runs.execution import create_model as create_model
from loca.runs.execution import execute as execute
from loca.runs.execution import read_run as read_run
from loca.runs.execution import train_and_evaluate as train_and_evaluate
from loca.runs.sources import FileSource as FileSource
from loca.runs.sources import RunData as RunData

__all__ = [
    "HISTORY_FILE",
    "MODEL_FILE",
    "REPORT_FILE",
    "RUN_FILE",
    "ConfigurationError",
    "DataConfiguration",
    "FileSource",
    "RunConfiguration",
    "RunData",
    "RunResult",
    "TrainingConfiguration",
    "check_configuration",
    "create_model",
    "execute",
    "read_configuration",
    "read_run",
    "train_and_evaluate",
]
