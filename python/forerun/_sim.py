"""`forerun.sim`: traces through replacement policies, readahead and devices, as a table.

The rows are those of ``forerun sim --json``, made by the same code in this process.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from forerun import _forerun
from forerun._needs import load
from forerun._progress import Progress
from forerun._traces import flags, given, is_one, listed
from forerun.errors import OptionError

if TYPE_CHECKING:
    import pyarrow


def sim(
    trace: Any,
    policies: str | Iterable[str] = "lru",
    sizes: Any = None,
    *,
    hits: float | str | None = None,
    readahead: str | Iterable[str] | None = None,
    device: str | Iterable[str] | None = None,
    prefetch: str | Iterable[str] | None = None,
    remembered: bool = False,
    sample: float | None = None,
    bytes: bool = False,
    reads: bool = False,
    limit: int | None = None,
    format: str | None = None,
    skip_bad: int | None = None,
    threads: int | None = None,
    memory: int | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> pyarrow.Table:
    """Send a trace through caches; a row for each policy and size.

    The columns have the names of ``forerun sim --json``; `params` are maps, and what only some
    runs have (`bytes`, `sample`, `readahead`, `device`) is there where a row has it.

    >>> table = forerun.sim("workload:streams,n=4,each=1M", ["lru", "2q:kin=0.5"], [100, "10%"])
    >>> table.column("cache_pages").to_pylist()
    [100, 102, 100, 102]
    >>> dict(table.column("params")[2].as_py())
    {'kin': '0.5', 'kout': '0.5'}

    Parameters
    ----------
    trace:
        A path, a URL that fsspec opens, a workload (``"workload:mail,model=m1"``), an array of
        pages, or a mapping of arrays: ``page``, and if known ``bytes``, ``time`` (nanoseconds, or
        seconds as floating point) and ``write``. Or a list of these.
    policies:
        ``"all"``, or names with parameters such as ``"2q:kin=0.25"``; ``"belady"`` is the bound.
    sizes:
        Pages (a number, or text), bytes with a suffix (``"64M"``), or shares of the trace's
        distinct pages (``"10%"``) [default: as of the command].
    hits:
        In place of sizes, the smallest size of each policy, to within 1 %, from which on it has so
        many hits of all accesses (``"90%"``, or 0.9).
    readahead, device, prefetch:
        Run in virtual time, as the flags of these names.
    remembered:
        Run each row twice, and give the second run, which begins with what the first has learnt of
        the device; with `device` alone.
    sample:
        Estimate from this share of the pages.
    bytes:
        Also count misses by the bytes that were requested.
    reads:
        Leave out what writes: hits are those of a cache that writes pass by.
    limit, format, skip_bad:
        Stop after so many accesses; the trace's format; pass over so many broken records.
    threads, memory:
        Caches that are computed at a time, and bytes that may be taken (``"2G"``).
    storage_options:
        What the file system of a URL is made with.
    progress:
        Whether to show how far it is [default: in a terminal and in a notebook].

    Raises
    ------
    OptionError
        A policy, size or other option cannot be.
    RunError
        A trace cannot be read, or the memory is too small.
    ModuleNotFoundError
        pyarrow is not installed.
    """
    load("pyarrow", "forerun.sim")
    words = sim_flags(
        policies,
        sizes,
        hits=hits,
        readahead=readahead,
        device=device,
        prefetch=prefetch,
        remembered=remembered,
        sample=sample,
        bytes=bytes,
        reads=reads,
        limit=limit,
        format=format,
        skip_bad=skip_bad,
        threads=threads,
        memory=memory,
    )
    traces = [trace] if is_one(trace) else list(trace)
    with Progress(progress) as shown:
        inputs = [given(one, storage_options) for one in traces]
        rows = json.loads(_forerun.sim(words, inputs, shown.call))
    return _with_columns_in_use(table(rows))


def sim_flags(policies: Any, sizes: Any, **options: Any) -> list[str]:
    """The flags of ``forerun sim``."""
    for share in ("hits", "sample"):
        if options.get(share) is not None:
            options[share] = _decimal(options[share])
    size = None if sizes is None else listed(_sizes(sizes))
    words = flags(policy=policies, size=size, **options)
    for word in words:
        if "\0" in word:
            raise OptionError(f"{word!r}: no option has a zero byte")
    return words


def _sizes(sizes: Any) -> list[Any]:
    """Sizes, each as the command line takes it."""
    if isinstance(sizes, str) or not isinstance(sizes, Iterable):
        sizes = [sizes]
    for size in sizes:
        if isinstance(size, float):
            raise OptionError(
                f"size {size!r}: expected a number of pages, bytes with a suffix ('64M'), or a "
                "share ('10%')"
            )
    return list(sizes)


def _decimal(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def table(rows: Iterable[Mapping[str, Any]]) -> pyarrow.Table:
    """Rows of the command as a table of all columns that there may be."""
    import pyarrow

    rows = list(rows)
    for row in rows:
        check_columns(row)
    return pyarrow.Table.from_pylist([row_with_maps(row) for row in rows], schema=schema())


def check_columns(row: Mapping[str, Any], columns: Mapping[str, Any] | None = None) -> None:
    """Fails where the command gives what no column has: a table would be without it."""
    columns = _COLUMNS if columns is None else columns
    for key, value in row.items():
        assert key in columns, f"no column has {key!r}"
        if isinstance(columns[key], dict):
            check_columns(value, columns[key])


def row_with_maps(row: Mapping[str, Any]) -> dict[str, Any]:
    """`row` with its params as pairs, which is what maps are made of."""
    return {
        key: (list(value.items()) if key == "params" else row_with_maps(value))
        if isinstance(value, dict)
        else value
        for key, value in row.items()
    }


def schema() -> pyarrow.Schema:
    """The columns of rows, in the order of the command's JSON."""
    import pyarrow

    text, count, real = pyarrow.string(), pyarrow.int64(), pyarrow.float64()
    params = pyarrow.map_(text, text)
    kinds = {"text": text, "count": count, "real": real, "params": params}

    def fields(columns: Mapping[str, Any]) -> list[tuple[str, Any]]:
        return [
            (name, pyarrow.struct(fields(kind)) if isinstance(kind, dict) else kinds[kind])
            for name, kind in columns.items()
        ]

    return pyarrow.schema(fields(_COLUMNS))


def _with_columns_in_use(whole: pyarrow.Table) -> pyarrow.Table:
    """The columns that every run has, and those that are not null everywhere."""
    names = [
        name
        for name in whole.column_names
        if name not in _SOMETIMES or whole.column(name).null_count < whole.num_rows
    ]
    return whole.select(names)


_THREAD = {"name": "text", "params": "params"}
_COLUMNS: dict[str, Any] = {
    "trace": "text",
    "policy": "text",
    "params": "params",
    "cache_pages": "count",
    "accesses": "count",
    "misses": "count",
    "hit_ratio": "real",
    "seconds": "real",
    "accesses_per_second": "real",
    "bytes": {"requested": "count", "missed": "count", "hit_ratio": "real"},
    "sample": {"rate": "real", "accesses": "count", "misses": "count", "hit_ratio_error": "real"},
    "readahead": {
        **_THREAD,
        "fetched": "count",
        "used": "count",
        "wasted": "count",
        "late": "count",
    },
    "prefetch": _THREAD,
    "device": {
        **_THREAD,
        "seconds": "real",
        "requests": "count",
        "mean_request_bytes": "count",
        "mb_per_second": "real",
        "delay_seconds": "real",
        "delay_total_seconds": "real",
        "bytes_read": "count",
        "bytes_wanted": "count",
        "p50_us": "real",
        "p99_us": "real",
        "reads_late": "count",
        "late_max_us": "real",
        "limit_mb_per_second": "real",
        "ratio_to_limit": "real",
        "learnt": "text",
    },
}
_SOMETIMES = ("bytes", "sample", "readahead", "prefetch", "device")
