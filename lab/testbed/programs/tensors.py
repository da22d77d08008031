"""Four threads over the tensors of a mapped safetensors file: `tensors.py make|read FILE MIB`.

SPDX-License-Identifier: MIT OR Apache-2.0
"""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy
from safetensors import safe_open
from safetensors.numpy import save_file

TENSORS, THREADS = 32, 4


def make(path: str, mib: int) -> None:
    numbers = numpy.random.default_rng(1).random(mib * (1 << 20) // TENSORS // 4, numpy.float32)
    save_file({f"layer.{at:02}": numbers + numpy.float32(at) for at in range(TENSORS)}, path)


def read(path: str, _mib: int) -> None:
    with safe_open(path, "numpy") as file, ThreadPoolExecutor(THREADS) as pool:
        total = lambda name: float(file.get_tensor(name).sum(dtype=numpy.float64))
        print(sum(pool.map(total, sorted(file.keys()))))


{"make": make, "read": read}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
