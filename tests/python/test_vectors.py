"""What readahead policies decide, as Python sees it."""

import json

import pytest

from forerun import OptionError, vectors
from forerun.vectors import PAGE_BYTES, Decision

Reads = list[tuple[int, int]]


def pages(*numbers: int) -> Reads:
    """Reads of one page each."""
    return [(number * PAGE_BYTES, PAGE_BYTES) for number in numbers]


SMALL = "linux-2.6.24:max=128K"
HEAD = Decision(0, "sync", 0, 0, 4, 3, [(0, 3)])
NEXT = Decision(1, "async", 1, 4, 8, 8, [(4, 11)])


@pytest.mark.parametrize(
    ("policy", "reads", "expected"),
    [
        pytest.param(SMALL, pages(0), [HEAD], id="the head opens a window"),
        pytest.param(SMALL, pages(0, 1), [HEAD, NEXT], id="its marker the next"),
        pytest.param(SMALL, pages(0, 0), [HEAD], id="what is there asks nothing"),
        pytest.param("off", pages(7), [(0, "random", 7, 7, 1, 0, [(7, 7)])], id="a lone read"),
        pytest.param("streams", [], [], id="no reads"),
    ],
)
def test_decisions(policy: str, reads: Reads, expected: list[Decision]) -> None:
    assert vectors.decisions(policy, reads) == expected


def test_parameters_are_words_of_the_policy() -> None:
    reads = pages(*range(100))
    expected = vectors.decisions("linux-6:max=128K,io=64K", reads)
    assert vectors.decisions("linux-6", reads, max="128K", io="64K") == expected
    assert vectors.decisions("linux-6:io=64K", reads, max=131_072) == expected
    assert vectors.decisions("linux-6", reads) != expected


def test_every_policy_reads_a_file_once() -> None:
    file_pages = 200
    assert "streams" in vectors.policies()
    for policy in vectors.policies():
        reads = pages(*range(file_pages))
        decided = vectors.decisions(policy, reads, file_bytes=file_pages * PAGE_BYTES)
        fetched = [p for d in decided for a, b in d.fetched for p in range(a, b + 1)]
        assert sorted(fetched) == list(range(file_pages)), policy


@pytest.mark.parametrize(
    ("policy", "reads", "told"),
    [
        ("linux-2.6.24:size=1", [], "no parameter `size`"),
        ("linux-2.6.24:max=x", [], "`max=x`: expected"),
        ("off", [(1 << 30, 1)], "read 0 .* give a larger file"),
    ],
)
def test_what_cannot_be_is_refused(policy: str, reads: Reads, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        vectors.decisions(policy, reads)


def test_a_negative_offset_is_no_offset() -> None:
    with pytest.raises(OverflowError):
        vectors.decisions("off", [(-1, 1)])


def recorded(size: int) -> str:
    """A recorded scenario, in which the first window has `size` pages."""
    scenario = {
        "id": "head",
        "file_pages": 100,
        "ra_pages": 32,
        "ops": [["read", 0, 1]],
        "expect": {"linux-2.6.24": [[0, "sync", 0, 0, size, 3, [[0, 3]]]]},
    }
    return json.dumps({"schema": "forerun-readahead-vectors/1", "scenarios": [scenario]})


def test_recorded_vectors_are_compared() -> None:
    assert vectors.check(recorded(4)) == (1, 0, [])
    passed, failed, lines = vectors.check(recorded(5))
    assert (passed, failed, len(lines)) == (0, 1, 1)
    assert "size 5" in lines[0] and "size 4" in lines[0]
    assert vectors.check(recorded(4), policy="linux-6") == (0, 0, [])
    for text, policy in [("{", None), (recorded(4), "no-such")]:
        with pytest.raises(OptionError):
            vectors.check(text, policy)
