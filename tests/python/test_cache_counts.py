"""What the fsspec cache asks of its storage: little more than is read, in few requests."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator

import pytest
from stores import KIB, MIB, Store, content

from forerun import ForerunCache


def turns(cursors: int, steps: int, random_order: bool) -> Iterator[tuple[int, int]]:
    """A cursor and which of its steps it takes, until all have taken theirs."""
    if not random_order:
        for step in range(steps):
            yield from ((cursor, step) for cursor in range(cursors))
        return
    rng = random.Random(cursors)
    taken = [0] * cursors
    live = list(range(cursors))
    while live:
        cursor = rng.choice(live)
        yield cursor, taken[cursor]
        taken[cursor] += 1
        if taken[cursor] == steps:
            live.remove(cursor)


@pytest.mark.parametrize("random_order", [False, True], ids=["in-turn", "random"])
@pytest.mark.parametrize(
    ("cursors", "each", "step", "fetched_max", "request_mean"),
    [
        (2, 16 * MIB, 128 * KIB, 1.1, 2 * MIB),
        (2, 16 * MIB, 100_001, 1.1, 2 * MIB),
        (10, 16 * MIB, 128 * KIB, 1.1, 2 * MIB),
        (10, 16 * MIB, 100_001, 1.1, 2 * MIB),
        # Larger, or what is read ahead past the end of each part would count for too much.
        (40, 32 * MIB, 256 * KIB, 1.1, 2 * MIB),
        (200, 8 * MIB, 128 * KIB, 1.1, 512 * KIB),
    ],
)
def test_cursors_cost_what_they_read(
    cursors: int,
    each: int,
    step: int,
    fetched_max: float,
    request_mean: int,
    random_order: bool,
) -> None:
    store = Store(cursors * each)
    cache = ForerunCache(0, store, store.size)
    for cursor, turn in turns(cursors, -(-each // step), random_order):
        start = cursor * each + turn * step
        end = min(start + step, (cursor + 1) * each)
        assert bool(cache._fetch(start, end) == content(start, end)), (start, end)
    assert store.fetched <= fetched_max * store.size
    assert len(store.ranges) <= store.size / request_mean + 4 * cursors


@pytest.mark.parametrize("random_order", [False, True], ids=["in-turn", "random"])
@pytest.mark.parametrize("cursors", [2, 3, 13, 57, 200])
def test_readers_of_parts_fetch_nothing_that_another_has_read(
    cursors: int, random_order: bool
) -> None:
    each = 256 * MIB // cursors // (64 * KIB) * (64 * KIB)
    store = Store(cursors * each)
    cache = ForerunCache(0, store, store.size)
    for cursor, turn in turns(cursors, each // (64 * KIB), random_order):
        start = cursor * each + turn * 64 * KIB
        assert len(cache._fetch(start, start + 64 * KIB)) == 64 * KIB
    assert store.fetched <= 1.05 * store.size


def test_a_reader_that_goes_on_where_another_began_waits_there_once() -> None:
    store = Store(64 * MIB)
    cache = ForerunCache(0, store, store.size, memory="8M", connections=2)
    half = store.size // 2
    for start in (half, 0):
        for at in range(start, start + half, 64 * KIB):
            cache._fetch(at, at + 64 * KIB)
    before = cache.miss_count
    for at in range(half, store.size, 64 * KIB):
        assert bool(cache._fetch(at, at + 64 * KIB) == content(at, at + 64 * KIB))
    # A stream begins with two or three waits; a fetcher in memory has few others.
    assert cache.miss_count - before <= (store.size - half) // (256 * KIB)


@pytest.mark.parametrize("shift", [0, 1234], ids=["aligned", "unaligned"])
def test_random_reads_cost_what_they_want(shift: int) -> None:
    store = Store(256 * MIB)
    cache = ForerunCache(0, store, store.size)
    rng = random.Random(7)
    count = 2000
    for _ in range(count):
        start = rng.randrange(store.size // 4096 - 1) * 4096 + shift
        assert bool(cache._fetch(start, start + 4096) == content(start, start + 4096)), start
    assert store.fetched <= 1.05 * count * 4096


def test_fsspec_logs_the_counts_where_its_log_is_read(caplog: pytest.LogCaptureFixture) -> None:
    cache = ForerunCache(0, Store(MIB), MIB, readahead="off")
    cache._fetch(0, 8192)
    with caplog.at_level(logging.INFO, "fsspec"):
        assert cache._log_stats() == ""
    with caplog.at_level(logging.DEBUG, "fsspec"):
        told = cache._log_stats()
    assert "0 hits, 1 misses, 8192 total requested bytes" in told
