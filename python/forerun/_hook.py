"""Makes fsspec know the name ``"forerun"`` wherever this package is installed.

Python runs `install` as it starts, by ``forerun_hook.pth``: a process that gets a pickled file system or
file, such as a worker of Dask, has not imported forerun. It loads nothing. Once fsspec is imported,
by whatever program, the name is entered; its cache is loaded when a file is opened with it.
"""

from __future__ import annotations

import sys

# Every Python starts with this: `typing` takes longer than all else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _Finder:
    """Finds a module as others do, and has `_AFTER` called once it is loaded."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        after = _AFTER.get(name)
        if after is None:
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not cls)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            _call_after(spec.loader, after)
        return spec


def _call_after(loader: Any, after: Callable[[ModuleType], None]) -> None:
    """Has `after` called with the module that `loader` executes."""
    execute = loader.exec_module

    def execute_and_call(module: ModuleType) -> None:
        execute(module)
        after(module)

    loader.exec_module = execute_and_call


def install() -> None:
    """Enters the name into fsspec, now or once it is imported."""
    if _Finder in sys.meta_path:
        return
    sys.meta_path.insert(0, _Finder)
    for name, after in _AFTER.items():
        module = sys.modules.get(name)
        if module is not None:
            after(module)


def _register(caching: ModuleType) -> None:
    caching.caches.setdefault("forerun", _cache)


def _cache(*args: Any, **options: Any) -> Any:
    """What fsspec calls for a file; loading the class enters it in place of this."""
    from forerun._cache import ForerunCache

    return ForerunCache(*args, **options)


def _note_local(local: ModuleType) -> None:
    why = "local files have no cache"
    _note_ignored(local.LocalFileSystem, "_open", why)
    # `fsspec.open(path, cache_type=...)` gives it to the file system.
    _note_ignored(local.LocalFileSystem, "__init__", why)


def _note_async(asyn: ModuleType) -> None:
    """Every file system with `open_async`: HTTP's, that of S3, those to come."""
    base = asyn.AsyncFileSystem

    def note(system: Any) -> None:
        if "open_async" in vars(system):
            _note_ignored(system, "open_async", "files of open_async have no cache")
        for below in system.__subclasses__():
            note(below)

    def begin(system: Any, **words: Any) -> None:
        super(base, system).__init_subclass__(**words)
        note(system)

    for system in base.__subclasses__():
        note(system)
    base.__init_subclass__ = classmethod(begin)


def _note_ignored(owner: Any, method: str, why: str) -> None:
    """Has `owner.method` warn, once a process, where it is given this cache's name."""
    import functools

    plain = getattr(owner, method)

    @functools.wraps(plain)
    def noted(self: Any, *args: Any, **options: Any) -> Any:
        named = options.get("cache_type", getattr(self, "cache_type", None))
        if named == "forerun" and why not in _told:
            import warnings

            _told.add(why)
            warnings.warn(f'cache_type="forerun" is ignored: {why}', stacklevel=3)
        return plain(self, *args, **options)

    setattr(owner, method, noted)


_AFTER = {
    "fsspec.caching": _register,
    "fsspec.implementations.local": _note_local,
    "fsspec.asyn": _note_async,
}
_told: set[str] = set()
