"""Files that travel to processes where forerun was not imported, and over forks."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
import travellers
from range_server import RangeServer, pattern
from stores import run_scene

BYTES = 3_000_001
OPTIONS = {"memory": "8M", "connections": 3}
KNOWN = (True, "ForerunCache", OPTIONS)


def files(server: RangeServer) -> tuple[Any, Any, str]:
    """A file with options, a file system with the same ones, and the file's address."""
    url = server.url + "/x"
    plain = fsspec.filesystem("http", skip_instance_cache=True)
    file = plain.open(url, cache_type="forerun", cache_options=OPTIONS)
    file.read(10)
    named = fsspec.filesystem("http", cache_type="forerun", cache_options=OPTIONS)
    return file, named, url


@pytest.mark.parametrize("kind", ["spawn", "forkserver"])
def test_a_pool_reads_what_it_was_sent(kind: str) -> None:
    context = multiprocessing.get_context(kind)
    with RangeServer(pattern=BYTES) as server, ProcessPoolExecutor(1, context) as pool:
        file, named, url = files(server)
        assert pool.submit(travellers.read, file).result() == KNOWN
        assert pool.submit(travellers.read_of, named, url).result() == KNOWN


def in_a_forked_pool() -> None:
    with RangeServer(pattern=BYTES) as server:
        file, named, url = files(server)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply(travellers.read, (file,)) == KNOWN
            assert pool.apply(travellers.read_of, (named, url)) == KNOWN


def over_a_fork() -> None:
    """A file that was opened before a fork is read in the child, also whole, and in the parent."""
    with RangeServer(pattern=BYTES) as server:
        file, _, _ = files(server)
        whole = fsspec.filesystem("http").open(server.url + "/x", cache_type="forerun")
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                file.seek(1000)
                is_right = bytes(file.read(5000)) == pattern(1000, 6000)
                is_right &= bytes(whole.read()) == pattern(0, BYTES)
                # The cache has its options still.
                status = not (is_right and file.cache.name.options == OPTIONS)
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert travellers.read(file) == KNOWN


@pytest.mark.parametrize("scene", [in_a_forked_pool, over_a_fork], ids=lambda it: it.__name__)
def test_a_forked_child_reads(scene: Callable[[], None]) -> None:
    run_scene(scene)


def test_workers_of_dask_read_what_they_were_sent() -> None:
    # In a process of its own: a cluster's threads and warnings end with it.
    run_scene(on_a_cluster)


def on_a_cluster() -> None:
    from distributed import Client, LocalCluster

    with RangeServer(pattern=BYTES) as server:
        file, named, url = files(server)
        with (
            LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            assert client.submit(travellers.read, file).result(60) == KNOWN
            assert client.submit(travellers.read_of, named, url).result(60) == KNOWN


def test_a_process_that_never_imports_it_knows_the_name(tmp_path: Path) -> None:
    with RangeServer(pattern=BYTES) as server:
        file, _, _ = files(server)
        (tmp_path / "file").write_bytes(pickle.dumps(file))
        code = (
            "import pickle, sys, travellers; from pathlib import Path\n"
            "assert 'forerun._cache' not in sys.modules\n"
            "print(travellers.read(pickle.loads(Path(sys.argv[1]).read_bytes())))"
        )
        path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
        words = [sys.executable, "-c", code, str(tmp_path / "file")]
        environment = {**os.environ, "PYTHONPATH": path}
        said = subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert said.stdout.strip() == str(KNOWN), said.stderr


def test_names_of_many_options_are_bounded() -> None:
    from forerun import _travel

    def entered() -> int:
        return sum(str(name).startswith("forerun:") for name in fsspec.caching.caches)

    for memory in range(_travel._ENTERED_MAX + 10):
        name = pickle.loads(pickle.dumps(_travel.CacheName.of((("memory", 5 << 20 | memory),))))
        assert name in fsspec.caching.caches
    assert entered() <= _travel._ENTERED_MAX


def test_python_starts_without_what_it_does_not_use() -> None:
    ours = "[name for name in sys.modules if 'forerun' in name or 'fsspec' in name]"
    code = f"import sys; print({ours})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['forerun._hook', 'forerun']"
    code = (
        "import fsspec, sys; before = set(sys.modules); import forerun\n"
        "print(sorted(set(sys.modules) - before))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


LOCAL = "local files have no cache"
ASYNC = "files of open_async have no cache"
IGNORED = {
    "open": ("fsspec.filesystem('file').open(path, cache_type='forerun').close()", LOCAL),
    "fsspec.open": ("fsspec.open(path, cache_type='forerun').open().close()", LOCAL),
    "open_async": ("asyncio.run(stream(http(), cache_type='forerun'))", ASYNC),
    "file system": ("asyncio.run(stream(http(cache_type='forerun')))", ASYNC),
    "another": ("asyncio.run(Mine().open_async(path, cache_type='forerun'))", ASYNC),
}


@pytest.mark.parametrize(("opens", "why"), IGNORED.values(), ids=IGNORED)
def test_where_it_is_ignored_it_says_so_once(opens: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    code = (
        "import asyncio, fsspec, sys, warnings\n"
        "path, url = sys.argv[1:]\n"
        "def http(**options):\n"
        "    return fsspec.filesystem('http', asynchronous=True, **options)\n"
        "async def stream(fs, **options):\n"
        "    file = await fs.open_async(url, size=1, **options)\n"
        "    await file.close()\n"
        "    await (await fs.set_session()).close()\n"
        "import fsspec.asyn\n"
        "class Mine(fsspec.asyn.AsyncFileSystem):\n"
        "    async def open_async(self, path, mode='rb', **options):\n"
        "        return None\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always', UserWarning)\n"
        "    for _ in range(2):\n"
        f"        {opens}\n"
        f"    {opens.replace('forerun', 'bytes')}\n"
        "print(*(str(one.message) for one in told), sep='|')"
    )
    with RangeServer(pattern=10) as server:
        words = [sys.executable, "-c", code, str(tmp_path / "x"), server.url + "/x"]
        said = subprocess.run(words, capture_output=True, text=True, check=False)
    assert said.stdout.strip() == f'cache_type="forerun" is ignored: {why}', said.stderr
