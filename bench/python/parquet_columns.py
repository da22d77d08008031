"""Columns of a Parquet file over HTTP: fsspec's caches and forerun's, side by side.

    python bench/python/parquet_columns.py [--compressed] [--columns A,B] [--rounds N] [--only NAME] [--json FILE]

needs the wheel, aiohttp, numpy, pyarrow, and `cargo build --release -p forerun-compare` for the server, which
adds a latency to each request and a cap to each connection. pyarrow writes a file of random floats
without compression, 20 columns in 8 row groups, and reads 4 columns, with and without `pre_buffer`.
With `--compressed` it is 12 columns of compressed whole numbers, whose chunks lie at uneven
distances, of which 3 are read. Beside the caches are the two that know the columns beforehand:
`fsspec.parquet.open_parquet_file` and `forerun.parquet.open`.
Rounds are interleaved; a row is a median, with the fastest and the slowest, and what was fetched in
the last round. Opening the file is part of it. All bytes are compared with the local file's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.parquet import open_parquet_file

import forerun

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "python"))
from range_server import RangeServer

CACHES = ("readahead", "bytes", "blockcache", "background", "adaptive", "none", "forerun")
KNOWING = ("open_parquet_file", "forerun.parquet")
LATENCY, RATE = "30ms", "90M"
COLUMNS, COLUMNS_COMPRESSED, ROW_GROUPS = 20, 12, 8
READ, READ_COMPRESSED = "c02,c07,c12,c17", "c01,c05,c10"


def write(path: Path, rows: int, compressed: bool) -> None:
    """A file of random floats, or of numbers that compress unequally; `rows` in all."""
    chance = np.random.default_rng(1)
    group = -(-rows // ROW_GROUPS)
    if compressed:
        numbers = range(COLUMNS_COMPRESSED)
        values = {f"c{at:02}": chance.integers(0, 1 << (20 + at), rows) for at in numbers}
        pq.write_table(pa.table(values), path, row_group_size=group, compression="zstd")
        return
    table = pa.table({f"c{number:02}": chance.random(rows) for number in range(COLUMNS)})
    pq.write_table(
        table,
        path,
        row_group_size=group,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
    )


def size(path: Path, columns: list[str]) -> int:
    """The bytes that the columns take in the file."""
    metadata = pq.read_metadata(path)
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    chunks = (group.column(number) for group in groups for number in range(group.num_columns))
    return sum(chunk.total_compressed_size for chunk in chunks if chunk.path_in_schema in columns)


def run(server: RangeServer, cache: str, pre_buffer: bool, expected: pa.Table) -> dict[str, Any]:
    """Reads the columns through one file object, opened anew."""
    fsspec.get_filesystem_class("http").clear_instance_cache()
    fs = fsspec.filesystem("http")
    # The file system's session and thread are not what is measured.
    fs.info(f"{server.url}/table.parquet")
    server.reset()
    begun = time.perf_counter()
    url, names = f"{server.url}/table.parquet", expected.column_names
    if cache == "forerun.parquet":
        opened = forerun.parquet.open(url, names, fs=fs)
    elif cache == "open_parquet_file":
        opened = open_parquet_file(url, fs=fs, columns=names, engine="pyarrow")
    else:
        opened = fs.open(url, "rb", cache_type=cache)
    with opened as file:
        table = pq.ParquetFile(file, pre_buffer=pre_buffer).read(columns=names)
        seconds = time.perf_counter() - begun
        counts = server.counts()
        report = file.cache.report().as_dict() if cache.startswith("forerun") else None
    if not table.equals(expected):
        raise AssertionError(f"{cache}: wrong columns")
    return {
        "seconds": seconds,
        "fetched": counts["bytes"],
        "requests": counts["requests"],
        "in_flight_max": counts["in_flight_max"],
        "report": report,
    }


def line(
    pre_buffer: bool, cache: str, results: list[dict[str, Any]], best: float, wanted: int
) -> str:
    """A row of the table; `best` is the least median of fsspec's own caches."""
    times = sorted(result["seconds"] for result in results)
    median = statistics.median(times)
    last = results[-1]
    return (
        f"| {pre_buffer} | {cache} | {median:.2f} | {times[0]:.2f} to {times[-1]:.2f} "
        f"| {median / best:.2f} | {last['fetched'] / wanted:.2f} | {last['requests']} "
        f"| {last['in_flight_max']} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_250_000, help="160 bytes each")
    parser.add_argument("--compressed", action="store_true", help="12 columns of which 3 are read")
    parser.add_argument("--columns", help="c00 to c19, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="caches whose names hold this")
    parser.add_argument("--json", type=Path, help="a file for the record of all runs")
    options = parser.parse_args()
    options.columns = options.columns or (READ_COMPRESSED if options.compressed else READ)
    caches = [cache for cache in CACHES + KNOWING if options.only in cache]
    got: dict[tuple[bool, str], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        write(path, options.rows, options.compressed)
        columns = options.columns.split(",")
        expected = pq.read_table(path, columns=columns)
        wanted = size(path, columns)
        with RangeServer(dir=folder, latency=LATENCY, rate=RATE) as server:
            for _ in range(options.rounds):
                for pre_buffer in (False, True):
                    for cache in caches:
                        result = run(server, cache, pre_buffer, expected)
                        got.setdefault((pre_buffer, cache), []).append(result)
        file_bytes = path.stat().st_size
    print(
        f"{file_bytes / 1e6:.0f} MB, {wanted / 1e6:.0f} MB of it wanted, {options.columns}; {LATENCY} a "
        f"request, {RATE} a second and connection\n\n"
        "| pre_buffer | cache | s | spread | of fsspec's best | fetched / wanted | requests "
        "| in flight |\n|---|---|---|---|---|---|---|---|"
    )
    for (pre_buffer, cache), results in got.items():
        own = [
            statistics.median(result["seconds"] for result in rows)
            for (other, name), rows in got.items()
            if other == pre_buffer and name in CACHES and name != "forerun"
        ]
        median = statistics.median(result["seconds"] for result in results)
        print(line(pre_buffer, cache, results, min(own, default=median), wanted))
    if options.json:
        record = {
            "forerun": forerun.__version__,
            "fsspec": fsspec.__version__,
            "pyarrow": pa.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} processors",
            "latency": LATENCY,
            "rate": RATE,
            "columns": columns,
            "wanted": wanted,
            "runs": [
                {"pre_buffer": pre_buffer, "cache": cache, "rounds": rounds}
                for (pre_buffer, cache), rounds in got.items()
            ],
        }
        options.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
