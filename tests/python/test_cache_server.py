"""The fsspec cache over HTTP: whatever a server does, right bytes or an error."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import fsspec
import pytest
from range_server import RangeServer, pattern
from stores import until

import forerun

BYTES = 3_000_001
WHOLE = pattern(0, BYTES)
READS = [
    (0, 100),
    (100, 300_000),
    (2_999_000, BYTES),
    (1_500_000, 1_500_001),
    (300_000, 1_400_000),
    (700_000, 700_100),
    (0, BYTES),
]
EACH = tuple(range(len(READS)))


@pytest.fixture
def server() -> Iterator[RangeServer]:
    with RangeServer(pattern=BYTES) as server:
        yield server


def open_file(server: RangeServer, **options: Any) -> Any:
    """A file of the server, behind the cache."""
    fs = fsspec.filesystem("http", skip_instance_cache=True)
    return fs.open(f"{server.url}/any", "rb", cache_type="forerun", cache_options=options)


def read(file: Any, start: int, end: int) -> bytes:
    file.seek(start)
    return bytes(file.read(end - start))


def test_it_reads_and_tells(server: RangeServer) -> None:
    with open_file(server, memory="8M") as file:
        assert type(file.cache) is forerun.ForerunCache
        server.reset()
        for start, end in READS:
            assert bool(read(file, start, end) == WHOLE[start:end]), (start, end)
        told = file.cache.report().as_dict()
        assert told["bytes_wanted"] == sum(end - start for start, end in READS)
        assert told["bytes_fetched"] <= 1.1 * BYTES


def test_a_pickled_file_reads(server: RangeServer) -> None:
    with open_file(server, memory="8M") as file:
        read(file, 0, 100)
        with pickle.loads(pickle.dumps(file)) as again:
            assert type(again.cache) is forerun.ForerunCache
            assert bool(read(again, 5, 400_000) == WHOLE[5:400_000])


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize(
    ("fault", "served"),
    [
        # The reads that succeed where every answer is so. fsspec takes the start of a whole file
        # for a range, no byte is half of one, and no file goes on past its end.
        ("ignore-range", (0,)),
        ("gzip", EACH),
        ("no-length", EACH),
        ("drop", ()),
        ("short", (3,)),
        ("long", (2,)),
        ("error", ()),
    ],
)
def test_a_fault_gives_right_bytes_or_an_error(
    server: RangeServer, fault: str, served: tuple[int, ...], every: int
) -> None:
    with open_file(server, memory="4M") as file:
        server.set(fault=f"{fault}:{every}")
        met = []
        for number, (start, end) in enumerate(READS):
            try:
                got = read(file, start, end)
            except Exception as error:  # noqa: BLE001 - each library has its own.
                assert str(error) and "\n" not in str(error), repr(error)
            else:
                assert bool(got == WHOLE[start:end]), (start, end, len(got))
                met.append(number)
        if every == 1:
            assert tuple(met) == served
        server.set(fault="none")
        # A read that joins a fetch from before fails with it.
        until(lambda: file.cache._session._idle.free == file.cache._connections)
        for start, end in READS:
            assert bool(read(file, start, end) == WHOLE[start:end]), (start, end)


@pytest.mark.parametrize("fault", ["error:2", "drop:2"])
def test_what_fails_for_a_moment_is_requested_again_and_counted(
    server: RangeServer, fault: str
) -> None:
    # One request at a time: the second and each other one fails, and the next is its second try.
    with open_file(server, memory="4M", connections=1, readahead="off") as file:
        server.set(fault=fault)
        for start, end in READS:
            assert bool(read(file, start, end) == WHOLE[start:end]), (start, end)
        told = file.cache.report()
        assert told.as_dict()["retried"] >= 1
        assert f"requests again   {told.as_dict()['retried']}" in str(told)


def test_a_request_that_times_out_is_made_again(server: RangeServer) -> None:
    aiohttp = pytest.importorskip("aiohttp")
    timeout = {"timeout": aiohttp.ClientTimeout(total=3)}
    fs = fsspec.filesystem("http", skip_instance_cache=True, client_kwargs=timeout)
    options = {"cache_type": "forerun", "cache_options": {"retries": 2}}
    with fs.open(f"{server.url}/any", "rb", **options) as file:
        server.set(latency="60s")
        with ThreadPoolExecutor(1) as pool:
            reader = pool.submit(read, file, 0, 100)
            until(lambda: file.cache.report().as_dict()["retried"] >= 1)
            server.set(latency="0")
            assert reader.result(300) == WHOLE[:100]


def test_a_wrong_option_is_named_where_a_file_is_opened(server: RangeServer) -> None:
    with pytest.raises(forerun.OptionError, match="memory"):
        open_file(server, memry="8M")
