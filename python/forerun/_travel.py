"""Files that go to other processes: by a pickle, or by a fork.

fsspec pickles a file by its name and that of its cache. So the name of a cache has its options
within, and enters itself into fsspec where it is unpickled. A file of an asynchronous file system
that was opened before a fork has no event loop in the child: it gets one with its first use there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import fsspec.caching

if TYPE_CHECKING:
    from collections.abc import Callable

    from forerun._cache import ForerunCache

Options = tuple[tuple[str, Any], ...]


class CacheName(str):
    """The name of a cache with options; a `str` to all that compare it."""

    __slots__ = ("_options",)
    _options: Options

    @classmethod
    def of(cls, options: Options) -> CacheName:
        """The name ``forerun``, with the options that are not as ever behind it."""
        words = ",".join(f"{name}={value}" for name, value in options)
        name = cls(f"forerun:{words}" if words else "forerun")
        name._options = options
        return name

    @property
    def options(self) -> dict[str, Any]:
        """The options that are not as ever."""
        return dict(self._options)

    def __reduce__(self) -> tuple[Callable[[Options], CacheName], tuple[Options]]:
        return entered, (self._options,)


def entered(options: Options) -> CacheName:
    """The name of a cache with `options`, which fsspec knows from now on."""
    name = CacheName.of(options)
    if options:
        with _entering:
            if name not in _entered and len(_entered) == _ENTERED_MAX:
                fsspec.caching.caches.pop(_entered.pop(0), None)
            if name not in _entered:
                _entered.append(name)
            fsspec.caching.caches[name] = _Made(options)
    return name


class _Made:
    """Makes caches with options of their own, whatever those of the file system are."""

    __slots__ = ("_options",)

    def __init__(self, options: Options) -> None:
        self._options = options

    def __call__(self, blocksize: int, fetcher: Any, size: int, **_: Any) -> ForerunCache:
        from forerun._cache import ForerunCache

        return ForerunCache(blocksize, fetcher, size, **dict(self._options))


class _LoopAfterFork:
    """In the place of an event loop whose thread is in the parent: the first use opens the file
    again, and goes on with the loop that it has then."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._opening = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop(), name)

    def _loop(self) -> Any:
        file = self._file
        with self._opening:
            if file.loop is self:
                new, words = file.__reduce__()
                # Whatever it held ready is the parent's.
                again = new(*(_without_cache(word) for word in words))
                file.fs, file.loop = again.fs, again.loop
                if hasattr(file, "session"):
                    file.session = again.session
                again.close()
            return file.loop


def _without_cache(word: Any) -> Any:
    if isinstance(word, CacheName):
        return "none"
    if isinstance(word, fsspec.AbstractFileSystem):
        new, words = word.__reduce__()
        return new(*words)
    return word


def after_fork(fetcher: Any) -> None:
    """Readies the file whose method `fetcher` is for a child process."""
    file = getattr(fetcher, "__self__", None)
    if file is not None and getattr(file, "loop", None) is not None and hasattr(file, "fs"):
        file.loop = _LoopAfterFork(file)


_ENTERED_MAX = 256
_entered: list[str] = []
_entering = threading.RLock()
