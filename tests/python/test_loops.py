"""Files of asynchronous file systems: what is fetched ahead in their event loop, without a thread."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fsspec.asyn import get_loop, sync_wrapper
from fsspec.exceptions import FSTimeoutError
from stores import KIB, MIB, content, run_scene, sessions_call, until

import forerun._cache
from forerun import ForerunCache
from forerun._loops import Loops, coroutine_of, loop_of
from forerun._session import Tokens

SIZE = 64 * MIB


class Flights:
    """How many fetches are in flight, and at most were."""

    def __init__(self) -> None:
        self.now = self.most = 0


class AsyncFile:
    """A file as asynchronous file systems have them; its fetches end once `go_on` is set."""

    def __init__(self, size: int = SIZE, flights: Flights | None = None) -> None:
        self.size = size
        self.flights = flights or Flights()
        self.loop: Any = get_loop()
        self.go_on = threading.Event()
        self.go_on.set()
        self.begun: list[tuple[int, int]] = []
        self.errors: dict[int, Exception] = {}

    async def _fetch(self, start: int, end: int) -> bytes:
        self.begun.append((start, end))
        self.flights.now += 1
        self.flights.most = max(self.flights.most, self.flights.now)
        try:
            await asyncio.sleep(0.001)
            while not self.go_on.is_set():
                await asyncio.sleep(0.001)
            if start in self.errors:
                raise self.errors.pop(start)
            return content(start, end)
        finally:
            self.flights.now -= 1

    fetch = sync_wrapper(_fetch)

    def cache(self, **options: Any) -> ForerunCache:
        """A cache of it."""
        return ForerunCache(0, self.fetch, self.size, **options)


def held(ranges: int, in_flight: int, **options: Any) -> tuple[AsyncFile, ForerunCache]:
    """A file of which `ranges` will be needed, with so many of them in flight until it goes on."""
    file = AsyncFile()
    file.go_on.clear()
    cache = file.cache(readahead="off", **options)
    cache.will_need(apart(ranges))
    until(lambda: file.flights.now == in_flight)
    return file, cache


def right(cache: ForerunCache, start: int, end: int) -> bool:
    return cache._fetch(start, end) == content(start, end)


def apart(count: int) -> list[tuple[int, int]]:
    """Ranges that are no one's neighbours."""
    return [(at * 2 * MIB, at * 2 * MIB + 64 * KIB) for at in range(count)]


def test_ranges_are_fetched_together_and_without_threads() -> None:
    # The loop's own thread.
    get_loop()
    before = set(threading.enumerate())
    file, cache = held(24, 24, connections=32)
    assert set(threading.enumerate()) <= before
    file.go_on.set()
    for start, end in apart(24):
        assert right(cache, start, end)
    assert len(file.begun) == 24
    cache.close()


def test_connections_bound_what_is_in_flight() -> None:
    file, cache = held(24, 3, connections=3)
    cache.close()
    # The next session has no more of them than the first one leaves.
    cache.will_need(apart(2))
    file.go_on.set()
    for start, end in apart(24):
        assert right(cache, start, end)
    assert file.flights.most <= 4, "three, and the reader's own"
    cache.close()


def test_all_files_of_a_loop_share_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forerun._cache, "_loops", Loops(4))
    flights = Flights()
    files = [AsyncFile(flights=flights) for _ in range(3)]
    caches = [file.cache(readahead="off") for file in files]
    for file, cache in zip(files, caches, strict=True):
        file.go_on.clear()
        cache.will_need(apart(3))
    until(lambda: flights.now == 4)
    for file in files:
        file.go_on.set()
    until(lambda: [len(file.begun) for file in files] == [3, 3, 3] and flights.now == 0)
    assert flights.most == 4
    for cache in caches:
        assert right(cache, 0, 64 * KIB)
        cache.close()


def test_what_fails_for_a_moment_is_requested_again() -> None:
    file, cache = held(1, 1)
    file.errors = {0: ConnectionError("once")}
    file.go_on.set()
    assert right(cache, 0, 64 * KIB)
    assert cache.report().as_dict()["retried"] == 1
    assert len(file.begun) == 2
    cache.close()


@pytest.mark.parametrize(
    ("error", "raised"),
    [(PermissionError("no"), PermissionError), (asyncio.TimeoutError(), FSTimeoutError)],
)
def test_an_error_comes_to_the_thread_that_waits(error: Exception, raised: type[Exception]) -> None:
    file = AsyncFile()
    cache = file.cache(readahead="off", request="64K", retries=0)
    file.errors = {start: error for start in range(64 * KIB, MIB, 64 * KIB)}
    # The thread makes the first of these fetches itself, and the loop the others.
    with pytest.raises(raised):
        cache._fetch(0, MIB)
    file.errors = {}
    assert right(cache, 0, MIB)
    cache.close()


def test_where_the_loop_has_ended_threads_fetch() -> None:
    file = AsyncFile()
    cache = file.cache(readahead="off")
    file.loop = asyncio.new_event_loop()
    file.loop.close()
    cache.will_need(apart(2))
    # Its own reads cannot be made either: fsspec says why.
    with pytest.raises(RuntimeError, match="Loop is not running"):
        cache._fetch(0, 64 * KIB)
    file.loop = get_loop()
    assert right(cache, 0, 64 * KIB)
    cache.close()


def test_only_what_fsspec_has_wrapped_is_awaited() -> None:
    async def own(file: Any, start: int, end: int) -> bytes:
        raise AssertionError("the wrapper does more than this")

    class Wrapped(AsyncFile):
        @functools.wraps(own)
        def fetch(self, start: int, end: int) -> bytes:
            return content(start, end)

    file = Wrapped()
    assert coroutine_of(AsyncFile().fetch) is not None
    assert coroutine_of(file.fetch) is None and coroutine_of(content) is None
    cache = file.cache(readahead="off")
    cache.will_need(apart(2))
    assert right(cache, 0, 64 * KIB)
    cache.close()
    file.loop = None
    assert loop_of(file.fetch) is None


def test_a_fetch_that_is_cancelled_leaves_its_connection() -> None:
    file, cache = held(2, 2, connections=2)
    turns = forerun._cache._loops._turns[file.loop]
    for running in list(turns._running):
        file.loop.call_soon_threadsafe(running.cancel)
    until(lambda: file.flights.now == 0)
    file.go_on.set()
    session = cache._session
    assert session is not None
    until(lambda: session._idle.free == 2 and session._in_flight.free == 2)
    cache.will_need([(20 * MIB, 20 * MIB + 64 * KIB)])
    until(lambda: file.begun[-1] == (20 * MIB, 20 * MIB + 64 * KIB))
    for start, end in apart(2):
        assert right(cache, start, end)
    cache.close()


def test_what_is_set_where_a_fetch_is_found_is_not_seen_in_it() -> None:
    place = contextvars.ContextVar("place", default="none")
    met = []

    class Seen(AsyncFile):
        async def _fetch(self, start: int, end: int) -> bytes:
            met.append(place.get())
            return content(start, end)

        fetch = sync_wrapper(_fetch)

    place.set("the reader's")
    cache = Seen().cache(readahead="off")
    cache.will_need(apart(2))
    until(lambda: len(met) == 2)
    assert met == ["none", "none"]
    cache.close()


def a_handlers_error_is_no_end_of_the_loop() -> None:
    """It is raised as the loop is woken, once the task is already there."""
    file = AsyncFile()
    cache = file.cache(connections=2, readahead="off")
    assert right(cache, 0, 100)
    file.go_on.clear()
    loop, write = file.loop, file.loop._write_to_self

    def late() -> None:
        loop._write_to_self = write
        write()
        raise TimeoutRuntimeError

    loop._write_to_self = late
    with pytest.raises(TimeoutRuntimeError):
        cache.will_need(apart(3))
    session = cache._session
    assert session is not None
    file.go_on.set()
    cache.will_need(apart(4))
    for start, end in apart(4):
        assert right(cache, start, end)
    until(lambda: session._idle.free == 2 and session._in_flight.free == 2)


def test_tokens_are_taken_as_often_as_there_are_some() -> None:
    tokens = Tokens(2)
    assert [tokens.take() for _ in range(3)] == [True, True, False]
    tokens.put_back()
    assert (tokens.free, tokens.take(), tokens.free) == (1, True, 0)


class TimeoutRuntimeError(RuntimeError):
    """What a handler may raise."""


def handlers_wait_for_the_loop() -> None:
    """A handler reads a file of the loop that the thread it interrupts gives work to."""
    reads = 0

    def handler(*_: object) -> None:
        nonlocal reads
        reads += 1
        # Elsewhere each time: it has to wait.
        start = reads * 15_485_863 % (SIZE // 2)
        assert right(other, start, start + 5000)

    def interrupt() -> None:
        if threading.current_thread() is threading.main_thread() and reads < 300:
            signal.raise_signal(signal.SIGALRM)

    signal.signal(signal.SIGALRM, handler)
    cache, other = (AsyncFile().cache(memory="8M", remember=False) for _ in range(2))
    assert right(other, 0, 100)
    with sessions_call(interrupt):
        while reads < 300:
            for start in range(0, SIZE - 100_000, 100_000):
                assert right(cache, start, start + 100_000)
            cache.let_go()


def a_process_that_ends_says_nothing() -> None:
    """Fetches are in flight as it ends, in a child as well."""
    _, cache = held(24, 16)
    child = os.fork()
    if child == 0:
        cache.will_need(apart(24))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "scene",
    [
        a_handlers_error_is_no_end_of_the_loop,
        a_process_that_ends_says_nothing,
        handlers_wait_for_the_loop,
    ],
    ids=lambda scene: scene.__name__,
)
def test_a_process_does_well_where(scene: Callable[[], None]) -> None:
    assert run_scene(scene) == ""
