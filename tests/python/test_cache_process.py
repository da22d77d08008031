"""The fsspec cache beside what a process does: forks, interrupts, and caches by the thousand.

Each runs in a process of its own, as it forks or signals itself.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from stores import MIB, Hooked, Interrupt, Store, content, run_scene, until

from forerun import ForerunCache, memory_held
from forerun._cache import _pool

SIZE = 12 * MIB + 4321


def right(cache: ForerunCache, start: int, end: int) -> bool:
    return cache._fetch(start, end) == content(start, end)


def child(cache: ForerunCache) -> int:
    """Forks; whether the child began with nothing and read right bytes."""
    pid = os.fork()
    if pid != 0:
        return pid
    status = 1
    try:
        empty = memory_held() == 0 and cache.report().as_dict()["reads"] == cache.hit_count == 0
        starts = (0, 5 * MIB + 7, SIZE - 300_000)
        status = not (empty and all(right(cache, at, at + 300_000) for at in starts))
    finally:
        os._exit(status)


def ended_well(pid: int) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def forks_while_threads_fetch() -> None:
    cache = ForerunCache(0, Store(SIZE), SIZE, memory="4M")
    stop = threading.Event()
    wrong: list[int] = []

    def reader(start: int) -> None:
        while not stop.is_set():
            for at in range(start, SIZE - 100_000, 100_000):
                if not right(cache, at, at + 100_000):
                    wrong.append(at)

    threads = [threading.Thread(target=reader, args=(MIB * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    cache._reset_stats()
    try:
        assert all(ended_well(child(cache)) for _ in range(50))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert right(cache, 0, SIZE)


def a_thousand_forks() -> None:
    cache = ForerunCache(0, Store(SIZE), SIZE)
    assert right(cache, 0, SIZE)
    assert ended_well(child(cache))
    before = resources()
    for _ in range(1000):
        pid = os.fork()
        if pid == 0:
            os._exit(not right(cache, 1000, 70_000))
        assert ended_well(pid)
    # Idle threads may end, and no others come.
    assert all(now <= old for now, old in zip(resources()[:2], before[:2], strict=True))


def ten_thousand_caches() -> None:
    def use(count: int) -> None:
        for at in range(count):
            cache = ForerunCache(0, Store(SIZE), SIZE)
            assert right(cache, at * 1000, at * 1000 + 5000)
            if at % 2:
                cache.close()

    use(1000)
    before = resources()
    for _ in range(9):
        use(1000)
    until(lambda: memory_held() == 0)
    threads, files, held = resources()
    assert threads <= max(before[0], 65)
    assert files <= before[1]
    assert held <= before[2] + 8 * MIB, (held, before[2])


def resources() -> tuple[int, int, int]:
    """Threads, open files and bytes in memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    mine = Path("/proc/self")
    threads, files = (len(os.listdir(mine / name)) for name in ("task", "fd"))
    return threads, files, pages * os.sysconf("SC_PAGE_SIZE")


def an_interrupt_in_the_own_fetch() -> None:
    # A script's background job has it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts = [0]

    def hook(start: int, end: int) -> None:
        if threading.current_thread() is threading.main_thread() and interrupts:
            interrupts.pop()
            os.kill(os.getpid(), signal.SIGINT)

    cache = ForerunCache(0, Hooked(SIZE, hook), SIZE)
    try:
        cache._fetch(0, 5000)
    except KeyboardInterrupt:
        assert not interrupts
    else:
        raise AssertionError("not interrupted")
    assert right(cache, 0, 5000)
    assert right(cache, 0, SIZE)


def an_interrupt_while_another_fetches() -> None:
    go_on = threading.Event()
    reached = threading.Event()
    seen: list[bool] = []

    def hook(start: int, end: int) -> None:
        reached.set()
        go_on.wait()

    cache = ForerunCache(0, Hooked(SIZE, hook), SIZE)
    pressed = Interrupt(signal.SIGINT, KeyboardInterrupt)

    def interrupt() -> None:
        until(lambda: cache.report().as_dict()["stalls"] == 2)
        pressed.send()

    first = threading.Thread(target=lambda: seen.append(right(cache, 0, 5000)))
    second = threading.Thread(target=interrupt)
    first.start()
    reached.wait()
    try:
        second.start()
        cache._fetch(0, 5000)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("not interrupted")
    go_on.set()
    first.join()
    second.join()
    assert seen == [True]
    assert right(cache, 0, 5000)
    assert right(cache, 0, SIZE)


def interrupts_at_any_moment() -> None:
    """A timer interrupts one reader time and again; it and another read on."""
    cache = ForerunCache(0, Store(SIZE), SIZE, memory="4M", connections=2, request="256K")
    stop = threading.Event()
    wrong: list[int] = []

    def read(start: int) -> None:
        if not right(cache, start, start + 100_000):
            wrong.append(start)

    def reader() -> None:
        while not stop.is_set():
            for start in range(0, SIZE - 100_000, 100_000):
                read(start)

    def interrupt(*_: object) -> None:
        if armed:
            armed.clear()
            raise KeyboardInterrupt

    armed: list[bool] = []
    signal.signal(signal.SIGALRM, interrupt)
    thread = threading.Thread(target=reader)
    thread.start()
    met = 0
    for turn in range(INTERRUPTS):
        try:
            armed.append(True)
            signal.setitimer(signal.ITIMER_REAL, 20e-6 + turn % 97 * 3e-6)
            for start in range(0, SIZE - 100_000, 100_000):
                read(start)
        except KeyboardInterrupt:
            met += 1
    stop.set()
    thread.join()
    # Python drops those that it meets in a finalizer.
    assert met > INTERRUPTS // 2
    assert not wrong
    assert right(cache, 0, SIZE)
    # Nothing that was counted stays so.
    until(lambda: all(thread.is_alive() for thread in _pool._alive.copy()))
    cache.close()
    gc.collect()
    until(lambda: memory_held() == 0)


INTERRUPTS = 5000


@pytest.mark.parametrize(
    "scene",
    [
        forks_while_threads_fetch,
        a_thousand_forks,
        ten_thousand_caches,
        an_interrupt_in_the_own_fetch,
        an_interrupt_while_another_fetches,
        interrupts_at_any_moment,
    ],
    ids=lambda scene: scene.__name__,
)
def test_a_process_goes_on_after(scene: Callable[[], None]) -> None:
    run_scene(scene)
