"""The command `forerun`, as the wheel carries it."""

import sys

from forerun import _forerun


def main() -> int:
    """Run the command line of this process; its exit status.

    The command takes over the process's signals, so that Ctrl-C ends it at once.
    """
    return _forerun.cli(["forerun", *sys.argv[1:]])
