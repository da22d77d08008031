"""Event loops of file systems: what an asynchronous file fetches there needs no thread of its own.

    any thread --call_soon_threadsafe--> the loop's thread: one turn begins many coroutines

The loop's thread takes no lock of this package: a thread may hold one while a signal's handler of it
runs, and that may wait for the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fsspec.asyn import sync_wrapper

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Task = Callable[[], Coroutine[Any, Any, None]]
AsyncFetcher = Callable[[int, int], Coroutine[Any, Any, bytes]]


def coroutine_of(fetcher: Any) -> AsyncFetcher | None:
    """The method that `fetcher` waits for, where fsspec's `sync_wrapper` has made it of one."""
    function: Any = getattr(fetcher, "__func__", None)
    if getattr(function, "__code__", None) is not _SYNC_WRAPPER:
        return None
    bound: AsyncFetcher = function.__wrapped__.__get__(fetcher.__self__)
    return bound


def loop_of(fetcher: Any) -> AbstractEventLoop | None:
    """The event loop in which the file of `fetcher` does its work; none in a forked child, until a
    first read has brought a new one."""
    loop = getattr(fetcher.__self__, "loop", None)
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None


class Loops:
    """At most ``most`` coroutines at a time in each event loop; the others wait."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._turns: weakref.WeakKeyDictionary[AbstractEventLoop, _Turns]
        self._turns = weakref.WeakKeyDictionary()

    def submit(self, loop: AbstractEventLoop, task: Task) -> bool:
        """Has ``loop`` run ``task``, which handles its own errors; whether it still runs."""
        try:
            # What is set where a fetch is found is not to be seen in it.
            context = contextvars.Context()
            loop.call_soon_threadsafe(self._enter, loop, task, context=context)
        except RuntimeError:
            # A signal's handler may raise the same class.
            if not loop.is_closed():
                raise
            self._turns.pop(loop, None)
            return False
        return True

    def _enter(self, loop: AbstractEventLoop, task: Task) -> None:
        turns = self._turns.get(loop)
        if turns is None:
            # Tasks that never end keep a loop that has ended.
            for other in list(self._turns):
                if other.is_closed():
                    self._turns.pop(other, None)
            turns = self._turns[loop] = _Turns(self._most)
        turns.waiting.append(task)
        turns.begin()


class _Turns:
    """Those of one loop; used in its thread alone."""

    def __init__(self, most: int) -> None:
        self.waiting: deque[Task] = deque()
        self._most = most
        self._running: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        while self.waiting and len(self._running) < self._most:
            running = asyncio.get_running_loop().create_task(self.waiting.popleft()())
            self._running.add(running)
            running.add_done_callback(self._ended, context=contextvars.Context())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self.begin()


async def _nothing() -> None:
    """Shows what `sync_wrapper` makes."""


_SYNC_WRAPPER = sync_wrapper(_nothing).__code__
