"""The stores of hosts: what this process learns of them, and earlier ones of the user have learnt.

A record is kept at the first close of a file of its host, and as the process ends: where the disk
is slow, a program that opens thousands of files waits for it twice.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections import OrderedDict
from typing import Any
from urllib.parse import urlsplit

from forerun._forerun import Host


class Hosts:
    """At most 256 of them; the one that was used longest ago goes, unkept."""

    def __init__(self) -> None:
        # A signal's handler may open a file in the middle of it.
        self._lock = threading.RLock()
        self._rows: OrderedDict[str, Host] = OrderedDict()
        self._kept: dict[str, str] = {}

    def of(self, fetcher: Any) -> Host | None:
        """The store that `fetcher` reads from, if it says which."""
        name = name_of(fetcher)
        if name is None or is_off():
            return None
        with self._lock:
            host = self._rows.get(name)
            if host is None:
                host = self._rows[name] = Host(name)
            self._rows.move_to_end(name)
            if len(self._rows) > _HOSTS_MAX:
                gone, _ = self._rows.popitem(last=False)
                self._kept.pop(gone, None)
        return host

    def closed(self, fetcher: Any) -> None:
        """A file was closed: what is known of its store is kept, once."""
        name = name_of(fetcher)
        if name is not None and name not in self._kept:
            self._keep(name)

    def keep(self) -> None:
        """The process ends: what is not kept as it is now is."""
        for name in list(self._rows):
            self._keep(name)

    def _keep(self, name: str) -> None:
        host = self._rows.get(name)
        record = None if host is None else host.record()
        if host is not None and record is not None and self._kept.get(name) != record:
            self._kept[name] = record
            host.keep()


def name_of(fetcher: Any) -> str | None:
    """The scheme and the host of a file's URL, or its file system's protocol and bucket."""
    file = getattr(fetcher, "__self__", None)
    with contextlib.suppress(Exception):
        url = getattr(file, "url", None)
        if isinstance(url, str):
            parts = urlsplit(url)
            # Without the user and the password that it may have.
            host = parts.netloc.rpartition("@")[2]
            return f"{parts.scheme}://{host}" if host else None
        fs, path = getattr(file, "fs", None), getattr(file, "path", None)
        if fs is not None and isinstance(path, str):
            protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
            bucket = getattr(fs, "host", None) or path.partition("/")[0]
            return f"{protocol}://{bucket}" if bucket else None
    return None


def is_off() -> bool:
    """Whether the environment says that nothing is remembered, as for `forerun run`."""
    return os.environ.get("FORERUN_LEARN") == "off"


def _at_exit() -> None:
    hosts.keep()


def after_fork() -> None:
    """A child begins with what is on disk: fetches that are in flight are the parent's."""
    global hosts
    hosts = Hosts()


_HOSTS_MAX = 256
hosts = Hosts()
atexit.register(_at_exit)
