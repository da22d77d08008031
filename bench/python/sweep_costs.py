"""What a sweep costs: seconds and bytes per million accesses, by policy; scheduling, by executor.

    python bench/python/sweep_costs.py all --traces DIR      every trace, policy and six sizes
    python bench/python/sweep_costs.py memory --traces DIR   peak memory by policy, of each trace
    python bench/python/sweep_costs.py scaling               one worker against two
    python bench/python/sweep_costs.py scheduling            10,000 small traces
    python bench/python/sweep_costs.py kills                 a worker killed in each of 20 sweeps
    python bench/python/sweep_costs.py rows --traces DIR     rows of forerun.sim and of the command
    python bench/python/sweep_costs.py front --trace FILE    forerun.sim beside the command

`front` and `rows` take the command from FORERUN, such as target/release/forerun.

Prints tables of Markdown. Figures are worth little beside other load.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forerun
from forerun._workers import Workers

if TYPE_CHECKING:
    from typing_extensions import Self

POLICIES = "all,belady"
SIZES = ["0.1%", "0.3%", "1%", "3%", "10%", "30%"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=sorted(PARTS))
    parser.add_argument("--traces", type=Path)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--out", type=Path, help="the folder of the sweep of `all`")
    parser.add_argument("--rounds", type=int, default=5)
    PARTS[parser.parse_args().what](parser.parse_args())


def sweep_all(options: argparse.Namespace) -> None:
    """All traces, policies and sizes, one process a processor; costs by policy from its rows."""
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder) / "sweep"
        done = forerun.sweep(files(options.traces), POLICIES, SIZES, out=out, progress=False)
        rows = done.table().to_pylist()
    seconds: dict[str, float] = defaultdict(float)
    accesses: dict[str, int] = defaultdict(int)
    of_trace = {}
    for row in rows:
        of_trace[row["trace"]] = row["trace_seconds"]
        if row["error"] is None:
            seconds[row["policy"]] += row["seconds"]
            accesses[row["policy"]] += row["accesses"]
    total = sum(of_trace.values())
    one = max(accesses.values()) / len(SIZES)
    print(
        f"{done.traces} traces, {done.failed} failed, {len(rows)} rows, {one / 1e6:.1f} M accesses"
    )
    print(f"{done.seconds:.1f} s, tasks {total:.1f} s, caches {sum(seconds.values()):.1f} s")
    print("\n| policy | s per M accesses and size |\n|---|---|")
    for policy in sorted(seconds, key=seconds.__getitem__):
        print(f"| {policy} | {seconds[policy] / accesses[policy] * 1e6:.4f} |")
    rest = total - sum(seconds.values())
    print(f"| reading, per M accesses of the trace | {rest / one * 1e6:.4f} |")


def memory(options: argparse.Namespace) -> None:
    """Peak memory of one policy with a cache of 30 %, and of a task with all policies and sizes;
    over the traces with 100,000 pages and more."""
    probe = forerun.sim("workload:streams,n=1,each=4K", POLICIES, [1])
    names = [*probe.column("policy").to_pylist(), POLICIES]
    taken: dict[str, list[float]] = {name: [] for name in names}
    for trace in files(options.traces):
        pages = forerun.trace(trace).info["unique"]
        if pages >= 100_000:
            for name, of_policy in taken.items():
                sizes = SIZES if name == POLICIES else ["30%"]
                of_policy.append(peak_of(str(trace), name, sizes) / pages)
    print(f"bytes a page, over {len(taken[POLICIES])} traces; the last is a task of a sweep")
    print("\n| policy | least | median | most |\n|---|---|---|---|")
    for name, each in taken.items():
        print(f"| {name} | {min(each):.0f} | {statistics.median(each):.0f} | {max(each):.0f} |")


def peak_of(trace: str, policies: str, sizes: list[str]) -> int:
    """What a process takes beyond what it has once its packages are loaded."""
    program = (
        "import forerun\n"
        "def kib(key):\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    return next(int(line.split()[1]) for line in lines if line.startswith(key))\n"
        "forerun.sim('workload:streams,n=1,each=4K', 'lru', [1])\n"
        "before = kib('VmRSS:')\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"
        f"forerun.sim({trace!r}, {policies!r}, {sizes!r}, threads=1)\n"
        "print(kib('VmHWM:') - before)"
    )
    return int(subprocess.check_output([sys.executable, "-c", program])) << 10


def scaling(options: argparse.Namespace) -> None:
    """A sweep on LocalClusters of one worker and of two, in turns; of short traces, and of long."""
    for traces, requests in [(24, 200_000), (12, 1_000_000)]:
        took: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(options.rounds):
            for count, seconds in took.items():
                seconds.append(on_a_cluster(count, traces, requests))
        one, two = statistics.median(took[1]), statistics.median(took[2])
        print(f"{traces} traces of {requests} requests: {one / two:.2f} x")
        print(f"  one worker {one:.2f} s {took[1]}, two {two:.2f} s {took[2]}", flush=True)


def on_a_cluster(workers: int, count: int, requests: int) -> float:
    """The seconds of a sweep of so many traces; its workers have loaded their packages before."""
    from distributed import Client, LocalCluster

    traces = [f"workload:mail,model=m1,requests={requests},seed={seed}" for seed in range(count)]
    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client, tempfile.TemporaryDirectory() as out:
        short = [f"workload:mail,requests=1000,seed={seed}" for seed in range(2 * workers)]
        forerun.sweep(short, "lru", ["1%"], client, Path(out) / "warm", progress=False)
        policies = "lru,s3-fifo,arc,lirs"
        done = forerun.sweep(traces, policies, SIZES, client, Path(out) / "x", progress=False)
        return done.seconds


def scheduling(options: argparse.Namespace) -> None:
    """10,000 traces of ten accesses, by executor; what the client's memory grows by. The scheduler
    of Dask is a process of its own, as on a cluster."""
    from distributed import Client
    from distributed.deploy.subprocess import SubprocessCluster

    with tempfile.TemporaryDirectory() as folder:
        traces = Path(folder) / "traces"
        traces.mkdir()
        for number in range(10_000):
            (traces / f"{number:05}.txt").write_text("".join(f"{page}\n" for page in range(10)))
        print(
            "| executor | rows a trace | ms a trace | client MB, by quarters |\n|---|---|---|---|"
        )
        cluster = SubprocessCluster(n_workers=2, worker_kwargs={"nthreads": 1})
        with cluster, Client(cluster) as client:
            executors = [("processes", 2), ("dask", client)]
            for policies, sizes in [("lru", ["1"]), ("all,belady", ["1", "2", "3", "4", "5", "6"])]:
                for name, executor in executors:
                    out = Path(folder) / f"{name}-{len(sizes)}"
                    forerun.sweep(traces / "0[01]*", policies, sizes, executor, out, progress=False)
                    with Resident() as seen:
                        done = forerun.sweep(traces, policies, sizes, executor, out, progress=False)
                    each, rows = done.seconds / done.run * 1e3, done.table().num_rows / 10_000
                    print(f"| {name} | {rows:.0f} | {each:.2f} | {seen.quarters()} |", flush=True)


class Resident(threading.Thread):
    """What this process has in memory, every fifth of a second of a block."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ends = threading.Event()
        self._megabytes = [round(resident() / 1e6)]

    def run(self) -> None:
        while not self._ends.wait(0.2):
            self._megabytes.append(round(resident() / 1e6))

    def quarters(self) -> str:
        """At the start, after each quarter of the time, and at the end."""
        last = len(self._megabytes) - 1
        return ", ".join(str(self._megabytes[last * part // 4]) for part in range(5))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.join()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def front(options: argparse.Namespace) -> None:
    """`forerun.sim` beside the command, in turns: wall time, and processor time of all threads."""
    trace, policies, sizes = str(options.trace), "all", ["1%", "10%"]
    words = [os.environ["FORERUN"], "sim", trace]
    words += ["--policy", policies, "--size", ",".join(sizes), "--json"]
    took: dict[str, list[tuple[float, float]]] = {"sim": [], "command": []}
    forerun.sim(trace, policies, sizes)
    for number in range(options.rounds * 2):
        # Each is first as often as the other.
        name = ("sim", "command", "command", "sim")[number % 4]
        begun = time.perf_counter(), processor_seconds()
        if name == "sim":
            forerun.sim(trace, policies, sizes)
        else:
            json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        took[name].append((time.perf_counter() - begun[0], processor_seconds() - begun[1]))
    for which, what in enumerate(["wall", "processor"]):
        each = {name: [pair[which] for pair in pairs] for name, pairs in took.items()}
        sim, command = (statistics.median(each[name]) for name in ("sim", "command"))
        best = min(each["sim"]) / min(each["command"]) - 1
        print(f"{what}: sim {sim:.3f} s, the command {command:.3f} s: {sim / command - 1:+.1%}")
        print(f"  of the fastest {best:+.1%}; {each}")


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def rows(options: argparse.Namespace) -> None:
    """Compares the rows of every policy, but for times, of each trace."""
    policies, sizes = POLICIES, SIZES
    count = 0
    for trace in files(options.traces):
        words = ["sim", str(trace), "--policy", policies, "--size", ",".join(sizes), "--json"]
        ended = subprocess.run([os.environ["FORERUN"], *words], capture_output=True, check=False)
        try:
            found = [plain(row) for row in forerun.sim(trace, policies, sizes).to_pylist()]
        except forerun.RunError as error:
            assert ended.returncode != 0, trace
            print(f"{trace.name}: neither reads it: {error}")
            continue
        expected = [
            {key: value for key, value in row.items() if key not in TIMES}
            for row in json.loads(ended.stdout)["runs"]
        ]
        assert found == expected, trace
        count += len(found)
    print(f"{count} rows are equal")


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table as the command's JSON has it, without times."""
    kept = {key: value for key, value in row.items() if value is not None and key not in TIMES}
    return kept | {"params": dict(kept["params"])}


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix != ".md")


def kills(options: argparse.Namespace) -> None:
    """Sweeps of 60 traces, in each of which a worker is killed at a random moment."""
    from distributed import Client, LocalCluster

    numbers = random.Random(1)
    traces = [f"workload:mail,model=m1,requests=50000,seed={seed}" for seed in range(60)]
    with tempfile.TemporaryDirectory() as folder:
        whole = forerun.sweep(
            traces, KILLED, KILLED_SIZES, 2, Path(folder) / "whole", progress=False
        )
        for name in ("processes", "dask"):
            equal, again = 0, 0
            for number in range(20):
                out = Path(folder) / f"{name}-{number}"
                moment = numbers.uniform(0, whole.seconds)
                if name == "processes":
                    with Workers(2) as pool:
                        done = sweep_killed(traces, out, pool, pool.processes, moment)
                else:
                    options_of: dict[str, Any] = {
                        "threads_per_worker": 1,
                        "dashboard_address": None,
                    }
                    cluster = LocalCluster(n_workers=2, **options_of)
                    with cluster, Client(cluster) as client:
                        done = sweep_killed(traces, out, client, partial(nannied, cluster), moment)
                again += forerun.sweep(traces, KILLED, KILLED_SIZES, 1, out, progress=False).run
                equal += keyed(done.table()) == keyed(whole.table())
            print(f"{name}: {equal} of 20 data sets are equal, {again} traces run again afterwards")


def sweep_killed(traces: list[str], out: Path, executor: Any, find: Any, moment: float) -> Any:
    """A sweep, `moment` seconds after whose start a process that `find` names is killed."""

    def kill() -> None:
        found = find()
        while not found:
            found = find()
        os.kill(random.choice(found), signal.SIGKILL)

    timer = threading.Timer(moment, kill)
    timer.start()
    done = forerun.sweep(traces, KILLED, KILLED_SIZES, executor, out, progress=False)
    timer.cancel()
    timer.join()
    return done


def nannied(cluster: Any) -> list[int]:
    return [nanny.pid for nanny in cluster.workers.values() if nanny.pid is not None]


def keyed(table: Any) -> list[Any]:
    """Rows in order, without what a run of its own has."""
    own = [*TIMES, "trace_seconds", "host", "commit"]
    found: list[Any] = table.drop_columns(own).to_pylist()
    return sorted(found, key=lambda row: (row["trace"], row["policy"], row["size"]))


TIMES = ("seconds", "accesses_per_second")
KILLED, KILLED_SIZES = "lru,s3-fifo,arc,belady", ["1%", "10%"]
PARTS: dict[str, Any] = {
    "all": sweep_all,
    "front": front,
    "kills": kills,
    "memory": memory,
    "rows": rows,
    "scaling": scaling,
    "scheduling": scheduling,
}
if __name__ == "__main__":
    main()
