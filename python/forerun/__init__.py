"""forerun: reads slow storage at the device's speed.

`forerun.parquet` opens Parquet files of which some columns are read, `forerun.vectors` shows what
readahead policies decide; the command `forerun`, also `python -m forerun`, has the rest.

Importing this package registers the name ``"forerun"`` with fsspec and loads nothing else.
"""

from __future__ import annotations

from forerun import _hook

# Importing `typing` takes longer than all else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from forerun import parquet, vectors
    from forerun._cache import ForerunCache, memory_held, memory_limit
    from forerun._forerun import version
    from forerun._report import Report, report
    from forerun.errors import FetchError, ForerunError, OptionError

    __version__: str

__all__ = [
    "FetchError",
    "ForerunCache",
    "ForerunError",
    "OptionError",
    "Report",
    "__version__",
    "memory_held",
    "memory_limit",
    "parquet",
    "report",
    "vectors",
    "version",
]

# Where each name is, or nothing for a module.
_PLACES = {
    "FetchError": "errors",
    "ForerunCache": "_cache",
    "ForerunError": "errors",
    "OptionError": "errors",
    "Report": "_report",
    "memory_held": "_cache",
    "memory_limit": "_cache",
    "parquet": None,
    "report": "_report",
    "vectors": None,
    "version": "_forerun",
}


def __getattr__(name: str) -> Any:
    """Loads what is asked for first."""
    import importlib

    if name == "__version__":
        value: Any = __getattr__("version")()
    elif name in _PLACES:
        place = _PLACES[name]
        module = importlib.import_module(f"forerun.{place or name}")
        value = getattr(module, name) if place else module
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_hook.install()
