"""What a sweep costs: seconds and bytes per million accesses, by policy; scheduling, by executor.

    python bench/python/sweep_costs.py all --traces DIR      every trace, policy and six sizes
    python bench/python/sweep_costs.py memory --traces DIR   peak memory by policy, of each trace
    python bench/python/sweep_costs.py scaling               one worker against two
    python bench/python/sweep_costs.py scheduling            10,000 small traces
    python bench/python/sweep_costs.py front --trace FILE    forerun.sim beside the command

Prints tables of Markdown. Figures are worth little beside other load.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import forerun

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
        done = forerun.sweep(options.traces, "all,belady", SIZES, out=out, progress=False)
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
    print(f"{done.traces} traces, {done.failed} failed, {len(rows)} rows, {one / 1e6:.1f} M accesses")
    print(f"{done.seconds:.1f} s, tasks {total:.1f} s, caches {sum(seconds.values()):.1f} s")
    print("\n| policy | s per M accesses and size |\n|---|---|")
    for policy in sorted(seconds, key=seconds.__getitem__):
        print(f"| {policy} | {seconds[policy] / accesses[policy] * 1e6:.4f} |")
    rest = total - sum(seconds.values())
    print(f"| reading, per M accesses of the trace | {rest / one * 1e6:.4f} |")


def memory(options: argparse.Namespace) -> None:
    """Peak memory of a process that runs one policy with a cache of 10 %, less that of none."""
    print("| trace | M accesses | M pages | policy | MB | bytes a page |\n|---|---|---|---|---|---|")
    for trace in sorted(options.traces.iterdir()):
        info = forerun.trace(trace).info
        base = peak_of(str(trace), "lru", 1)
        for policy in ["lru", "s3-fifo", "lirs", "w-tinylfu", "belady"]:
            taken = peak_of(str(trace), policy, None) - base
            pages = info["unique"]
            print(
                f"| {trace.name} | {info['accesses'] / 1e6:.2f} | {pages / 1e6:.3f} | {policy} "
                f"| {taken / 1e6:.1f} | {taken / pages:.0f} |"
            )


def peak_of(trace: str, policy: str, limit: int | None) -> int:
    program = (
        f"import resource, forerun; forerun.sim({trace!r}, {policy!r}, '10%', limit={limit}, threads=1)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    return int(subprocess.check_output([sys.executable, "-c", program])) << 10


def scaling(options: argparse.Namespace) -> None:
    """A sweep on LocalClusters of one worker and of two, in turns."""
    from distributed import Client, LocalCluster

    traces = [f"workload:mail,model=m1,requests=200000,seed={seed}" for seed in range(24)]
    took: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for count in took:
            cluster = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
            with cluster, Client(cluster) as client, tempfile.TemporaryDirectory() as out:
                forerun.sweep(traces[:2], "lru", ["1%"], client, Path(out) / "warm", progress=False)
                policies = "lru,s3-fifo,arc,lirs"
                done = forerun.sweep(traces, policies, SIZES, client, Path(out) / "x", progress=False)
                took[count].append(done.seconds)
    one, two = statistics.median(took[1]), statistics.median(took[2])
    print(f"one worker {one:.2f} s {took[1]}, two {two:.2f} s {took[2]}: {one / two:.2f} x")


def scheduling(options: argparse.Namespace) -> None:
    """10,000 traces of ten accesses, by executor; what the client's memory grows by."""
    from distributed import Client, LocalCluster

    with tempfile.TemporaryDirectory() as folder:
        traces = Path(folder) / "traces"
        traces.mkdir()
        for number in range(10_000):
            (traces / f"{number:05}.txt").write_text("".join(f"{page}\n" for page in range(10)))
        print("| executor | ms a trace | client MB before | after |\n|---|---|---|---|")
        cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        with cluster, Client(cluster) as client:
            for name, executor in [("processes", 2), ("dask", client)]:
                out = Path(folder) / name
                forerun.sweep(traces / "0[01]*", "lru", ["1"], executor, out, progress=False)
                forerun.sweep(traces / "02[0-4]*", "lru", ["1"], executor, out, progress=False)
                before = resident()
                done = forerun.sweep(traces, "lru", ["1"], executor, out, progress=False)
                each = done.seconds / done.run * 1e3
                print(f"| {name} | {each:.2f} | {before / 1e6:.0f} | {resident() / 1e6:.0f} |")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def front(options: argparse.Namespace) -> None:
    """`forerun.sim` beside the command, in turns: the command's time is without Python's start."""
    trace, policies, sizes = str(options.trace), "all", ["1%", "10%"]
    forerun.sim(trace, policies, sizes)
    took: dict[str, list[float]] = {"sim": [], "command": []}
    binary = os.environ["FORERUN"]
    for _ in range(options.rounds):
        begun = time.perf_counter()
        forerun.sim(trace, policies, sizes)
        took["sim"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        words = [binary, "sim", trace, "--policy", policies, "--size", ",".join(sizes), "--json"]
        json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        took["command"].append(time.perf_counter() - begun)
    sim, command = (statistics.median(took[name]) for name in ("sim", "command"))
    print(f"forerun.sim {sim:.3f} s, the command {command:.3f} s: {sim / command - 1:+.1%}")
    print(took)


PARTS: dict[str, Any] = {
    "all": sweep_all,
    "front": front,
    "memory": memory,
    "scaling": scaling,
    "scheduling": scheduling,
}
if __name__ == "__main__":
    main()
