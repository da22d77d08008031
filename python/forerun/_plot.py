"""`forerun.plot`: hit ratios over the size of the cache, as the pages of the command draw them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forerun._needs import load
from forerun.errors import OptionError

if TYPE_CHECKING:
    import matplotlib.figure
    import pyarrow


def plot(table: pyarrow.Table, *, figure: Any = None) -> matplotlib.figure.Figure:
    """Draw the rows of `sim`: a chart for each trace, a line for each policy, with Belady dashed.

    Where all rows are counted by bytes, so are the ratios. `figure` is one to draw in, in place of
    a new one. It needs matplotlib.

    Raises
    ------
    OptionError
        The table has no rows of `sim`.
    """
    load("matplotlib", "forerun.plot")
    from forerun._figure import Figure

    rows = [row for row in table.to_pylist() if row.get("hit_ratio") is not None]
    if not rows:
        raise OptionError("no row has a hit ratio: expected a table of forerun.sim")
    charts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        charts.setdefault(row["trace"], []).append(row)
    whole: Figure = figure or Figure(figsize=(8, 4.5 * len(charts)), layout="constrained")
    for axes, (trace, chart) in zip(
        whole.subplots(len(charts), squeeze=False)[:, 0], charts.items(), strict=True
    ):
        _draw(axes, trace, chart)
    return whole


def _draw(axes: Any, trace: str, rows: list[dict[str, Any]]) -> None:
    by_bytes = all(row.get("bytes") for row in rows)
    lines: dict[str, dict[int, float]] = {}
    for row in rows:
        ratio = row["bytes"]["hit_ratio"] if by_bytes else row["hit_ratio"]
        lines.setdefault(title(row), {})[row["cache_pages"]] = ratio
    names = {line: line.split(":")[0] for line in lines}
    for number, (line, ratios) in enumerate(lines.items()):
        is_alone = list(names.values()).count(names[line]) == 1
        pages = sorted(ratios)
        axes.plot(
            pages,
            [ratios[at] * 100 for at in pages],
            label=names[line] if is_alone else line,
            marker="" if names[line] == _BOUND else _MARKERS[number % len(_MARKERS)],
            linestyle="--" if names[line] == _BOUND else "-",
            color="black" if names[line] == _BOUND else None,
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda pages, _: size(round(pages) * _PAGE_BYTES))
    axes.set_xlabel("size of the cache")
    axes.set_ylabel("byte hit ratio, %" if by_bytes else "hit ratio, %")
    axes.set_title(trace.rsplit("/", 1)[-1])
    axes.grid(alpha=0.3)
    axes.legend()


def title(row: Mapping[str, Any]) -> str:
    """What a row ran beside its trace and size: names with their parameters."""
    parts = [spec(row["policy"], row["params"])]
    parts += [
        spec(part["name"], part["params"])
        for part in (row.get(key) for key in ("readahead", "prefetch", "device"))
        if part
    ]
    return " + ".join(parts)


def spec(name: str, params: Any) -> str:
    """A name with its parameters, as the command line takes it."""
    pairs = [f"{key}={value}" for key, value in sorted(params or [])]
    return f"{name}:{','.join(pairs)}" if pairs else name


def size(count: int) -> str:
    """`count` bytes in words."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.3g} {unit}"


_BOUND = "belady"
_MARKERS = "osD^vP*X<>dh"
_PAGE_BYTES = 4096
