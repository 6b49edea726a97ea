"""A server for models: the Open Inference Protocol v2 over HTTP."""

import importlib.util

_NEEDED = ("starlette", "uvicorn", "httptools", "prometheus_client", "orjson")
if _MISSING := [name for name in _NEEDED if importlib.util.find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"loca.serving needs {', '.join(_MISSING)}; install the extra: pip install 'loca-jax[serve]'"
    )

from loca.serving.application import Settings as Settings  # noqa: E402 (after the check)
from loca.serving.application import create_application as create_application  # noqa: E402
from loca.serving.application import serve as serve  # noqa: E402

__all__ = ["Settings", "create_application", "serve"]
