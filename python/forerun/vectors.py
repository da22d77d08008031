"""What readahead policies decide, read by read.

    >>> from forerun import vectors
    >>> for d in vectors.decisions("linux-2.6.24", [(0, 4096), (4096, 4096)], max="128K"):
    ...     print(d.read, d.cause, d.start, d.size, d.async_size)
    0 sync 0 4 3
    1 async 4 8 8

The decisions are those of the code that runs live. Time stands still and every fetch arrives
at once, so they depend on the reads alone; a policy that looks at the device (`streams`) has
learnt nothing of one, and its windows are those of a start.
"""

from collections.abc import Iterable
from typing import NamedTuple

from forerun import _forerun

__all__ = ["PAGE_BYTES", "Decision", "Verdict", "check", "decisions", "policies"]

PAGE_BYTES = 4096
"""Bytes of a page: the unit of windows."""


class Decision(NamedTuple):
    """A window that a policy opened. Pages are counted from 0 in their file.

    A miss for which it opens none is a window of what was asked, of the cause "random".
    """

    read: int
    """Which read it was opened for, counted from 0."""
    cause: str
    """What kind of readahead it is, such as "sync" (at a miss) or "async" (at the marker)."""
    page: int
    """The page that triggered it."""
    start: int
    """The window's first page."""
    size: int
    """Pages in the window."""
    async_size: int
    """Pages in its tail, which no reader waits for; the first of them carries the marker."""
    fetched: list[tuple[int, int]]
    """What was not cached of it: first and last page of each run."""


class Verdict(NamedTuple):
    """How recorded vectors came out."""

    passed: int
    """Scenarios of which every row was as recorded, counted once for each policy."""
    failed: int
    """The others."""
    lines: list[str]
    """A line for each row that differs."""


def policies() -> list[str]:
    """The names of the readahead policies."""
    return _forerun.policies()


def decisions(
    policy: str,
    reads: Iterable[tuple[int, int]],
    *,
    file_bytes: int = 1 << 30,
    **params: int | str,
) -> list[Decision]:
    """The windows that `policy` opens for `reads`, an offset and a length in bytes each.

    One handle reads a file of `file_bytes`, 16 GiB at most, of which nothing is cached.
    `params` are the policy's own: `max="1M"` is what `policy="NAME:max=1M"` is, as on the
    command line.

    Raises `OptionError` where the policy or a parameter is unknown, or a read is not within
    the file.
    """
    pairs = [f"{key}={value}" for key, value in params.items()]
    spec = ",".join([policy if ":" in policy else f"{policy}:", *pairs])
    return [Decision(*row) for row in _forerun.decisions(spec, list(reads), file_bytes)]


def check(text: str, policy: str | None = None) -> Verdict:
    """Compare recorded decisions of kernels with those made here, for `policy` or for all.

    `text` is JSON of the schema `forerun-readahead-vectors/1`. Raises `OptionError` where it
    is not, or where the policy has no vectors.
    """
    return Verdict(*_forerun.check(text, policy))
