"""What a process learns of a host is known to the next one, from its first window on."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from range_server import RangeServer

from forerun import _hosts

MIB = 1 << 20

READS = """
import sys, fsspec, forerun
url, options, *places = sys.argv[1:]
with fsspec.open(url, cache_type="forerun", cache_options=eval(options)) as file:
    for at in map(int, places):
        file.seek(at)
        assert len(file.read(4096)) == 4096
"""


def read(url: str, state: Path, *places: int, options: str = "{}", learn: str = "auto") -> None:
    """Reads 4 KiB at each of `places` in a process of its own, whose state is in `state`."""
    words = [sys.executable, "-c", READS, url, options, *map(str, places)]
    here = {"XDG_STATE_HOME": str(state), "FORERUN_LEARN": learn}
    done = subprocess.run(
        words, env={**os.environ, **here}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def lines(state: Path) -> list[str]:
    """The lines of hosts that are kept."""
    path = state / "forerun" / "devices"
    text = path.read_text() if path.exists() else ""
    return [line for line in text.splitlines() if line.startswith("host ")]


APART = [(nth * 37 + 5) % 100 * MIB + 12345 for nth in range(12)]


def test_what_one_process_learnt_is_kept_by_the_name_of_the_host(tmp_path: Path) -> None:
    with RangeServer(pattern=128 * MIB, latency="20ms") as server:
        read(f"{server.url}/file", tmp_path, *APART)
        (line,) = lines(tmp_path)
        name, record = line.split("\t")
        assert name == f"host {server.url}"
        kind, access, *_, seen, doubts = record.split(" ")
        assert int(access) >= 20_000_000
        assert "a" in seen and doubts == "0" and kind in ("parallel", "positional")
    mode = stat.S_IMODE((tmp_path / "forerun" / "devices").stat().st_mode)
    assert mode == 0o600, "another user is not to know what is read"


def test_a_slow_host_has_a_small_window_from_the_first_read_on(tmp_path: Path) -> None:
    with RangeServer(pattern=128 * MIB) as server:
        url = f"{server.url}/file"
        read(url, tmp_path, 0)
        assert server.counts()["bytes"] == MIB, "the first window of an unknown host"
        folder = tmp_path / "forerun"
        folder.mkdir(mode=0o700, exist_ok=True)
        devices = folder / "devices"
        record = "parallel 30000000 8000000 4 65536 kar 0"
        devices.write_text(f"forerun-devices 1\nhost {server.url}\t{record}\n")
        devices.chmod(0o600)
        rows = [
            ("remembered", {}, 245_760),
            ("by the option", {"options": "{'remember': False}"}, MIB),
            ("by the environment", {"learn": "off"}, MIB),
        ]
        for why, how, most in rows:
            server.reset()
            read(url, tmp_path, 0, **how)
            fetched = server.counts()["bytes"]
            assert fetched <= most if why == "remembered" else fetched == most, (why, fetched)
        assert record in devices.read_text(), "one read is no evidence"


@pytest.mark.parametrize("what", ["a file", "of others", "nonsense"])
def test_where_nothing_can_be_kept_nothing_is_said(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "forerun"
    if what == "a file":
        folder.write_text("")
    else:
        folder.mkdir(mode=0o700)
    if what == "of others":
        folder.chmod(0o777)
    if what == "nonsense":
        (folder / "devices").write_bytes(b"\xff" * 100)
    with RangeServer(pattern=128 * MIB) as server:
        read(f"{server.url}/file", tmp_path, *APART)
    assert len(lines(tmp_path) if what == "nonsense" else []) == (what == "nonsense")


class _File:
    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)

    def fetch(self) -> None:
        """A fetcher as file systems give it."""


class _System:
    def __init__(self, protocol: object, host: str | None = None) -> None:
        self.protocol = protocol
        if host is not None:
            self.host = host


@pytest.mark.parametrize(
    ("why", "fields", "name"),
    [
        ("a URL", {"url": "https://a.org:81/b?c"}, "https://a.org:81"),
        ("no password", {"url": "https://u:p@a.org/b"}, "https://a.org"),
        ("a bucket", {"fs": _System(("s3", "s3a")), "path": "b/c"}, "s3://b"),
        ("a host", {"fs": _System("sftp", "h"), "path": "/b/c"}, "sftp://h"),
        ("neither", {"fs": _System("x"), "path": "/b/c"}, None),
        ("no file", {}, None),
        ("odd", {"url": "http://[::1"}, None),
    ],
)
def test_a_store_is_named_by_host_or_bucket(
    why: str, fields: dict[str, object], name: str | None
) -> None:
    assert _hosts.name_of(_File(**fields).fetch) == name, why


def test_hosts_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("FORERUN_LEARN")
    hosts = _hosts.Hosts()
    made = [hosts.of(_File(url=f"http://h{nth}/").fetch) for nth in range(300)]
    assert len(hosts._rows) == 256
    assert hosts.of(_File(url="http://h299/").fetch) is made[299]
    assert hosts.of(_File(url="http://h0/").fetch) is not made[0]
