"""forerun: reads slow storage at the device's speed.

`forerun.parquet` opens Parquet files of which some columns are read. `forerun.sim`, `forerun.sweep`
and `forerun.vectors` show what policies would do; the command `forerun`, also `python -m forerun`,
has the rest.

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
    from forerun._plot import plot
    from forerun._report import Report, report
    from forerun._sim import sim
    from forerun._sweep import Sweep, sweep
    from forerun._traces import Trace, trace
    from forerun.errors import FetchError, ForerunError, OptionError, RunError

    __version__: str

__all__ = [
    "FetchError",
    "ForerunCache",
    "ForerunError",
    "OptionError",
    "Report",
    "RunError",
    "Sweep",
    "Trace",
    "__version__",
    "memory_held",
    "memory_limit",
    "parquet",
    "plot",
    "report",
    "sim",
    "sweep",
    "trace",
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
    "RunError": "errors",
    "Sweep": "_sweep",
    "Trace": "_traces",
    "memory_held": "_cache",
    "memory_limit": "_cache",
    "parquet": None,
    "plot": "_plot",
    "report": "_report",
    "sim": "_sim",
    "sweep": "_sweep",
    "trace": "_traces",
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
