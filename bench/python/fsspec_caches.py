"""fsspec's caches and forerun's on a local server: bytes, requests and time, side by side.

    python bench/python/fsspec_caches.py [--quick] [--only NAME] [--out DIR]

needs the wheel, aiohttp, and `cargo build --release -p forerun-compare` for the server, which adds a latency
to each request and a cap to each connection. Runs are interleaved, each row a median of rounds,
with the fastest and the slowest. `forerun` knows nothing of the server, `forerun, remembered` what a run before
has seen of it. The rows `bytes` read whole files of 256 MiB from memory: what
they tell is the bytes fetched for each one wanted. obstore is a row where it is installed. Writes ``summary.md`` and ``runs.json`` to DIR.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import fsspec.caching

import forerun

try:
    import obstore
except ImportError:
    obstore = None

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "python"))
from range_server import RangeServer, pattern

MIB = 1 << 20
LATENCY, RATE = "30ms", "90M"
CONNECTIONS = 16
#: Slow runs are cut and rated on what they read.
SECONDS_MAX = 20.0

#: `forerun` as it is by default, after a first run.
REMEMBERED = "forerun, remembered"

Read = tuple[int, int]


def turns(cursors: int, each: int, size: int, order: str) -> Iterator[Read]:
    """`cursors` readers of `each` bytes one behind the other in the file, in turn or at random."""
    if order == "turns":
        for at in range(0, each, size):
            for cursor in range(cursors):
                yield cursor * each + at, size
        return
    chance = random.Random(1)
    left = [0] * cursors
    going = list(range(cursors))
    while going:
        cursor = chance.choice(going)
        yield cursor * each + left[cursor], size
        left[cursor] += size
        if left[cursor] >= each:
            going.remove(cursor)


def lone(count: int, size: int, file: int) -> Iterator[Read]:
    """Reads at random places."""
    chance = random.Random(2)
    for _ in range(count):
        yield chance.randrange(file - size), size


def result(
    seconds: float,
    wanted: int,
    fetched: int,
    requests: int | None = None,
    memory: int | None = None,
) -> dict[str, Any]:
    """What is told of a run."""
    return {
        "seconds": seconds,
        "mb_per_second": wanted / seconds / 1e6,
        "wanted": wanted,
        "fetched": fetched,
        "requests": requests,
        "memory": memory,
    }


def run(server: RangeServer, cache: str, block: int, reads: Iterator[Read], check: int) -> dict:
    """Reads all of `reads` through one file object."""
    fsspec.get_filesystem_class("http").clear_instance_cache()
    fs = fsspec.filesystem("http")
    words: dict[str, Any] = {"cache_type": cache, "block_size": block}
    if cache == "forerun":
        words["cache_options"] = {"remember": False}
    elif cache == REMEMBERED:
        words["cache_type"] = cache = "forerun"
    with fs.open(f"{server.url}/file", "rb", **words) as file:
        server.reset()
        begun = time.perf_counter()
        wanted = 0
        samples = []
        for number, (offset, size) in enumerate(reads):
            file.seek(offset)
            data = file.read(size)
            wanted += len(data)
            if time.perf_counter() - begun > SECONDS_MAX:
                break
            if number % check == 0:
                samples.append((offset, data))
        seconds = time.perf_counter() - begun
        counts = server.counts()
        held = file.cache.report().as_dict()["memory"] if cache == "forerun" else None
    for offset, data in samples:
        if data != pattern(offset, offset + len(data)):
            raise AssertionError(f"{cache}: wrong bytes at {offset}")
    return result(seconds, wanted, counts["bytes"], counts["requests"], held)


def download(server: RangeServer, size: int, connections: int) -> dict:
    """The file by as many threads, each with one range of it."""
    fsspec.get_filesystem_class("http").clear_instance_cache()
    fs = fsspec.filesystem("http")
    url = f"{server.url}/file"
    part = -(-size // connections)
    server.reset()
    begun = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        get = lambda at: len(fs.cat_file(url, at, min(at + part, size)))
        got = sum(pool.map(get, range(0, size, part)))
    seconds = time.perf_counter() - begun
    assert got == size
    counts = server.counts()
    return result(seconds, size, counts["bytes"], counts["requests"])


def obstore_reader(server: RangeServer, size: int) -> dict:
    """64 KiB reads in order by obstore's buffered reader, as it is."""
    store = obstore.store.HTTPStore.from_url(server.url, client_options={"allow_http": True})
    server.reset()
    begun = time.perf_counter()
    reader = obstore.open_reader(store, "file")
    got = 0
    while data := reader.read(64 << 10):
        got += len(data)
    seconds = time.perf_counter() - begun
    assert got == size
    counts = server.counts()
    return result(seconds, size, counts["bytes"], counts["requests"])


def whole_files(cursors: int, order: str) -> dict:
    """256 MiB in memory by `cursors` readers, each to the end of its part."""
    data = random.Random(3).randbytes(16 * MIB) * 16
    each = len(data) // cursors // (64 << 10) * (64 << 10)
    size = cursors * each
    made = fsspec.caching.caches["forerun"](5 * MIB, lambda start, end: data[start:end], size)
    begun = time.perf_counter()
    for at, count in turns(cursors, each, 64 << 10, order):
        made._fetch(at, at + count)
    seconds = time.perf_counter() - begun
    counts = made.report().as_dict()
    return result(seconds, size, counts["bytes_fetched"], counts["requests"])


def memory(cache: str, size: int) -> dict:
    """64 KiB reads in order from a fetcher in memory."""
    data = random.Random(3).randbytes(16 * MIB) * (size // (16 * MIB))
    made = fsspec.caching.caches[cache](5 * MIB, lambda start, end: data[start:end], size)
    step = 64 << 10
    begun = time.perf_counter()
    for at in range(0, size, step):
        made._fetch(at, at + step)
    seconds = time.perf_counter() - begun
    return result(seconds, size, made.total_requested_bytes)


def rows(quick: bool) -> Iterator[tuple[str, int, list[tuple[str, Callable[[Any], dict]]]]]:
    """Name, size of the served file, and who runs."""
    each = (16 if quick else 64) * MIB

    def through(cache: str, block: int, reads: Callable[[], Iterator[Read]], check: int = 97):
        return lambda server: run(server, cache, block, reads(), check)

    size = 4 * each
    whole = lambda: turns(1, size, 64 << 10, "turns")
    yield (
        "one reader",
        size,
        [
            ("download", lambda server: download(server, size, CONNECTIONS)),
            ("forerun", through("forerun", 5 * MIB, whole)),
            (REMEMBERED, through(REMEMBERED, 5 * MIB, whole)),
            *([("obstore", lambda server: obstore_reader(server, size))] if obstore else []),
            *(
                (name, through(name, 5 * MIB, whole))
                for name in ("readahead", "background", "adaptive")
            ),
        ],
    )
    ten = lambda: turns(10, each, 64 << 10, "turns")
    blocks = [("readahead", 5 * MIB), ("bytes", 5 * MIB), ("readahead", 64 << 10)]
    blocks += [("blockcache", 5 * MIB), ("background", 1 * MIB), ("background", 5 * MIB)]
    blocks += [("blockcache", 16 * MIB), ("background", 16 * MIB), ("adaptive", 5 * MIB)]
    yield (
        "10 readers against fsspec's",
        10 * each,
        [
            ("forerun", through("forerun", 5 * MIB, ten)),
            *((f"{name} {block >> 10}K", through(name, block, ten)) for name, block in blocks),
        ],
    )
    for order in ("turns", "random"):
        for cursors in (2, 10, 40, 200):
            reads = lambda n=cursors, o=order: turns(n, each, 64 << 10, o)
            yield (
                f"{cursors} readers, {order}",
                cursors * each,
                [("forerun", through("forerun", 5 * MIB, reads))],
            )
    spots = lambda: lone(200, 4096, 1 << 30)
    yield (
        "random 4 KiB",
        1 << 30,
        [
            ("forerun", through("forerun", 5 * MIB, spots)),
            ("none", through("none", 5 * MIB, spots)),
        ],
    )
    for cursors in (2, 3, 10, 13, 40, 57, 200):
        orders = ("turns", "random")
        yield (
            f"bytes, {cursors} readers",
            0,
            [(o, lambda _, n=cursors, o=o: whole_files(n, o)) for o in orders],
        )
    yield (
        "in memory",
        0,
        [(name, lambda _, name=name: memory(name, 256 * MIB)) for name in ("forerun", "bytes")],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    # What is remembered is this run's alone, and not the user's.
    state = tempfile.TemporaryDirectory()
    os.environ.update(XDG_STATE_HOME=state.name, FORERUN_LEARN="auto")
    runs: list[dict[str, Any]] = []
    lines = [
        "| row | by | MB/s | spread | fetched / wanted | requests | wanted / request |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name, size, who in rows(options.quick):
        if options.only not in name:
            continue
        with RangeServer(pattern=max(size, 1), latency=LATENCY, rate=RATE) as server:
            got: dict[str, list[dict]] = {}
            for label, work in who:
                if label == REMEMBERED:
                    work(server)
            for _ in range(options.rounds):
                for label, work in who:
                    got.setdefault(label, []).append(work(server))
        for label, results in got.items():
            runs.append({"row": name, "by": label, "rounds": results})
            speeds = sorted(result["mb_per_second"] for result in results)
            last = results[-1]
            requests = last["requests"]
            bytes_each = statistics.median(run["fetched"] / run["wanted"] for run in results)
            line = (
                f"| {name} | {label} | {statistics.median(speeds):.1f} | "
                f"{speeds[0]:.1f} to {speeds[-1]:.1f} | {bytes_each:.3f} | "
                f"{requests} | {last['wanted'] / requests / MIB if requests else 0:.2f} MiB |"
            )
            lines.append(line)
            print(line, flush=True)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        record = {
            "forerun": forerun.__version__,
            "fsspec": fsspec.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} processors",
            "latency": LATENCY,
            "rate": RATE,
            "runs": runs,
        }
        (options.out / "runs.json").write_text(json.dumps(record, indent=1))
        (options.out / "summary.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
