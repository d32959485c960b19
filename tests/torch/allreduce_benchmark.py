"""Times dist.all_reduce() of two backends in turn, over ranks of this host with a core each.

usage: meson devenv -C BUILD python3 .../tests/torch/allreduce_benchmark.py [RANKS] [ROUNDS]

Prints a table of microseconds, medians of the rounds' medians: gloo, rondo with ordinary tensors,
and rondo with tensors in the arena. A round starts new processes for each column.
"""

import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

import rondo.torch

COLUMNS = ("gloo", "rondo", "rondo arena")
SIZES = [4**power for power in range(1, 14)]


def median_time(tensor, repetitions):
    times = []
    for i in range(repetitions + repetitions // 10 + 2):
        if tensor.numel() > 1 << 14:
            dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        if i > repetitions // 10 + 1:
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def run_rank(rank, ranks, column, store, results):
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {rank % os.cpu_count()})
    dist.init_process_group(
        column.split()[0], init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    times = []
    for size in SIZES:
        if column.endswith("arena"):
            with rondo.torch.arena():
                tensor = torch.ones(size // 4)
        else:
            tensor = torch.ones(size // 4)
        times.append(median_time(tensor, 500 if size < 1 << 16 else 100 if size < 4 << 20 else 15))
    if rank == 0:
        results.put(times)


def main():
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    results = processes.get_context("spawn").SimpleQueue()
    times = {column: [] for column in COLUMNS}
    for _ in range(rounds):
        for column in COLUMNS:
            with tempfile.TemporaryDirectory() as folder:
                arguments = (ranks, column, f"{folder}/store", results)
                processes.spawn(run_rank, arguments, ranks)
                times[column].append(results.get())
    print(f"{'bytes':>10}" + "".join(f"{column:>14}" for column in COLUMNS))
    for i, size in enumerate(SIZES):
        medians = [statistics.median(one[i] for one in times[column]) for column in COLUMNS]
        print(f"{size:10}" + "".join(f"{value:14.1f}" for value in medians))


if __name__ == "__main__":
    main()
