"""`forerun.parquet`: columns of a Parquet file, and nothing else, over several connections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from range_server import RangeServer
from stores import until

import forerun

ROWS = 60_000
COLUMNS = [f"c{number}" for number in range(12)]
WANTED = ["c2", "c7", "c11"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("parquet")
    values = [row * 2654435761 % 2**31 for row in range(ROWS)]
    table = pyarrow.table(dict.fromkeys(COLUMNS, values))
    nested = pyarrow.array([{"x": row, "y": str(row % 7)} for row in range(ROWS)])
    table = table.append_column("nested", nested)
    pyarrow.parquet.write_table(table, place / "t.parquet", row_group_size=20_000)
    return place


@pytest.fixture
def server(folder: Path) -> Iterator[RangeServer]:
    with RangeServer(dir=folder) as server:
        yield server


def read(file: Any, columns: list[str]) -> pyarrow.Table:
    with pyarrow.parquet.ParquetFile(file, pre_buffer=False) as opened:
        return opened.read(columns=columns)


@pytest.mark.parametrize("columns", [WANTED, ["nested"], ["nested.y"], COLUMNS[1:]])
def test_columns_are_those_of_the_file_and_are_there_before_they_are_read(
    folder: Path, server: RangeServer, columns: list[str]
) -> None:
    path = folder / "t.parquet"
    metadata = pyarrow.parquet.read_metadata(path)
    parts = [
        metadata.row_group(group).column(at).total_compressed_size
        for group in range(metadata.num_row_groups)
        for at in range(metadata.num_columns)
        if f"{metadata.schema.column(at).path}.".startswith(tuple(f"{it}." for it in columns))
    ]
    size = path.stat().st_size
    known = [(size - forerun.parquet._FOOTER_BYTES, size)]
    known += forerun.parquet._joined(forerun.parquet._chunks(metadata, columns, None))
    pages_known = {page for start, end in known for page in range(start // 8192, -(-end // 8192))}
    expected = len(pages_known) * 8192 - -size % 8192
    with forerun.parquet.open(server.url + "/t.parquet", columns=columns) as file:
        cache = file.cache
        until(lambda: cache.report().as_dict()["bytes_fetched"] >= expected)
        before = cache.report().as_dict()
        assert read(file, columns).equals(read(path, columns))
        told = cache.report().as_dict()
    # Nothing but the footer's end is asked for once they are known.
    assert told["stalls"] - before["stalls"] == 0
    pages = 2 * 8192 * len(parts)
    footer = 256 << 10
    gaps = (32 << 10) * len(parts)
    assert told["bytes_fetched"] <= sum(parts) + pages + footer + gaps


def test_row_groups_are_chosen(folder: Path, server: RangeServer) -> None:
    with forerun.parquet.open(server.url + "/t.parquet", ["c3"], row_groups=[2]) as file:
        got = pyarrow.parquet.ParquetFile(file).read_row_group(2, columns=["c3"])
    with pyarrow.parquet.ParquetFile(folder / "t.parquet") as whole:
        assert got.equals(whole.read_row_group(2, columns=["c3"]))


def test_pandas_finds_its_index(tmp_path: Path) -> None:
    table = pyarrow.table({"a": [1, 2], "b": [3, 4], "i": [5, 6]})
    meta = {"pandas": '{"index_columns": ["i"], "columns": [], "column_indexes": []}'}
    pyarrow.parquet.write_table(table.replace_schema_metadata(meta), tmp_path / "p.parquet")
    metadata = pyarrow.parquet.read_metadata(tmp_path / "p.parquet")
    assert forerun.parquet._wanted(metadata, ["a", "b", "i"], ["b"]) == [1, 2]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"columns": ["c2", "C7"]}, "no column 'C7'; the nearest is 'c7'; there are: c0, c1, "),
        ({"columns": ["zz"]}, "no column 'zz'; there are: c0, c1, "),
        ({"row_groups": [3]}, "row group 3: there are 0 to 2"),
        ({"cache_options": {"memroy": "8M"}}, "no option 'memroy'; the nearest is 'memory'"),
    ],
)
def test_what_there_is_not_is_refused(server: RangeServer, asked: Any, says: str) -> None:
    with pytest.raises(forerun.OptionError, match=says):
        forerun.parquet.open(server.url + "/t.parquet", **asked)


def test_a_local_file_and_a_given_file_system_will_do(folder: Path, server: RangeServer) -> None:
    path = folder / "t.parquet"
    expected = read(path, WANTED)
    with forerun.parquet.open(str(path), columns=WANTED) as file:
        assert read(file, WANTED).equals(expected)
    fs = fsspec.filesystem("http")
    with forerun.parquet.open(server.url + "/t.parquet", columns=WANTED, fs=fs) as file:
        assert read(file, WANTED).equals(expected)


def test_what_is_no_parquet_file_is_an_error_and_holds_nothing(
    server: RangeServer, folder: Path
) -> None:
    (folder / "no.parquet").write_bytes(b"x" * 300_000)
    # Files of other tests wait for a collection.
    gc.collect()
    before = forerun.memory_held()
    with pytest.raises(pyarrow.ArrowInvalid):
        forerun.parquet.open(server.url + "/no.parquet")
    until(lambda: forerun.memory_held() <= before)
