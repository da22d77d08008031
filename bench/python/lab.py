"""One measurement of the lab bench: `cargo xtask bench lab` calls it.

    lab.py timed COMMAND...                     runs the command; its output, time and peak memory
    lab.py libcachesim FORMAT TRACE CELL...     replays a trace through CELLs, POLICY:PAGES each,
                                                one after the other; misses and times
    lab.py start                                loads the library and does nothing

Each prints one JSON object. The times of `libcachesim` are those of the library alone, from the
opening of the trace on: the interpreter's start is not among them.
"""

import json
import os
import subprocess
import sys
import time


def timed(command):
    """Peak memory is what the kernel tells of that one process."""
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{command[0]} ended with {process.returncode}")
    cpu = usage.ru_utime + usage.ru_stime
    memory = usage.ru_maxrss * 1024
    return {"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": memory, "output": output.decode()}


def libcachesim(form, trace, cells):
    import libcachesim as lib

    policies = {"lru": lib.LRU, "arc": lib.ARC, "2q": lib.TwoQ, "lirs": lib.LIRS, "s3-fifo": lib.S3FIFO}
    formats = {
        "keys": lib.TraceType.PLAIN_TXT_TRACE,
        "oracleGeneral": lib.TraceType.ORACLE_GENERAL_TRACE,
    }
    runs = []
    for cell in cells:
        policy, pages = cell.split(":")
        begun = time.perf_counter()
        reader = lib.TraceReader(trace, formats[form], lib.ReaderInitParam(ignore_obj_size=True))
        misses = policies[policy](int(pages)).process_trace(reader)[0]
        runs.append({"miss_ratio": misses, "seconds": time.perf_counter() - begun})
    return {"runs": runs}


def main(words):
    what, *rest = words
    if what == "timed":
        return timed(rest)
    if what == "libcachesim":
        return libcachesim(rest[0], rest[1], rest[2:])
    import libcachesim as lib

    return {"version": getattr(lib, "__version__", "unknown")}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
