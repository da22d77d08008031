"""One file's ranges, the reads that wait for them, and the threads that fetch them."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from forerun import _forerun
from forerun.errors import FetchError

if TYPE_CHECKING:
    from forerun._memory import Grant
    from forerun._pool import Pool

Fetcher = Callable[[int, int], bytes]
Job = tuple[int, int, int]
Answer = bytes | BaseException | None

logger = logging.getLogger("forerun")


class Session:
    """Decisions and bytes are in `_forerun.Ranges`; here is who fetches and who waits."""

    def __init__(
        self,
        fetcher: Fetcher,
        size: int,
        options: tuple[int, int, int, str],
        pool: Pool,
        grant: Grant | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._pool = pool
        # Held as long as this lives, be it by a thread that fetches still.
        self._grant = grant
        self._connections = options[2]
        self._lock = threading.Lock()
        self._running = 0
        self._abandoned = False
        self._gates: dict[int, threading.Lock] = {}
        self._errors: dict[int, BaseException] = {}
        self.ranges = _forerun.Ranges(size, *options, _Wake(self))
        self.read = self.ranges.read
        self.read_max = self.ranges.read_max

    def wait(self, read: int, start: int, end: int) -> Answer:
        """The bytes of a read that has to wait, or the error of the fetch that failed.

        Fetches what no other thread does. `None`: there is no room, and the bytes are to be had by
        `fetch` all the same.
        """
        ranges = self.ranges
        while True:
            gate = threading.Lock()
            gate.acquire()
            self._gates[read] = gate
            try:
                got = self._answer(read, start, end, gate)
            finally:
                self._gates.pop(read, None)
                error = self._errors.pop(read, None)
            if isinstance(got, bytes):
                return got
            if not got:
                return error
            again = ranges.again(start, end)
            if isinstance(again, bytes):
                return again
            read = again

    def start(self) -> None:
        """Gives fetches that wait to threads, as far as there are connections."""
        with self._lock:
            more = min(self._connections - self._running, self.ranges.waiting())
            if more <= 0:
                return
            self._running += more
        for _ in range(more):
            if not self._pool.submit(_Work(self)):
                with self._lock:
                    self._running -= 1

    def open_gates(self, woken: list[int]) -> None:
        """Wakes those who wait for these reads: they ended, or have something to fetch."""
        for read in woken:
            # It stays until its reader takes it out: a signal between the steps loses nothing.
            gate = self._gates.get(read)
            if gate is not None:
                with contextlib.suppress(RuntimeError):
                    # It may be open already.
                    gate.release()

    def work(self) -> bool:
        """Makes a fetch that waits for a thread; whether there was one."""
        with self._lock:
            job = None if self._abandoned else self.ranges.claim()
            if job is None:
                self._running -= 1
                return False
        # An error is told to those who wait, and a thread goes on.
        self._run(job)
        return True

    def abandon(self) -> None:
        """Has those who wait fetch for themselves."""
        self._abandoned = True
        self.open_gates(list(self._gates))

    def fetch(self, start: int, end: int) -> bytes:
        """Exactly those bytes, from the fetcher."""
        data = self._fetcher(start, end)
        if not isinstance(data, bytes):
            data = bytes(data)
        if len(data) != end - start:
            raise FetchError(
                f"asked for bytes {start} to {end}, {end - start} of them, and got {len(data)}: "
                "the file changed, or its server does not serve ranges. Open it again, or with "
                'cache_type="none"'
            )
        return data

    def _answer(self, read: int, start: int, end: int, gate: threading.Lock) -> bytes | bool:
        ranges = self.ranges
        at, data = start, b""
        while (got := ranges.take(read)) is None:
            if self._abandoned:
                # What others met is not this read's.
                self._errors.pop(read, None)
                return False
            job = ranges.claim_for(read)
            # The rest goes to other threads while this one fetches.
            self.start()
            if job is None:
                gate.acquire()
                continue
            fetched = self._run(job)
            if isinstance(fetched, bytes):
                at, data = job[1], fetched
            elif not isinstance(fetched, Exception):
                self._errors[read] = fetched
                ranges.cancel(read)
                return False
        # Nothing: the last fetch of this thread has all of it.
        return data[start - at : end - at] if got == b"" else got

    def _run(self, job: Job) -> bytes | BaseException:
        """Makes a fetch: its bytes, or the error if it failed."""
        number, start, end = job
        try:
            data = self.fetch(start, end)
        except BaseException as error:  # noqa: BLE001 - it is told to its readers.
            woken = self.ranges.failed(number)
            # An interrupt is of this thread alone: others who wait fetch for themselves.
            if isinstance(error, Exception):
                self._errors.update((read, error) for read in woken if read in self._gates)
            self.open_gates(woken)
            self.start()
            logger.debug("bytes %d to %d could not be fetched: %r", start, end, error)
            return error
        self.open_gates(self.ranges.arrived(number, data))
        self.start()
        return data


class _Wake:
    """Called where a read that had its bytes led to more."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)

    def __call__(self, woken: list[int]) -> None:
        session = self._session()
        if session is not None:
            session.open_gates(woken)
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
