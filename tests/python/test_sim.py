"""`forerun.sim` and `forerun.trace`: the rows of the command, from names, URLs and arrays."""

from __future__ import annotations

import doctest
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy
import pytest

import forerun
from forerun import OptionError, RunError, _forerun, _sim, _traces

TIMES = ("seconds", "accesses_per_second")
MAIL = "workload:mail,requests=10000"
STREAMS = "workload:streams,n=3,each=1M,order=alternate"


def command(trace: str, *flags: str) -> list[dict[str, Any]]:
    """The rows that the command prints, but for the times that it took."""
    words = [sys.executable, "-m", "forerun", "sim", trace, "--json", *flags]
    printed = subprocess.run(words, capture_output=True, check=True).stdout
    return [without_times(row) for row in json.loads(printed)["runs"]]


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in TIMES}


def as_json(table: Any) -> list[dict[str, Any]]:
    """The rows of a table as the command's JSON has them, but for the times."""
    return [without_times(plain(row)) for row in table.to_pylist()]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if value is not None}
    return {
        key: dict(value) if key == "params" else plain(value) if isinstance(value, dict) else value
        for key, value in kept.items()
    }


@pytest.mark.parametrize(
    ("trace", "flags", "options"),
    [
        pytest.param(
            MAIL,
            ["--policy=all,belady,2q:kin=0.1..0.5/3", "--size=100,1%,4M"],
            {"policies": ["all", "belady", "2q:kin=0.1..0.5/3"], "sizes": [100, "1%", "4M"]},
            id="every policy",
        ),
        pytest.param(MAIL, [], {"policies": "lru"}, id="the defaults"),
        pytest.param(
            MAIL,
            ["--policy=lru,arc", "--size=10%", "--sample=0.1"],
            {"policies": "lru,arc", "sizes": "10%", "sample": 0.1},
            id="a sample",
        ),
        pytest.param(
            MAIL,
            ["--policy=lru,arc", "--hits=0.3"],
            {"policies": "lru,arc", "hits": 0.3},
            id="the smallest size",
        ),
        pytest.param(
            STREAMS,
            ["--policy=lru,fifo", "--size=64K", "--bytes", "--limit=500"],
            {"policies": ("lru", "fifo"), "sizes": "64K", "bytes": True, "limit": 500},
            id="by bytes",
        ),
        pytest.param(
            "workload:compute,file=1M",
            [
                *("--device=hdd,ssd:connections=2", "--readahead=off,linux-6"),
                *("--prefetch=none,paper", "--size=2M"),
            ],
            {
                "sizes": "2M",
                "device": ["hdd", "ssd:connections=2"],
                "readahead": ["off", "linux-6"],
                "prefetch": ["none", "paper"],
            },
            id="in virtual time",
        ),
        pytest.param(
            "workload:random,file=1G,bytes=64M",
            ["--device=hdd", "--readahead=streams", "--size=2M"],
            {"sizes": "2M", "device": "hdd", "readahead": "streams"},
            id="on a device that is learnt",
        ),
        pytest.param(
            "workload:streams,n=8,each=1M",
            ["--device=hdd", "--readahead=streams", "--size=64M", "--remembered"],
            {"sizes": "64M", "device": "hdd", "readahead": "streams", "remembered": True},
            id="on a device that is remembered",
        ),
    ],
)
def test_rows_are_those_of_the_command(
    trace: str, flags: list[str], options: dict[str, Any]
) -> None:
    assert as_json(forerun.sim(trace, **options)) == command(trace, *flags)


def test_columns_are_in_the_order_of_json_and_those_without_a_value_are_left_out() -> None:
    table = forerun.sim(STREAMS, sizes=16)
    assert table.column_names == [
        *("trace", "policy", "params", "cache_pages", "accesses", "misses", "hit_ratio"),
        *("seconds", "accesses_per_second"),
    ]
    assert forerun.sim(STREAMS, sizes=16, bytes=True).column_names[-1] == "bytes"


def test_several_traces_have_a_row_each() -> None:
    table = forerun.sim([STREAMS, numpy.arange(100)], sizes=[10, 20])
    assert table.column("trace").to_pylist() == [STREAMS, STREAMS, "arrays", "arrays"]
    assert table.column("accesses").to_pylist() == [768, 768, 100, 100]


def test_a_trace_is_the_same_by_path_url_and_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    pages = [page for batch in forerun.trace(STREAMS, batch=100) for page in batch["page"]]
    path.write_text("".join(f"{page}\n" for page in pages))
    files = fsspec.filesystem("memory")
    files.pipe("/sim/a.txt", path.read_bytes())
    options: Any = {"policies": "all", "sizes": [10, "10%"]}
    expected = [row | {"trace": ""} for row in as_json(forerun.sim(STREAMS, **options))]
    for trace in (path, str(path), "memory://sim/a.txt", numpy.array(pages), {"page": pages}):
        rows = [row | {"trace": ""} for row in as_json(forerun.sim(trace, **options))]
        assert rows == expected, trace
    files.rm("/sim", recursive=True)


def test_a_trace_gives_the_arrays_that_it_was_made_of() -> None:
    arrays = {
        "page": numpy.array([5, 1, 2**63, 5], numpy.uint64),
        "bytes": numpy.array([4096, 1, 1 << 30, 7], numpy.uint64),
        "time": numpy.array([0, 10, 20, 30], numpy.uint64),
        "write": numpy.array([False, True, False, True]),
    }
    trace = forerun.trace(arrays)
    again = trace.arrays()
    assert again.keys() == arrays.keys()
    for key, array in arrays.items():
        assert (again[key] == array).all(), key
    assert forerun.trace(numpy.array([1, 2])).arrays().keys() == {"page"}
    assert trace.info["accesses"] == 4 and trace.info["unique"] == 3
    assert trace.info["read_share"] == 0.5
    row = forerun.sim(trace, sizes=1, bytes=True).to_pylist()[0]
    assert row["bytes"]["requested"] == 4096 + 1 + (1 << 30) + 7
    assert forerun.sim(trace, sizes=1, reads=True).column("accesses").to_pylist() == [2]
    with pytest.raises(forerun.RunError, match="whether it writes"):
        forerun.sim(numpy.array([1, 2]), sizes=1, reads=True)
    seconds = forerun.trace({"page": [1, 2], "time": [0.5, 1.25]}).arrays()["time"]
    assert seconds.tolist() == [500_000_000, 1_250_000_000]


def test_batches_are_of_the_size_that_was_asked_for() -> None:
    sizes = [len(batch["page"]) for batch in forerun.trace(STREAMS, batch=500)]
    assert sizes == [500, 268]


@pytest.mark.parametrize(
    ("trace", "options", "told"),
    [
        (STREAMS, {"policies": "lur"}, "the nearest is `lru`"),
        (STREAMS, {"sizes": 0}, "from 1 page"),
        (STREAMS, {"sizes": 0.1}, "a share"),
        (STREAMS, {"device": "hhd"}, "the nearest is `hdd`"),
        (STREAMS, {"remembered": True}, "--device"),
        (STREAMS, {"sample": 2}, "a share from"),
        (STREAMS, {"threads": 0}, "not in 1..=1024"),
        ("workload:strems", {}, "the nearest is `streams`"),
        ({"pages": [1]}, {}, "the nearest is 'page'"),
        ({"page": [1], "bytes": [1, 2]}, {}, "of one length"),
        ({"page": [-1]}, {}, "below 0"),
        ({"page": [0.5]}, {}, "expected integers"),
        ({"page": [[1]]}, {}, "2 dimensions"),
        ({"bytes": [1]}, {}, "a column `page`"),
        ([7], {}, "of type int"),
        ("-", {}, "a path, a URL"),
    ],
)
def test_what_cannot_be_is_refused(trace: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        forerun.sim(trace, **options)


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "a.spc"
    broken.write_text("0,1,512,R,1\n0,x,1,R,9\n")
    with pytest.raises(RunError, match="record 2 at byte 12 is broken"):
        forerun.sim(broken, format="spc", sizes=1)
    with pytest.raises(RunError, match="no-such"):
        forerun.sim(tmp_path / "no-such")
    with pytest.raises(RunError, match="no-such") as raised:
        forerun.sim("memory://no-such/a.txt")
    assert isinstance(raised.value.__cause__, FileNotFoundError)
    with pytest.raises(RunError, match="--memory allows"):
        forerun.sim("workload:random,file=1G,bytes=1G", sizes=1, memory="1M")


def test_an_exception_while_it_waits_ends_the_run() -> None:
    def interrupt(what: str, done: int, of: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    endless = ["--size=1000"]
    with pytest.raises(KeyboardInterrupt):
        _forerun.sim(endless, ["workload:random,file=100G,bytes=100G"], interrupt)

    def fail(what: str, done: int, of: int) -> None:
        raise ZeroDivisionError(what)

    with pytest.raises(ZeroDivisionError, match="simulating"):
        _forerun.sim(endless, ["workload:random,file=100G,bytes=100G"], fail)


@pytest.mark.parametrize(
    ("call", "package", "extra"),
    [
        ("sim('workload:mail')", "pyarrow", "sweep"),
        ("sweep('workload:mail')", "pyarrow", "sweep"),
        ("trace('workload:mail').arrays()", "numpy", "sweep"),
        ("plot(None)", "matplotlib", "sweep"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    call: str, package: str, extra: str
) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import forerun; forerun.{call}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    last = ended.stderr.decode().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert last.endswith(f"needs {package}: pip install 'forerun[{extra}]'")


def test_importing_loads_no_package_that_is_not_used() -> None:
    program = "import sys, forerun; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = {name.split(".")[0] for name in ended.stdout.decode().split()}
    assert not loaded & {"dask", "distributed", "matplotlib", "numpy", "pyarrow", "fsspec"}


@pytest.mark.parametrize("module", [_sim, _traces])
def test_examples_hold(module: Any) -> None:
    failed, tried = doctest.testmod(module, extraglobs={"forerun": forerun})
    assert tried > 0 and failed == 0


def test_a_plot_has_a_line_for_each_policy() -> None:
    table = forerun.sim([STREAMS, MAIL], "lru,2q:kin=0.1,2q:kin=0.5,belady", [10, 100])
    figure = forerun.plot(table)
    assert len(figure.axes) == 2
    # What a notebook shows.
    assert figure._repr_png_().startswith(b"\x89PNG")
    for axes in figure.axes:
        names = [text.get_text() for text in axes.get_legend().get_texts()]
        assert names == ["lru", "2q:kin=0.1,kout=0.5", "2q:kin=0.5,kout=0.5", "belady"]
        assert [list(line.get_xdata()) for line in axes.lines] == [[10, 100]] * 4
