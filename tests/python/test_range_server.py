"""The range server as a Python client sees it."""

from __future__ import annotations

import gzip
import http.client
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from range_server import DIRECT, RangeServer, pattern

BYTES = 300_001


def get(url: str, span: str | None = None) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Status, fields and body of a GET."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={span}"} if span else {})
    with DIRECT.open(request) as answer:
        return answer.status, answer.headers, answer.read()


def test_parts_of_the_pattern_are_parts_of_the_whole() -> None:
    whole = pattern(0, 64)
    assert whole[8:16] == (0x9E3779B97F4A7C15).to_bytes(8, "little")
    for start in range(20):
        for end in range(start, 64):
            assert pattern(start, end) == whole[start:end], (start, end)


def test_ranges_hold_what_they_name_and_are_counted() -> None:
    with RangeServer(pattern=BYTES, latency="1ms", rate="90M") as server:
        status, fields, body = get(f"{server.url}/any", "1003-200002")
        assert (status, body) == (206, pattern(1003, 200_003))
        assert fields["Content-Range"] == f"bytes 1003-200002/{BYTES}"
        server.set(latency="0", rate="0")
        assert get(f"{server.url}/any")[2] == pattern(0, BYTES)
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(f"{server.url}/any", f"{BYTES}-")
        with refused.value as answer:
            assert (answer.code, answer.headers["Content-Range"]) == (416, f"bytes */{BYTES}")
        counts = server.counts()
        assert counts["sizes"] == [199_000, BYTES, 0]
        assert (counts["requests"], counts["in_flight_max"]) == (3, 1)
        server.reset()
        assert server.counts()["requests"] == 0


def test_faults_are_what_a_client_takes_them_for() -> None:
    with RangeServer(pattern=BYTES, fault="gzip") as server:
        url = f"{server.url}/any"
        status, fields, body = get(url, "10-99")
        assert (status, fields["Content-Encoding"]) == (206, "gzip")
        assert gzip.decompress(body) == pattern(10, 100)
        assert gzip.decompress(get(url)[2]) == pattern(0, BYTES)
        server.set(fault="drop")
        with pytest.raises(http.client.IncompleteRead) as cut:
            get(url)
        assert cut.value.partial == pattern(0, BYTES // 2)
        server.set(fault="no-length")
        status, fields, body = get(url, "10-99")
        assert (fields["Content-Length"], body) == (None, pattern(10, 100))
        server.set(fault="none")
        assert get(url, "10-99")[1]["Content-Length"] == "90"


def test_a_folder_is_served(tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(b"0123456789")
    with RangeServer(dir=tmp_path) as server:
        assert get(f"{server.url}/a%20b", "2-4")[2] == b"234"
        with pytest.raises(urllib.error.HTTPError) as missing:
            get(f"{server.url}/none")
        with missing.value as answer:
            assert answer.code == 404
