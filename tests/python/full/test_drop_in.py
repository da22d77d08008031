"""The table of docs/python.md: each line is run as it stands there, with the real package."""

from __future__ import annotations

import importlib
import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.zip import ZipFileSystem
from range_server import RangeServer

import forerun

pytestmark = pytest.mark.full

DOCS = Path(__file__).parents[3] / "docs" / "python.md"
LINE = re.compile(r"^\| ([\w., ]+) \| `([^`]+)` \|", re.MULTILINE)
LINES: dict[str, str] = dict(LINE.findall(DOCS.read_text()))
ROWS = 200_000


def numbers() -> Any:
    """What most files hold: floats, which repeat."""
    import numpy as np

    return np.random.default_rng(1).random(ROWS)


def csv(path: Path) -> Callable[[Any], bool]:
    import pandas as pd

    frame = pd.DataFrame({"a": range(ROWS), "b": numbers()})
    frame.to_csv(path, index=False)
    return lambda got: got.equals(pd.read_csv(path)) and len(got) == ROWS


def parquet(path: Path) -> Callable[[Any], bool]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"a": range(ROWS), "b": numbers(), "c": range(ROWS, 2 * ROWS)})
    pq.write_table(table, path, row_group_size=ROWS // 4)
    wanted = table.select(["a", "b"])
    # pandas gets what pyarrow makes of it.
    return lambda got: wanted.equals(got if isinstance(got, pa.Table) else pa.table(got))


def netcdf(path: Path) -> Callable[[Any], bool]:
    import xarray as xr

    made = xr.Dataset({"a": ("x", numbers())})
    made.to_netcdf(path, engine="h5netcdf")
    return lambda got: bool(made.equals(got.load()))


def hdf(path: Path) -> Callable[[Any], bool]:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=numbers(), chunks=(4096,))
    return lambda got: bool((got["a"][:] == numbers()).all())


def zarr_zip(path: Path) -> Callable[[Any], bool]:
    import zarr

    with zarr.storage.ZipStore(path, mode="w") as store:
        zarr.open_group(store, mode="w").create_array("a", data=numbers(), chunks=(4096,))
    return lambda got: bool((got["a"][:] == numbers()).all())


MEMBERS = {f"{number:03}.bin": bytes([number]) * (1000 + 997 * number) for number in range(100)}


def tar(path: Path) -> Callable[[Any], bool]:
    with tarfile.open(path, "w") as archive:
        for name, data in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return lambda got: {name: got.extractfile(name).read() for name in got.getnames()} == MEMBERS


def zipped(path: Path) -> Callable[[Any], bool]:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in MEMBERS.items():
            archive.writestr(name, data)
    return lambda got: {name: got.read(name) for name in got.namelist()} == MEMBERS


MAKERS: dict[str, Callable[[Path], Callable[[Any], bool]]] = {
    "pandas, CSV": csv,
    "pandas, Parquet": parquet,
    "pyarrow, a file": parquet,
    "pyarrow, a data set": parquet,
    "xarray": netcdf,
    "h5py": hdf,
    "zarr, a zip store": zarr_zip,
    "tarfile": tar,
    "zipfile": zipped,
}
MODULES = ("h5py", "pandas", "pyarrow", "tarfile", "xarray", "zarr", "zipfile")


def read(name: str, line: str, protocol: str, url: str, right: Callable[[Any], bool]) -> dict:
    """Runs a line; the counts of all files that it opened, once its bytes are known to be right."""
    for part in ("pyarrow.dataset", "pyarrow.parquet"):
        importlib.import_module(part)
    names: dict[str, Any] = {module: importlib.import_module(module) for module in MODULES}
    names |= {"fsspec": fsspec, "Async": AsyncFileSystemWrapper, "ZipFileSystem": ZipFileSystem}
    cls = fsspec.get_filesystem_class(protocol)
    cls.clear_instance_cache()
    names |= {"fs": fsspec.filesystem(protocol), "url": url}
    opened: list[forerun.ForerunCache] = []
    with pytest.MonkeyPatch.context() as patch:
        plain = cls._open

        def recorded(self: Any, *args: Any, **options: Any) -> Any:
            file = plain(self, *args, **options)
            opened.append(file.cache)
            return file

        patch.setattr(cls, "_open", recorded)
        assert right(eval(line, names)), name
    assert opened, name
    assert all(isinstance(cache, forerun.ForerunCache) for cache in opened), (name, opened)
    counts = [cache.report().as_dict() for cache in opened]
    return {key: sum(count[key] for count in counts) for key in counts[0]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, RangeServer]]:
    folder = tmp_path_factory.mktemp("served")
    with RangeServer(dir=folder, latency="1ms") as server:
        yield folder, server


def test_the_table_has_the_lines_that_are_tested() -> None:
    assert LINES.keys() == MAKERS.keys()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.filterwarnings("default")
def test_a_line_reads_the_right_bytes_through_the_cache(
    name: str, served: tuple[Path, RangeServer]
) -> None:
    folder, server = served
    path = folder / re.sub(r"\W+", "-", name)
    right = MAKERS[name](path)
    server.reset()
    counts = read(name, LINES[name], "http", f"{server.url}/{path.name}", right)
    assert counts["reads"] > 0, name
    assert counts["failures"] == 0, name
    # fsspec may ask for the whole file where it only looks for it: those are not the cache's.
    assert counts["requests"] <= server.counts()["requests"], name
    # Nothing comes twice: the files are small.
    assert 0 < counts["bytes_fetched"] <= 1.1 * path.stat().st_size, name
