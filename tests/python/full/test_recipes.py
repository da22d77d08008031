"""The programs of docs/recipes.md: each is run as it stands there, with the real packages.

PyTorch is used where it is installed. Elsewhere a stand-in takes its place, which starts workers and
asks for batches as it does.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from range_server import RangeServer

pytestmark = pytest.mark.full

DOCS = Path(__file__).parents[3] / "docs" / "recipes.md"
PART = re.compile(r"^## ([^\n:]+)(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS: dict[str, str] = {
    f"{name} {number}": program
    for name, part in PART.findall(DOCS.read_text())
    for number, program in enumerate(PROGRAM.findall(part), 1)
}
STANDIN = Path(__file__).parent / "data_loader.py"
RECORDS, RECORD_BYTES = 203, 65_536
ROWS = 2_000_000
# The largest request of a cache as it comes; blocks and chunks of the files are larger.
REQUEST_BYTES_MAX = 4 << 20
# A page at the edge of two records may come twice, and a footer comes in every process.
FETCHED_MAX = 1.3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import numpy
    import pandas
    import pyarrow
    import pyarrow.parquet

    place = tmp_path_factory.mktemp("served")
    records = numpy.random.default_rng(1).integers(0, 256, RECORDS * RECORD_BYTES, numpy.uint8)
    (place / "records.bin").write_bytes(records.tobytes())
    numbers = {"a": numpy.arange(ROWS), "b": numpy.arange(ROWS) * 7}
    pandas.DataFrame(numbers).to_csv(place / "table.csv", index=False)
    pyarrow.parquet.write_table(
        pyarrow.table(numbers),
        place / "table.parquet",
        row_group_size=ROWS // 4,
        use_dictionary=False,
        compression="none",
    )
    return place


@pytest.fixture
def server(folder: Path) -> Iterator[RangeServer]:
    with RangeServer(dir=folder) as server:
        yield server


def run(program: str, url: str, folder: Path) -> int:
    """Runs a recipe against `url`; the number that it prints."""
    path = folder / "recipe.py"
    path.write_text(program.replace("https://example.org", url))
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
    if importlib.util.find_spec("torch") is None:
        place = folder / "torch" / "utils" / "data.py"
        place.parent.mkdir(parents=True)
        shutil.copy(STANDIN, place)
    ended = subprocess.run(
        [sys.executable, path],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_of_a_data_loader_read_batches(
    context: str, folder: Path, server: RangeServer, tmp_path: Path
) -> None:
    workers = "num_workers=2"
    program = PROGRAMS["PyTorch 1"]
    assert workers in program
    program = program.replace(workers, f'{workers}, multiprocessing_context="{context}"')
    records = (folder / "records.bin").read_bytes()
    assert run(program, server.url, tmp_path) == sum(records)
    assert server.counts()["bytes"] <= FETCHED_MAX * len(records)
    assert max(server.counts()["sizes"]) <= 2 * RECORD_BYTES


@pytest.mark.parametrize("name", [name for name in PROGRAMS if not name.startswith("PyTorch")])
def test_a_recipe_reads_through_the_cache(
    name: str, folder: Path, server: RangeServer, tmp_path: Path
) -> None:
    assert run(PROGRAMS[name], server.url, tmp_path) == ROWS * (ROWS - 1) // 2
    is_columnar = "parquet" in PROGRAMS[name]
    size = (folder / ("table.parquet" if is_columnar else "table.csv")).stat().st_size
    # fsspec asks for the whole file where it only looks for it, and reads nothing of that.
    sizes = [one for one in server.counts()["sizes"] if one != size]
    # A column, or a block, is larger than this: other caches ask for all of it at once.
    assert max(sizes) <= REQUEST_BYTES_MAX
    wanted = 8 * ROWS if is_columnar else size
    # Nothing comes twice.
    assert wanted <= sum(sizes) <= FETCHED_MAX * size


def test_each_part_has_its_programs() -> None:
    assert list(PROGRAMS) == ["PyTorch 1", "Dask 1", "Ray 1", "DuckDB 1", "DuckDB 2"]
