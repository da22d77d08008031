"""One file's ranges, the reads that wait for them, and who fetches them: threads, or coroutines of
the file's event loop.

A signal's handler runs between any two steps of the main thread and may read files itself, and so
wait for any other thread: there are no locks here, and what is taken is taken in one step. What its
own thread is about to fetch a handler cannot wait for.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from fsspec.exceptions import FSTimeoutError

from forerun import _forerun
from forerun._loops import coroutine_of, loop_of
from forerun._retry import WAITS, is_transient
from forerun.errors import FetchError

if TYPE_CHECKING:
    from forerun._loops import Loops
    from forerun._memory import Grant
    from forerun._pool import Pool

Fetcher = Callable[[int, int], bytes]
Job = tuple[int, int, int]
Answer = bytes | BaseException | None

logger = logging.getLogger("forerun")


class Tokens:
    """A number of them, to be taken and put back by any thread."""

    __slots__ = ("_free",)

    def __init__(self, count: int) -> None:
        # Each method of a deque is one step, which no other thread and no handler sees half of.
        self._free = deque(range(count))

    @property
    def free(self) -> int:
        """How many may be taken."""
        return len(self._free)

    def take(self) -> bool:
        """Takes one, if there is one."""
        try:
            self._free.pop()
        except IndexError as error:
            # A signal's handler may raise the same class, from a frame of its own.
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise
            return False
        return True

    def put_back(self) -> None:
        """One that was taken may be taken again."""
        self._free.append(0)


class InFlight(Tokens):
    """Fetches that are made ahead for one file, of all its sessions: so many at a time.

    A session that is closed leaves its fetches in flight, whose bytes take memory until they end.
    """

    __slots__ = ("session",)

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.session: Callable[[], Session | None] = _none


def _none() -> None:
    """Of a file without a session."""


class Counts:
    """What all sessions of a file count that Rust does not, and how often they try again."""

    __slots__ = ("retried", "retries")

    def __init__(self, retries: int) -> None:
        self.retries = retries
        self.retried = 0


class Session:
    """Decisions and bytes are in `_forerun.Ranges`; here is who fetches and who waits.

    Each of its workers, a thread or a coroutine, makes one fetch after the other. A thread that
    waits for bytes makes their fetch itself.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        size: int,
        options: tuple[int, int, int, str],
        workers: tuple[Pool, Loops],
        counts: Counts,
        grant: Grant | None = None,
        in_flight: InFlight | None = None,
        host: _forerun.Host | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._coroutine = coroutine_of(fetcher)
        self._pool, self._loops = workers
        self._counts = counts
        self._grant = grant
        connections = options[2]
        self._in_flight = in_flight or InFlight(connections)
        self._idle = Tokens(connections)
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
        """Begins workers for fetches that wait, as far as there are connections."""
        for _ in range(min(self._in_flight.free, self.ranges.waiting())):
            if not self._idle.take():
                return
            work = _Work(self, self._idle)
            try:
                has_begun = self._begin(work)
            except BaseException:
                work.end()
                raise
            if not has_begun:
                work.end()

    def _begin(self, work: _Work) -> bool:
        loop = None if self._coroutine is None else loop_of(self._fetcher)
        if loop is not None and self._loops.submit(loop, work.in_loop):
            return True
        return self._pool.submit(work)

    def work(self) -> bool:
        """A thread makes a fetch that waits; whether there was one."""
        job = self._claim()
        if job is None:
            return False
        # An error is told to those who wait, and a thread goes on.
        try:
            self._run(job)
        finally:
            self._end()
        return True

    async def work_in_loop(self) -> bool:
        """As `work`, in the file's event loop."""
        job = self._claim()
        if job is None:
            return False
        try:
            await self._run_in_loop(job)
        finally:
            self._end()
        return True

    def _claim(self) -> Job | None:
        """A fetch that waits for a worker; without one, the worker ends."""
        if self._in_flight.take():
            job: Job | None = self.ranges.claim()
            if job is not None:
                return job
            self._end()
        return None

    def _end(self) -> None:
        """A worker has one fetch less in flight."""
        self._in_flight.put_back()
        if self.ranges.closed:
            # The next session had one fetch less until now.
            session = self._in_flight.session()
            if session is not None and session is not self:
                session.start()

    def fetch(self, start: int, end: int, number: int | None = None) -> bytes:
        """Exactly those bytes, from the fetcher, of the fetch `number` if it has one."""
        failures = 0
        while True:
            try:
                return _exactly(start, end, self._fetcher(start, end))
            except Exception as error:
                if _is_interrupt(error) or not self._is_made_again(failures, error, number):
                    raise
            time.sleep(WAITS[failures])
            failures += 1

    async def _fetch_in_loop(self, start: int, end: int, number: int) -> bytes:
        """As `fetch`, in the file's event loop."""
        assert self._coroutine is not None
        failures = 0
        while True:
            try:
                return _exactly(start, end, await self._coroutine(start, end))
            except Exception as error:
                if not self._is_made_again(failures, error, number):
                    # As fsspec raises it in the thread that waits.
                    if isinstance(error, asyncio.TimeoutError):
                        raise FSTimeoutError from error
                    raise
            await asyncio.sleep(WAITS[failures])
            failures += 1

    def _is_made_again(self, failures: int, error: Exception, number: int | None) -> bool:
        """Whether a fetch is, that met `error` after `failures`; it is counted then."""
        if failures == self._counts.retries or self.ranges.closed or not is_transient(error):
            return False
        logger.debug("a fetch is made again: %r", error)
        self._counts.retried += 1
        if number is not None:
            self.ranges.retried(number)
        return True

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
            self._failed(job, error)
            return error
        self._arrived(number, data)
        return data

    async def _run_in_loop(self, job: Job) -> None:
        """As `_run`, in the file's event loop."""
        number, start, end = job
        try:
            data = await self._fetch_in_loop(start, end, number)
        except BaseException as error:
            self._failed(job, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._arrived(number, data)

    def _arrived(self, number: int, data: bytes) -> None:
        self.ranges.arrived(number, data)
        self.start()

    def _failed(self, job: Job, error: BaseException) -> None:
        number, start, end = job
        woken = self.ranges.failed(number)
        # An interrupt is of this thread alone: others who wait fetch for themselves.
        if not _is_interrupt(error):
            gates = self.ranges.gates
            self._errors.update((read, error) for read in woken if read in gates)
        self.ranges.wake(woken)
        self.start()
        logger.debug("bytes %d to %d could not be fetched: %r", start, end, error)


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
    """What a worker does for a session, as long as that lives, and its token."""

    __slots__ = ("_idle", "_session", "_token")

    def __init__(self, session: Session, idle: Tokens) -> None:
        self._session = weakref.ref(session)
        self._idle = idle
        self._token = Tokens(1)

    def __call__(self) -> None:
        try:
            while True:
                session = self._session()
                if session is None or not session.work():
                    break
                del session
        finally:
            self.end()
        self._start(session)

    async def in_loop(self) -> None:
        try:
            while True:
                session = self._session()
                if session is None or not await session.work_in_loop():
                    break
                del session
        finally:
            self.end()
        self._start(session)

    def end(self) -> None:
        """Puts its token back, once."""
        if self._token.take():
            self._idle.put_back()

    def _start(self, session: Session | None) -> None:
        # A fetch that has come to wait since found no idle worker.
        if session is not None:
            session.start()


def _exactly(start: int, end: int, data: bytes) -> bytes:
    """`data`, if it is so long."""
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
