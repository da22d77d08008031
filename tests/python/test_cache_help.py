"""What helps a user of the cache: names of options, attempts again, known ranges, a report."""

from __future__ import annotations

import threading

import pytest
from stores import KIB, MIB, Hooked, Store, content, until

import forerun

SIZE = 12 * MIB + 4321


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("memroy", "no option 'memroy'; the nearest is 'memory'; there are: memory, connections"),
        ("xyz", "no option 'xyz'; there are: memory, connections, request, readahead, retries"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest(option: str, says: str) -> None:
    with pytest.raises(forerun.OptionError, match=says):
        forerun.ForerunCache(0, Store(SIZE), SIZE, **{option: 1})


class ServerError(Exception):
    """As aiohttp's: an answer with a status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@pytest.mark.parametrize(
    ("errors", "retries", "is_read", "retried"),
    [
        ([ServerError(503)], 2, True, 1),
        ([ConnectionResetError(), TimeoutError()], 2, True, 2),
        ([ServerError(500)] * 3, 2, False, 2),
        ([ServerError(500)], 0, False, 0),
        ([ServerError(404)], 2, False, 0),
        ([ValueError("no")], 2, False, 0),
    ],
)
def test_errors_that_go_away_are_met_by_asking_again(
    errors: list[Exception], retries: int, is_read: bool, retried: int
) -> None:
    left = list(errors)

    def hook(start: int, end: int) -> None:
        if left:
            raise left.pop(0)

    cache = forerun.ForerunCache(0, Hooked(SIZE, hook), SIZE, readahead="off", retries=retries)
    if is_read:
        assert cache._fetch(0, 5000) == content(0, 5000)
    else:
        with pytest.raises(type(errors[-1])):
            cache._fetch(0, 5000)
    assert cache.report().as_dict()["retried"] == retried
    assert f"requests again   {retried}" in str(cache.report())


def test_known_ranges_are_there_before_they_are_read() -> None:
    store = Store(SIZE)
    cache = forerun.ForerunCache(0, store, SIZE, readahead="off")
    known = [(1000, 900_000), (5 * MIB, 7 * MIB), (SIZE - 10, SIZE + 10), (9, 9), (-5, 3)]
    cache.will_need(known)
    inside = [(max(start, 0), min(end, SIZE)) for start, end in known]
    wanted = sum(max(end - start, 0) for start, end in inside)
    until(lambda: store.fetched >= wanted)
    until(lambda: cache.report().as_dict()["bytes_fetched"] == store.fetched)
    for start, end in inside:
        assert cache._fetch(start, end) == content(start, max(end, start))
    assert cache.report().as_dict()["stalls"] == 0
    assert store.fetched <= wanted + 2 * 8192 * len(known)


def test_more_known_ranges_than_memory_come_as_they_are_read() -> None:
    store = Store(SIZE)
    cache = forerun.ForerunCache(0, store, SIZE, memory="4M", readahead="off", connections=2)
    cache.will_need([(0, SIZE)])
    for start in range(0, SIZE, 100_000):
        end = min(start + 100_000, SIZE)
        assert cache._fetch(start, end) == content(start, end)
    assert store.fetched <= SIZE + 2 * 8192
    assert cache.report().as_dict()["memory"] <= 4 * MIB


def test_known_ranges_of_no_use_harm_nothing() -> None:
    fails = threading.Event()

    def hook(start: int, end: int) -> None:
        if not fails.is_set():
            raise ValueError("not yet")

    cache = forerun.ForerunCache(0, Hooked(SIZE, hook), SIZE, readahead="off")
    cache.will_need([(0, SIZE)])
    until(lambda: cache.report().as_dict()["failures"] > 0)
    fails.set()
    assert cache._fetch(0, 5000) == content(0, 5000)
    cache.will_need([])
    cache.close()


def test_a_report_tells_of_its_block_alone() -> None:
    class File:
        def __init__(self) -> None:
            self.cache = forerun.ForerunCache(0, Store(SIZE), SIZE, readahead="off")

    file, shown = File(), []
    file.cache._fetch(0, 5000)
    with forerun.report(file, shown.append) as done:
        assert file.cache._fetch(10_000, 20_000) == content(10_000, 20_000)
    assert done.counts.as_dict()["bytes_wanted"] == 10_000
    assert done.counts.as_dict()["reads"] == 1
    assert shown == [done.counts]
    with pytest.raises(forerun.OptionError, match='open it with cache_type="forerun"'):
        forerun.report(object())


def check(cache: forerun.ForerunCache, start: int, end: int) -> None:
    """Reads a range and looks at the bytes."""
    assert bool(cache._fetch(start, end) == content(start, end)), f"wrong bytes in {start}..{end}"


def test_the_report_is_text_a_dict_and_a_table() -> None:
    cache = forerun.ForerunCache(64 * KIB, Store(SIZE), SIZE)
    for start in range(0, 4 * MIB, MIB):
        check(cache, start, start + MIB)
    report = cache.report()
    told = report.as_dict()
    assert (told["reads"], told["bytes_wanted"]) == (4, 4 * MIB)
    rows = dict(line.split("  ", 1) for line in str(report).splitlines())
    assert rows["wanted"].strip() == "4.0 MiB"
    assert rows["reads"].strip() == "4"
    html = report._repr_html_()
    for name, value in rows.items():
        assert f"<td>{name}</td><td>{value.strip()}</td>" in html
    assert repr(report).startswith("<forerun report: reads 4, wanted 4.0 MiB")
    # It is of its moment.
    check(cache, 0, 10)
    assert report.as_dict() == told
    assert str(forerun.ForerunCache(0, Store(1), 1).report()).splitlines()[0].split() == [
        "reads",
        "0",
    ]


def test_the_counts_of_fsspec_can_be_set() -> None:
    cache = forerun.ForerunCache(64 * KIB, Store(SIZE), SIZE, readahead="off")
    check(cache, 0, 8192)
    check(cache, 0, 8192)
    check(cache, 8192, 16384)
    assert (cache.hit_count, cache.miss_count, cache.total_requested_bytes) == (1, 2, 16384)
    cache._reset_stats()
    assert (cache.hit_count, cache.miss_count, cache.total_requested_bytes) == (0, 0, 0)
    check(cache, 0, 16384)
    check(cache, 16384, 24576)
    assert (cache.hit_count, cache.miss_count, cache.total_requested_bytes) == (1, 1, 8192)
    cache.close()
    assert (cache.hit_count, cache.miss_count, cache.total_requested_bytes) == (1, 1, 8192)
    assert forerun.Report is type(cache.report())
