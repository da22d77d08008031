"""Threads that fetch ahead of need, shared by all caches of the process."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

Task = Callable[[], None]


class Pool:
    """At most ``most`` daemon threads, begun as they are needed; idle ones end after a while.

    A signal's handler may raise between any two steps of `submit`. So nothing is counted there
    that an exception would leave wrong: tasks count themselves, and threads while they run. A
    handler may also submit, so the lock may be taken again by the thread that has it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._alive: set[threading.Thread] = set()
        self._idle = 0

    @property
    def threads(self) -> int:
        """Threads that there are."""
        return len(self._alive)

    def submit(self, task: Task) -> bool:
        """Has a thread run ``task``, which handles its own errors; whether there is one."""
        self._tasks.put(task)
        self._begin()
        if not self._alive:
            with contextlib.suppress(queue.Empty):
                self._tasks.get_nowait()
                return False
        return True

    def _begin(self) -> None:
        """Begins a thread if there are more tasks than threads without one."""
        thread = None
        try:
            with self._lock:
                if self._tasks.qsize() <= self._idle:
                    return
                thread = threading.Thread(target=self._run, name="forerun", daemon=True)
                # A handler's own, before this, finds it counted.
                self._alive.add(thread)
                if len(self._alive) > self._most:
                    self._alive.discard(thread)
                    return
            thread.start()
        except BaseException as error:
            # One that runs all the same says so itself.
            self._alive.discard(thread)
            # The system has no more, or Python ends: a waiting thread fetches without. A signal's
            # handler may raise the same class.
            if not (isinstance(error, RuntimeError) and "new thread" in str(error)):
                raise

    def _run(self) -> None:
        self._alive.add(threading.current_thread())
        while (task := self._next()) is not None:
            task()
            # What the task held is not to live until the next one comes.
            del task

    def _next(self) -> Task | None:
        task = None
        while task is None:
            with self._lock:
                self._idle += 1
            with contextlib.suppress(queue.Empty):
                task = self._tasks.get(timeout=_IDLE_SECONDS)
            with self._lock:
                self._idle -= 1
                if task is None and self._tasks.empty():
                    self._alive.discard(threading.current_thread())
                    return None
        # A thread that put a task there meanwhile took this one for idle.
        self._begin()
        return task


_IDLE_SECONDS = 30.0
