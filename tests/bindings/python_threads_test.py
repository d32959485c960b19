"""The Python package on threads: ranks that are threads of one process, and threads of one rank.

Exact: all values are small whole numbers.
"""

import contextvars
import os
import sys
import threading
import unittest

import numpy

import rondo


def filled(value, shape=4):
    return numpy.full(shape, value, "float32")


class Threads(unittest.TestCase):
    def test_ranks_of_one_process(self):
        sums = [None] * 3
        worlds = rondo.World.make_threads(3)

        def run(world):
            with world:
                sums[world.rank] = world.allreduce(filled(world.rank))[0]

        threads = [threading.Thread(target=run, args=(world,)) for world in worlds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sums, [3, 3, 3])

    def test_arrays_of_another_thread_lie_in_ordinary_memory(self):
        world = rondo.World.make_threads(1)[0]
        found = []
        with world, world.arrays():
            mine = numpy.ones(100_000)
            run = contextvars.copy_context().run  # as asyncio.to_thread() does it
            other = threading.Thread(target=run, args=(lambda: found.append(numpy.ones(100_000)),))
            other.start()
            other.join()
            self.assertTrue(world.in_arena(mine))
            self.assertFalse(world.in_arena(found[0]))

    def test_ranks_that_share_a_cpu(self):
        def told(ranks):
            worlds = rondo.World.make_threads(ranks)
            answers = [world.oversubscribed for world in worlds]
            for world in worlds:
                world.close()
            return answers

        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(allowed)})
        try:
            self.assertEqual(told(2), [True, True])
            self.assertEqual(told(1), [False])
        finally:
            os.sched_setaffinity(0, allowed)

    def test_threads_of_a_rank(self):
        """Each rank has a thread that posts at once, and one that posts when all threads run."""
        sums = {}
        begun = threading.Barrier(4, timeout=60)

        def work(rank, comm, first):
            request = comm.allreduce(filled(1), wait=False) if first else None
            begun.wait()
            if not first:
                request = comm.allreduce(filled(1), wait=False)
            sums[rank, first] = request.wait()[0]

        def run(world):
            with world:
                comms = [world.dup(), world.dup()]
                mine = [
                    threading.Thread(target=work, args=(world.rank, comms[i], i == world.rank))
                    for i in range(2)
                ]
                for thread in mine:
                    thread.start()
                for thread in mine:
                    thread.join()

        worlds = rondo.World.make_threads(2, multiple_threads=True, deadline=60)
        ranks = [threading.Thread(target=run, args=(world,)) for world in worlds]
        for thread in ranks:
            thread.start()
        for thread in ranks:
            thread.join()
        self.assertEqual(sums, {(rank, first): 2 for rank in range(2) for first in (False, True)})

    def test_threads_that_keep_no_requests_and_arrays(self):
        """Each frees what all of them have left behind."""
        failures = []

        def work(world, tag):
            try:
                for i in range(300):
                    world.recv(numpy.empty(1), 0, tag, wait=False)
                    world.send(filled(i, 1), 0, tag, wait=False)
                    world.zeros(10)
            except BaseException as error:  # pylint: disable=broad-except
                failures.append(error)

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        self.addCleanup(sys.setswitchinterval, interval)
        (world,) = rondo.World.make_threads(1, multiple_threads=True, deadline=60)
        with world:
            threads = [threading.Thread(target=work, args=(world, tag)) for tag in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            self.assertEqual(world.arena_bytes, 0)


if __name__ == "__main__":
    unittest.main()
