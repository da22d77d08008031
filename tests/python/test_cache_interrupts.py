"""The fsspec cache when signals' handlers raise: memory within its bound, no read or signal lost.

Each scene runs in a process of its own, as it signals itself.
"""

from __future__ import annotations

import gc
import queue
import signal
import threading
from collections.abc import Callable

import pytest
from stores import (
    KIB,
    MIB,
    Hooked,
    Interrupt,
    Store,
    ahead,
    content,
    run_scene,
    sessions_call,
    until,
)

import forerun._cache
import forerun._hosts
from forerun import ForerunCache, memory_held
from forerun._memory import Grant, Memory
from forerun._pool import Pool
from forerun._session import Session

MEMORY = 8 * MIB
SIZE = 64 * MIB
STEP = 100_000


class Stop(BaseException):
    """As an interrupt."""


class Late(RuntimeError):
    """What a handler may raise: of a class that libraries catch."""


def right(cache: ForerunCache, start: int, end: int) -> bool:
    return cache._fetch(start, end) == content(start, end)


def raising(kind: type[BaseException]) -> None:
    def handler(*_: object) -> None:
        raise kind

    signal.signal(signal.SIGALRM, handler)


def counted(cache: ForerunCache, name: str) -> float:
    return cache.report().as_dict()[name]


def tracebacks_and_threads_hold_no_pages() -> None:
    """Eight reads are interrupted; their tracebacks are kept, and their sessions by a thread."""
    stop = Interrupt(signal.SIGALRM, Stop)
    go_on = threading.Event()
    blocked: set[int] = set()
    held: list[int] = []
    seen: list[bool] = []

    def hook(start: int, end: int) -> None:
        if start in blocked and threading.current_thread() is not threading.main_thread():
            held.append(start)
            go_on.wait()

    cache = ForerunCache(0, Hooked(SIZE, hook), SIZE, memory=MEMORY, readahead="off")
    kept: list[BaseException] = []
    sessions: list[Session] = []
    threads: list[threading.Thread] = []
    for turn in range(8):
        start = turn * 8 * MIB
        blocked.add(start)
        # All of its memory is used.
        assert right(cache, start + MIB, start + 7 * MIB)
        session = cache._session
        assert session is not None
        sessions.append(session)
        before = counted(cache, "stalls")

        def other(start: int = start) -> None:
            seen.append(right(cache, start, start + 5000))

        def interrupt(before: float = before) -> None:
            until(lambda: counted(cache, "stalls") == before + 2)
            stop.send()

        threads.append(threading.Thread(target=other, daemon=True))
        threads[-1].start()
        until(lambda start=start: start in held)  # type: ignore[misc]
        threads.append(threading.Thread(target=interrupt, daemon=True))
        threads[-1].start()
        try:
            cache._fetch(start, start + 5000)
        except Stop as error:
            kept.append(error)
        assert len(kept) == turn + 1, "not interrupted"
        assert memory_held() <= MEMORY, memory_held()
        taken = sum(session.ranges.stats()["memory"] for session in sessions)
        assert taken <= MEMORY, taken
    go_on.set()
    for thread in threads:
        thread.join()
    assert seen == [True] * 8
    assert right(cache, 0, SIZE)
    assert memory_held() <= MEMORY
    cache.close()
    assert memory_held() == 0
    assert len(kept) == 8


def signals_in_a_row() -> None:
    """Two signals, microseconds apart, time and again; all tracebacks are kept."""
    left: list[None] = []

    def handler(*_: object) -> None:
        if left:
            left.pop()
            raise Stop

    signal.signal(signal.SIGALRM, handler)
    cache = ForerunCache(0, Store(SIZE), SIZE, memory=MEMORY)
    kept: list[BaseException] = []
    wrong: list[int] = []
    stop = threading.Event()

    def reader(is_over: Callable[[], bool]) -> None:
        while True:
            for start in range(0, SIZE - STEP, STEP):
                if is_over():
                    return
                if not right(cache, start, start + STEP):
                    wrong.append(start)

    turns, is_over = [0], [False]

    def turn() -> None:
        left.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert memory_held() <= MEMORY, memory_held()
        turns[0] += 1
        if turns[0] > 200:
            is_over[0] = True
            return
        left.extend([None] * 2)
        signal.setitimer(signal.ITIMER_REAL, 50e-6 + turns[0] % 97 * 5e-6, 20e-6)
        reader(lambda: not left)

    def level(work: Callable[[], None]) -> None:
        while not is_over[0]:
            try:
                work()
            except (Stop, RuntimeError) as error:
                # Python's own `Condition`, interrupted twice, says "release unlocked lock".
                assert isinstance(error, Stop) or error.__context__ is not None, error
                kept.append(error)

    thread = threading.Thread(target=reader, args=(stop.is_set,), daemon=True)
    thread.start()
    # A signal may come as another is noted: each level loses one, and there are two.
    level(lambda: level(lambda: level(turn)))
    stop.set()
    thread.join()
    assert not wrong
    assert len(kept) >= 200
    assert right(cache, 0, SIZE)
    cache.close()
    gc.collect()
    assert memory_held() == 0


def a_second_signal_as_the_first_is_handled() -> None:
    """The first one comes after a fetch was claimed, so another reader waits for that."""
    claimed, settled, ran = threading.Event(), [0], Session._run

    def run(session: Session, job: tuple[int, int, int]) -> bytes | BaseException:
        if threading.current_thread() is threading.main_thread() and not claimed.is_set():
            claimed.set()
            until(lambda: counted(cache, "stalls") == 2)
            raise Stop
        return ran(session, job)

    def settle(cache: ForerunCache, session: Session) -> None:
        settled[0] += 1
        raise Stop

    seen: list[bool] = []

    def other() -> None:
        claimed.wait()
        seen.append(right(cache, 0, 5000))

    cache = ForerunCache(0, Store(SIZE), SIZE, memory=MEMORY, readahead="off")
    thread = threading.Thread(target=other, daemon=True)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "_run", run)
        patch.setattr(ForerunCache, "_settle", settle)
        with pytest.raises(Stop):
            cache._fetch(0, 5000)
        assert settled == [1]
        assert memory_held() == 0
    thread.join()
    assert seen == [True]
    assert right(cache, 0, 5000)
    assert right(cache, 0, SIZE)
    assert 0 < memory_held() <= MEMORY


def an_error_of_a_handler_is_no_failed_readahead() -> None:
    """Without threads the reader makes all fetches, those ahead of need too."""
    raising(Late)
    forerun._cache._pool = Pool(0)
    met: list[int] = []

    def hook(start: int, end: int) -> None:
        if end - start > STEP and not met:
            met.append(start)
            signal.raise_signal(signal.SIGALRM)

    # So that windows are cut to more than a step.
    cache = ForerunCache(0, Hooked(SIZE, hook), SIZE, memory=2 * MEMORY)
    late = 0
    for start in range(0, SIZE - STEP, STEP):
        try:
            assert right(cache, start, start + STEP)
        except Late:
            late += 1
    assert (len(met), late) == (1, 1)
    assert right(cache, 0, SIZE)


def an_error_of_a_handler_is_no_lack_of_threads() -> None:
    raising(Late)
    started = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        signal.raise_signal(signal.SIGALRM)
        started(thread)

    cache = ForerunCache(0, Store(SIZE), SIZE, memory=MEMORY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(Late):
            for at in range(0, SIZE - STEP, STEP):
                assert right(cache, at, at + STEP)
    assert right(cache, 0, SIZE)


def fetches_of_closed_sessions_count_as_connections() -> None:
    pool = forerun._cache._pool = Pool(64)
    go_on = threading.Event()
    blocked: list[int] = []
    ended: list[int] = []

    def hook(start: int, end: int) -> None:
        if ahead():
            blocked.append(start)
            go_on.wait()
            ended.append(start)

    cache = ForerunCache(0, Hooked(SIZE, hook), SIZE, memory=MEMORY, connections=2)

    def read_ahead() -> None:
        """Two streams, until a thread fetches ahead of each."""
        for first in (0, 32 * MIB):
            before = len(blocked)
            for start in range(first, first + 2 * MIB, 128 * KIB):
                assert right(cache, start, start + 128 * KIB)
                until(lambda: pool._tasks.empty() and pool._idle + len(blocked) == pool.threads)
                if len(blocked) > before:
                    break

    for _ in range(4):
        read_ahead()
        assert len(blocked) == 2, blocked
        cache.close()
    read_ahead()
    go_on.set()
    # The last session has its share, though no further read comes.
    until(lambda: len(ended) > 2)


class Named(Store):
    """A store whose host has a name."""

    url = "http://host/file"

    def fetch(self, start: int, end: int) -> bytes:
        return self(start, end)


def handlers_read_files_in_the_middle_of_every_step() -> None:
    """A handler reads the same file and another one, once wherever a lock is held.

    It reads elsewhere: bytes that its own thread is about to fetch never come to it.
    """
    met: list[str] = []

    def handler(*_: object) -> None:
        start = SIZE // 2 + len(met) * 4 * MIB
        assert right(cache, start, start + 5000)
        assert right(other, start, start + 5000)

    def interrupt(place: str) -> None:
        if threading.current_thread() is threading.main_thread() and place not in met:
            met.append(place)
            signal.raise_signal(signal.SIGALRM)

    class Tasks(queue.SimpleQueue):  # type: ignore[type-arg]
        def qsize(self) -> int:
            interrupt("the pool")
            return super().qsize()

    def granted(own: Memory, holder: ForerunCache, wanted: int) -> Grant | None:
        got = grant(own, holder, wanted)
        interrupt("the memory")
        return got

    def host(name: str) -> None:
        interrupt(f"the hosts, {name}")

    signal.signal(signal.SIGALRM, handler)
    pool = forerun._cache._pool = Pool(4)
    pool._tasks = Tasks()
    grant = Memory.grant
    with pytest.MonkeyPatch.context() as patch, sessions_call(lambda: interrupt("a session")):
        patch.setattr(Memory, "grant", granted)
        patch.setattr(forerun._hosts, "is_off", lambda: False)
        patch.setattr(forerun._hosts, "Host", host)
        cache, other = (ForerunCache(0, Named(SIZE).fetch, SIZE, memory=MEMORY) for _ in range(2))
        for start in range(0, SIZE - STEP, STEP):
            assert right(cache, start, start + STEP)
    assert sorted(met) == ["a session", "the hosts, http://host", "the memory", "the pool"]
    assert memory_held() <= 2 * MEMORY
    cache.close()
    other.close()
    assert memory_held() == 0


@pytest.mark.parametrize(
    "scene",
    [
        handlers_read_files_in_the_middle_of_every_step,
        tracebacks_and_threads_hold_no_pages,
        signals_in_a_row,
        a_second_signal_as_the_first_is_handled,
        an_error_of_a_handler_is_no_failed_readahead,
        an_error_of_a_handler_is_no_lack_of_threads,
        fetches_of_closed_sessions_count_as_connections,
    ],
    ids=lambda scene: scene.__name__,
)
def test_a_reader_goes_on_after(scene: Callable[[], None]) -> None:
    run_scene(scene)
