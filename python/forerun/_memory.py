"""What all caches of the process may hold together."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from forerun._forerun import keep_spare
from forerun.errors import OptionError


class Holder(Protocol):
    """A holder of memory that can release it."""

    def let_go(self) -> None:
        """Drops what is held; it comes back as it is needed."""


class Pages(Protocol):
    """What takes the bytes of a grant."""

    @property
    def closed(self) -> bool:
        """Whether the bytes are freed."""

    def close(self) -> None:
        """Frees the bytes."""


class Grant:
    """Bytes that are held until this is released or dropped, or its pages are closed.

    A traceback may keep it for ever: whether its bytes are held is no matter of references.
    """

    __slots__ = ("__weakref__", "_size", "holder", "pages")

    def __init__(self, holder: Holder, size: int) -> None:
        self.holder = weakref.ref(holder)
        self.pages: Pages | None = None
        self._size = size

    @property
    def size(self) -> int:
        """Bytes that are held now."""
        pages = self.pages
        return 0 if pages is not None and pages.closed else self._size

    def release(self) -> None:
        """Frees them."""
        if self.pages is not None:
            self.pages.close()
        self._size = 0


class Memory:
    """A bound in bytes, shared equally where there is not enough for all.

    A holder has one grant: the one before, which a signal may have kept it from releasing, is
    released first. A holder that finds no room has those that hold most release theirs. Memory
    without a holder may be kept for the next one, up to `SPARE`.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._lock = threading.RLock()
        self._grants: list[weakref.ref[Grant]] = []

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
            self._keep_spare()

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return sum(grant.size for grant in self._alive())

    def grant(self, holder: Holder, wanted: int) -> Grant | None:
        """Bytes for ``holder``; `None` if there is no room for the least."""
        with self._lock:
            for grant in self._alive():
                if grant.holder() is holder:
                    grant.release()
            self._grants = [weakref.ref(grant) for grant in self._alive()]
            share = max(self._total // (len(self._grants) + 1), LEAST)
            size = min(wanted, share)
            self._make_room(size, share)
            size = min(size, self._total - self.held)
            if size < min(wanted, LEAST):
                return None
            grant = Grant(holder, size)
            self._grants.append(weakref.ref(grant))
            self._keep_spare()
            return grant

    def _alive(self) -> list[Grant]:
        return [grant for ref in self._grants if (grant := ref()) is not None and grant.size > 0]

    def _make_room(self, size: int, share: int) -> None:
        """Has those that hold more than ``share`` let go until ``size`` is free, most first."""
        for grant in sorted(self._alive(), key=lambda grant: -grant.size):
            if self._total - self.held >= size or grant.size <= share:
                break
            holder = grant.holder()
            if holder is not None:
                holder.let_go()
            grant.release()

    def _keep_spare(self) -> None:
        keep_spare(max(min(SPARE, self._total - self.held), 0))


#: A cache of fewer bytes is not worth its while.
LEAST = 4 << 20
#: Memory of closed files that the next ones use again: as much as one file takes by default.
SPARE = 256 << 20
