"""The fsspec cache: right bytes for any reads, errors where they belong, bounded memory."""

from __future__ import annotations

import gc
import pickle
import random
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import fsspec.caching
import pytest
from stores import GUARD_SECONDS, KIB, MIB, Hooked, Store, ahead, content, until

from forerun import FetchError, ForerunCache, OptionError, memory_held, memory_limit
from forerun._memory import Memory
from forerun._pool import Pool

SIZE = 12 * MIB + 4321


class Refused(Exception):
    """What a store says in these tests."""


class Stop(BaseException):
    """As an interrupt, which would end pytest itself."""


@pytest.fixture(autouse=True)
def own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with nothing held, even if another failed and its caches live on."""
    monkeypatch.setattr("forerun._cache._memory", Memory(1 << 30))


def cache_of(store: Store, **options: Any) -> ForerunCache:
    """A cache of `store`."""
    return ForerunCache(64 * KIB, store, store.size, **options)


def check(cache: ForerunCache, start: int, end: int) -> None:
    """Reads a range within the file and looks at the bytes."""
    got = cache._fetch(start, end)
    # An assertion of the bytes themselves would print them.
    assert len(got) == end - start, (start, end, len(got))
    assert bool(got == content(start, end)), f"wrong bytes in {start}..{end}"


def count(cache: ForerunCache, name: str) -> float:
    """One of the counts of its report."""
    return cache.report().as_dict()[name]


def read_ahead(cache: ForerunCache, start: int = 0) -> None:
    """Reads until there is something for other threads to fetch."""
    for at in range(start, start + 1024 * KIB, 128 * KIB):
        check(cache, at, at + 128 * KIB)


def together(works: list[Callable[[], None]]) -> None:
    """Runs each in a thread; the first error is raised here."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised below.
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# Reads.


def test_it_is_registered() -> None:
    assert fsspec.caching.caches["forerun"] is ForerunCache


@pytest.mark.parametrize(
    ("start", "end", "of"),
    [
        (None, None, (0, SIZE)),
        (None, 10, (0, 10)),
        (SIZE - 10, None, (SIZE - 10, SIZE)),
        (0, SIZE + 1, (0, SIZE)),
        (SIZE - 1, SIZE + 100, (SIZE - 1, SIZE)),
        (SIZE, SIZE + 1, (0, 0)),
        (SIZE + 5, None, (0, 0)),
        (7, 7, (0, 0)),
        (9, 7, (0, 0)),
        (0, 0, (0, 0)),
        (-3, 5, (0, 5)),
        (SIZE // 2, SIZE // 2 + 1, (SIZE // 2, SIZE // 2 + 1)),
    ],
)
@pytest.mark.parametrize("begun", [False, True])
def test_bounds_are_those_of_fsspec(
    start: int | None, end: int | None, of: tuple[int, int], begun: bool
) -> None:
    cache = cache_of(Store(SIZE))
    if begun:
        check(cache, 1000, 2000)
    assert bool(cache._fetch(start, end) == content(*of))


def test_an_empty_file_is_not_fetched() -> None:
    store = Store(0)
    cache = cache_of(store)
    assert [cache._fetch(None, None), cache._fetch(0, 10), cache._fetch(5, 5)] == [b""] * 3
    assert store.ranges == []


def test_a_file_of_unknown_size_is_passed_through() -> None:
    cache = ForerunCache(0, Store(SIZE), None)  # type: ignore[arg-type]
    check(cache, 10, 1000)
    check(cache, 10, 1000)
    assert memory_held() == 0


def sequential(rng: random.Random) -> Iterator[tuple[int, int]]:
    step = rng.choice([4096, 50_000, 128 * KIB, 1_000_003])
    for start in range(0, SIZE, step):
        yield start, min(start + step, SIZE)


def backward(rng: random.Random) -> Iterator[tuple[int, int]]:
    yield from reversed(list(sequential(rng)))


def interleaved(rng: random.Random) -> Iterator[tuple[int, int]]:
    each = SIZE // 10
    cursors = [k * each for k in range(10)]
    ends = [at + each for at in cursors]
    while live := [k for k in range(10) if cursors[k] < ends[k]]:
        k = rng.choice(live)
        end = min(cursors[k] + rng.randint(1, 100_000), ends[k])
        yield cursors[k], end
        cursors[k] = end


def unaligned(rng: random.Random) -> Iterator[tuple[int, int]]:
    for _ in range(300):
        start = rng.randrange(SIZE)
        yield start, min(start + rng.choice([1, 100, 4096, 9000, 70_000]), SIZE)


def mixed(rng: random.Random) -> Iterator[tuple[int, int]]:
    """Streams, jumps, repeats and reads larger than the memory, in any order."""
    at = 0
    for _ in range(200):
        kind = rng.randrange(10)
        if kind == 0:
            at = rng.randrange(SIZE)
        start = rng.randrange(SIZE) if kind == 1 else max(at - 5000, 0) if kind == 2 else at
        most = SIZE if kind == 3 and rng.random() < 0.2 else 150_000
        end = min(start + rng.randint(1, most), SIZE)
        if start < end:
            yield start, end
            at = end % SIZE


@pytest.mark.parametrize("reads", [sequential, backward, interleaved, unaligned, mixed])
@pytest.mark.parametrize("memory", ["4M", "256M"])
def test_every_read_has_its_bytes(
    reads: Callable[[random.Random], Iterator[tuple[int, int]]], memory: str
) -> None:
    for seed in range(3):
        cache = cache_of(Store(SIZE), memory=memory)
        for start, end in reads(random.Random(seed)):
            check(cache, start, end)


@pytest.mark.parametrize("seed", range(12))
def test_any_options_give_the_same_bytes(seed: int) -> None:
    rng = random.Random(seed)
    cache = cache_of(
        Store(SIZE),
        memory="4M",
        connections=rng.choice([1, 2, 16, 256]),
        request=rng.choice(["64K", 100_000, "1M", "64M"]),
        readahead=rng.choice(["streams", "streams:first=1M", "off", "linux-6"]),
    )
    for start, end in mixed(rng):
        check(cache, start, end)


def test_a_read_may_be_larger_than_the_memory() -> None:
    cache = cache_of(Store(64 * MIB), memory="4M")
    check(cache, 0, 64 * MIB)
    check(cache, 1, 64 * MIB - 1)


@pytest.mark.parametrize("memory", ["4M", "64M"])
def test_threads_may_read_at_once(memory: str) -> None:
    cache = cache_of(Store(SIZE), memory=memory)

    def reader(seed: int) -> None:
        rng = random.Random(seed)
        reads = sequential if seed % 2 else unaligned
        for start, end in reads(rng):
            check(cache, start, end)

    together([lambda seed=seed: reader(seed) for seed in range(8)])  # type: ignore[misc]


def test_buffers_are_as_good_as_bytes() -> None:
    def fetch(start: int, end: int) -> Any:
        return bytearray(content(start, end))

    cache = ForerunCache(0, fetch, SIZE)
    got = cache._fetch(5, 100_000)
    assert type(got) is bytes
    assert bool(got == content(5, 100_000))


def test_without_more_threads_readers_fetch_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = Pool(4)
    monkeypatch.setattr("forerun._cache._pool", pool)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        cache = cache_of(Store(SIZE))
        for start, end in sequential(random.Random(1)):
            check(cache, start, end)
        assert pool.threads == 0


def test_readers_fetch_for_themselves_while_all_threads_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hook(start: int, end: int) -> None:
        if ahead():
            reached.set()
            go_on.wait()

    monkeypatch.setattr("forerun._cache._pool", Pool(1))
    busy = cache_of(Hooked(SIZE, hook))
    read_ahead(busy)
    assert reached.wait(GUARD_SECONDS)
    cache = cache_of(Store(64 * MIB), memory="4M")

    def reader(start: int) -> None:
        for at in range(start, start + 8 * MIB, MIB // 2):
            check(cache, at, at + MIB // 2)

    # More than there is room for at a time.
    together([lambda at=at: reader(at * 8 * MIB) for at in range(8)])  # type: ignore[misc]
    go_on.set()


# Errors.


def test_an_error_reaches_the_reader_that_needed_the_bytes_and_no_other() -> None:
    bad = [range(4 * MIB, 5 * MIB)]

    def hook(start: int, end: int) -> None:
        if any(start < span.stop and span.start < end for span in bad):
            raise Refused(f"not {start}")

    cache = cache_of(Hooked(SIZE, hook))
    for start in range(0, 4 * MIB, 128 * KIB):
        check(cache, start, start + 128 * KIB)
    for _ in range(2):
        with pytest.raises(Refused, match="not "):
            cache._fetch(4 * MIB, 4 * MIB + 4096)
        check(cache, 9 * MIB, 9 * MIB + 4096)
    bad.clear()
    check(cache, 4 * MIB, 4 * MIB + 4096)
    check(cache, 0, SIZE)
    assert count(cache, "failures") >= 2


def test_an_error_reaches_all_who_wait_for_the_same_bytes() -> None:
    go_on = threading.Event()

    def hook(start: int, end: int) -> None:
        go_on.wait()
        if start < 4096:
            raise Refused

    cache = cache_of(Hooked(SIZE, hook))
    met: list[str] = []

    def refused() -> None:
        with pytest.raises(Refused):
            cache._fetch(0, 4096)
        met.append("refused")

    def served() -> None:
        check(cache, 8 * MIB, 8 * MIB + 4096)
        met.append("served")

    def release() -> None:
        until(lambda: count(cache, "stalls") == 4)
        go_on.set()

    together([refused, refused, refused, served, release])
    assert sorted(met) == ["refused"] * 3 + ["served"]


def test_an_interrupt_of_one_reader_is_not_that_of_another() -> None:
    asked: list[int] = []
    go_on = threading.Event()

    def hook(start: int, end: int) -> None:
        asked.append(start)
        if len(asked) == 1:
            go_on.wait()
            raise Stop

    cache = cache_of(Hooked(SIZE, hook), readahead="off")

    def interrupted() -> None:
        with pytest.raises(Stop):
            cache._fetch(0, 4096)

    def served() -> None:
        until(lambda: len(asked) == 1)
        check(cache, 0, 4096)

    def release() -> None:
        until(lambda: count(cache, "stalls") == 2)
        go_on.set()

    together([interrupted, served, release])


@pytest.mark.parametrize("kind", [Refused, Stop])
def test_failed_readahead_hurts_no_reader(kind: type[BaseException]) -> None:
    def hook(start: int, end: int) -> None:
        if ahead():
            raise kind

    cache = cache_of(Hooked(SIZE, hook))
    read_ahead(cache)
    until(lambda: count(cache, "failures") > 0)
    for start, end in sequential(random.Random(1)):
        check(cache, start, end)


def test_threads_outlive_what_a_fetcher_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def hook(start: int, end: int) -> None:
        if ahead():
            if not mended:
                raise Stop
            served.append(start)

    served: list[int] = []
    mended: list[bool] = []
    monkeypatch.setattr("forerun._cache._pool", Pool(1))
    cache = cache_of(Hooked(SIZE, hook), connections=1)
    read_ahead(cache)
    until(lambda: count(cache, "failures") > 0)
    mended.append(True)
    before = len(served)
    read_ahead(cache, 8 * MIB)
    until(lambda: len(served) > before)


@pytest.mark.parametrize("off_by", [-1, 1, -4096, 100_000])
def test_another_number_of_bytes_is_an_error_of_one_line(off_by: int) -> None:
    wrong = [True]

    def fetch(start: int, end: int) -> bytes:
        return content(start, max(end + off_by, start)) if wrong else content(start, end)

    cache = ForerunCache(0, fetch, SIZE)
    for _ in range(2):
        with pytest.raises(FetchError) as told:
            cache._fetch(3, 10_003)
        message = str(told.value)
        found = re.match(r"asked for bytes (\d+) to (\d+), (\d+) of them, and got (\d+): ", message)
        assert found is not None and "\n" not in message, message
        start, end, asked, got = map(int, found.groups())
        assert (asked, got) == (end - start, max(asked + off_by, 0))
        assert start <= 10_003 and end > 3
        assert isinstance(told.value, OSError)
    wrong.clear()
    check(cache, 3, 10_003)
    check(cache, 0, SIZE)


# Options and memory.


@pytest.mark.parametrize(
    "options",
    [
        {"memory": 1},
        {"memory": "abc"},
        {"memory": "-4M"},
        {"memory": "4.5X"},
        {"memory": True},
        {"memory": 8e6},
        {"memory": None},
        {"memory": 1 << 60},
        {"connections": 0},
        {"connections": 257},
        {"connections": True},
        {"connections": "4"},
        {"request": 4096},
        {"request": "2T"},
        {"request": False},
        {"readahead": "no-such"},
        {"readahead": "streams:no=1"},
        {"readahead": ""},
    ],
    ids=str,
)
def test_wrong_options_are_refused_in_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError) as told:
        cache_of(Store(SIZE), **options)
    assert "\n" not in str(told.value)
    assert isinstance(told.value, ValueError)


@pytest.mark.parametrize(
    ("given", "bytes_"),
    [
        (4 << 20, 4 << 20),
        ("64M", 64 << 20),
        ("1g", 1 << 30),
        ("5 MiB", 5 << 20),
        ("5242880 bytes", 5 << 20),
        ("8000KB", 8_192_000),
    ],
)
def test_sizes_are_numbers_or_words(given: int | str, bytes_: int) -> None:
    assert memory_limit(given) == memory_limit() == bytes_


@pytest.mark.parametrize("total", [0, 1, True, "abc", -1])
def test_a_wrong_limit_is_refused_and_changes_nothing(total: int | str) -> None:
    before = memory_limit()
    with pytest.raises(OptionError, match="memory_limit"):
        memory_limit(total)
    assert memory_limit() == before


def test_fifty_caches_stay_within_the_limit() -> None:
    limit = memory_limit("32M")
    caches = [cache_of(Store(8 * MIB)) for _ in range(50)]
    for at in range(0, 1 * MIB, 256 * KIB):
        for cache in caches:
            check(cache, at, at + 256 * KIB)
            assert 0 < memory_held() <= limit
    for cache in caches:
        cache.close()
    until(lambda: memory_held() == 0)


def test_what_is_kept_for_the_next_file_is_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[int] = []
    monkeypatch.setattr("forerun._memory.keep_spare", kept.append)
    limit = memory_limit("32M")
    for _ in range(3):
        caches = [cache_of(Store(8 * MIB)) for _ in range(5)]
        for cache in caches:
            check(cache, 0, 4096)
            assert 0 <= kept[-1] <= limit - memory_held()
        for cache in caches:
            cache.close()
        until(lambda: memory_held() == 0)
    memory_limit("1G")
    assert kept[-1] == 256 * MIB


def test_a_lower_limit_holds_for_what_is_held_already() -> None:
    caches = [cache_of(Store(16 * MIB)) for _ in range(4)]
    for cache in caches:
        check(cache, 0, 4096)
    assert memory_held() == 64 * MIB
    limit = memory_limit("20M")
    until(lambda: memory_held() <= limit)
    for cache in caches:
        check(cache, 4096, 100_000)
        assert memory_held() <= limit


def test_a_closed_cache_gives_back_and_reads_again() -> None:
    store = Store(SIZE)
    cache = cache_of(store)
    check(cache, 0, MIB)
    assert memory_held() >= SIZE
    cache.close()
    cache.close()
    until(lambda: memory_held() == 0)
    check(cache, 0, MIB)
    assert memory_held() >= SIZE
    assert count(cache, "bytes_wanted") == 2 * MIB


def test_a_close_does_not_take_the_bytes_of_a_read_under_way() -> None:
    go_on = threading.Event()
    cache = cache_of(Hooked(SIZE, lambda start, end: void(go_on.wait())))

    def close() -> None:
        until(lambda: count(cache, "stalls") == 1)
        cache.close()
        go_on.set()

    together([lambda: check(cache, 0, MIB), close])


def test_a_dropped_cache_is_collected_with_readahead_under_way() -> None:
    go_on = threading.Event()
    reached = threading.Event()

    def hook(start: int, end: int) -> None:
        if ahead():
            reached.set()
            go_on.wait()

    cache = cache_of(Hooked(SIZE, hook))
    read_ahead(cache)
    assert reached.wait(GUARD_SECONDS)
    ref, session = weakref.ref(cache), weakref.ref(cache._session)
    del cache
    gc.collect()
    assert ref() is None
    go_on.set()
    until(lambda: session() is None and memory_held() == 0)


def void(_: object) -> None:
    """For a hook that is an expression."""


def test_a_pickle_keeps_the_options() -> None:
    cache = cache_of(Store(SIZE), memory="8M", connections=3, request="128K", readahead="off")
    check(cache, 0, 1000)
    again = pickle.loads(pickle.dumps(cache))
    assert type(again) is ForerunCache
    options = {"memory": "8M", "connections": 3, "request": "128K", "readahead": "off"}
    assert again.name.options == cache.name.options == options
    assert (again.blocksize, again.size) == (cache.blocksize, cache.size)
    assert again.report().as_dict()["reads"] == 0
    fetcher = again.fetcher
    assert isinstance(fetcher, Store)
    fetcher.ranges.clear()
    for start in range(0, 2 * MIB, 8192):
        check(again, start, start + 8192)
    assert fetcher.fetched == 2 * MIB


# What it tells.


def test_the_report_adds_up() -> None:
    store = Store(SIZE)
    cache = cache_of(store)
    for start, end in sequential(random.Random(5)):
        check(cache, start, end)
    cache.close()
    for start, end in unaligned(random.Random(5)):
        check(cache, start, end)
    until(lambda: count(cache, "requests") == len(store.ranges))
    told = cache.report().as_dict()
    assert told["bytes_fetched"] == store.fetched
    assert told["failures"] == 0
    assert told["memory"] == memory_held()
    assert told["bytes_wasted"] + told["bytes_unread"] <= told["bytes_ahead"]
