"""What a cache did, for people: text, a dict, or a table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from forerun.errors import OptionError

if TYPE_CHECKING:
    from typing_extensions import Self


class Report:
    """The counts of one file's cache at one moment."""

    def __init__(self, counts: Mapping[str, float]) -> None:
        self._counts = dict(counts)

    def as_dict(self) -> dict[str, float]:
        """All counts by name: bytes where the name begins with ``bytes``, seconds where it says so.

        ``bytes_wasted`` was read ahead and left unread; ``bytes_unread`` may still be read.
        """
        return dict(self._counts)

    def __str__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)

    def __repr__(self) -> str:
        return f"<forerun report: {', '.join(f'{name} {value}' for name, value in self._rows())}>"

    def _repr_html_(self) -> str:
        cells = (
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>"
            for name, value in self._rows()
        )
        return f"<table><caption>forerun</caption>{''.join(cells)}</table>"

    def _rows(self) -> list[tuple[str, str]]:
        count = self._counts
        wanted, fetched = count["bytes_wanted"], count["bytes_fetched"]
        times = f", {fetched / wanted:.2f} times as much" if wanted else ""
        mean = f", {_size(fetched / count['requests'])} each" if count["requests"] else ""
        return [
            ("reads", f"{count['reads']:.0f}"),
            ("wanted", _size(wanted)),
            ("fetched", f"{_size(fetched)}{times}"),
            ("requests", f"{count['requests']:.0f}{mean}"),
            ("streams", f"{count['streams']:.0f}"),
            ("wasted", _size(count["bytes_wasted"])),
            ("not read yet", _size(count["bytes_unread"])),
            ("stalls", f"{count['stalls']:.0f}, {count['stalled_seconds']:.3f} s"),
            ("requests again", f"{count['retried']:.0f}"),
            ("failed requests", f"{count['failures']:.0f}"),
            ("memory", _size(count["memory"])),
        ]


class report:
    """Prints, where a ``with`` block ends, what the cache of `file` did in it.

        with forerun.report(file):
            table = pyarrow.parquet.read_table(file)

    The file may be closed in the block. ``with forerun.report(file) as done`` gives `Report` by
    ``done.counts``; ``show=None`` prints nothing.
    """

    counts: Report

    def __init__(self, file: Any, show: Callable[[object], object] | None = print) -> None:
        counts = getattr(getattr(file, "cache", None), "_counts", None)
        if counts is None:
            raise OptionError(
                f'{file!r} has no cache of forerun: open it with cache_type="forerun"'
            )
        self._now: Callable[[], dict[str, float]] = counts
        self._show = show

    def __enter__(self) -> Self:
        self._before = self._now()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        now = self._now()
        # What is held is no count.
        levels = ("memory", "bytes_unread")
        before = {name: 0 if name in levels else self._before[name] for name in now}
        self.counts = Report({name: value - before[name] for name, value in now.items()})
        if self._show is not None:
            self._show(self.counts)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
