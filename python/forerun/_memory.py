"""What all caches of the process may hold together."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import Protocol

from forerun.errors import OptionError


class Holder(Protocol):
    """Who holds memory and can let go of it."""

    def let_go(self) -> None:
        """Drops what is held; it comes back as it is needed."""


class Memory:
    """A bound in bytes, shared equally where there is not enough for all.

    A holder that finds no room has those that hold most let go of theirs.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        self._held: dict[int, tuple[weakref.ref[Holder], int]] = {}

    @property
    def total(self) -> int:
        """The bound."""
        return self._total

    @total.setter
    def total(self, total: int) -> None:
        if total < LEAST:
            raise OptionError(f"a memory limit of {total} bytes: at least {LEAST} are needed")
        with self._lock:
            self._total = total
            self._make_room(0, 0)

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return sum(size for _, size in list(self._held.values()))

    def grant(self, holder: Holder, wanted: int) -> tuple[int, int]:
        """Bytes for ``holder``, 0 if there is no room for the least; and a number for `release`."""
        with self._lock:
            share = max(self._total // (len(self._held) + 1), LEAST)
            size = min(wanted, share)
            self._make_room(size, share)
            size = min(size, self._total - self.held)
            if size < min(wanted, LEAST):
                return 0, -1
            number = next(self._numbers)
            self._held[number] = (weakref.ref(holder), size)
            return size, number

    def _make_room(self, size: int, share: int) -> None:
        """Has those that hold more than ``share`` let go until ``size`` is free, most first."""
        for ref, held in sorted(self._held.values(), key=lambda row: -row[1]):
            if self._total - self.held >= size or held <= share:
                break
            other = ref()
            if other is not None:
                other.let_go()

    def release(self, number: int) -> None:
        """What was granted under ``number`` is free again."""
        self._held.pop(number, None)


#: A cache of fewer bytes is not worth its while.
LEAST = 4 << 20
