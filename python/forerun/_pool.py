"""Threads that fetch ahead of need, shared by all caches of the process."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

Task = Callable[[], None]


class Pool:
    """At most ``most`` daemon threads, begun as they are needed; idle ones end after a while."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unclaimed = 0
        self._idle = 0

    @property
    def threads(self) -> int:
        """Threads that there are."""
        return self._threads

    def submit(self, task: Task) -> bool:
        """Has a thread run ``task``, which handles its own errors; whether there is one."""
        with self._lock:
            self._unclaimed += 1
            begin = self._unclaimed > self._idle and self._threads < self._most
            self._threads += begin
        self._tasks.put(task)
        return not begin or self._begin()

    def _begin(self) -> bool:
        try:
            threading.Thread(target=self._run, name="forerun", daemon=True).start()
        except RuntimeError:
            # The system has no more, or Python ends: who waits fetches without.
            with self._lock:
                self._threads -= 1
                if self._threads == 0:
                    with contextlib.suppress(queue.Empty):
                        self._tasks.get_nowait()
                        self._unclaimed -= 1
                        return False
        return True

    def _run(self) -> None:
        while (task := self._next()) is not None:
            task()
            # What the task held is not to live until the next one comes.
            del task

    def _next(self) -> Task | None:
        with self._lock:
            self._idle += 1
        try:
            task = self._tasks.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            task = None
        with self._lock:
            self._idle -= 1
            if task is None and self._unclaimed == 0:
                self._threads -= 1
                return None
            self._unclaimed -= 1
        return self._tasks.get() if task is None else task


_IDLE_SECONDS = 30.0
