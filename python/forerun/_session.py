"""One file's ranges, the reads that wait for them, and the threads that fetch them.

A signal's handler runs between any two steps of the main thread and may read files itself: every
lock may be taken again by the thread that has it. What that thread is itself about to fetch a handler
cannot wait for.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from forerun import _forerun
from forerun._retry import WAITS, is_transient
from forerun.errors import FetchError

if TYPE_CHECKING:
    from forerun._memory import Grant
    from forerun._pool import Pool

Fetcher = Callable[[int, int], bytes]
Job = tuple[int, int, int]
Answer = bytes | BaseException | None

logger = logging.getLogger("forerun")


class InFlight:
    """Fetches that threads of the pool make for one file, of all its sessions: `most` at a time.

    A session that is closed leaves its fetches in flight, whose bytes take memory until they end.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.session: Callable[[], Session | None] = _none
        self._lock = threading.RLock()
        self._count = 0

    @property
    def free(self) -> int:
        """Fetches that may begin."""
        return self.most - self._count

    def begin(self) -> bool:
        """Counts one, if it may begin."""
        with self._lock:
            # A handler's own, between the two, finds it counted.
            self._count += 1
            if self._count > self.most:
                self._count -= 1
                return False
            return True

    def end(self) -> None:
        """One has ended."""
        with self._lock:
            self._count -= 1


def _none() -> None:
    """Of a file without a session."""


class Counts:
    """What all sessions of a file count that Rust does not, and how often they try again."""

    __slots__ = ("retried", "retries")

    def __init__(self, retries: int) -> None:
        self.retries = retries
        self.retried = 0


class Session:
    """Decisions and bytes are in `_forerun.Ranges`; here is who fetches and who waits."""

    def __init__(
        self,
        fetcher: Fetcher,
        size: int,
        options: tuple[int, int, int, str],
        pool: Pool,
        counts: Counts,
        grant: Grant | None = None,
        in_flight: InFlight | None = None,
        host: _forerun.Host | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._pool = pool
        self._counts = counts
        self._grant = grant
        self._connections = options[2]
        self._in_flight = in_flight or InFlight(self._connections)
        self._lock = threading.RLock()
        self._running = 0
        self._errors: dict[int, BaseException] = {}
        self.ranges = _forerun.Ranges(size, *options, _Wake(self), host)
        if grant is not None:
            grant.pages = self.ranges
        self.read = self.ranges.read
        self.read_max = self.ranges.read_max

    def wait(self, read: int, start: int, end: int) -> Answer:
        """The bytes of a read that has to wait, or the error of the fetch that failed.

        Fetches what no other thread does. `None`: there is no room, or the session was closed, and
        the bytes are to be had by `fetch` all the same.
        """
        ranges = self.ranges
        while True:
            gate = threading.Lock()
            gate.acquire()
            ranges.gates[read] = gate
            try:
                got = self._answer(read, start, end, gate)
            finally:
                ranges.gates.pop(read, None)
                error = self._errors.pop(read, None)
            if isinstance(got, bytes):
                return got
            if not got:
                return error
            again = ranges.again(start, end)
            if not isinstance(again, int):
                return again
            read = again

    def start(self) -> None:
        """Gives fetches that wait to threads, as far as there are connections."""
        with self._lock:
            room = min(self._connections - self._running, self._in_flight.free)
            more = min(room, self.ranges.waiting())
            if more <= 0:
                return
            self._running += more
        for _ in range(more):
            if not self._pool.submit(_Work(self)):
                with self._lock:
                    self._running -= 1

    def work(self) -> bool:
        """Makes a fetch that waits for a thread; whether there was one."""
        job = None
        with self._lock:
            if self._in_flight.begin():
                job = self.ranges.claim()
                if job is None:
                    self._in_flight.end()
            if job is None:
                self._running -= 1
                return False
        # An error is told to those who wait, and a thread goes on.
        try:
            self._run(job)
        finally:
            self._in_flight.end()
        if self.ranges.closed:
            # The next session had one fetch less until now.
            session = self._in_flight.session()
            if session is not None and session is not self:
                session.start()
        return True

    def fetch(self, start: int, end: int, number: int | None = None) -> bytes:
        """Exactly those bytes, from the fetcher, of the fetch `number` if it has one."""
        data = self._fetched(start, end, number)
        if not isinstance(data, bytes):
            data = bytes(data)
        got = len(data)
        if got != end - start:
            # A traceback is not to keep it: it may be all of a file.
            del data
            raise FetchError(
                f"asked for bytes {start} to {end}, {end - start} of them, and got {got}: the "
                "file changed, or its server does not serve ranges. Open it again, or with "
                'cache_type="none"'
            )
        return data

    def _fetched(self, start: int, end: int, number: int | None) -> bytes:
        """What the fetcher gives, at the last attempt if the first ones fail for the moment."""
        for wait in WAITS[: self._counts.retries]:
            try:
                return self._fetcher(start, end)
            except Exception as error:
                if self.ranges.closed or not is_transient(error) or _is_interrupt(error):
                    raise
                logger.debug("bytes %d to %d are asked for again: %r", start, end, error)
            self._counts.retried += 1
            if number is not None:
                self.ranges.retried(number)
            time.sleep(wait)
        return self._fetcher(start, end)

    def _answer(self, read: int, start: int, end: int, gate: threading.Lock) -> bytes | bool:
        ranges = self.ranges
        at, data = start, b""
        while (got := ranges.take(read)) is None:
            job = ranges.claim_for(read)
            # The rest goes to other threads while this one fetches.
            self.start()
            if job is None:
                gate.acquire()
                continue
            fetched = self._run(job)
            if isinstance(fetched, bytes):
                at, data = job[1], fetched
            elif _is_interrupt(fetched):
                self._errors[read] = fetched
                ranges.cancel(read)
                return False
        # Nothing: the last fetch of this thread has all of it. It may also have all of a read that
        # a close left without an answer.
        has_all = got == b"" or (got is True and at <= start and end <= at + len(data))
        return data[start - at : end - at] if has_all else got

    def _run(self, job: Job) -> bytes | BaseException:
        """Makes a fetch: its bytes, or the error if it failed."""
        number, start, end = job
        try:
            data = self.fetch(start, end, number)
        except BaseException as error:  # noqa: BLE001 - it is told to its readers.
            woken = self.ranges.failed(number)
            # An interrupt is of this thread alone: others who wait fetch for themselves.
            if not _is_interrupt(error):
                gates = self.ranges.gates
                self._errors.update((read, error) for read in woken if read in gates)
            self.ranges.wake(woken)
            self.start()
            logger.debug("bytes %d to %d could not be fetched: %r", start, end, error)
            return error
        self.ranges.arrived(number, data)
        self.start()
        return data


class _Wake:
    """Called where a read that had its bytes led to more."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)

    def __call__(self) -> None:
        session = self._session()
        if session is not None:
            session.start()
            # Or they would wait for the interpreter until this thread has used its time up.
            time.sleep(0)


class _Work:
    """What a thread does for a session, as long as that lives."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)

    def __call__(self) -> None:
        while True:
            session = self._session()
            if session is None or not session.work():
                return
            del session


def _is_interrupt(error: BaseException) -> bool:
    """Whether a signal's handler raised it in this thread's fetch: no error of the fetch.

    A handler may raise any class, such as `TimeoutError`; its frame is in the traceback.
    """
    if not isinstance(error, Exception):
        return True
    if threading.current_thread() is not threading.main_thread():
        return False
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    link = error.__traceback__
    while link is not None:
        if link.tb_frame.f_code in codes:
            return True
        link = link.tb_next
    return False


RETRIES = len(WAITS)


def _code(handler: object) -> object:
    """The code of a handler that is written in Python."""
    while hasattr(handler, "func"):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = getattr(type(handler), "__call__", None)
    return getattr(function, "__code__", None)
