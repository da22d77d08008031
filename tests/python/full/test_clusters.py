"""`forerun.sweep` on processes and on Dask, with workers and clients that are killed."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import forerun
from forerun._sweep import read
from forerun._workers import Workers

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("default")]

OF_A_RUN = ["seconds", "accesses_per_second", "trace_seconds", "host", "commit"]
POLICIES, SIZES = "lru,s3-fifo,belady", ["10", "10%"]
TRACES, KILLS = 60, 20
DOCS = Path(__file__).parents[3] / "docs" / "sweeps.md"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    numbers = numpy.random.default_rng(1)
    for number in range(TRACES):
        pages = numbers.zipf(1.2, 100_000 + 1_000 * number) % 50_000
        pages.astype("<u4").tofile(folder / f"t{number:02}.u32le")
    return folder


@pytest.fixture(scope="module")
def expected(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("expected") / "sweep"
    assert sweep(traces, out, 2).failed == 0
    return rows(out)


def sweep(traces: Path, out: Path, executor: Any) -> forerun.Sweep:
    return forerun.sweep(traces, POLICIES, SIZES, executor, out)


def rows(folder: Path) -> list[dict[str, Any]]:
    table = read(folder).drop_columns(OF_A_RUN)
    return sorted(table.to_pylist(), key=lambda row: (row["trace"], row["policy"], row["size"]))


class Killer(threading.Thread):
    """Kills one of the processes that `find` names, `KILLS` times at random moments."""

    def __init__(self, find: Any) -> None:
        super().__init__(daemon=True)
        self._find, self._ends = find, threading.Event()
        self.killed = 0

    def run(self) -> None:
        numbers = random.Random(1)
        while self.killed < KILLS and not self._ends.wait(numbers.uniform(0.01, 0.4)):
            processes = self._find()
            if processes:
                try:
                    os.kill(numbers.choice(processes), signal.SIGKILL)
                    self.killed += 1
                except ProcessLookupError:
                    pass

    def end(self) -> None:
        self._ends.set()
        self.join()


def test_workers_that_are_killed_at_random_moments_cost_no_row(
    traces: Path, tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    with Workers(2) as workers:
        killer = Killer(workers.processes)
        killer.start()
        done = sweep(traces, tmp_path, workers)
        killer.end()
    assert killer.killed > 0 and done.failed == 0
    assert rows(tmp_path) == expected


@pytest.fixture
def client() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_a_client_of_dask_runs_a_sweep(
    client: Any, traces: Path, tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    assert sweep(traces, tmp_path, client).run == TRACES
    assert rows(tmp_path) == expected


def test_workers_of_dask_that_are_killed_cost_no_row(
    client: Any, traces: Path, tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    def processes() -> list[int]:
        nannies = client.cluster.workers.values()
        return [nanny.pid for nanny in nannies if nanny.pid is not None]

    killer = Killer(processes)
    killer.start()
    done = sweep(traces, tmp_path, client)
    killer.end()
    assert killer.killed > 0 and done.failed == 0
    assert rows(tmp_path) == expected


def test_memory_is_told_to_a_scheduler_that_knows_it(traces: Path, tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 4, "dashboard_address": None}
    with (
        LocalCluster(resources={"memory": 1 << 30}, **options) as cluster,
        Client(cluster) as client,
    ):
        done = forerun.sweep(traces / "t0*", "lru", "10%", client, tmp_path, memory=512 << 20)
    assert (done.run, done.failed) == (10, 0)


def test_a_client_that_is_killed_goes_on_where_it_was(
    traces: Path, tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    call = (str(traces), POLICIES, SIZES, 2, str(tmp_path))
    program = f"import forerun; forerun.sweep(*{call!r})"
    kills = 0
    for part in range(3):
        with subprocess.Popen([sys.executable, "-c", program]) as child:
            while child.poll() is None:
                if len(list(tmp_path.glob("part-*.parquet"))) > part:
                    child.kill()
                    kills += 1
                    break
    there = {row["trace"] for row in rows(tmp_path)}
    done = sweep(traces, tmp_path, 2)
    assert kills > 0 and done.run == TRACES - len(there)
    assert rows(tmp_path) == expected


def test_the_executor_of_ray_in_the_docs_runs_a_sweep(traces: Path, tmp_path: Path) -> None:
    programs = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    [program] = [text for text in programs if "import ray" in text]
    command = [sys.executable, "-c", program, str(traces / "t0*")]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "10 traces, 0 failed" in ended.stdout
    expected = forerun.sim([*sorted(map(str, traces.glob("t0*")))], "all", ["1%", "10%"])
    found = read(tmp_path / "sweep").select(["trace", "policy", "cache_pages", "misses"])
    key = [(name, "ascending") for name in found.column_names[:3]]
    assert found.sort_by(key).equals(expected.select(found.column_names).sort_by(key))
