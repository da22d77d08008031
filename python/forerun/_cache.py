"""``cache_type="forerun"`` for fsspec: readahead for any number of interleaved readers."""

from __future__ import annotations

import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any, ClassVar, overload

from fsspec.caching import BaseCache, register_cache

from forerun import _hosts
from forerun._forerun import clear_frames
from forerun._loops import Loops
from forerun._memory import LEAST, Memory
from forerun._pool import Pool
from forerun._report import Report
from forerun._session import RETRIES, Answer, Counts, Fetcher, InFlight, Session
from forerun._travel import CacheName, after_fork
from forerun.errors import OptionError, nearest

_READAHEAD = "streams:first=1M"


class _Counter:
    """A counter as fsspec's caches have it: a whole number, which fsspec sets to 0 at times."""

    def __init__(self, doc: str, count: Callable[[dict[str, float]], float]) -> None:
        self.__doc__ = doc
        self._count = count

    def __set_name__(self, owner: type[ForerunCache], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, cache: None, owner: type[ForerunCache]) -> _Counter: ...
    @overload
    def __get__(self, cache: ForerunCache, owner: type[ForerunCache]) -> int: ...
    def __get__(self, cache: ForerunCache | None, owner: type[ForerunCache]) -> int | _Counter:
        if cache is None:
            return self
        return int(self._count(cache._counts())) - cache._shown.get(self._name, 0)

    def __set__(self, cache: ForerunCache, value: int) -> None:
        cache._shown[self._name] = int(self._count(cache._counts())) - value


class ForerunCache(BaseCache):
    """Reads ahead of each stream that it finds, through the file's own fetcher.

    Parameters
    ----------
    blocksize:
        Not used: windows are made for what the store was seen to do.
    fetcher:
        Gives the bytes from its first argument to before its second; called by several threads, or
        where fsspec made it of a coroutine, awaited in the file's event loop.
    size:
        Of the file, in bytes. Where it is not known nothing is kept.
    memory:
        The most that this file's pages take, in bytes or as ``"64M"``; `memory_limit` bounds all
        files together.
    connections:
        Fetches ahead of need at a time. Each thread that waits for bytes makes one more.
    request:
        The most bytes that one fetch asks for.
    readahead:
        The policy, as ``forerun sim --list-policies`` names them.
    retries:
        How often a fetch is made again that a server or a network failed for the moment.
    remember:
        Whether what is seen of the store's host is used for its next files, and kept for the
        user's next processes.
    """

    # Of a file with options, they are in its name: see `_travel.py`.
    name: ClassVar[str] = "forerun"
    hit_count = _Counter(
        "Reads that found all their bytes.", lambda now: now["reads"] - now["stalls"]
    )
    miss_count = _Counter("Reads that had to wait.", lambda now: now["stalls"])
    total_requested_bytes = _Counter("Bytes that were fetched.", lambda now: now["bytes_fetched"])
    blocksize: int
    fetcher: Fetcher
    size: int

    def __init__(
        self,
        blocksize: int,
        fetcher: Fetcher,
        size: int,
        *,
        memory: int | str = 256 << 20,
        connections: int = 16,
        request: int | str = 4 << 20,
        readahead: str = _READAHEAD,
        retries: int = RETRIES,
        remember: bool = True,
        **unknown: object,
    ) -> None:
        self._session: Session | None = None
        if unknown:
            raise OptionError(_unknown(next(iter(unknown))))
        self._past: dict[str, float] = {}
        self._shown: dict[str, int] = {}
        self._memory = _bytes("memory", memory, LEAST, 1 << 43)
        self._request = _bytes("request", request, 64 << 10, 1 << 30)
        self._connections = _count("connections", connections, 256)
        self._retries = _count("retries", retries, RETRIES, least=0)
        if not isinstance(remember, bool):
            raise OptionError(f"remember={remember!r}: True or False is needed")
        self._remember = remember
        given = (memory, connections, request, readahead, retries, remember)
        named = zip(_OPTIONS.items(), given, strict=True)
        changed = tuple((option, now) for (option, usual), now in named if now != usual)
        self.name = CacheName.of(changed)  # type: ignore[misc]
        # What is on its way takes a quarter of the memory at most.
        most = max(self._memory // 4 // self._connections, 64 << 10)
        self._request = min(self._request, most)
        self._readahead = readahead
        self._in_flight = InFlight(self._connections)
        self._counted = Counts(self._retries)
        super().__init__(blocksize, fetcher, size)
        if readahead != _READAHEAD:
            # What cannot be is refused here, where it is given, at the least memory there may be.
            options = (min(self._own(), LEAST), self._request, self._connections, readahead)
            Session(fetcher, 0, options, (_pool, _loops), Counts(0))
        _caches.add(self)

    def _fetch(self, start: int | None, end: int | None) -> bytes:
        session = self._session
        if (
            session is None
            or start is None
            or end is None
            or not 0 <= start < end <= self.size
            or end - start > session.read_max
        ):
            return self._fetch_any(start, end)
        return self._read(session, start, end)

    def _fetch_any(self, start: int | None, end: int | None) -> bytes:
        """As `_fetch`, for the first read and for those that are not plain."""
        start = max(start or 0, 0)
        if self.size is None:
            return self.fetcher(start, end)
        end = self.size if end is None else min(end, self.size)
        if start >= end:
            return b""
        session = self._session or self._begun()
        if session is None:
            return self.fetcher(start, end)
        parts: list[bytes] = []
        try:
            for at in range(start, end, session.read_max):
                parts.append(self._read(session, at, min(at + session.read_max, end)))
        except BaseException:
            # The traceback has this frame.
            parts.clear()
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read(self, session: Session, start: int, end: int) -> bytes:
        ranges = session.ranges
        try:
            got: Answer | int = session.read(start, end)
            if isinstance(got, int):
                got = session.wait(got, start, end)
        except BaseException as error:
            # A signal's handler raised, between any two steps: the session may lack one, and the
            # traceback keeps its frames for as long as it likes. This comes first and is one call
            # of C, so no second signal's handler comes between.
            ranges.close(error)
            self._settle(session)
            raise
        if isinstance(got, bytes):
            return got
        if got is None:
            if ranges.closed:
                self._settle(session)
            try:
                return session.fetch(start, end)
            except BaseException as error:
                clear_frames(error)
                raise
        try:
            raise got
        finally:
            # Its traceback has this frame, which would keep the memory until a collection.
            del got, session, ranges

    def _begun(self) -> Session | None:
        """The session of this file, which one thread begins; `None` if there is no memory."""
        with _beginning:
            return self._session or self._begin()

    def _begin(self) -> Session | None:
        """Takes memory; `None` if there is none to be had."""
        whole = max(-(-self.size // _PAGE) * _PAGE, LEAST)
        grant = _memory.grant(self, min(self._own(), whole))
        if grant is None:
            return None
        try:
            counts = self._counted
            host = _hosts.hosts.of(self.fetcher) if self._remember else None
            size = grant.size
            if size == 0:
                # As below.
                return self._session or self._begin()
            options = (size, self._request, self._connections, self._readahead)
            workers, in_flight = (_pool, _loops), self._in_flight
            session = Session(
                self.fetcher, self.size, options, workers, counts, grant, in_flight, host
            )
            ref = weakref.ref(session)
            if grant.size == 0:
                # A signal's handler has begun one meanwhile, and so taken the memory of this one.
                return self._session or self._begin()
            self._in_flight.session = ref
            self._session = session
        except BaseException:
            # A signal's handler raised: the traceback has the grant.
            grant.release()
            raise
        return session

    def _own(self) -> int:
        """What pages take of its memory: threads hold bytes on their way, a request each, and a
        64th of the pages is kept twice."""
        pages = self._memory - min(self._connections * self._request, self._memory // 4)
        return pages // 65 * 64

    def will_need(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Says that each of `ranges`, from its first byte to before its second, will be read.

        They are fetched in this order, as far as the memory allows, the rest as they are read.
        What lies beyond the file is left out, and nothing is raised where a fetch fails.
        """
        if self.size is None:
            return
        session = self._session or self._begun()
        if session is None:
            return
        for start, end in ranges:
            begin, stop = max(start, 0), min(end, self.size)
            if begin < stop:
                session.ranges.will_need(begin, stop)
        session.start()

    def let_go(self) -> None:
        """Drops all pages. The next read begins anew."""
        session = self._session
        if session is not None:
            session.ranges.close()
            self._settle(session)

    def _settle(self, session: Session) -> None:
        """Adds up what a closed session counted, unless that is done."""
        if self._session is session:
            self._session = None
            for name, value in session.ranges.stats().items():
                self._past[name] = self._past.get(name, 0) + value

    def __del__(self) -> None:
        # Tracebacks and threads may keep the session.
        session = self._session
        if session is not None:
            session.ranges.close()

    def close(self) -> None:
        """Frees the memory. A read after it begins anew."""
        self.let_go()
        if self._remember:
            _hosts.hosts.closed(self.fetcher)

    def report(self) -> Report:
        """What was read, fetched and wasted so far."""
        return Report(self._counts())

    def _log_stats(self) -> str:
        """fsspec asks for it at each read, for a log that hardly anyone turns on."""
        return super()._log_stats() if _log.isEnabledFor(logging.DEBUG) else ""

    def _counts(self) -> dict[str, float]:
        session = self._session
        now = dict.fromkeys(_NAMES, 0) if session is None else session.ranges.stats()
        now["retried"] = self._counted.retried
        return {name: value + self._past.get(name, 0) for name, value in now.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.blocksize, self.fetcher, self.size, self.name)


def _again(
    cls: type[ForerunCache], blocksize: int, fetcher: Fetcher, size: int, name: CacheName
) -> ForerunCache:
    return cls(blocksize, fetcher, size, **name.options)


def _unknown(option: str) -> str:
    """Says which option is nearest to one that there is not."""
    known = ", ".join(_OPTIONS)
    return f"no option {option!r}{nearest(option, _OPTIONS)}; there are: {known}"


def memory_limit(total: int | str | None = None) -> int:
    """The most that the pages of all files take together, in bytes; sets it if one is given."""
    if total is not None:
        _memory.total = _bytes("memory_limit", total, LEAST, 1 << 43)
    return _memory.total


def memory_held() -> int:
    """What they take now."""
    return _memory.held


# As commands read sizes, and print them.
_SIZE = r"(\d+(?:\.\d+)?)\s*([KMGTPE]?)(?:i?B|(?<=[\s\d])bytes)?"


def _bytes(name: str, value: int | str, least: int, most: int) -> int:
    """A size such as 4096, ``"64M"`` or ``"1.5GiB"``; units are powers of 1024."""
    size: int | str | None = value
    if isinstance(value, str):
        match = re.fullmatch(_SIZE, value.strip(), re.IGNORECASE)
        unit = 1024 ** " KMGTPE".index(match[2].upper() or " ") if match else 0
        size = int(Fraction(match[1]) * unit) if match else None
    if isinstance(size, bool) or not isinstance(size, int) or not least <= size <= most:
        raise OptionError(
            f"{name}={value!r}: a number of bytes from {least} to {most} is needed, such as "
            f'{max(least, 64 << 20)} or "64M"'
        )
    return size


def _count(name: str, value: int, most: int, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise OptionError(f"{name}={value!r}: a number from {least} to {most} is needed")
    return value


def _after_fork() -> None:
    """A child has no threads and may come from the middle of anything: it starts empty."""
    global _beginning, _memory, _pool, _loops
    _beginning = threading.RLock()
    _memory = Memory(_memory.total)
    _pool, _loops = Pool(_WORKERS), Loops(_WORKERS)
    _hosts.after_fork()
    for cache in list(_caches):
        cache._session = None
        cache._in_flight = InFlight(cache._connections)
        cache._counted = Counts(cache._retries)
        after_fork(cache.fetcher)
        cache._past.clear()
        cache._shown.clear()


_log = logging.getLogger("fsspec")
# Options and their usual values, in their order.
_OPTIONS: dict[str, object] = dict(ForerunCache.__init__.__kwdefaults__ or {})
_PAGE = 8192
_WORKERS = 64
_NAMES = (
    "reads",
    "stalls",
    "stalled_seconds",
    "streams",
    "bytes_wanted",
    "bytes_fetched",
    "bytes_ahead",
    "bytes_wasted",
    "bytes_unread",
    "requests",
    "failures",
    "memory",
)
_beginning = threading.RLock()
_memory = Memory(1 << 30)
_pool = Pool(_WORKERS)
_loops = Loops(_WORKERS)
_caches: weakref.WeakSet[ForerunCache] = weakref.WeakSet()

os.register_at_fork(after_in_child=_after_fork)
register_cache(ForerunCache, clobber=True)
