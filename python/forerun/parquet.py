"""Parquet files of which some columns or row groups are read.

    with forerun.parquet.open(url, columns=["a", "b"]) as file:
        table = pyarrow.parquet.read_table(file, columns=["a", "b"])

The footer tells where the columns lie. They are fetched over several connections, while the reader
decodes the first, and nothing else is. It needs pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import fsspec
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from forerun._cache import ForerunCache
from forerun.errors import OptionError, nearest

__all__ = ["open"]

Range = tuple[int, int]


def open(
    url: str,
    columns: Sequence[str] | None = None,
    row_groups: Iterable[int] | None = None,
    fs: fsspec.AbstractFileSystem | None = None,
    cache_options: dict[str, Any] | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Any:
    """An open file, in which `columns` of `row_groups` are fetched ahead.

    Parameters
    ----------
    url:
        Of the file; a path where `fs` is given.
    columns:
        Names, a column within another as ``"a.b"``; all if none are given. Columns of the index
        that pandas wrote are fetched as well.
    row_groups:
        By their number, from 0; all if none are given.
    fs:
        The file system [default: what the URL names, with `storage_options`].
    cache_options:
        Those of ``cache_type="forerun"``: `memory`, `connections`, `request`.

    Raises
    ------
    OptionError
        There is no such column or row group.
    ModuleNotFoundError
        pyarrow is not installed.
    """
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "forerun.parquet needs pyarrow: pip install 'forerun[parquet]'", name=error.name
        ) from None
    if fs is None:
        fs, url = url_to_fs(url, **(storage_options or {}))
    if isinstance(fs, LocalFileSystem):
        return fs.open(url, mode="rb")
    options = {"readahead": "off", "connections": _CONNECTIONS, **(cache_options or {})}
    file = fs.open(url, mode="rb", cache_type="forerun", cache_options=options)
    cache = getattr(file, "cache", None)
    if not isinstance(cache, ForerunCache):
        # A file system without caches.
        return file
    try:
        if file.size is not None:
            cache.will_need([(max(file.size - _FOOTER_BYTES, 0), file.size)])
        metadata = pyarrow.parquet.read_metadata(file)
        cache.will_need(_joined(_chunks(metadata, columns, row_groups)))
        file.seek(0)
    except BaseException:
        # The traceback keeps both.
        cache.close()
        file.close()
        raise
    return file


def _chunks(
    metadata: Any, columns: Sequence[str] | None, row_groups: Iterable[int] | None
) -> Iterator[Range]:
    """Where the chunks of `columns` lie, a row group after the other."""
    groups = range(metadata.num_row_groups)
    numbers = groups if row_groups is None else sorted(set(row_groups))
    for number in numbers:
        if number not in groups:
            raise OptionError(f"row group {number}: there are 0 to {len(groups) - 1}")
    paths = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    wanted = _wanted(metadata, paths, columns)
    for number in numbers:
        group = metadata.row_group(number)
        chunks = [group.column(at) for at in wanted]
        yield from sorted(_extent(chunk) for chunk in chunks if chunk.total_compressed_size > 0)


def _wanted(metadata: Any, paths: Sequence[str], columns: Sequence[str] | None) -> list[int]:
    """The numbers of the columns at or below `columns`, and of pandas' index."""
    if columns is None:
        return list(range(len(paths)))
    indices: set[int] = set()
    for name in columns:
        below = {at for at, path in enumerate(paths) if f"{path}.".startswith(f"{name}.")}
        if not below:
            some = ", ".join(paths[:_NAMED]) + (", ..." if len(paths) > _NAMED else "")
            raise OptionError(f"no column {name!r}{nearest(name, paths, 0.3)}; there are: {some}")
        indices |= below
    index = (metadata.schema.to_arrow_schema().pandas_metadata or {}).get("index_columns", [])
    indices.update(at for at, path in enumerate(paths) if path in index)
    return sorted(indices)


def _extent(chunk: Any) -> Range:
    start = chunk.data_page_offset
    # Some writers leave it at 0 where there is none.
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    return start, start + chunk.total_compressed_size


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Ranges of which those with a small gap between are one: a request costs more than that."""
    joined: list[Range] = []
    for start, end in ranges:
        if joined and joined[-1][1] <= start <= joined[-1][1] + _GAP_BYTES:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined


# Footers of most files are within; pyarrow asks for the rest of a longer one.
_FOOTER_BYTES = 256 << 10
_GAP_BYTES = 32 << 10
# Columns in a message.
_NAMED = 20
# All is wanted, and nothing is guessed: more requests in flight cost no byte.
_CONNECTIONS = 32
