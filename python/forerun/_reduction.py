"""`forerun report DIR`: by how much policies reduce the misses of a baseline, over all traces.

    reduction = (baseline's miss ratio - the policy's) / the larger of the two

So it is within -1 and 1, and a policy with twice the misses stands as far below 0 as one with
half of them above. A page has a section for each size of the cache: the percentiles of the traces'
reductions, a curve a policy, and the table behind. The baseline is LRU, or FIFO where LRU was not run.

Sources: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction" (SOSP
2023), section 5.1: the definition, and percentiles over traces by size of the cache.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun import _forerun
from forerun._needs import load
from forerun._plot import spec
from forerun.errors import OptionError

if TYPE_CHECKING:
    import matplotlib.figure

# A class of runs, and the policy with its parameters.
Key = tuple[str, str]


class Reductions:
    """The reductions of a data set, by class and policy."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        load("pyarrow", "a page of a sweep")
        self.folder = Path(folder)
        self.by_class: dict[str, dict[str, list[float]]] = {}
        self.traces = 0
        self.errors: Counter[str] = Counter()
        ratios = list(self._ratios())
        ran = {policy for of_trace in ratios for _, policy in of_trace}
        self.baseline = next((name for name in _BASELINES if name in ran), None)
        if ratios and self.baseline is None:
            raise OptionError(
                f"{folder}: neither {' nor '.join(_BASELINES)} was run: there is no baseline"
            )
        names = _named(sorted({policy for of_trace in ratios for _, policy in of_trace}))
        for of_trace in ratios:
            self._add({(name, names[policy]): ratio for (name, policy), ratio in of_trace.items()})

    def _ratios(self) -> Iterator[dict[Key, float]]:
        """Of each trace, the miss ratio of each class and policy."""
        import pyarrow.parquet

        parts = sorted(self.folder.glob("part-*.parquet"))
        if not parts:
            raise OptionError(f"{self.folder}: has no rows of a sweep")
        columns = [
            "trace",
            "error",
            "size",
            "policy",
            "params",
            "accesses",
            "misses",
            "readahead",
            "device",
        ]
        for part in parts:
            of_part: dict[str, dict[Key, float]] = defaultdict(dict)
            for row in pyarrow.parquet.read_table(part, columns=columns).to_pylist():
                if row["error"] is not None:
                    self.errors[row["error"]] += 1
                elif row["accesses"]:
                    key = _class(row), spec(row["policy"], row["params"])
                    of_part[row["trace"]][key] = row["misses"] / row["accesses"]
            self.traces += len(of_part)
            yield from of_part.values()

    def _add(self, ratios: Mapping[Key, float]) -> None:
        assert self.baseline is not None
        for (name, policy), ratio in ratios.items():
            base = ratios.get((name, self.baseline))
            if base is None:
                continue
            most = max(base, ratio)
            of_class = self.by_class.setdefault(name, {})
            of_class.setdefault(policy, []).append((base - ratio) / most if most else 0.0)

    def sheet(self, title: str, command: str) -> dict[str, Any]:
        """What the page draws."""
        lead = (
            f"Reduction of the miss ratio against {self.baseline}: (baseline - policy) / the larger "
            f"of the two, over {self.traces} traces; above 0 is better. P10 is the trace below "
            "which a tenth of the traces lie."
        )
        if self.errors:
            lead += f" {sum(self.errors.values())} traces could not be read and are left out."
        sections = [self._section(name, of_class) for name, of_class in self.by_class.items()]
        if len(self.by_class) > 1:
            sections.insert(0, self._means())
        return {"title": title, "lead": lead, "command": command, "sections": sections}

    def figure(self) -> matplotlib.figure.Figure:
        """The percentiles, a chart a class."""
        load("matplotlib", "the picture of a sweep")
        from forerun._figure import Figure

        figure = Figure(figsize=(8, 4 * len(self.by_class)), layout="constrained")
        all_axes = figure.subplots(len(self.by_class), squeeze=False)[:, 0]
        for axes, (name, of_class) in zip(all_axes, self.by_class.items(), strict=True):
            for policy, values in of_class.items():
                if policy == self.baseline:
                    continue
                ordered = sorted(values)
                reductions = [quantile(ordered, at / 100) * 100 for at in _PERCENTILES]
                is_bound = policy == _BOUND
                style = {"linestyle": "--", "color": "black"} if is_bound else {}
                axes.plot(list(_PERCENTILES), reductions, label=policy, **style)
            axes.axhline(0, color="gray", linewidth=0.8)
            axes.set_title(f"cache of {name}, {self.traces} traces")
            axes.set_xlabel("percentile of traces")
            axes.set_ylabel(f"fewer misses than {self.baseline}, %")
            axes.legend(fontsize="small")
        return figure

    def _means(self) -> dict[str, Any]:
        names = list(self.by_class)
        policies = list(
            dict.fromkeys(name for of_class in self.by_class.values() for name in of_class)
        )
        series = [
            _series(policy, [_mean(self.by_class[name].get(policy)) for name in names])
            for policy in policies
            if policy != self.baseline
        ]
        chart = self._chart(
            "Mean reduction by size of the cache", "size of the cache", names, series
        )
        return {"title": "All sizes", "facts": f"{self.traces} traces", "charts": [chart]}

    def _section(self, name: str, of_class: Mapping[str, list[float]]) -> dict[str, Any]:
        series = [
            _series(policy, [quantile(sorted(values), at / 100) for at in _PERCENTILES])
            for policy, values in of_class.items()
            if policy != self.baseline
        ]
        steps = [f"P{at}" for at in _PERCENTILES]
        chart = self._chart(
            f"Reduction over traces, cache of {name}", "percentile of traces", steps, series
        )
        count = max(len(values) for values in of_class.values())
        return {"title": f"Cache of {name}", "facts": f"{count} traces", "charts": [chart]}

    def _chart(self, title: str, label: str, names: list[str], series: list[Any]) -> dict[str, Any]:
        return {
            "title": title,
            "note": f"Above 0: fewer misses than {self.baseline}.",
            "x": {"steps": {"label": label, "names": names}},
            "y": {"label": f"reduction of misses of {self.baseline}", "unit": "share"},
            "series": series,
            "claims": [],
        }


def write_page(folder: str, output: str, title: str | None) -> None:
    """Write the page of the data set in `folder`: whole, or not at all."""
    found = Reductions(folder)
    title = title or f"Sweep of {found.traces} traces"
    text = _forerun.page(json.dumps(found.sheet(title, f"forerun report {folder}")))
    path = Path(output)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def quantile(ordered: list[float], part: float) -> float:
    """The value below which `part` of those in order lie, by a line between two neighbours."""
    at = part * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _class(row: Mapping[str, Any]) -> str:
    parts = [row["size"]]
    parts += [
        spec(row[key]["name"], row[key]["params"]) for key in ("readahead", "device") if row[key]
    ]
    return " + ".join(parts)


def _named(policies: list[str]) -> dict[str, str]:
    """Each of `policies` without its parameters, where that name is of one alone."""
    names = Counter(policy.split(":")[0] for policy in policies)
    short = {policy: policy.split(":")[0] for policy in policies}
    return {policy: name if names[name] == 1 else policy for policy, name in short.items()}


def _series(name: str, values: list[float | None]) -> dict[str, Any]:
    return {"name": name, "bound": name == _BOUND, "y": values}


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


_BASELINES = ("lru", "fifo")
_BOUND = "belady"
_PERCENTILES = range(0, 101, 5)
