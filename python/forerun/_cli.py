"""The command `forerun`, as the wheel carries it."""

import os
import sys

from forerun import _forerun


def main() -> int:
    """Run the command line of this process; its exit status.

    The command takes over the process's signals, so that Ctrl-C ends it at once.
    """
    if sys.argv[1:2] and sys.argv[1] in _OF_PYTHON:
        # The command becomes this Python again; `run` passes the environment on as it is.
        os.environ.setdefault("FORERUN_PYTHON", sys.executable)
    return _forerun.cli(["forerun", *sys.argv[1:]])


_OF_PYTHON = ("report", "sweep")
