"""A local HTTP server of byte ranges, for tests and benches: `forerun-compare range-server` as a child.

    with RangeServer(pattern="1G", latency="30ms", rate="90M") as server:
        read(server.url + "/any/name")
        assert server.counts()["requests"] == 1

The command is the one that the environment variable FORERUN_COMPARE names, or the one built in this
repository, a release first.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

PATTERN_STEP = 0x9E3779B97F4A7C15
ROOT = Path(__file__).resolve().parents[2]
END_SECONDS_MAX = 60


def pattern(start: int, end: int) -> bytes:
    """The bytes of the served pattern from `start` up to `end`."""
    first, last = start // 8, -(-end // 8)
    words = [index * PATTERN_STEP % 2**64 for index in range(first, last)]
    return struct.pack(f"<{len(words)}Q", *words)[start - 8 * first : end - 8 * first]


def program() -> Path:
    """The command that serves."""
    named = os.environ.get("FORERUN_COMPARE")
    if named:
        return Path(named)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    for profile in ("release", "debug"):
        built = target / profile / "forerun-compare"
        if built.exists():
            return built
    raise FileNotFoundError(f"no forerun-compare in {target}: run `cargo build -p forerun-compare`")


class RangeServer:
    """Serves a pattern of a size, or a folder, while it is entered.

    Times, rates and faults are as on the command line: "30ms", "90M", "short:3".
    """

    def __init__(
        self,
        pattern: int | str | None = None,
        dir: str | os.PathLike[str] | None = None,
        latency: str | None = None,
        rate: str | None = None,
        fault: str | None = None,
    ) -> None:
        given = {
            "--pattern": pattern,
            "--dir": dir,
            "--latency": latency,
            "--rate": rate,
            "--fault": fault,
        }
        self._options = [
            word
            for name, value in given.items()
            if value is not None
            for word in (name, os.fspath(value) if name == "--dir" else str(value))
        ]
        self._child: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> RangeServer:
        # The child ends when its standard input does, even if this process is killed.
        command = [str(program()), "range-server", *self._options]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self._child.stdout is not None
        self.url = self._child.stdout.readline().strip()
        if not self.url:
            self._end()
            raise RuntimeError(f"{' '.join(command)}: it does not serve")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def counts(self) -> dict[str, Any]:
        """Requests, bytes, connections, in_flight_max and sizes of the GETs so far."""
        return self._control("counts")

    def reset(self) -> None:
        """Sets the counts to zero."""
        self._control("reset")

    def set(
        self, latency: str | None = None, rate: str | None = None, fault: str | None = None
    ) -> None:
        """Changes what is given, for the requests to come; "0" and "none" are none."""
        for name, value in (("latency", latency), ("rate", rate), ("fault", fault)):
            if value is not None:
                self._control(f"{name}/{value}")

    def _control(self, words: str) -> dict[str, Any]:
        with DIRECT.open(f"{self.url}/-/{words}") as answer:
            return json.load(answer)

    def _end(self) -> None:
        assert self._child is not None
        with self._child as child:
            assert child.stdin is not None
            child.stdin.close()
            try:
                child.wait(END_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                child.kill()
                raise


# Without the proxy that the environment may name: the server is on this machine.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
