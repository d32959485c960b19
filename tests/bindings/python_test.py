"""The Python package: every operation, in the job that `rondo run` has started, and what fails.

All ranks run the same cases in the same order. Exact: all values are small whole numbers.
"""

import contextlib
import copy
import ctypes
import functools
import gc
import math
import operator
import os
import pathlib
import pickle
import re
import select
import sys
import tempfile
import types
import unittest
import unittest.mock

import numpy

import rondo

FLOATS = ("float16", "float32", "float64")
INTEGERS = tuple(sign + str(bits) for sign in ("int", "uint") for bits in (8, 16, 32, 64))
DTYPES = FLOATS + INTEGERS
WORLD = None


def setUpModule():
    global WORLD
    WORLD = rondo.World(deadline=60)


def tearDownModule():
    WORLD.close()


def filled(value, shape=4, dtype="float32"):
    return numpy.full(shape, value, dtype)


class Collectives(unittest.TestCase):
    def setUp(self):
        self.world = WORLD
        self.rank = WORLD.rank
        self.size = WORLD.size
        self.sum = self.size * (self.size + 1) // 2

    def check(self, array, values):
        numpy.testing.assert_array_equal(array, values)

    def test_allreduce_of_all_types_and_reductions(self):
        results = {"sum": self.sum, "min": 1, "max": self.size, "prod": math.factorial(self.size)}
        for dtype in DTYPES:
            for op, expected in results.items():
                for make in (numpy.empty, self.world.empty):
                    array = make((3, 5), dtype)
                    array[...] = self.rank + 1
                    self.assertIs(self.world.allreduce(array, op=op), array)
                    self.check(array, filled(expected, (3, 5), dtype))

    def test_averages_and_bits(self):
        joins = {"bit_and": operator.and_, "bit_or": operator.or_, "bit_xor": operator.xor}
        for dtype in INTEGERS:
            for op, join in joins.items():
                expected = functools.reduce(join, range(1, self.size + 1))
                self.check(self.world.allreduce(filled(self.rank + 1, dtype=dtype), op), expected)
        for dtype in DTYPES:
            array = filled(2 * (self.rank + 1), dtype=dtype)
            self.check(self.world.allreduce(array, "avg"), self.size + 1)
        for op in joins:
            with self.assertRaisesRegex(ValueError, f"{op} is for integers, not for f32"):
                self.world.allreduce(numpy.zeros(3, "float32"), op)

    def test_allreduce_into_another_array(self):
        array = filled(self.rank + 1)
        array.flags.writeable = False
        out = numpy.zeros(4, "float32")
        self.assertIs(self.world.allreduce(array, out=out, op=rondo.Op.MAX), out)
        self.check(out, filled(self.size))
        self.check(array, filled(self.rank + 1))

    def test_reduce(self):
        array = filled(self.rank + 1)
        result = self.world.reduce(array, root=self.size - 1)
        if self.rank == self.size - 1:
            self.check(result, filled(self.sum))
        else:
            self.assertIsNone(result)
            self.check(array, filled(self.rank + 1))

    def test_reduce_scatter(self):
        array = numpy.arange(2.0 * self.size).reshape(self.size * 2, 1)
        share = self.world.reduce_scatter(array)
        self.check(share, self.size * array[2 * self.rank : 2 * self.rank + 2])
        counts = [rank + 1 for rank in range(self.size)]
        array = filled(1, sum(counts), "int64")
        share = self.world.reduce_scatter(array, counts=counts)
        self.check(share, filled(self.size, self.rank + 1, "int64"))

    def test_broadcast(self):
        array = filled(self.rank)
        self.check(self.world.broadcast(array, root=self.size - 1), filled(self.size - 1))

    def test_allgather(self):
        everyone = self.world.allgather(filled(self.rank, (2, 3), "int32"))
        self.assertEqual(everyone.shape, (self.size, 2, 3))
        for rank in range(self.size):
            self.check(everyone[rank], filled(rank, (2, 3)))
        counts = list(range(self.size))
        everyone = self.world.allgather(filled(self.rank, self.rank), counts=counts)
        self.check(everyone, numpy.repeat(numpy.arange(self.size), counts))

    def test_alltoall(self):
        array = numpy.arange(self.size, dtype="int64") + 10 * self.rank
        self.check(self.world.alltoall(array), 10 * numpy.arange(self.size) + self.rank)

    def test_messages(self):
        following, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        received = numpy.empty(3)
        request = self.world.recv(received, before, tag=5, wait=False)
        token = self.world.wait_signal(before, wait=False)
        self.world.send(filled(self.rank, 3, "float64"), following, tag=5)
        self.world.put_signal(following, 2**63 + self.rank)
        self.assertIs(request.wait(), received)
        self.check(received, filled(before, 3))
        self.assertEqual(token.wait(), 2**63 + before)

    def test_receive_that_is_given_up(self):
        request = self.world.recv(numpy.empty(1), self.rank, tag=77, wait=False)
        self.assertFalse(request.test())
        with self.assertRaises(TimeoutError):
            request.wait(timeout=0.001)
        with self.assertRaisesRegex(ValueError, "NaN"):
            request.wait(timeout=math.nan)
        request.cancel()

    def test_a_timeout_may_be_infinite(self):
        ones = [filled(1, 3), filled(1, 3)]
        requests = [self.world.allreduce(array, wait=False) for array in ones]
        self.assertIsNotNone(rondo.wait_any(requests, timeout=math.inf))
        rondo.wait_all(requests, timeout=math.inf)
        self.check(self.world.allreduce(filled(1, 3), wait=False).wait(math.inf), filled(self.size, 3))

    def test_deadlines_may_be_infinite(self):
        never = {"deadline": math.inf, "stall_warning": math.inf, "bootstrap_deadline": math.inf}
        with rondo.World.create(0, 1, lambda data: [data], **never) as world:
            self.check(world.allreduce(filled(1)), filled(1))
        worlds = rondo.World.make_threads(2, **never)
        requests = [world.barrier(wait=False) for world in worlds]
        for request in requests:
            request.wait()

    def test_requests_keep_their_arrays_alive(self):
        requests = [
            self.world.allreduce(filled(self.rank + 1, 10_000), wait=False) for _ in range(20)
        ]
        gc.collect()
        self.world.progress()
        for request in reversed(requests):
            self.check(request.wait(), filled(self.sum, 10_000))
            self.assertTrue(request.test())

    def test_requests_that_nobody_keeps(self):
        arrays = [filled(self.rank + 1, 1000) for _ in range(5)]
        for array in arrays:
            self.world.allreduce(array, wait=False)
        gc.collect()
        self.world.barrier()
        self.world.barrier()
        for array in arrays:
            self.check(array, filled(self.sum, 1000))

    def test_many_requests_that_nobody_keeps(self):
        """A post looks at few of those that are pending, however many there are."""
        looks = {"progress": 0, "request_test": 0, "request_finished": 0}
        functions = {name: f"rondo_{'world_' * (name == 'progress')}{name}" for name in looks}
        rondo._c_interface._c.rondo_version()  # loads the functions

        def counting(name, function):
            def call(*arguments):
                looks[name] += 1
                return function(*arguments)

            return call

        with contextlib.ExitStack() as stack:
            for name, function in functions.items():
                counted = counting(name, getattr(rondo._c_interface._c, function))
                stack.enter_context(
                    unittest.mock.patch.object(rondo._c_interface._c, function, counted)
                )
            worlds = rondo.World.make_threads(2)
            for tag in range(64):
                worlds[0].recv(numpy.empty(1), 1, tag=tag, wait=False)
            self.assertLessEqual(looks["progress"] + looks["request_test"], 8)
            self.assertLessEqual(looks["request_finished"], 128)
            self.assertEqual(len(worlds[0]._shared.abandoned), 64)
            for tag in range(64):
                worlds[1].send(numpy.ones(1), 0, tag=tag)
                worlds[0].progress()
            self.assertEqual(worlds[0]._shared.abandoned, [])
            for world in worlds:
                world.close()

    def test_parts_of_any_length(self):
        ranks, last = range(self.world.size), self.world.size - 1
        counts = [r + 1 for r in ranks]
        mine = numpy.arange(counts[self.rank]) + 10 * self.rank
        parts = [numpy.arange(r + 1) + 10 * r for r in ranks]
        gathered = self.world.gather(mine, root=last, counts=counts)
        self.assertEqual(gathered is None, self.rank != last)
        if gathered is not None:
            self.check(gathered, numpy.concatenate(parts))
        back = numpy.zeros_like(mine)
        self.check(self.world.scatter(gathered, back, root=last, counts=counts), mine)
        rows = self.world.gather(numpy.full((2, 3), self.rank), root=0)
        if self.rank == 0:
            self.assertEqual(rows.shape, (self.world.size, 2, 3))
            self.check(rows[last], numpy.full((2, 3), last))
        sent = numpy.full(self.rank * self.world.size, self.rank)
        received = self.world.alltoallv(sent, [self.rank] * self.world.size, list(ranks))
        self.check(received, numpy.repeat(numpy.array(ranks), ranks))
        with self.assertRaises(ValueError):
            self.world.alltoallv(sent, [self.rank + 1] * self.world.size, list(ranks))
        if self.rank == 0:
            with self.assertRaises(ValueError):
                self.world.scatter(numpy.zeros(1 + 2 * self.world.size), numpy.zeros(2))

    def test_several_arrays_as_one(self):
        arrays = [filled(self.rank + 1, n) for n in (1, 0, 1000, 3)]
        self.world.allreduce_coalesced(arrays)
        for array in arrays:
            self.check(array, filled(self.sum, array.size))
        self.world.allreduce_coalesced([])
        with self.assertRaises(TypeError):
            self.world.allreduce_coalesced([numpy.zeros(2), numpy.zeros(2, "int32")])

    def test_running_reductions(self):
        mine = numpy.arange(3.0) + self.rank
        before = sum(numpy.arange(3.0) + r for r in range(self.rank))
        out = numpy.full(3, -1.0)
        self.check(self.world.scan(mine, out=out), before + mine)
        expected = numpy.full(3, -1.0) if self.rank == 0 else before
        self.check(self.world.exscan(mine, out=numpy.full(3, -1.0)), expected)
        self.check(self.world.scan(mine, op="max"), numpy.arange(3.0) + self.rank)
        with self.assertRaises(ValueError):
            self.world.scan(mine, op="avg")

    def test_groups_that_a_rank_leaves(self):
        self.assertIsNone(self.world.split(None))
        part = self.world.split(None if self.rank == 0 else 1)
        self.assertEqual(part is None, self.rank == 0)
        if part is not None:
            self.assertEqual(part.size, self.world.size - 1)
        with self.assertRaises(ValueError):
            self.world.split(-1)
        copy = self.world.dup()
        self.assertEqual((copy.rank, copy.size), (self.rank, self.world.size))

    def test_several_requests(self):
        arrays = [numpy.full(10, value, numpy.int32) for value in (1, 2, 3)]
        requests = [self.world.allreduce(array, wait=False) for array in arrays]
        found = {rondo.wait_any(requests) for _ in requests}
        self.assertEqual(found, {0, 1, 2})
        self.assertIsNone(rondo.wait_any(requests))
        self.assertIsNone(rondo.wait_any([]))
        self.assertIsNone(rondo.wait_any(request for request in requests))
        for request, value in zip(requests, (1, 2, 3)):
            self.assertTrue((request.wait() == value * self.world.size).all())
        results = rondo.wait_all([self.world.allreduce(array, wait=False) for array in arrays], 60)
        self.assertTrue((results[0] == self.world.size**2).all())

    def test_limited_wait_for_all(self):
        self.assertEqual(rondo.wait_all([], 0), [])
        if self.rank == 1:
            self.assertEqual(self.world.wait_signal(0), 1)
            self.world.put_signal(0, 2)
        elif self.rank == 0 and self.size > 1:
            request = self.world.wait_signal(1, wait=False)
            with self.assertRaisesRegex(TimeoutError, "not all of 1 operations .* 0 s"):
                rondo.wait_all(iter([request]), 0)
            self.world.put_signal(1, 1)
            self.assertEqual(rondo.wait_all(iter([request]), 60), [2])

    def test_split(self):
        part = self.world.split(self.rank % 2, key=-self.rank)
        ranks = [rank for rank in range(self.size) if rank % 2 == self.rank % 2]
        self.assertEqual(part.size, len(ranks))
        self.assertEqual(part.rank, len(ranks) - 1 - self.rank // 2)
        self.check(part.allreduce(filled(self.rank)), filled(sum(ranks)))

    def test_plans(self):
        array = self.world.empty(7)
        reduce = self.world.plan_allreduce(array)
        shared = numpy.empty(2, "int32")
        broadcast = self.world.plan_broadcast(shared)
        for turn in (1, 2):
            array[:] = turn
            shared[:] = self.rank + turn
            request = reduce.start(wait=False)
            self.check(broadcast.start(), filled(turn, 2))
            self.check(request.wait(), filled(turn * self.size, 7))

    def test_shapes_without_elements_and_without_dimensions(self):
        self.assertEqual(self.world.allreduce(numpy.empty((0, 3))).shape, (0, 3))
        self.check(self.world.allreduce(numpy.array(1.0)), self.size)

    def test_bfloat16(self):
        class Dtype:  # as ml_dtypes has it
            name, kind, itemsize, isnative = "bfloat16", "V", 2, True

        self.assertEqual(rondo._arguments._type_of(Dtype), 2)


class Memory(unittest.TestCase):
    def test_arena_arrays(self):
        before = WORLD.arena_bytes
        array = WORLD.zeros((3, 4), "int64")
        view = array[1:]
        self.assertTrue(WORLD.in_arena(array) and WORLD.in_arena(view))
        self.assertFalse(WORLD.in_arena(numpy.zeros(3)))
        self.assertFalse(array.any())
        self.assertGreater(WORLD.arena_bytes, before)
        del array
        gc.collect()
        WORLD.progress()
        self.assertGreater(WORLD.arena_bytes, before)
        view[...] = 1  # its memory is alive still
        del view
        gc.collect()
        WORLD.progress()
        self.assertEqual(WORLD.arena_bytes, before)

    def test_arrays_that_numpy_makes(self):
        before = WORLD.arena_bytes
        with WORLD.arrays():
            array = numpy.full(100_000, 3.0)
            self.assertTrue(WORLD.in_arena(array))
            self.assertTrue(WORLD.in_arena(array * 2 + 1))
            self.assertFalse(numpy.zeros(100_000).any())  # in memory of what is gone
            self.assertFalse(WORLD.in_arena(numpy.zeros(8191)))
        self.assertFalse(WORLD.in_arena(numpy.zeros(100_000)))
        WORLD.allreduce(array)
        self.assertTrue((array == 3.0 * WORLD.size).all())
        array.resize(200_000, refcheck=False)  # by NumPy's realloc(): outside of the arena here
        self.assertEqual(array.sum(), 300_000.0 * WORLD.size)
        WORLD.progress()
        self.assertEqual(WORLD.arena_bytes, before)

    def test_arrays_that_numpy_makes_outlive_their_world(self):
        world = rondo.World.make_threads(1)[0]
        with world.arrays():
            array = numpy.ones(100_000)
            grown = numpy.ones(100_000)
            grown.resize(150_000, refcheck=False)
            self.assertTrue(world.in_arena(grown))
            world.close()
            self.assertEqual(array.sum() + grown.sum(), 200_000)
            self.assertEqual(numpy.ones(100_000).sum(), 100_000)
        del array, grown

    def test_adopted_arrays(self):
        before = WORLD.arena_bytes
        array = numpy.full(300_000, 2.0, "float32")
        with WORLD.adopt(array) as adopted:
            self.assertIs(adopted, array)
            self.assertTrue(WORLD.in_arena(array))
            WORLD.allreduce(array)
            with self.assertRaisesRegex(ValueError, "adopted already"):
                WORLD.adopt(array)
        self.assertFalse(WORLD.in_arena(array))
        self.assertTrue((array == 2.0 * WORLD.size).all())

        forgotten = WORLD.adopt(array)
        del forgotten
        gc.collect()
        WORLD.progress()
        self.assertFalse(WORLD.in_arena(array))
        self.assertEqual(WORLD.arena_bytes, before)
        array.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            WORLD.adopt(array)

    def test_adopted_arrays_without_another_reference(self):
        before = WORLD.arena_bytes
        for _ in range(3):
            adopted = WORLD.adopt(numpy.ones(300_000))
            WORLD.allreduce(adopted.array)
            adopted.release()
            self.assertIsNone(adopted.array)
        self.assertEqual(WORLD.arena_bytes, before)

    # The result would go into pages that nobody sees any more.
    def test_an_adopted_array_is_kept_while_an_operation_is_pending_on_it(self):
        with rondo.World.make_threads(1)[0] as world:
            adopted = world.adopt(numpy.zeros(100_000))
            array = adopted.array
            request = world.recv(array[1000:], 0, wait=False)
            with self.assertRaisesRegex(RuntimeError, "pending; wait for it first"):
                adopted.release()
            world.send(numpy.ones(99_000), 0)
            request.wait()
            adopted.release()
            self.assertEqual(array.sum(), 99_000)

    # Both would free the same operation, or memory: the process ended.
    def test_what_owns_a_handle_is_not_copied(self):
        with rondo.World.make_threads(1)[0] as world:
            plan = world.plan_allreduce(numpy.ones(8))
            owners = (world, plan, plan.start(wait=False), world.adopt(numpy.zeros(100_000)))
            for owner in owners:
                for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaisesRegex(TypeError, "neither copied nor pickled"):
                        copied(owner)

    def test_adopted_arrays_outlive_their_world(self):
        array = numpy.ones(100_000)
        world = rondo.World.make_threads(1)[0]
        kept = world.adopt(array)
        world.close()
        self.assertEqual(array.sum(), 100_000)
        kept.release()
        array += 1
        self.assertEqual(array.sum(), 200_000)

    def test_arrays_outlive_their_world(self):
        with rondo.World.make_threads(1)[0] as world:
            array = world.zeros(1000)
        array += 1
        self.assertEqual(array.sum(), 1000)
        with self.assertRaisesRegex(ValueError, "closed"):
            world.barrier()
        with self.assertRaisesRegex(ValueError, "closed"):
            world.empty(1)
        world.close()

    def test_communicators_and_plans_keep_their_world(self):
        gc.disable()  # nothing of this is a cycle, which would delay the World's end
        self.addCleanup(gc.enable)
        for derive in (lambda ranks: ranks.split(0), lambda ranks: ranks.dup()):
            world = rondo.World.make_threads(1)[0]
            part = derive(derive(world))
            shared = world._shared
            del world
            self.assertEqual(part.allreduce(numpy.ones(3)).sum(), 3)
            plan = part.plan_allreduce(numpy.ones(3))
            del part
            self.assertEqual(plan.start().sum(), 3)
            plan.start(wait=False)  # nobody keeps the Request
            self.assertFalse(shared.closed)
            del plan
            self.assertTrue(shared.closed)

    def test_closing_a_world_ends_its_communicators(self):
        world = rondo.World.make_threads(1)[0]
        part = world.split(0)
        plan = part.plan_allreduce(numpy.ones(3))
        world.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            part.barrier()
        with self.assertRaisesRegex(ValueError, "closed"):
            plan.start()

    def test_starting_a_plan_frees_what_nobody_keeps(self):
        with rondo.World.make_threads(1)[0] as world:
            plan = world.plan_allreduce(numpy.ones(3))
            before = world.arena_bytes
            for _ in range(5):
                world.zeros(1000)
                plan.start(wait=False)
                self.assertEqual(len(world._shared.abandoned), 1)
                self.assertEqual(world._shared.dropped, [])
            self.assertEqual(world.arena_bytes, before)

    def test_facts(self):
        self.assertEqual(len(WORLD.ranks), WORLD.size)
        self.assertEqual(WORLD.ranks[WORLD.rank].pid, os.getpid())
        self.assertEqual((WORLD.nodes, WORLD.route), (1, "none"))
        before = WORLD.counters()
        WORLD.barrier()
        WORLD.progress(0.001)
        self.assertGreater(WORLD.counters().operations, before.operations)

    def test_event_loop(self):
        descriptor = WORLD.event_descriptor()
        self.assertEqual(WORLD.event_descriptor(0.02), descriptor)
        data = numpy.full(4, WORLD.rank, numpy.int32)
        request = WORLD.allreduce(data, wait=False)
        while not request.test():
            if WORLD.arm():
                self.assertEqual(select.select([descriptor], [], [])[0], [descriptor])
        self.assertEqual(data.tolist(), [WORLD.size * (WORLD.size - 1) // 2] * 4)
        with self.assertRaisesRegex(ValueError, "negative"):
            WORLD.event_descriptor(-1)

    def test_flight_record(self):
        path = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"rondo-record-{os.getpid()}.json"
        WORLD.dump_flight_record(path)
        self.assertIn("rondo-flight-record-1", path.read_text(encoding="utf-8"))
        path.unlink()
        with self.assertRaises(rondo.Error) as caught:
            WORLD.dump_flight_record("/dev/null/no/such/folder")
        self.assertEqual(caught.exception.status, rondo.Status.SYSTEM_ERROR)

    def test_version_is_that_of_the_header(self):
        header = pathlib.Path(__file__).parents[2] / "bindings/c/include/rondo/rondo.h"
        numbers = re.findall(r"#define RONDO_VERSION_\w+ (\d+)", header.read_text(encoding="utf-8"))
        self.assertEqual(rondo.__version__, ".".join(numbers))


    def test_finds_the_transport_that_it_was_installed_with(self):
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder) / "librondo-transport.so.0.2"
            installed = types.SimpleNamespace(LIBRARY_FOLDER=folder, TRANSPORT=library.name)
            with unittest.mock.patch.dict(sys.modules, {"rondo._installed": installed}):
                with unittest.mock.patch.object(ctypes, "CDLL") as load:
                    self.assertIsNone(rondo._c_interface.load_transport())
                    load.assert_not_called()
                    library.touch()
                    self.assertEqual(rondo._c_interface.load_transport(), folder)
                    load.assert_called_once_with(str(library), mode=ctypes.RTLD_GLOBAL)


class Failures(unittest.TestCase):
    """On threads of this process, so that each rank's failure is its own."""

    def error_of(self, function):
        with self.assertRaises(rondo.Error) as caught:
            function()
        return caught.exception

    def test_deadline(self):
        worlds = rondo.World.make_threads(2, deadline=0.001)
        error = self.error_of(worlds[0].barrier)
        self.assertEqual(error.status, rondo.Status.DEADLINE_EXCEEDED)
        self.assertEqual(error.rank, 1)

    def test_abort_from_another_rank(self):
        worlds = rondo.World.make_threads(2)
        request = worlds[0].allreduce(numpy.zeros(3), wait=False)
        worlds[1].abort("enough")
        error = self.error_of(request.wait)
        self.assertEqual(error.status, rondo.Status.ABORTED)
        self.assertIn("enough", str(error))

    def test_mismatch(self):
        worlds = rondo.World.make_threads(2)
        requests = [worlds[i].allreduce(numpy.zeros(3 + i), wait=False) for i in range(2)]
        error = self.error_of(requests[0].wait)
        self.assertEqual(error.status, rondo.Status.MISMATCH)
        self.assertIn("allreduce", str(error))

    def test_peer_that_has_left(self):
        worlds = rondo.World.make_threads(2)
        worlds[1].close()
        self.assertEqual(self.error_of(worlds[0].barrier).status, rondo.Status.PEER_LOST)

    def test_request_that_outlives_its_world(self):
        for kept in (True, False):
            worlds = rondo.World.make_threads(2, deadline=20)
            request = worlds[1].recv(numpy.empty(1), 0, wait=False)
            if not kept:
                request = None
            worlds[1].close()
            del request
            gc.collect()
            self.assertEqual(self.error_of(worlds[0].barrier).status, rondo.Status.PEER_LOST)


class Create(unittest.TestCase):
    """Worlds by a bootstrap of the program's own: that of the World which exists."""

    def allgather(self, data):
        everyone = WORLD.allgather(numpy.frombuffer(data, "uint8"))
        return [row.tobytes() for row in everyone]

    def test_second_world_at_the_same_time(self):
        with rondo.World.create(WORLD.rank, WORLD.size, self.allgather) as second:
            ours = WORLD.allreduce(filled(1), wait=False)
            self.assertEqual(second.allreduce(filled(2))[0], 2 * second.size)
            self.assertEqual(ours.wait()[0], WORLD.size)

    def test_failure_of_the_allgather(self):
        def fails(_data):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            rondo.World.create(0, 2, fails)
        with self.assertRaisesRegex(ValueError, "returned 3 bytes"):
            rondo.World.create(0, 2, lambda _data: [b"one"])


if __name__ == "__main__":
    unittest.main()
