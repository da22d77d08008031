"""Packages that are loaded when they are needed, and what to install where one is missing."""

from __future__ import annotations

import importlib
from typing import Any


def load(module: str, what: str, extra: str = "sweep") -> Any:
    """The `module`, which `what` needs; `extra` is what brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise ModuleNotFoundError(
            f"{what} needs {package}: pip install 'forerun[{extra}]'", name=error.name
        ) from None
