"""How far something is, where a person sees it: a terminal's line, or a notebook's output.

Nothing is shown within the first half second, and nothing in a pipe or a file.
"""

from __future__ import annotations

import importlib
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class Progress:
    """Shows lines, one in place of the other, until the end of the block."""

    def __init__(self, is_wanted: bool | None = None) -> None:
        """Whether it `is_wanted`; where that is None, whether a person can see it."""
        self._begun = time.monotonic()
        self._width = 0
        self._display: Any = None
        self._show = self._shower(is_wanted)

    @property
    def call(self) -> Any:
        """What to call with what is done, how much of it is, and of how much; None: nothing."""
        return self._part if self._show is not None else None

    def line(self, text: str) -> None:
        """Shows `text` in place of the last one."""
        if self._show is not None and time.monotonic() - self._begun >= _SECONDS_MIN:
            self._show(text)

    def _part(self, what: str, done: int, of: int) -> None:
        self.line(f"{what} {done / of:.0%}" if of else what)

    def _shower(self, is_wanted: bool | None) -> Any:
        if is_wanted is False:
            return None
        if _is_notebook():
            return self._in_notebook
        if sys.stderr is not None and (is_wanted or sys.stderr.isatty()):
            return self._on_terminal
        return None

    def _on_terminal(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def _in_notebook(self, text: str) -> None:
        displays: Any = importlib.import_module("IPython.display")

        shown = displays.HTML(f"<pre>{text.replace('<', '&lt;')}</pre>")
        if self._display is None:
            self._display = displays.display(shown, display_id=True)
        else:
            self._display.update(shown)
        self._width = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._width and self._show is not None:
            self._show("")
            if self._display is None:
                sys.stderr.write("\r")


def _is_notebook() -> bool:
    """Whether this runs in a kernel, whose front end shows what is sent to it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


_SECONDS_MIN = 0.5
