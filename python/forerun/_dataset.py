"""The data set of a sweep: Parquet files and the record of how they were made.

    DIR/_sweep.json          parameters, build, and each time that it was run
    DIR/_lock                held by the process that writes
    DIR/part-000000.parquet  all rows of some traces; written whole, never changed
    DIR/part-000001.parquet  ...

Readers of data sets pass over names that begin with `_` or `.`: `pyarrow.dataset.dataset(DIR)` has
the rows.

Invariants:
- All rows of a trace are in one part, and no trace is in two.
- A part is there whole or not at all, whenever the process or the machine stops.
- One process writes.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from forerun._sim import schema as schema_of_runs
from forerun.errors import OptionError

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import Self


def schema() -> pyarrow.Schema:
    """The columns: those of runs, and of each trace where, when and how long it was run."""
    import pyarrow

    columns = schema_of_runs()
    at = columns.get_field_index("cache_pages")
    columns = columns.insert(at, pyarrow.field("size", pyarrow.string()))
    for name, kind in _OF_TRACE:
        columns = columns.append(pyarrow.field(name, getattr(pyarrow, kind)()))
    return columns


class DataSet:
    """A data set that is written."""

    def __init__(self, folder: str | os.PathLike[str], parameters: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self._parameters = dict(parameters)
        self._unsaved: list[pyarrow.Table] = []
        self._since: float | None = None
        self.done: dict[str, int | None] = {}

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.folder / "_lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OptionError(f"{self.folder}: another sweep writes it") from None
            self.record = self._read_record()
            self._read_parts()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.save()
        finally:
            os.close(self._lock)

    def add(self, table: pyarrow.Table) -> None:
        """Adds the rows of one trace; they are on disk after `save`, or a few seconds."""
        self._unsaved.append(table)
        if self._since is None:
            self._since = time.monotonic()
        self.save_if_due()

    def save_if_due(self) -> None:
        """Writes what has waited long enough, or is much."""
        if len(self._unsaved) >= _TRACES_MAX or self.seconds_left() == 0:
            self.save()

    def seconds_left(self) -> float | None:
        """How long what is not written yet may wait; None where there is nothing."""
        if self._since is None:
            return None
        return max(self._since + _SECONDS_MAX - time.monotonic(), 0)

    def save(self) -> None:
        """Writes the next part, if there is anything for it."""
        if not self._unsaved:
            return
        import pyarrow.parquet

        name = f"part-{self._next:06}.parquet"
        part = self.folder / f".{name}.tmp"
        pyarrow.parquet.write_table(pyarrow.concat_tables(self._unsaved), part)
        _rename_whole(part, self.folder / name)
        self._next += 1
        self._unsaved, self._since = [], None

    def write_record(self) -> None:
        """Writes the record as it is now."""
        part = self.folder / "._sweep.json.tmp"
        part.write_text(json.dumps(self.record, indent=2) + "\n")
        _rename_whole(part, self.folder / "_sweep.json")

    def _read_record(self) -> dict[str, Any]:
        """The record of the folder, or a new one; refuses one of other parameters."""
        try:
            record: dict[str, Any] = json.loads((self.folder / "_sweep.json").read_text())
        except FileNotFoundError:
            if any(self.folder.glob("*.parquet")):
                raise OptionError(
                    f"{self.folder}: has Parquet files and no record of a sweep: name another"
                ) from None
            return {"schema": SCHEMA, "parameters": self._parameters, "runs": []}
        if record.get("schema") != SCHEMA:
            raise OptionError(f"{self.folder}: is no sweep of this version: {record.get('schema')}")
        for key, value in self._parameters.items():
            if record["parameters"].get(key) != value:
                raise OptionError(
                    f"{self.folder}: was made with {key} {record['parameters'].get(key)!r} and not "
                    f"{value!r}: name another folder"
                )
        return record

    def _read_parts(self) -> None:
        """Notes the traces that are there, and removes a part that was not finished."""
        import pyarrow.parquet

        for unfinished in self.folder.glob(".*.tmp"):
            unfinished.unlink()
        parts = sorted(self.folder.glob("part-*.parquet"))
        for part in parts:
            names = pyarrow.parquet.read_table(part, columns=["trace", "trace_bytes"])
            firsts = names.group_by("trace").aggregate([("trace_bytes", "max")]).to_pydict()
            self.done.update(zip(firsts["trace"], firsts["trace_bytes_max"], strict=True))
        self._next = 1 + int(parts[-1].stem.removeprefix("part-")) if parts else 0


def _rename_whole(part: Path, path: Path) -> None:
    """Gives a written file its name, so that a crash of the machine leaves all of it or nothing."""
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


SCHEMA = "forerun-sweep/1"
_OF_TRACE = [
    ("error", "string"),
    ("trace_bytes", "int64"),
    ("trace_seconds", "float64"),
    ("host", "string"),
    ("commit", "string"),
]
# What a client that is killed has to have run again: at most so much.
_TRACES_MAX = 256
_SECONDS_MAX = 3.0
