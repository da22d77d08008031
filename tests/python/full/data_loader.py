"""Stands in for `torch.utils.data`, as PyTorch's packages take gigabytes: a `DataLoader` that
treats a data set as theirs does (`_utils/{fetch,worker}.py`).

The data set is an argument of each worker's process: a forked one has it as it is, a spawned one by
a pickle. A worker takes the numbers of a batch from a queue of its own, calls `__getitems__` with all
of them, and puts the batch into a queue that all workers share.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from typing import Any

import numpy


class Dataset:
    """Records by number."""


class DataLoader:
    """Batches of a data set, by workers."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        shuffle: bool,
        num_workers: int,
        multiprocessing_context: str | None = None,
    ) -> None:
        order = list(range(len(dataset)))
        if shuffle:
            random.Random(1).shuffle(order)
        self._batches = [order[at : at + batch_size] for at in range(0, len(order), batch_size)]
        self._dataset, self._workers = dataset, num_workers
        self._context: Any = multiprocessing.get_context(multiprocessing_context)

    def __iter__(self) -> Iterator[Any]:
        results = self._context.Queue()
        queues = [self._context.Queue() for _ in range(self._workers)]
        workers = [
            self._context.Process(target=_work, args=(self._dataset, queue, results), daemon=True)
            for queue in queues
        ]
        for worker in workers:
            worker.start()
        for number, batch in enumerate(self._batches):
            queues[number % self._workers].put(batch)
        for _ in self._batches:
            yield results.get()
        for queue in queues:
            queue.put(None)
        for worker in workers:
            worker.join()


def _work(dataset: Any, numbers: Any, results: Any) -> None:
    while (batch := numbers.get()) is not None:
        results.put(numpy.stack(dataset.__getitems__(batch)))
