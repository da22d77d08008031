#!/usr/bin/python3
"""mail_hits.py FORERUN FOLDER [REQUESTS] - bytes that `forerun serve` and qemu-nbd read from the
disk while a client reads in the mail workload's order, a quarter of the pages fitting in memory.

  workload:mail --dense--> FOLDER/disk    forerun serve: its cache         O_DIRECT below
                                          qemu-nbd:      the kernel's      a cgroup of that size

The distinct pages of the requests stand side by side in their order; writes are read. qemu-nbd's
own memory comes on top of its cgroup's size. Bytes are those of /proc/PID/io. Needs root, cgroups
of version 1, qemu-nbd and python3-libnbd.
SPDX-License-Identifier: MIT OR Apache-2.0
"""

import csv
import os
import random
import subprocess
import sys
import time

import nbd

PAGE = 4096
ROUNDS = 3
GROUP = "/sys/fs/cgroup/memory/mail-hits"


def requests(forerun, count):
    """The requests as (offset, bytes) in a dense range, and that range's size."""
    text = subprocess.run(
        [forerun, "trace", "convert", f"workload:mail,requests={count}", "-", "--to", "csv"],
        check=True, capture_output=True, text=True).stdout
    rows = [(int(row["offset"]), int(row["size"])) for row in csv.DictReader(text.splitlines())]
    pages = {at // PAGE for offset, size in rows for at in range(offset, offset + size, PAGE)}
    place = {page: index for index, page in enumerate(sorted(pages))}
    return [(place[offset // PAGE] * PAGE, size) for offset, size in rows], len(place) * PAGE


def put(name, text):
    with open(os.path.join(GROUP, name), "w") as file:
        file.write(str(text))


def memory(pid):
    """Anonymous memory of a process."""
    with open(f"/proc/{pid}/status") as file:
        line = next(line for line in file if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024


def disk_bytes(pid):
    with open(f"/proc/{pid}/io") as file:
        line = next(line for line in file if line.startswith("read_bytes:"))
    return int(line.split()[1])


def measure(command, socket, reads, bounds):
    """Bytes from the disk, and seconds, of one server."""
    if os.path.exists(socket):
        os.unlink(socket)
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while not os.path.exists(socket):
            assert server.poll() is None, command
            time.sleep(0.01)
        client = nbd.NBD()
        client.connect_unix(socket)
        client.pread(PAGE, 0)
        if bounds:
            put("memory.limit_in_bytes", bounds + memory(server.pid))
            put("cgroup.procs", server.pid)
        before, begun = disk_bytes(server.pid), time.monotonic()
        for offset, size in reads:
            client.pread(size, offset)
        taken = time.monotonic() - begun
        read = disk_bytes(server.pid) - before
        client.shutdown()
        return read, taken
    finally:
        server.kill()
        server.wait()


def main():
    forerun, folder = sys.argv[1:3]
    reads, size = requests(forerun, sys.argv[3] if len(sys.argv) > 3 else "200000")
    disk, socket, cache = os.path.join(folder, "disk"), os.path.join(folder, "s"), size // 4
    cache -= cache % (1 << 20)
    with open(disk, "wb") as file:
        chunk = random.Random(1).randbytes(1 << 20)
        for at in range(0, size, len(chunk)):
            file.write(chunk[:size - at])
        os.fsync(file.fileno())
    asked = sum(size for _, size in reads)
    print(f"{len(reads)} reads of {asked >> 20} MiB in {size >> 20} MiB, {cache >> 20} MiB of memory")
    os.makedirs(GROUP, exist_ok=True)
    ours = [forerun, "serve", "--cache", str(cache), "--socket", socket, disk]
    theirs = ["qemu-nbd", "-r", "-f", "raw", "-k", socket, "-t", "--cache=writeback", disk]
    for _ in range(ROUNDS):
        for name, command, bounds in (("forerun", ours, 0), ("qemu-nbd", theirs, cache)):
            subprocess.run(["dd", f"if={disk}", "iflag=nocache", "count=0", "status=none"], check=True)
            read, taken = measure(command, socket, reads, bounds)
            print(f"{name}: {read >> 20} MiB from the disk, {100 - 100 * read / asked:.1f} % of the "
                  f"bytes from memory, {taken:.1f} s", flush=True)
    os.rmdir(GROUP)


main()
