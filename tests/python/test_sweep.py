"""`forerun.sweep`: the rows of every trace once, whatever ends before its time."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy
import pyarrow.dataset
import pytest

import forerun
from forerun import OptionError, RunError
from forerun._dataset import DataSet
from forerun._sweep import read
from forerun._workers import WorkerDied, Workers

OF_A_RUN = ["seconds", "accesses_per_second", "trace_seconds", "host", "commit"]
POLICIES, SIZES = "lru,s3-fifo,belady", ["10", "10%"]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dozen small traces."""
    folder = tmp_path_factory.mktemp("traces")
    random = numpy.random.default_rng(1)
    for number in range(12):
        pages = random.zipf(1.3, 200 + 100 * number) % 1000
        pages.astype("<u4").tofile(folder / f"t{number:02}.u32le")
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    """What a data set has, but for times and places."""
    table = read(folder).drop_columns(OF_A_RUN)
    return sorted(
        table.to_pylist(), key=lambda row: (row["trace"], row["policy"] or "", row["size"] or "")
    )


@pytest.fixture(scope="module")
def expected(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows of an undisturbed sweep."""
    out = tmp_path_factory.mktemp("expected") / "sweep"
    done = forerun.sweep(traces, POLICIES, SIZES, 2, out)
    assert (done.traces, done.run, done.failed) == (12, 12, 0)
    return rows(out)


def sweep(traces: Any, out: Path, executor: Any = None, **options: Any) -> forerun.Sweep:
    """A sweep by `executor`, else by threads of this process, which start at once."""
    with ThreadPoolExecutor(2) as pool:
        return forerun.sweep(traces, POLICIES, SIZES, executor or pool, out, **options)


def test_rows_are_those_of_sim(traces: Path, expected: list[dict[str, Any]]) -> None:
    paths = sorted(str(path) for path in traces.iterdir())
    table = forerun.sim(paths, POLICIES, SIZES).drop_columns(OF_A_RUN[:2])
    of_sim = table.to_pylist()
    assert len(of_sim) == 12 * 3 * 2
    names = table.column_names
    key = lambda row: (row["trace"], row["policy"], row["cache_pages"])
    found = [{name: row[name] for name in names} for row in expected]
    assert sorted(found, key=key) == sorted(of_sim, key=key)
    assert {row["size"] for row in expected} == set(SIZES)


def test_the_folder_is_a_data_set(traces: Path, tmp_path: Path) -> None:
    sweep(traces / "t0*.u32le", tmp_path / "out")
    assert pyarrow.dataset.dataset(tmp_path / "out").count_rows() == 10 * 6
    record = json.loads((tmp_path / "out" / "_sweep.json").read_text())
    assert record["parameters"]["flags"] == [f"--policy={POLICIES}", "--size=10,10%"]
    assert record["runs"][0]["done"] == 10


def test_what_is_there_is_not_run_again(
    traces: Path, tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    assert sweep(traces / "t0[0-4]*", tmp_path).run == 5
    done = sweep([traces, traces], tmp_path)
    assert (done.traces, done.run) == (12, 7)
    assert sweep(traces, tmp_path).run == 0
    assert rows(tmp_path) == expected
    with pytest.raises(OptionError, match="another folder"):
        forerun.sweep(traces, "lru", SIZES, 2, tmp_path)


def test_the_largest_are_run_first(traces: Path, tmp_path: Path) -> None:
    class Noting(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
            names.append(Path(args[0].name).stem)
            return super().submit(fn, *args)

    names: list[str] = []
    with Noting(1) as pool:
        sweep(traces, tmp_path, pool)
    assert names == [f"t{number:02}" for number in reversed(range(12))]


def test_a_trace_that_cannot_be_read_is_a_row_with_its_error(traces: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.u32le.zst"
    broken.write_bytes(b"\x28\xb5\x2f\xfd of nothing")
    missing = tmp_path / "no-such.u32le"
    done = sweep([broken, missing, traces / "t00.u32le"], tmp_path / "out")
    assert (done.run, done.failed) == (3, 2)
    failed = {row["trace"]: row["error"] for row in rows(tmp_path / "out") if row["error"]}
    assert failed.keys() == {str(broken), str(missing)}
    assert "No such file" in failed[str(missing)]
    assert sweep([broken, missing, traces / "t00.u32le"], tmp_path / "out").run == 0


class Killing(Workers):
    """Workers of which one is killed by the first try of every third task."""

    def __init__(self) -> None:
        super().__init__(2)
        self.tried: set[str] = set()
        self.killed = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        name = args[0].name
        is_first = name not in self.tried
        self.tried.add(name)
        if is_first and len(self.tried) % 3 == 0:
            self.killed += 1
            return super().submit(signal.raise_signal, signal.SIGKILL)
        return super().submit(fn, *args, **kwargs)


def test_a_worker_that_is_killed_costs_no_row_and_doubles_none(
    traces: Path, tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    with Killing() as workers:
        done = sweep(traces, tmp_path, workers)
    assert workers.killed == 4 and done.failed == 0
    assert rows(tmp_path) == expected


def test_a_trace_that_kills_its_workers_becomes_an_error(traces: Path, tmp_path: Path) -> None:
    class Dying(Workers):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if args[0].name.endswith("t03.u32le"):
                return super().submit(os._exit, 7)
            return super().submit(fn, *args, **kwargs)

    with Dying(2) as workers:
        done = sweep(traces, tmp_path, workers, attempts=3)
    assert (done.run, done.failed) == (12, 1)
    errors = [row["error"] for row in rows(tmp_path) if row["error"]]
    assert errors == ["its worker was lost 3 times: the worker process ended with status 7"]


class Cut(Exception):
    """Ends a client."""


def test_a_client_that_ends_half_way_goes_on_where_it_was(
    traces: Path, tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    class Cutting(ThreadPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            # At most so many are ahead of what is done.
            if len(submitted) == 12:
                raise Cut
            submitted.append(args[0].name)
            return super().submit(fn, *args, **kwargs)

    submitted: list[str] = []
    again: list[str] = []
    with Cutting(1) as pool, pytest.raises(Cut):
        sweep([traces, "workload:streams,n=1,each=64K"], tmp_path, pool)
    there = {row["trace"] for row in rows(tmp_path)}
    assert 0 < len(there) < 13
    submitted = again
    with Cutting(1) as pool:
        sweep(traces, tmp_path, pool)
    assert not there & set(again)
    assert [row for row in rows(tmp_path) if "workload" not in row["trace"]] == expected


@pytest.mark.full
def test_a_pool_that_breaks_is_made_again_where_a_function_makes_it(
    traces: Path, tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    class Breaking(ProcessPoolExecutor):
        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if len(made) == 1 and args[0].name.endswith("t05.u32le"):
                return super().submit(os._exit, 1)
            return super().submit(fn, *args, **kwargs)

    made: list[Breaking] = []

    def make() -> Breaking:
        made.append(Breaking(1, get_context("spawn")))
        return made[-1]

    done = sweep(traces, tmp_path / "made", make)
    assert len(made) == 2 and done.failed == 0
    assert rows(tmp_path / "made") == expected
    made.clear()
    with make() as pool, pytest.raises(RunError, match="the executor is broken"):
        sweep(traces, tmp_path / "given", pool)


def test_two_sweeps_never_write_one_folder(tmp_path: Path) -> None:
    refused = pytest.raises(OptionError, match="another sweep")
    with DataSet(tmp_path, {}), refused, DataSet(tmp_path, {}):
        pass


def test_an_unfinished_part_is_dropped(
    traces: Path, tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    sweep(traces / "t00.u32le", tmp_path)
    (tmp_path / ".part-000001.parquet.tmp").write_bytes(b"PAR1 and no more")
    sweep(traces, tmp_path)
    assert rows(tmp_path) == expected
    assert not list(tmp_path.glob(".part*"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"policies": "lur"}, "the nearest is `lru`"),
        ({"sizes": "1..100/3"}, "no ranges"),
        ({"sizes": [10, "10"]}, "named twice"),
        ({"executor": "fast"}, "of type str"),
        ({"executor": -1}, "at least 1"),
        ({"traces": []}, "no traces"),
        ({"traces": "/no/such/*.zst"}, "no file has such a name"),
        ({"traces": [numpy.arange(3)]}, "takes paths"),
        ({"traces": "workload:mail,seed=1..3/3"}, "no ranges"),
        ({"attempts": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], told: str, tmp_path: Path) -> None:
    whole: dict[str, Any] = {"traces": "workload:mail", "policies": "lru", "sizes": "10"}
    with pytest.raises(OptionError, match=told):
        forerun.sweep(**(whole | arguments), out=tmp_path)


def test_workers_call_and_raise_and_outlive_a_death() -> None:
    with Workers(1) as workers:
        assert workers.submit(pow, 2, 10).result() == 1024
        with pytest.raises(ZeroDivisionError):
            workers.submit(divmod, 1, 0).result()
        first = workers.submit(os.getpid).result()
        with pytest.raises(WorkerDied, match="status 3"):
            workers.submit(os._exit, 3).result()
        assert workers.submit(os.getpid).result() != first
        # What a task prints is no result.
        assert workers.submit(print, "printed").result() is None


def test_workers_end_with_the_process_that_had_them() -> None:
    program = (
        "import os; from forerun._workers import Workers; workers = Workers(1); "
        "print(workers.submit(os.getpid).result(), flush=True); os.kill(os.getpid(), 9)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        process = os.pidfd_open(int(child.stdout.readline()))
        child.wait()
    with os.fdopen(process):
        select.select([process], [], [])


def forerun_command(*words: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "forerun", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_sweeps_and_draws(
    traces: Path, tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    out, page = tmp_path / "out", tmp_path / "page.html"
    flags = ["--policy", POLICIES, "--size", ",".join(SIZES), "--out", out, "--workers", 2]
    ended = forerun_command("sweep", traces, *flags, "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["run"] == 12
    assert rows(out) == expected
    ended = forerun_command("sweep", traces, *flags)
    assert ended.stdout.startswith("0 traces run in ") and ", 12 already there" in ended.stdout
    ended = forerun_command("report", out, "-o", page)
    assert (ended.returncode, ended.stderr) == (0, "")
    text = page.read_text()
    for part in ["Sweep of 12 traces", "Cache of 10%", "s3-fifo", "P50", "percentile of traces"]:
        assert part in text, part


def test_the_command_refuses_and_fails_in_one_line(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = forerun_command("sweep", traces, "--out", out, "--policy", "lur")
    assert ended.returncode == 2 and "the nearest is `lru`" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    ended = forerun_command("sweep", tmp_path / "no-such", "--out", out, "--policy", "lru")
    assert ended.returncode == 1 and "1 trace failed" in ended.stderr
    ended = forerun_command("report", tmp_path, "-o", tmp_path / "a.html")
    assert ended.returncode == 2 and "has no rows of a sweep" in ended.stderr
    assert not (tmp_path / "a.html").exists()
