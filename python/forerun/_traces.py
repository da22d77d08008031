"""Traces as Python has them: paths, URLs, workloads, arrays.

given(trace)     what the extension takes of one: a name, a name and an opener, or columns
several(traces)  whether it is one trace, or many
Trace            `forerun.trace`: what a trace holds, and its accesses as arrays
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from forerun import _forerun
from forerun._needs import load
from forerun._progress import Progress
from forerun.errors import OptionError, nearest

COLUMNS = ("page", "bytes", "time", "write")
ARRAYS = "arrays"


def is_one(traces: Any) -> bool:
    """Whether `traces` is a single one: a name, or arrays."""
    return isinstance(traces, str | os.PathLike | Mapping) or hasattr(traces, "dtype")


def given(trace: Any, storage_options: Mapping[str, Any] | None = None, name: str = ARRAYS) -> Any:
    """What the extension takes of `trace`."""
    if isinstance(trace, Trace):
        return trace.given
    if isinstance(trace, str | os.PathLike):
        text = os.fspath(trace)
        if not isinstance(text, str):
            raise OptionError(f"{text!r}: a path is text")
        if text == "-":
            raise OptionError("`-`: a trace is a path, a URL, a workload or arrays")
        return (text, _Opener(text, storage_options)) if is_url(text) else text
    if isinstance(trace, Mapping):
        return _columns(name, trace)
    if hasattr(trace, "dtype"):
        return _columns(name, {"page": trace})
    raise OptionError(
        f"a trace of type {type(trace).__name__}: expected a path, a URL, a workload, an array of "
        "pages, or a mapping of arrays"
    )


def is_url(text: str) -> bool:
    """Whether fsspec opens it."""
    return "://" in text


class _Opener:
    """Opens a URL at its first byte; it can be sent to another process."""

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None) -> None:
        self._url, self._options = url, dict(storage_options or {})

    def __call__(self) -> Any:
        from fsspec.core import url_to_fs

        fs, path = url_to_fs(self._url, **self._options)
        return fs.open(path, mode="rb")


def _columns(name: str, arrays: Mapping[str, Any]) -> Any:
    """The columns of `arrays`, 64-bit words each and writes bytes."""
    for key in arrays:
        if key not in COLUMNS:
            raise OptionError(f"no column {key!r}: {', '.join(COLUMNS)}{nearest(key, COLUMNS, 0)}")
    if "page" not in arrays:
        raise OptionError("a trace has a column `page`")
    numpy = load("numpy", "a trace of arrays")
    words = []
    for key in COLUMNS:
        column = arrays.get(key)
        words.append(b"" if column is None else _words(numpy, key, column))
    return (name, *words)


def _words(numpy: Any, key: str, column: Any) -> bytes:
    array: Any = numpy.asarray(column)
    if array.ndim != 1:
        raise OptionError(f"column `{key}` has {array.ndim} dimensions: expected one")
    if key == "write":
        return bytes((array != 0).astype(numpy.uint8).data)
    if key == "time" and array.dtype.kind == "f":
        array = numpy.rint(array * 1e9).astype(numpy.int64)
    if array.dtype.kind not in "iu":
        more = " (nanoseconds), or floating-point numbers (seconds)" if key == "time" else ""
        raise OptionError(f"column `{key}` is of {array.dtype}: expected integers{more}")
    if array.dtype.kind == "i" and array.size and array.min() < 0:
        raise OptionError(f"column `{key}` has a number below 0")
    return bytes(numpy.ascontiguousarray(array, dtype=numpy.uint64).data)


def flags(**values: Any) -> list[str]:
    """Flags of the command line: `skip_bad=1` is ``--skip-bad=1``; one that is None is left out.

    A list is joined by commas.
    """
    words = []
    for key, value in values.items():
        flag = "--" + key.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        else:
            words.append(f"{flag}={listed(value)}")
    return words


def listed(values: Any) -> str:
    """Words of a list, or a word, as the command line takes them."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        return str(values)
    return ",".join(str(value) for value in values)


class Trace:
    """A trace: what it holds, and its accesses as arrays, a batch at a time.

    >>> trace = forerun.trace("workload:streams,n=2,each=16K,order=alternate")
    >>> trace.info["accesses"], trace.info["unique"]
    (8, 8)
    >>> [batch["page"].tolist() for batch in trace]
    [[0, 4, 1, 5, 2, 6, 3, 7]]
    """

    def __init__(self, path: Any, *, given: Any, words: list[str], batch: int) -> None:
        self.given = given
        self._path, self._words, self._batch = path, words, batch
        self._info: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """Its path, URL or workload."""
        return self.given if isinstance(self.given, str) else str(self.given[0])

    @property
    def info(self) -> dict[str, Any]:
        """What ``forerun trace info --json`` prints: counts, sizes, reuse. Read once."""
        if self._info is None:
            with Progress() as progress:
                text = _forerun.info(self._words, self.given, progress.call)
            self._info = json.loads(text)
        return self._info

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Arrays of equal length: ``page``, and ``bytes``, ``time`` (nanoseconds) and ``write``
        where the trace has them. A request of several pages is one access to each.
        """
        numpy = load("numpy", "a trace as arrays")
        pages = _forerun.Pages(self._words, self.given)
        while (columns := pages.next(self._batch)) is not None:
            kinds = (numpy.uint64, numpy.uint64, numpy.uint64, numpy.bool_)
            yield {
                key: numpy.frombuffer(column, dtype=kind)
                for key, column, kind in zip(COLUMNS, columns, kinds, strict=True)
                if column
            }

    def arrays(self) -> dict[str, Any]:
        """All its accesses; what `forerun.sim` takes."""
        numpy = load("numpy", "a trace as arrays")
        batches = list(self)
        if not batches:
            return {"page": numpy.empty(0, numpy.uint64)}
        return {key: numpy.concatenate([batch[key] for batch in batches]) for key in batches[0]}

    def __repr__(self) -> str:
        return f"<forerun trace: {self.name}>"


def trace(
    path: Any,
    *,
    format: str | None = None,
    skip_bad: int | None = None,
    limit: int | None = None,
    memory: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    batch: int = 1 << 20,
) -> Trace:
    """A trace, of which nothing is read yet.

    Parameters
    ----------
    path:
        A path, a URL that fsspec opens, a workload (``"workload:mail"``), or arrays as for `sim`.
    format, skip_bad, limit:
        As of ``forerun sim``.
    memory:
        What `info` may take, ``"1G"`` by default.
    storage_options:
        What the file system of a URL is made with.
    batch:
        Accesses of each batch, at most.

    Raises
    ------
    RunError
        When it is read: it cannot be.
    """
    words = flags(format=format, skip_bad=skip_bad, limit=limit, memory=memory)
    return Trace(path, given=given(path, storage_options), words=words, batch=batch)


Show = Callable[[str, int, int], None]
