"""Runs: data, a model and training settings become a trained model with its errors, in a directory of its own.

The command line describes a run in a `RunConfiguration` and carries it out with `execute`. The paper's claims describe
many runs as `Run` and hand them to a `RunPool`. Both train and evaluate with `train_and_evaluate`.
"""

from loca.configuration import ConfigurationError as ConfigurationError
from loca.configuration import DataConfiguration as DataConfiguration
from loca.configuration import RunConfiguration as RunConfiguration
from loca.configuration import TrainingConfiguration as TrainingConfiguration
from loca.configuration import check_configuration as check_configuration
from loca.configuration import read_configuration as read_configuration
from loca.runs.execution import BASELINES as BASELINES
from loca.runs.execution import HISTORY_FILE as HISTORY_FILE
from loca.runs.execution import LEARNED as LEARNED
from loca.runs.execution import MODEL_FILE as MODEL_FILE
from loca.runs.execution import REPORT_FILE as REPORT_FILE
from loca.runs.execution import RUN_FILE as RUN_FILE
from loca.runs.execution import RunResult as RunResult
from loca.runs.execution import create_model as create_model
from loca.runs.execution import execute as execute
from loca.runs.execution import read_run as read_run
from loca.runs.execution import train_and_evaluate as train_and_evaluate
from loca.runs.pool import Run as Run
from loca.runs.pool import RunPool as RunPool
from loca.runs.pool import commit as commit
from loca.runs.pool import hardware as hardware
from loca.runs.sources import DataSource as DataSource
from loca.runs.sources import Drawn as Drawn
from loca.runs.sources import FileSource as FileSource
from loca.runs.sources import Recorded as Recorded
from loca.runs.sources import RunData as RunData
from loca.runs.sources import Test as Test

__all__ = [
    "BASELINES",
    "HISTORY_FILE",
    "LEARNED",
    "MODEL_FILE",
    "REPORT_FILE",
    "RUN_FILE",
    "ConfigurationError",
    "DataConfiguration",
    "DataSource",
    "Drawn",
    "FileSource",
    "Recorded",
    "Run",
    "RunConfiguration",
    "RunData",
    "RunPool",
    "RunResult",
    "Test",
    "TrainingConfiguration",
    "check_configuration",
    "commit",
    "create_model",
    "execute",
    "hardware",
    "read_configuration",
    "read_run",
    "train_and_evaluate",
]
