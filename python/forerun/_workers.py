"""Processes of this machine that compute, each with one task at a time.

    thread of the caller --> a pipe --> a worker process         one thread a process
                         <-- a pipe <--    the result

Beside `concurrent.futures.ProcessPoolExecutor` it differs in three ways. A worker that dies fails
the one task that it had (`WorkerDied`), and the next task has a new worker. Workers import nothing
of the caller's main module, so that a script needs no guard. And they end when the caller does,
however it ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import IO, Any

from forerun.errors import ForerunError


class WorkerDied(ForerunError):
    """The process that had the task ended before the task did."""


class Workers(Executor):
    """`count` processes, which start with their first task."""

    def __init__(self, count: int) -> None:
        assert count > 0
        self.count = count
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._threads: list[threading.Thread] = []
        self._is_shut = self._is_cancelled = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Has `fn`, a function of a module, called in a worker."""
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot submit to workers that were shut down")
            future: Future[Any] = Future()
            self._tasks.put((future, pickle.dumps((fn, args, kwargs))))
            if len(self._threads) < self.count:
                thread = threading.Thread(
                    target=self._run, name="forerun-worker", daemon=True, args=(len(self._threads),)
                )
                self._threads.append(thread)
                thread.start()
            return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the workers once their tasks are done; with `cancel_futures`, at once."""
        with self._lock:
            self._is_shut = True
            self._is_cancelled = cancel_futures
            if cancel_futures:
                with contextlib.suppress(queue.Empty):
                    while (task := self._tasks.get_nowait()) is not None:
                        task[0].cancel()
                for child in self._children.values():
                    child.kill()
            for _ in self._threads:
                self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def processes(self) -> list[int]:
        """The process ids of the workers."""
        with self._lock:
            return [child.pid for child in self._children.values()]

    def _run(self, number: int) -> None:
        """Hands tasks to one worker, and a new one where it died."""
        child: subprocess.Popen[bytes] | None = None
        while (task := self._tasks.get()) is not None:
            future, call = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                if child is None:
                    child = self._start(number)
                assert child.stdin is not None and child.stdout is not None
                _send(child.stdin, call)
                answer = _receive(child.stdout)
            except OSError:
                answer = None
            except BaseException as error:
                future.set_exception(error)
                continue
            if answer is None:
                status = self._end(number, child)
                child = None
                future.set_exception(WorkerDied(f"the worker process ended with {status}"))
                continue
            is_value, value = pickle.loads(answer)
            if is_value:
                future.set_result(value)
            else:
                future.set_exception(value)
        self._end(number, child)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        with self._lock:
            self._children[number] = child
            if self._is_cancelled:
                child.kill()
        return child

    def _end(self, number: int, child: subprocess.Popen[bytes] | None) -> str:
        """Waits for the end of `child`; its status in words."""
        with self._lock:
            self._children.pop(number, None)
        if child is None:
            return "no start"
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        status = child.wait()
        return f"signal {-status}" if status < 0 else f"status {status}"


def serve() -> None:
    """A worker's life: tasks from stdin, results to stdout, until stdin ends."""
    # The caller's own interrupt ends the worker by its pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks, results = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What a task prints is no result.
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(tasks, calls), daemon=True).start()
    while True:
        answer: tuple[bool, Any]
        try:
            fn, args, kwargs = pickle.loads(calls.get())
            answer = True, fn(*args, **kwargs)
        except Exception as error:
            answer = False, error
        _send(results, pickle.dumps(answer))


def _listen(tasks: IO[bytes], calls: queue.SimpleQueue[bytes]) -> None:
    """Ends the process with the caller's end of the pipe, in the middle of a task too."""
    while (call := _receive(tasks)) is not None:
        calls.put(call)
    os._exit(0)


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(struct.pack("<Q", len(message)) + message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """The next message; none where the pipe ends, in the middle of one too."""
    head = pipe.read(8)
    if len(head) < 8:
        return None
    (length,) = struct.unpack("<Q", head)
    message = pipe.read(length)
    return message if len(message) == length else None
