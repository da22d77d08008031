"""The commands that are Python's: `forerun sweep`, and `forerun report` of a folder.

The command `forerun` parses their options, and becomes this with them as one JSON object.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from forerun.errors import ForerunError, OptionError


def main() -> int:
    """Run the command of this process; its exit status."""
    command, options = sys.argv[1], json.loads(sys.argv[2])
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return _COMMANDS[command](options)
    except OptionError as error:
        return _tell(error, 2)
    except (ForerunError, ModuleNotFoundError) as error:
        return _tell(error, 1)
    except BrokenPipeError:
        # What is left in the buffer has no reader either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        return _tell(error, 1)
    except KeyboardInterrupt:
        return _tell("interrupted: the same command goes on", 130)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _tell(what: object, status: int) -> int:
    line = " ".join(str(what).split())
    print(f"forerun: {line}", file=sys.stderr)
    return status


def _sweep(options: dict[str, Any]) -> int:
    from forerun import sweep

    is_json, address = options.pop("json"), options.pop("scheduler")
    executor: Any = options.pop("workers")
    if address is not None:
        from forerun._needs import load

        executor = load("distributed", "--scheduler").Client(address)
    try:
        done = sweep(
            options.pop("traces"), options.pop("policy"), options.pop("size"), executor, **options
        )
    finally:
        if address is not None:
            executor.close()
    facts = {
        "out": str(done.path),
        "traces": done.traces,
        "run": done.run,
        "failed": done.failed,
        "seconds": round(done.seconds, 3),
    }
    if is_json:
        print(json.dumps(facts))
    else:
        kept = done.traces - done.run
        there = f", {kept} already there" if kept else ""
        print(f"{_traces(done.run)} run in {done.seconds:.1f} s{there}: {done.path}")
    if done.failed:
        return _tell(f"{_traces(done.failed)} failed: column `error` says why", 1)
    return 0


def _traces(count: int) -> str:
    """How many traces, as a person says it."""
    return "1 trace" if count == 1 else f"{count} traces"


def _report(options: dict[str, Any]) -> int:
    from forerun._reduction import write_page

    write_page(options["folder"], options["output"], options["title"])
    return 0


_COMMANDS = {"sweep": _sweep, "report": _report}
