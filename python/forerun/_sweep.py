"""`forerun.sweep`: many traces through many caches, on all processors, or on many machines.

    traces, largest first --> tasks, a trace each --> executor --> workers    _forerun.sim
                                                                      |
    data set <-- a part each few seconds <-- the client <-- rows -----+

The client alone writes, so that workers need no common file system but for the traces. A task whose
worker was lost is submitted again; a trace that cannot be read becomes a row with its error. What
the client holds does not grow: a few tasks for each worker are submitted, and rows are written
within seconds.
"""

from __future__ import annotations

import glob
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    wait,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from forerun import _forerun
from forerun._dataset import DataSet
from forerun._dataset import schema as schema_of_sweeps
from forerun._needs import load
from forerun._progress import Progress
from forerun._sim import check_columns, row_with_maps, sim_flags
from forerun._traces import given, is_one, is_url
from forerun._workers import Workers
from forerun.errors import OptionError, RunError

if TYPE_CHECKING:
    import matplotlib.figure
    import pyarrow


class Sweep(NamedTuple):
    """How a sweep ended; its rows are in the folder."""

    path: Path
    """The folder of the data set: `pyarrow.dataset.dataset(path)`."""
    traces: int
    """How many were asked for."""
    run: int
    """How many of them were run now; the others were there already."""
    failed: int
    """How many of these became a row with an error."""
    seconds: float
    """How long it took."""

    def table(self) -> pyarrow.Table:
        """All rows of the data set."""
        return read(self.path)

    def plot(self) -> matplotlib.figure.Figure:
        """The picture of `forerun report`, by matplotlib: by how much each policy reduces the
        misses of LRU, or of FIFO, over the percentiles of the traces; a chart a size.
        """
        from forerun._reduction import Reductions

        return Reductions(self.path).figure()


def sweep(
    traces: Any,
    policies: str | Iterable[str] = "all",
    sizes: Any = ("0.1%", "0.3%", "1%", "3%", "10%", "30%"),
    executor: Any = None,
    out: str | os.PathLike[str] = "sweep",
    *,
    readahead: str | Iterable[str] | None = None,
    device: str | Iterable[str] | None = None,
    sample: float | None = None,
    bytes: bool = False,
    reads: bool = False,
    limit: int | None = None,
    format: str | None = None,
    skip_bad: int | None = None,
    threads: int = 1,
    memory: int | str | None = None,
    attempts: int = 10,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Sweep:
    """Run every policy with every size on each trace, and add the rows to a Parquet data set.

    What the data set has already is not run again, so that the same call goes on where one was cut.

    Parameters
    ----------
    traces:
        Paths, folders, patterns (``"*.zst"``), URLs that fsspec opens, workloads; one or many.
    policies, sizes:
        As of `sim`; a size names a class of its own, so there are no ranges of sizes.
    executor:
        What runs the tasks: a number of processes of this machine [default: one a processor], a
        `dask.distributed.Client`, any executor of `concurrent.futures`, or a function that makes
        one, which is called again where one is broken.
    out:
        The folder of the data set.
    readahead, device, sample, bytes, reads, limit, format, skip_bad, storage_options:
        As of `sim`.
    threads, memory:
        Of one task [default: what its worker has, divided by its tasks].
    attempts:
        How often a trace is run whose worker was lost.
    progress:
        Whether to show how far it is [default: in a terminal and in a notebook].

    Raises
    ------
    OptionError
        An option cannot be, or the folder has rows of other parameters.
    RunError
        The executor is broken, and cannot be made again. What was done is written.
    ModuleNotFoundError
        pyarrow is not installed.
    """
    load("pyarrow", "forerun.sweep")
    if threads < 1 or attempts < 1:
        raise OptionError("threads and attempts are at least 1")
    labels = _labels(sizes)
    of_rows = sim_flags(
        policies,
        labels,
        readahead=readahead,
        device=device,
        sample=sample,
        bytes=bytes,
        reads=reads,
        limit=limit,
        format=format,
        skip_bad=skip_bad,
    )
    # What cannot be is refused here, and not once for each trace.
    _forerun.sim([*of_rows, "--limit=1"] if limit is None else of_rows, [_PROBE])
    names = _expanded(traces)
    begun = time.monotonic()
    runner = _runner(executor, threads, memory)
    with (
        Progress(progress) as shown,
        DataSet(out, {"flags": of_rows, "commit": _forerun.commit()}) as data,
    ):
        left = _tasks(names, data, labels, of_rows, storage_options)
        line = _Line(shown, len(names), len(left))
        record = {"host": socket.gethostname(), "executor": runner.name, "traces": len(left)}
        data.record["runs"].append(
            record | {"started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        )
        data.write_record()
        try:
            _run(left, runner, data, attempts, line)
        finally:
            runner.close()
            data.save()
            last = data.record["runs"][-1]
            last["seconds"] = round(time.monotonic() - begun, 3)
            last["done"], last["failed"] = line.done, line.failed
            data.write_record()
    return Sweep(Path(out), len(names), line.done, line.failed, time.monotonic() - begun)


def read(folder: str | os.PathLike[str]) -> pyarrow.Table:
    """All rows of the data set in `folder`."""
    load("pyarrow", "a data set of forerun.sweep")
    import pyarrow.parquet

    parts = sorted(Path(folder).glob("part-*.parquet"))
    if not parts:
        raise OptionError(f"{folder}: has no rows of a sweep")
    tables = [pyarrow.parquet.read_table(part, schema=schema_of_sweeps()) for part in parts]
    return pyarrow.concat_tables(tables)


@dataclass
class Task:
    """One trace, with all its policies and sizes."""

    name: str
    given: Any
    labels: list[str]
    words: list[str]
    trace_bytes: int | None
    losses: float = field(default=0, compare=False)


def work(task: Task) -> bytes:
    """What a worker does: the rows of `task`, as a stream of Arrow."""
    begun = time.monotonic()
    rows: list[dict[str, Any]]
    try:
        import json

        rows = json.loads(_forerun.sim(task.words, [task.given]))
        for number, row in enumerate(rows):
            check_columns(row)
            row["trace"], row["size"] = task.name, task.labels[number % len(task.labels)]
    except Exception as error:
        rows = [{"error": str(error) or type(error).__name__}]
    return _stream(task, rows, time.monotonic() - begun)


def _stream(task: Task, rows: list[dict[str, Any]], seconds: float) -> bytes:
    """`rows` with what is known of the task, as a stream of Arrow."""
    import pyarrow

    of_task = {
        "trace": task.name,
        "trace_bytes": task.trace_bytes,
        "trace_seconds": seconds,
        "host": socket.gethostname(),
        "commit": _forerun.commit(),
    }
    whole = [row_with_maps(row | of_task) for row in rows]
    table = pyarrow.Table.from_pylist(whole, schema=schema_of_sweeps())
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _run(tasks: list[Task], runner: _Runner, data: DataSet, attempts: int, line: _Line) -> None:
    """Has every task run, and its rows added once."""
    import pyarrow

    queue, pending = deque(tasks), dict[Future[Any], Task]()
    while queue or pending:
        while queue and len(pending) < runner.window():
            task = queue.popleft()
            try:
                pending[runner.submit(task)] = task
            except BrokenExecutor as error:
                queue.appendleft(task)
                if not pending:
                    runner.renew(error)
                break
        timeout = min(_LOOK_SECONDS, data.seconds_left() or _LOOK_SECONDS)
        done, _ = wait(pending, timeout=timeout, return_when=FIRST_COMPLETED)
        for future in done:
            task = pending.pop(future)
            try:
                rows = future.result()
            except ImportError:
                # No worker has the package.
                raise
            except Exception as error:
                # Of a pool that breaks as a whole, all share the one loss.
                is_shared = isinstance(error, BrokenExecutor)
                task.losses += 1 / len(done) if is_shared else 1
                if task.losses < attempts:
                    # Behind the others: they may not need what this one does.
                    queue.append(task)
                    continue
                lost = {"error": f"its worker was lost {task.losses:.0f} times: {error}"}
                rows = _stream(task, [lost], 0.0)
            table = pyarrow.ipc.open_stream(rows).read_all()
            data.add(table)
            line.ended(table.column("error").null_count == 0)
        data.save_if_due()


class _Line:
    """How far a sweep is."""

    def __init__(self, shown: Progress, all_traces: int, left: int) -> None:
        self._shown, self._all, self._left = shown, all_traces, left
        self._begun = time.monotonic()
        self.done = self.failed = 0

    def ended(self, is_failed: bool) -> None:
        self.done += 1
        self.failed += is_failed
        seconds = time.monotonic() - self._begun
        left = seconds / self.done * (self._left - self.done)
        text = f"{self._all - self._left + self.done} of {self._all} traces, {left:.0f} s left"
        self._shown.line(text + (f", {self.failed} failed" if self.failed else ""))


class _Runner:
    """An executor, and how many tasks it has at a time."""

    def __init__(
        self,
        name: str,
        executor: Any,
        *,
        workers: Callable[[], int | None],
        words: list[str],
        make: Callable[[], Any] | None = None,
        is_own: bool = False,
    ) -> None:
        self.name = name
        self._executor, self._make, self._is_own = executor, make, is_own
        self._workers, self._words = workers, words

    def window(self) -> int:
        """Tasks that are submitted at a time: each worker has its next one."""
        return 2 * (self._workers() or _WORKERS_UNKNOWN) + _AHEAD

    def submit(self, task: Task) -> Future[Any]:
        sent = Task(task.name, task.given, task.labels, task.words + self._words, task.trace_bytes)
        future: Future[Any] = self._executor.submit(work, sent)
        return future

    def renew(self, error: BaseException) -> None:
        """Another executor in place of a broken one."""
        if self._make is None:
            raise RunError(
                f"the executor is broken ({error}): the same call goes on with another one, and a "
                "function that makes executors is called again"
            ) from error
        self._executor.shutdown(wait=False)
        self._executor = self._make()

    def close(self) -> None:
        if self._is_own:
            self._executor.shutdown(wait=True, cancel_futures=True)


def _runner(executor: Any, threads: int, memory: int | str | None) -> _Runner:
    """What runs tasks for `executor`."""
    words = [f"--threads={threads}"]
    if memory is not None:
        words.append(f"--memory={memory}")
    if executor is None or isinstance(executor, int):
        count = executor or max(len(os.sched_getaffinity(0)) // threads, 1)
        if count < 1:
            raise OptionError(f"{count} processes: at least 1")
        if memory is None:
            words.append(f"--memory={_per_task(_free_bytes(), count)}")
        own = Workers(count)
        return _Runner("processes", own, workers=lambda: count, words=words, is_own=True)
    if _is_dask(executor):
        return _of_dask(executor, words, memory)
    if isinstance(executor, Executor):
        made, make = executor, None
    elif callable(executor):
        made, make = executor(), executor
    else:
        raise OptionError(
            f"an executor of type {type(executor).__name__}: expected a number, a Client of dask, "
            "an executor of concurrent.futures, or a function that makes one"
        )
    known: int | None = getattr(made, "_max_workers", None)
    if memory is None and known is not None:
        words.append(f"--memory={_per_task(_free_bytes(), known)}")
    return _Runner(
        type(made).__name__,
        made,
        workers=lambda: known,
        words=words,
        make=make,
        is_own=make is not None,
    )


def _is_dask(executor: Any) -> bool:
    kinds = type(executor).__mro__
    return any(
        kind.__module__.startswith("distributed.") and kind.__name__ == "Client" for kind in kinds
    )


def _of_dask(client: Any, words: list[str], memory: int | str | None) -> _Runner:
    """A Client of dask: where its workers have a resource `memory`, each task takes its part."""
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
    except TypeError:
        # Before 2025 it told of all.
        workers = client.scheduler_info()["workers"].values()
    shares = [
        _per_task(worker["memory_limit"], worker["nthreads"])
        for worker in workers
        if worker["memory_limit"]
    ]
    if memory is None and shares:
        memory = min(shares)
        words = [*words, f"--memory={memory}"]
    options: dict[str, Any] = {"pure": False}
    if workers and all("memory" in worker.get("resources", {}) for worker in workers):
        if not isinstance(memory, int):
            raise OptionError("memory: workers have it as a resource: give a number of bytes")
        options["resources"] = {"memory": memory}

    def count() -> int:
        return sum(client.nthreads().values())

    return _Runner("dask", client.get_executor(**options), workers=count, words=words)


def _per_task(memory: int, tasks: int) -> int:
    """What the simulation of a task may take: the rest is Python's and the allocator's."""
    return max(memory * 8 // 10 // tasks, 1 << 20)


def _free_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 30


def _labels(sizes: Any) -> list[str]:
    """The sizes, a class each."""
    one = isinstance(sizes, str) or not isinstance(sizes, Iterable)
    labels = [part for size in ([sizes] if one else sizes) for part in str(size).split(",")]
    for label in labels:
        if ".." in label:
            raise OptionError(f"size {label!r}: a sweep has no ranges of sizes: name each")
    if len(set(labels)) < len(labels):
        raise OptionError("a size is named twice")
    return labels


def _expanded(traces: Any) -> dict[str, int | None]:
    """The names of all traces, each with its bytes where they are known."""
    names: dict[str, int | None] = {}
    for trace in [traces] if is_one(traces) else traces:
        if not isinstance(trace, str | os.PathLike):
            raise OptionError(
                f"a trace of type {type(trace).__name__}: a sweep takes paths, URLs and workloads"
            )
        names.update(_one_expanded(os.fspath(trace)))
    if not names:
        raise OptionError("no traces")
    return names


def _one_expanded(text: str) -> dict[str, int | None]:
    if text.startswith("workload:"):
        if ".." in text:
            raise OptionError(f"{text}: a sweep has no ranges of workloads: name each")
        return {text: None}
    if is_url(text):
        return _urls(text)
    if os.path.isdir(text):
        found = (os.path.join(folder, name) for folder, _, names in os.walk(text) for name in names)
        return {path: _bytes_of(path) for path in sorted(found) if "/." not in path}
    if glob.has_magic(text) and not os.path.exists(text):
        found = (path for path in sorted(glob.glob(text, recursive=True)) if os.path.isfile(path))
        paths = {path: _bytes_of(path) for path in found}
        if not paths:
            raise OptionError(f"{text}: no file has such a name")
        return paths
    return {text: _bytes_of(text)}


def _urls(url: str) -> dict[str, int | None]:
    """The files that a pattern in a URL names."""
    if not any(letter in url for letter in "*["):
        return {url: None}
    from fsspec.core import url_to_fs

    fs, pattern = url_to_fs(url)
    found = fs.glob(pattern, detail=True)
    if not found:
        raise OptionError(f"{url}: no file has such a name")
    return {fs.unstrip_protocol(path): facts.get("size") for path, facts in sorted(found.items())}


def _bytes_of(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        # It becomes a row with its error.
        return None


def _tasks(
    names: dict[str, int | None],
    data: DataSet,
    labels: list[str],
    words: list[str],
    storage_options: Mapping[str, Any] | None,
) -> list[Task]:
    """What is left to run, the largest first."""
    for name, count in names.items():
        if count != data.done.get(name, count):
            raise OptionError(
                f"{name}: has {count} bytes, and had {data.done[name]} when it was run into "
                f"{data.folder}: name another folder"
            )
    left = sorted(
        ((name, count) for name, count in names.items() if name not in data.done),
        key=lambda item: (-(item[1] or 0), item[0]),
    )
    return [Task(name, given(name, storage_options), labels, words, count) for name, count in left]


# A run of one access, which says whether the flags are sound.
_PROBE = "workload:streams,n=1,each=4K"
# Tasks that wait at each executor, so that short ones do not wait for the client.
_AHEAD = 8
_WORKERS_UNKNOWN = 28
_LOOK_SECONDS = 1.0
