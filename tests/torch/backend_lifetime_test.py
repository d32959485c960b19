"""The backend "rondo" of torch.distributed: how operations, groups and processes end.

In order, at a timeout, by an error, in a forked process, or while something is pending.
"""

import datetime
import faulthandler
import os
import signal
import sys
import tempfile
import threading
import time
import unittest

import torch
import torch.distributed as dist

import rondo.torch

from backend_ranks import (
    expect,
    expect_equal,
    expect_error,
    RanksTest,
    start_ranks,
    touch_file,
    wait_for_file,
)


def futures(rank, ranks):
    total = ranks * (ranks + 1) // 2
    works = [
        dist.all_reduce(torch.full((n,), rank + 1), async_op=True) for n in (1, 10, 100_000)
    ]
    for work in reversed(works):
        expect(work.wait(), "wait")
        expect(work.is_completed() and work.is_success(), "a completed operation")
        expect(bool((work.result()[0] == total).all()), work.result())
    # A callback that reduces again, while nobody waits for the operation itself.
    def again(future):
        tensor = future.value()[0]
        dist.all_reduce(tensor)
        return tensor

    future = dist.all_reduce(torch.full((5,), rank + 1), async_op=True).get_future()
    expect_equal(future.then(again).wait(), torch.full((5,), total * ranks), "a chained sum")
    # One that waits for a future, as PowerSGD's hook does.
    def after_another(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    future = dist.all_reduce(torch.full((5,), rank + 1), async_op=True).get_future()
    expect_equal(future.then(after_another).wait(), torch.full((5,), total * ranks), "a sum")


def pending_at_the_end(rank, ranks):
    # Rank 1 waits for a message that does not come; what rank 0 leaves pending ends all the same.
    if rank == 0:
        dist.all_reduce(torch.ones(4), async_op=True)
        return dist.destroy_process_group()
    expect_error("destroyed while an operation was pending", lambda: dist.recv(torch.ones(1), 0))


def groups_that_end(rank, ranks):
    # What a rank does not keep is freed on the group's own thread, which needs Python for it.
    faulthandler.dump_traceback_later(90, exit=True)
    for _ in range(30):
        group = dist.new_group()
        dist.all_reduce(torch.ones(4), group=group, async_op=True)
        soon = time.monotonic() + 0.002
        while time.monotonic() < soon:
            pass
        dist.destroy_process_group(group)
        del group
    # A callback runs while the group ends, which waits for it 5 s at most.
    group = dist.new_group()
    called = threading.Event()
    future = dist.all_reduce(torch.ones(4), group=group, async_op=True).get_future()
    future = future.then(lambda _: called.set())
    begin = time.monotonic()
    dist.destroy_process_group(group)
    del group
    expect(time.monotonic() - begin < 4, "the group ends while a callback is pending")
    expect(called.wait(60), "the callback has run")
    faulthandler.cancel_dump_traceback_later()


def receives_that_nobody_waits_for(rank, ranks):
    hasty = dist.new_group(timeout=datetime.timedelta(seconds=10))
    number = torch.zeros(1)
    if rank == 0:
        received = dist.irecv(number, 1, group=hasty)
        # After a wait of its own time nobody waits again.
        short = datetime.timedelta(milliseconds=100)
        expect_error("not completed within 100 ms", lambda: received.wait(short))
        time.sleep(11)
    dist.barrier()
    tensor = torch.ones(4)
    dist.all_reduce(tensor, group=hasty)
    expect_equal(tensor, torch.full((4,), float(ranks)), "a sum beside a receive")
    if rank == 0:
        received.wait()
        expect_equal(number, torch.ones(1), "what was sent later")
        del received
    elif rank == 1:
        dist.send(torch.ones(1), 0, group=hasty)
    # One that is pending when its group ends: the others go on.
    if rank == 0:
        dist.irecv(number, 1, group=hasty)
        begin = time.monotonic()
        dist.destroy_process_group(hasty)
        del hasty
        expect(time.monotonic() - begin < 4, "nothing is waited for")
    dist.barrier()
    if rank == 1:
        dist.send(torch.ones(1), 2, group=hasty)
    elif rank == 2:
        dist.recv(number, 1, group=hasty)
        expect_equal(number, torch.ones(1), "a message after a rank has left")


def future_of_a_receive(rank, ranks):
    hasty = dist.new_group(timeout=datetime.timedelta(seconds=10))
    if rank == 1:
        return wait_for_file("timed-out")
    received = dist.irecv(torch.zeros(1), 1, group=hasty)
    expect_error("timeout", received.get_future().wait)
    touch_file("timed-out-0", "timed-out", 1)


def workers(rank, ranks):
    # Forked off while an arena is chosen, as a DataLoader's are: they may not take its memory.
    reader, writer = os.pipe()
    with rondo.torch.arena():
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            torch.full((5000,), -1.0)
            os._exit(0)
        mine = torch.full((5000,), float(rank))
        os.write(writer, b"x")
        expect(os.waitpid(child, 0)[1] == 0, "the forked process ends in order")
        expect_equal(mine, torch.full((5000,), float(rank)), "memory of the parent")


def forked_child_ends(rank, ranks):
    # A child may use no copy of the process group, and may destroy it.
    child = os.fork()
    if child == 0:
        try:
            expect_error("belongs to the parent", lambda: dist.all_reduce(torch.ones(4)))
            dist.destroy_process_group()
            os._exit(0)
        finally:
            os._exit(1)
    expect(os.waitpid(child, 0)[1] == 0, "the child's status is 0")
    tensor = torch.full((4,), float(rank))
    dist.all_reduce(tensor)
    expect_equal(tensor, torch.full((4,), sum(range(ranks)) * 1.0), "the sum after the child's end")


def timeout(rank, ranks):
    hasty = dist.new_group(timeout=datetime.timedelta(seconds=10))
    pids = [None] * ranks
    dist.all_gather_object(pids, os.getpid())
    if rank == 0:
        return wait_for_file("timed-out")
    missing = f"wait for others: 0 (pid {pids[0]} on "
    expect_error(missing, lambda: dist.all_reduce(torch.ones(4), group=hasty))
    touch_file(f"timed-out-{rank}", "timed-out", ranks - 1)


def stopped(rank, ranks):
    # As after `scontrol suspend` and `resume`: longer than the timeout.
    hasty = dist.new_group(timeout=datetime.timedelta(seconds=10))
    pids = [None] * ranks
    dist.all_gather_object(pids, os.getpid())
    if rank == 1:
        time.sleep(0.1)
        os.kill(pids[0], signal.SIGSTOP)
        time.sleep(11)
        os.kill(pids[0], signal.SIGCONT)
        time.sleep(0.5)
    tensor = torch.ones(4)
    dist.all_reduce(tensor, group=hasty)
    expect_equal(tensor, torch.full((4,), float(ranks)), "the sum after the pause")


def timeout_of_centuries(rank, ranks):
    long = datetime.timedelta(days=300 * 365)
    patient = dist.new_group(timeout=long)
    if rank == 0:
        dist.all_reduce(torch.ones(4), group=patient)
        dist.all_reduce(torch.ones(4), group=patient, async_op=True).wait(long)
    else:
        for _ in range(2):
            time.sleep(0.5)
            dist.all_reduce(torch.ones(4), group=patient)


def mismatch(rank, ranks):
    expect_error(
        "differ", lambda: dist.all_reduce(torch.ones(4 if rank == 0 else 5))
    )


def lost_peer(rank, ranks):
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    expect_error("rank 1", lambda: dist.all_reduce(torch.ones(4)))


class LifetimeTest(RanksTest):
    def test_futures(self):
        self.over(futures, 2)

    def test_pending_at_the_end(self):
        self.over(pending_at_the_end, 2)

    def test_groups_that_end(self):
        self.over(groups_that_end, 2)

    def test_receives_that_nobody_waits_for(self):
        self.over(receives_that_nobody_waits_for, 3)

    def test_future_of_a_receive(self):
        self.over(future_of_a_receive, 2)

    def test_forked_child_ends(self):
        self.over(forked_child_ends, 2)

    def test_workers(self):
        self.over(workers, 2)

    def test_timeout_names_who_is_missing(self):
        self.over(timeout, 3)

    def test_time_in_which_a_rank_is_stopped_does_not_count(self):
        self.over(stopped, 2)

    def test_timeout_of_centuries(self):
        self.over(timeout_of_centuries, 2)

    def test_mismatch(self):
        self.over(mismatch, 2)

    def test_lost_peer(self):
        # Without join() of the context, which ends the others as soon as one has died.
        with tempfile.TemporaryDirectory() as folder:
            context = start_ranks((lost_peer, 3, folder, 60), 3)
            try:
                for process in context.processes:
                    process.join(120)
                codes = [process.exitcode for process in context.processes]
            finally:
                for process in context.processes:
                    process.kill()
                    process.join()
        self.assertEqual(codes, [0, -signal.SIGKILL, 0])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
