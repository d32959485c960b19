"""The Python package: wrong arguments, in the job that `rondo run` has started.

All ranks run the same cases in the same order.
"""

import math
import unittest
from unittest import mock

import numpy

import rondo

WORLD = None


def setUpModule():
    global WORLD
    WORLD = rondo.World(deadline=60)


def tearDownModule():
    WORLD.close()


class Mistakes(unittest.TestCase):
    """Nothing of this is posted: what follows works."""

    def refuses(self, error, text, function, *arguments, **keywords):
        with self.assertRaisesRegex(error, text):
            function(*arguments, **keywords)

    def test_arrays(self):
        read_only = numpy.zeros(4)
        read_only.flags.writeable = False
        unaligned = numpy.zeros(9, "uint8")[1:].view("float64")
        refused = self.refuses
        refused(TypeError, "numpy.ndarray, not list", WORLD.allreduce, [1.0])
        refused(TypeError, "complex128", WORLD.allreduce, numpy.zeros(4, "complex128"))
        refused(TypeError, "complex64", WORLD.broadcast, numpy.zeros(4, "complex64"))
        refused(TypeError, ">f4", WORLD.allreduce, numpy.zeros(4, ">f4"))
        refused(TypeError, "object", WORLD.send, numpy.zeros(4, "object"), 0)
        refused(ValueError, "not C-contiguous", WORLD.allreduce, numpy.zeros((4, 4))[:, ::2])
        refused(ValueError, "not C-contiguous", WORLD.recv, numpy.zeros((4, 4)).T, 0)
        refused(ValueError, "read-only", WORLD.allreduce, read_only)
        refused(ValueError, "read-only", WORLD.recv, read_only, 0)
        refused(ValueError, "not aligned", WORLD.allreduce, unaligned)
        refused(TypeError, "out is of", WORLD.allreduce, numpy.zeros(4), out=numpy.zeros(4, "i4"))
        refused(ValueError, "out has 3", WORLD.allreduce, numpy.zeros(4), out=numpy.zeros(3))
        refused(ValueError, "out has", WORLD.allgather, numpy.zeros(4), out=numpy.zeros(3))
        array = numpy.zeros(WORLD.size)
        refused(ValueError, "overlap", WORLD.alltoall, array, out=array)
        refused(TypeError, "complex64", WORLD.empty, 3, "complex64")
        refused(ValueError, "negative", WORLD.empty, -3)
        refused(ValueError, "too large", WORLD.empty, 2**62, "float64")
        refused(ValueError, "too large", WORLD.empty, (2**40, 2**40))
        masked = numpy.ma.MaskedArray([1.0, 2.0], mask=[False, True])
        refused(TypeError, r"array.filled\(", WORLD.allreduce, masked)
        refused(TypeError, r"out.filled\(", WORLD.allreduce, numpy.zeros(2), out=masked)

    def test_a_numpy_without_allocators(self):
        with mock.patch.object(rondo._arrays, "_set_handler", None):
            with mock.patch.object(rondo._arrays, "_capsule", None):
                with mock.patch.object(numpy, "__version__", "1.21.5"):
                    self.refuses(RuntimeError, "needs NumPy 1.22", WORLD.arrays().__enter__)

    def test_lists(self):
        self.refuses(TypeError, "not int", WORLD.allreduce_coalesced, [1, 2])
        request = WORLD.barrier(wait=False)
        for wait in (rondo.wait_all, rondo.wait_any):
            for timeout in (None, 0):
                self.refuses(TypeError, "Request.*not int", wait, [request, 1], timeout)
        request.wait()

    def test_numbers(self):
        array = numpy.zeros(4 * WORLD.size)
        self.refuses(ValueError, "'product' is none of", WORLD.allreduce, array, op="product")
        self.refuses(ValueError, "op 8", WORLD.allreduce, array, op=8)
        self.refuses(ValueError, "root", WORLD.broadcast, array, root=WORLD.size)
        self.refuses(ValueError, "peer", WORLD.send, array, WORLD.size)
        self.refuses(ValueError, "tag", WORLD.recv, array, 0, tag=-1)
        self.refuses(ValueError, "signal", WORLD.put_signal, 0, -1)
        self.refuses(ValueError, "counts must be", WORLD.allgather, array, counts=[1] * 9)
        for wrong in (2.7, "2"):
            self.refuses(TypeError, "a count must be", WORLD.allgather, array, counts=[wrong])
        self.refuses(ValueError, "a count is", WORLD.allgather, array, counts=[2**64 + 2])
        self.refuses(ValueError, "sum to", WORLD.reduce_scatter, array, counts=[1] * WORLD.size)
        self.refuses(ValueError, "equal shares", WORLD.reduce_scatter, numpy.array(1.0))
        self.refuses(ValueError, "rank 2 is not", rondo.World.create, 2, 2, None)

    def test_integers_are_not_cut_off(self):
        array = numpy.zeros(4 * WORLD.size)
        refused = self.refuses
        for color in (-1, 2**31, 2**32 - 1):
            refused(ValueError, f"color is {color}; .* at least 0 ", WORLD.split, color)
        refused(ValueError, "key is 2147483648", WORLD.split, 0, key=2**31)
        for call in (WORLD.reduce, WORLD.broadcast, WORLD.gather, WORLD.plan_broadcast):
            refused(ValueError, "root is 4294967296", call, array, root=2**32)
        refused(ValueError, "root is 4294967296", WORLD.scatter, array, array, root=2**32)
        for call in (WORLD.send, WORLD.recv):
            refused(ValueError, "peer is 4294967296", call, array, 2**32)
            refused(ValueError, "tag is 4294967296", call, array, 0, tag=2**32)
        refused(ValueError, "peer is 4294967296", WORLD.put_signal, 2**32, 1)
        refused(ValueError, "tag is 4294967296", WORLD.put_signal, 0, 1, tag=2**32)
        refused(ValueError, "value is 18446744073709551616", WORLD.put_signal, 0, 2**64)
        refused(ValueError, "peer is 4294967296", WORLD.wait_signal, 2**32)
        refused(ValueError, "tag is 4294967296", WORLD.wait_signal, 0, tag=2**32)
        refused(ValueError, "size is 4294967297", rondo.World.create, 0, 2**32 + 1, None)
        refused(ValueError, "ranks is 4294967297", rondo.World.make_threads, 2**32 + 1)

    def test_what_is_no_integer(self):
        array = numpy.zeros(4 * WORLD.size)
        refused = self.refuses
        for wrong, kind in ((1.0, "float"), ("1", "str"), (array, "ndarray")):
            refused(TypeError, f"color must be an integer, not {kind}", WORLD.split, wrong)
            refused(TypeError, f"key must be an integer, not {kind}", WORLD.split, 0, key=wrong)
            refused(TypeError, "root must be", WORLD.broadcast, array, root=wrong)
            refused(TypeError, "peer must be", WORLD.send, array, wrong)
            refused(TypeError, "tag must be", WORLD.recv, array, 0, tag=wrong)
            refused(TypeError, "value must be", WORLD.put_signal, 0, wrong)
            refused(TypeError, "fake_nodes must be", rondo.World.make_threads, 1, fake_nodes=wrong)
        refused(TypeError, "peer must be an integer, not NoneType", WORLD.recv, array, None)
        self.assertIs(WORLD.broadcast(array, root=numpy.int64(0)), array)

    def test_options(self):
        self.refuses(TypeError, "no option speed", rondo.World.make_threads, 1, speed=3)
        self.refuses(ValueError, "waiting 'fast'", rondo.World.make_threads, 1, waiting="fast")
        self.refuses(ValueError, "deadline is -1", rondo.World.make_threads, 1, deadline=-1)
        self.refuses(ValueError, "deadline is nan", rondo.World.make_threads, 1, deadline=math.nan)
        self.refuses(TypeError, "a number of seconds", rondo.World.make_threads, 1, deadline="3")
        rondo.World.make_threads(1, deadline=numpy.int16(120))[0].close()
        self.refuses(ValueError, "have a NUL", rondo.World.make_threads, 1, fabric="auto\0x")
        self.refuses(ValueError, "at least one", rondo.World.make_threads, 0)
        for name, value in (
            ("small_bytes", -1),
            ("small_bytes", 2**64),
            ("fake_nodes", -1),
            ("fake_nodes", 2**32 + 3),
            ("multiple_threads", 2**32),
        ):
            with self.assertRaisesRegex(ValueError, f"{name} is {value}"):
                rondo.World.make_threads(1, **{name: value})


if __name__ == "__main__":
    unittest.main()
