"""A server for models: the Open Inference Protocol v2 over HTTP, and xarray data sets as JSON."""

import importlib.util

if missing := [name for name in ("starlette", "uvicorn", "httptools") if importlib.util.find_spec(name) is None]:
    raise ModuleNotFoundError(f"loca.serving needs {', '.join(missing)}; install it with `pip install loca-jax[serve]`")

from loca.serving.application import Application as Application
from loca.serving.batching import Batcher as Batcher
from loca.serving.protocol import Limits as Limits
from loca.serving.protocol import RequestError as RequestError
from loca.serving.protocol import Tensor as Tensor
from loca.serving.repository import Repository as Repository
from loca.serving.repository import find_models as find_models
from loca.serving.served_model import ServedModel as ServedModel
from loca.serving.server import Supervisor as Supervisor
from loca.serving.server import bind as bind
from loca.serving.server import is_loopback as is_loopback
from loca.serving.server import line_of as line_of
from loca.serving.server import read_tokens as read_tokens
from loca.serving.server import serve as serve
from loca.serving.telemetry import Tracing as Tracing
from loca.serving.telemetry import report as report
from loca.serving.telemetry import start_logging as start_logging

__all__ = [
    "Application",
    "Batcher",
    "Limits",
    "Repository",
    "RequestError",
    "ServedModel",
    "Supervisor",
    "Tensor",
    "Tracing",
    "bind",
    "find_models",
    "is_loopback",
    "line_of",
    "read_tokens",
    "report",
    "serve",
    "start_logging",
]
