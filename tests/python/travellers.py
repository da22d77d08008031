"""What other processes run in tests of files that travel. It does not import forerun."""

from __future__ import annotations

from typing import Any

from range_server import pattern

WHERE = (5, 100_005)


def read(file: Any) -> tuple[bool, str, dict[str, Any]]:
    """Reads a file that came by a pickle: whether it got right bytes, by which cache."""
    start, end = WHERE
    with file:
        file.seek(start)
        is_right = bytes(file.read(end - start)) == pattern(start, end)
        return is_right, type(file.cache).__name__, file.cache.name.options


def read_of(file_system: Any, url: str) -> tuple[bool, str, dict[str, Any]]:
    """Opens a file of a file system that came by a pickle, and reads."""
    return read(file_system.open(url))
