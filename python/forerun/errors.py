"""What forerun raises. Each message says what to do."""

from __future__ import annotations

from collections.abc import Iterable


class ForerunError(Exception):
    """Any error of forerun."""


class FetchError(ForerunError, OSError):
    """The storage did not give the bytes: `errno` says why, as far as it has a number."""


class OptionError(ForerunError, ValueError):
    """What was asked for cannot be: a policy, a parameter or a size."""


class RunError(ForerunError):
    """A run of the laboratory failed: a trace cannot be read, or the memory is too small."""


def nearest(name: str, known: Iterable[str], alike: float = 0.6) -> str:
    """The end of a message on an unknown name: the nearest of those `known`, if it is `alike`."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), 1, alike)
    return f"; the nearest is {found[0]!r}" if found else ""
