"""Storage in memory for tests of caches: bytes that tell where they are from, and who asked."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forerun._forerun

KIB = 1 << 10
MIB = 1 << 20
# A prime: a page of the wrong place has other bytes.
PERIOD = 1_048_573
GUARD_SECONDS = 120.0

_period = random.Random(1).randbytes(PERIOD)
_periods = _period * 4


def content(start: int, end: int) -> bytes:
    """What every store has from `start` to before `end`."""
    at = start % PERIOD
    to = at + end - start
    if to <= len(_periods):
        return _periods[at:to]
    return (_period * -(-to // PERIOD))[at:to]


class Store:
    """A fetcher of `size` bytes that notes the ranges it was asked for."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ranges: list[tuple[int, int]] = []

    def __call__(self, start: int, end: int) -> bytes:
        assert 0 <= start < end <= self.size, (start, end)
        self.ranges.append((start, end))
        return content(start, end)

    @property
    def fetched(self) -> int:
        """Bytes that it gave."""
        return sum(end - start for start, end in self.ranges)


class Hooked(Store):
    """A store that calls `hook(start, end)` first, which may wait or raise."""

    def __init__(self, size: int, hook: Callable[[int, int], None]) -> None:
        super().__init__(size)
        self.hook = hook

    def __call__(self, start: int, end: int) -> bytes:
        self.hook(start, end)
        return super().__call__(start, end)


def ahead() -> bool:
    """Whether this thread is one of those that fetch ahead of need."""
    return threading.current_thread().name == "forerun"


def until(holds: Callable[[], bool]) -> None:
    """Waits for what other threads do; the guard is against waiting for ever."""
    guard = time.monotonic() + GUARD_SECONDS
    while not holds():
        assert time.monotonic() < guard, "it does not come"
        os.sched_yield()


class Interrupt:
    """A signal whose handler raises once for each `send`."""

    def __init__(self, number: int, kind: type[BaseException]) -> None:
        self._number = number
        self._kind = kind
        self._left: list[None] = []
        signal.signal(number, self._handle)

    def send(self) -> None:
        """Interrupts the main thread, from another one.

        Once is not enough: a signal that comes just before Python waits for a lock does not end
        that wait.
        """
        main = threading.main_thread().ident
        assert main is not None
        self._left.append(None)

        def is_handled() -> bool:
            signal.pthread_kill(main, self._number)
            time.sleep(0.01)
            return not self._left

        until(is_handled)

    def _handle(self, *_: object) -> None:
        if self._left:
            self._left.pop()
            raise self._kind


@contextlib.contextmanager
def sessions_call(hook: Callable[[], None]) -> Iterator[None]:
    """New sessions of caches call `hook` in the midst of giving work away."""
    made = forerun._forerun.Ranges

    class Ranges:
        def __init__(self, *words: Any) -> None:
            self.own = made(*words)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.own, name)

        def waiting(self) -> int:
            hook()
            return self.own.waiting()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forerun._forerun, "Ranges", Ranges)
        yield


def run_scene(scene: Callable[[], None]) -> str:
    """Runs a function of a test's module in a process of its own; what that said on stderr."""
    name = scene.__name__
    code = f"import {scene.__module__} as t; t.{name}()"
    words = [sys.executable, "-X", "faulthandler", "-c", code]
    folder = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, *sys.path])}
    ended = subprocess.run(
        words, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr
