"""Rondo's collectives for NumPy arrays: ranks of one job reduce, gather and exchange them.

    import numpy, rondo

    with rondo.World() as world:                      # joins the job that `rondo run` has started
        gradients = world.empty(1_000_000, "float32")    # memory that all ranks of the node reach
        gradients[:] = world.rank
        world.allreduce(gradients)                       # in place
        gradients /= world.size

- Arrays are reduced in place, as mpi4py and torch.distributed do it, or into `out`. They must be
  C-contiguous, and of float16, float32, float64, bfloat16 or integers. Arrays of World.empty() and
  those that World.adopt() was given are reduced in one pass over shared memory; any other array
  works, too, and takes longer.
- With wait=False an operation returns a Request at once. It keeps its arrays alive; until it has
  completed they may be read at most. Progress is made inside World.progress(), Request.test() and
  Request.wait().
- All ranks call the same collectives of a communicator in the same order.
- A World, and what comes from it, belongs to one thread at a time; only World.abort() may be
  called from others.
- A wrong argument is a TypeError or a ValueError. What fails in flight is an Error with its status.

The package calls librondo.so by ctypes, and needs no compiler.
"""

import ctypes
import os

import numpy

from rondo._arguments import _array, _counts, _expect_size, _op, _options, _same_size, _type_of
from rondo._c_interface import (
    Counters,
    Error,
    Op,
    RankInfo,
    Status,
    _ALLGATHER,
    _CCounters,
    _COUNTERS,
    _CRankInfo,
    __version__,
    _c,
)
from rondo._requests import Request, _is_pending, wait_all, wait_any

__all__ = [
    "Adopted",
    "Communicator",
    "Counters",
    "Error",
    "Op",
    "Plan",
    "RankInfo",
    "Request",
    "Status",
    "World",
    "wait_all",
    "wait_any",
]

for _class in (Counters, Error, Op, RankInfo, Request, Status, wait_all, wait_any):
    _class.__module__ = __name__  # users know them by this name


class _Shared:
    """A C world, which lives until it is closed and the last array of its arena is gone."""

    def __init__(self, handle):
        self.handle = handle
        self.arrays = 0
        self.closed = False
        self.dropped = []  # memory of arrays that are gone; any thread may append
        self.forgotten = []  # (adopted memory, its array) that nobody has released; likewise
        self.abandoned = []  # (request, its arrays) that nobody waits for

    def get(self):
        """The handle, for a call on the World's thread."""
        if self.closed:
            raise ValueError("this World is closed")
        while self.dropped:
            _c.rondo_deallocate(self.handle, self.dropped.pop())
        self.release_forgotten()
        return self.handle

    def release_forgotten(self):
        while self.forgotten:
            _c.rondo_adopted_free(self.forgotten.pop()[0])

    def reap(self):
        """Frees abandoned requests that have completed; a failure shows in the next operation."""
        left = []
        for handle, arrays in self.abandoned:
            if _is_pending(handle):
                left.append((handle, arrays))
            else:
                _c.rondo_request_free(handle)
        self.abandoned = left

    def drop(self, memory):
        self.arrays -= 1
        if self.closed:
            self.free()
        else:
            self.dropped.append(memory)

    def close(self):
        if not self.closed:
            self.closed = True
            while self.abandoned:
                _c.rondo_request_free(self.abandoned.pop()[0])
            self.release_forgotten()
            self.free()

    def free(self):
        if self.closed and self.arrays == 0 and self.handle is not None:
            handle, self.handle = self.handle, None
            _c.rondo_world_free(handle)


class _ArenaMemory:
    """What numpy.asarray() makes an array of, and keeps as the base of all its views."""

    def __init__(self, shared, size):
        memory = ctypes.c_void_p()
        _c.rondo_allocate(shared.get(), size, ctypes.byref(memory))
        self._address = memory.value
        self._shared = shared
        shared.arrays += 1
        self.__array_interface__ = {
            "data": (self._address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self):
        if hasattr(self, "_shared"):
            self._shared.drop(self._address)


class Adopted:
    """An array that World.adopt() has put into shared memory: until release(), or for a `with`."""

    def __init__(self, shared, array):
        self._shared = shared
        self._handle = ctypes.c_void_p()
        self.array = array
        address = _array(array, "array")
        _c.rondo_adopt(shared.get(), address, array.nbytes, ctypes.byref(self._handle))

    def release(self):
        """Makes it ordinary memory again. No operation may be pending on it."""
        handle, self._handle, self.array = self._handle, None, None
        if handle:
            _c.rondo_adopted_free(handle)

    def __enter__(self):
        return self.array

    def __exit__(self, *_failure):
        self.release()

    def __del__(self):
        # Perhaps on another thread than the World's: the next call of that one releases.
        if getattr(self, "_handle", None) and self._shared.closed:
            self.release()
        elif getattr(self, "_handle", None):
            self._shared.forgotten.append((self._handle, self.array))


class Plan:
    """An operation whose arrays are given once and that is started many times."""

    def __init__(self, shared, array):
        self._shared = shared
        self._array = array
        self._handle = ctypes.c_void_p()

    def start(self, wait=True):
        """Posts the operation: its array, or a Request with wait=False."""
        request = Request(self._shared, (self._array, self), self._array)
        _c.rondo_plan_start(self._handle, ctypes.byref(request._handle))
        return request.wait() if wait else request

    def __del__(self):
        if getattr(self, "_handle", None):
            _c.rondo_plan_free(self._handle)


class Communicator:
    """A group of ranks. Every operation returns its result, or a Request with wait=False."""

    def __init__(self, shared, handle, own=True):
        self._shared = shared
        self._communicator = handle
        self._own = own

    def __del__(self):
        if getattr(self, "_own", False):
            _c.rondo_communicator_free(self._communicator)

    @property
    def rank(self):
        """This process within the group."""
        self._shared.get()
        return _c.rondo_communicator_rank(self._communicator)

    @property
    def size(self):
        """The number of ranks."""
        self._shared.get()
        return _c.rondo_communicator_size(self._communicator)

    def split(self, color, key=0):
        """The ranks that pass the same color, ordered by key, then by rank. Collective.

        A rank that passes None takes part in the call, is in no group, and gets None.
        """
        self._shared.get()
        part = ctypes.c_void_p()
        number = -1 if color is None else color
        if color is not None and color < 0:
            raise ValueError(f"the color is {color}; colors are at least 0")
        _c.rondo_communicator_split(self._communicator, number, key, ctypes.byref(part))
        return Communicator(self._shared, part) if part else None

    def dup(self):
        """The same ranks in the same order, and an order of operations of its own. Collective."""
        self._shared.get()
        copy = ctypes.c_void_p()
        _c.rondo_communicator_dup(self._communicator, ctypes.byref(copy))
        return Communicator(self._shared, copy)

    def _post(self, wait, function, *arguments, arrays=(), result=None):
        self._shared.get()
        if self._shared.abandoned:
            self._shared.reap()
        request = Request(self._shared, arrays, result)
        function(self._communicator, *arguments, ctypes.byref(request._handle))
        return request.wait() if wait else request

    def allreduce(self, array, op="sum", out=None, wait=True):
        """Replaces the array by its reduction over all ranks, or stores that into `out`."""
        out = array if out is None else out
        source = _array(array, "array", writable=out is array)
        target = _array(out, "out", like=array)
        _same_size(out, array)
        kind = _type_of(array.dtype)
        arguments = (source, target, array.size, kind, _op(op))
        return self._post(wait, _c.rondo_allreduce, *arguments, arrays=(array, out), result=out)

    def reduce(self, array, root=0, op="sum", out=None, wait=True):
        """As allreduce(), on the root alone; the result is None elsewhere."""
        mine = root == self.rank
        out = array if out is None else out
        source = _array(array, "array", writable=mine and out is array)
        target = None
        if mine:
            target = _array(out, "out", like=array)
            _same_size(out, array)
        arguments = (source, target, array.size, _type_of(array.dtype), _op(op), root)
        result = out if mine else None
        return self._post(wait, _c.rondo_reduce, *arguments, arrays=(array, out), result=result)

    def reduce_scatter(self, array, op="sum", out=None, counts=None, wait=True):
        """Reduces the array and cuts the result: this rank's share, counts[rank] elements of it.

        Without counts all shares are equal, and the first dimension is cut.
        """
        source = _array(array, "array", writable=False)
        numbers = _counts(counts, self.size)
        if numbers is None:
            if array.ndim == 0 or array.shape[0] % self.size != 0:
                raise ValueError(
                    f"an array of shape {array.shape} cannot be cut into {self.size} equal shares"
                )
            shape = (array.shape[0] // self.size, *array.shape[1:])
        else:
            shape = (numbers[self.rank],)
            if sum(numbers) != array.size:
                raise ValueError(f"counts sum to {sum(numbers)}, the array has {array.size}")
        out = numpy.empty(shape, array.dtype) if out is None else out
        target = _array(out, "out", like=array)
        share = int(numpy.prod(shape, dtype=numpy.int64))
        _expect_size(out, share, "this rank's share has")
        arguments = (source, target, share, numbers, _type_of(array.dtype), _op(op))
        return self._post(
            wait, _c.rondo_reduce_scatter, *arguments, arrays=(array, out), result=out
        )

    def broadcast(self, array, root=0, wait=True):
        """Replaces the array of every rank by that of the root."""
        data = _array(array, "array", writable=root != self.rank)
        arguments = (data, array.size, _type_of(array.dtype), root)
        return self._post(wait, _c.rondo_broadcast, *arguments, arrays=(array,), result=array)

    def allgather(self, array, out=None, counts=None, wait=True):
        """The arrays of all ranks: row r is rank r's.

        With counts rank r's has counts[r] elements, and the result is one flat array.
        """
        source = _array(array, "array", writable=False)
        numbers = _counts(counts, self.size)
        if numbers is not None and numbers[self.rank] != array.size:
            raise ValueError(f"this rank's count is {numbers[self.rank]}, its array has {array.size}")
        shape = (self.size, *array.shape) if numbers is None else (sum(numbers),)
        out = numpy.empty(shape, array.dtype) if out is None else out
        target = _array(out, "out", like=array)
        _expect_size(out, int(numpy.prod(shape, dtype=numpy.int64)), "the ranks' arrays have")
        arguments = (source, array.size, target, numbers, _type_of(array.dtype))
        return self._post(wait, _c.rondo_allgather, *arguments, arrays=(array, out), result=out)

    def alltoall(self, array, out=None, wait=True):
        """Cuts the array into one equal part for each rank; the result has a part of each."""
        source = _array(array, "array", writable=False)
        if array.size % self.size != 0:
            raise ValueError(f"{array.size} elements cannot be cut into {self.size} equal parts")
        out = numpy.empty_like(array) if out is None else out
        target = _array(out, "out", like=array)
        _same_size(out, array)
        if numpy.may_share_memory(array, out):
            raise ValueError("out must not overlap the array")
        arguments = (source, target, array.size // self.size, _type_of(array.dtype))
        return self._post(wait, _c.rondo_alltoall, *arguments, arrays=(array, out), result=out)

    def alltoallv(self, array, counts, out_counts, out=None, wait=True):
        """Sends rank r counts[r] elements of the flat array; the result has out_counts[r] of rank r's."""
        source = _array(array, "array", writable=False)
        numbers, expected = _counts(counts, self.size), _counts(out_counts, self.size)
        if numbers is None or expected is None:
            raise TypeError("counts and out_counts must be numbers, one for each rank")
        if sum(numbers) != array.size:
            raise ValueError(f"the array has {array.size} elements, counts say {sum(numbers)}")
        out = numpy.empty(sum(expected), array.dtype) if out is None else out
        target = _array(out, "out", like=array)
        _expect_size(out, sum(expected), "out_counts say")
        if numpy.may_share_memory(array, out):
            raise ValueError("out must not overlap the array")
        arguments = (source, numbers, target, expected, _type_of(array.dtype))
        arrays = (array, out, numbers, expected)
        return self._post(wait, _c.rondo_alltoallv, *arguments, arrays=arrays, result=out)

    def gather(self, array, root=0, out=None, counts=None, wait=True):
        """As allgather(), on the root alone; the result is None elsewhere."""
        source = _array(array, "array", writable=False)
        numbers = _counts(counts, self.size)
        target = None
        if root == self.rank:
            shape = (self.size, *array.shape) if numbers is None else (sum(numbers),)
            out = numpy.empty(shape, array.dtype) if out is None else out
            target = _array(out, "out", like=array)
            _expect_size(out, int(numpy.prod(shape, dtype=numpy.int64)), "the ranks' arrays have")
        arguments = (source, array.size, target, numbers, _type_of(array.dtype), root)
        result = out if root == self.rank else None
        return self._post(wait, _c.rondo_gather, *arguments, arrays=(array, out), result=result)

    def scatter(self, array, out, root=0, counts=None, wait=True):
        """Cuts the root's array into a part for each rank, which goes to its `out`.

        Elsewhere the array is not read and may be None. With counts rank r's part has counts[r]
        elements.
        """
        target = _array(out, "out")
        numbers = _counts(counts, self.size)
        source = None
        if root == self.rank:
            source = _array(array, "array", writable=False, like=out)
            sum_of_parts = self.size * out.size if numbers is None else sum(numbers)
            if array.size != sum_of_parts:
                raise ValueError(f"the array has {array.size} elements, the parts {sum_of_parts}")
        arguments = (source, target, out.size, numbers, _type_of(out.dtype), root)
        return self._post(wait, _c.rondo_scatter, *arguments, arrays=(array, out), result=out)

    def barrier(self, wait=True):
        """Completes when every rank has called it."""
        return self._post(wait, _c.rondo_barrier)

    def send(self, array, peer, tag=0, wait=True):
        """Completes when the array may be written again."""
        data = _array(array, "array", writable=False)
        arguments = (data, array.size, _type_of(array.dtype), peer, tag)
        return self._post(wait, _c.rondo_send, *arguments, arrays=(array,))

    def recv(self, array, peer, tag=0, wait=True):
        """Fills the array, or the beginning of it when the message is shorter."""
        data = _array(array, "array")
        arguments = (data, array.size, _type_of(array.dtype), peer, tag)
        return self._post(wait, _c.rondo_recv, *arguments, arrays=(array,), result=array)

    def put_signal(self, peer, value, tag=0, wait=True):
        """Sends a number of 0 to 2**64 - 1."""
        if not 0 <= value < 2**64:
            raise ValueError(f"a signal is a number of 0 to 2**64 - 1, not {value}")
        return self._post(wait, _c.rondo_put_signal, peer, value, tag)

    def wait_signal(self, peer, tag=0, wait=True):
        """The number that the peer has put."""
        value = ctypes.c_uint64()
        arguments = (peer, ctypes.addressof(value), tag)
        return self._post(
            wait, _c.rondo_wait_signal, *arguments, arrays=(value,), result=lambda: value.value
        )

    def plan_allreduce(self, array, op="sum"):
        """allreduce() of this array, to be started many times."""
        data = _array(array, "array")
        plan = Plan(self._shared, array)
        arguments = (data, array.size, _type_of(array.dtype), _op(op))
        self._shared.get()
        _c.rondo_plan_allreduce(self._communicator, *arguments, ctypes.byref(plan._handle))
        return plan

    def plan_broadcast(self, array, root=0):
        """broadcast() of this array, to be started many times."""
        data = _array(array, "array")
        plan = Plan(self._shared, array)
        arguments = (data, array.size, _type_of(array.dtype), root)
        self._shared.get()
        _c.rondo_plan_broadcast(self._communicator, *arguments, ctypes.byref(plan._handle))
        return plan


class World(Communicator):
    """The ranks of a job, as this process sees them; itself the communicator of all.

    World() joins the job that the launcher has started this process for, or is one rank. Options:
    waiting ("automatic", "spin", "yield", "block"), deadline, stall_warning and rendezvous_deadline
    in seconds, fabric, interface_pattern, allreduce, fake_nodes, small_bytes, dump_folder: see
    rondo_options in rondo.h.

    close(), or the end of a `with`, leaves the job. While arrays of empty() exist, their memory
    stays, and the rank leaves when the last of them is gone.
    """

    def __init__(self, *, _handle=None, **options):
        if _handle is None:
            _handle = ctypes.c_void_p()
            _c.rondo_attach(ctypes.byref(_options(**options)), ctypes.byref(_handle))
        shared = _Shared(_handle)
        super().__init__(shared, _c.rondo_world_communicator(_handle), own=False)

    @classmethod
    def create(cls, rank, size, allgather, **options):
        """Joins `size` processes that have a rendezvous of their own.

        allgather(data) is given bytes, as long on every rank, and returns those of all ranks as a
        list: with mpi4py, World.create(comm.rank, comm.size, comm.allgather).
        """
        failure = []

        def call(mine, everyone, count, _context):
            try:
                parts = b"".join(allgather(ctypes.string_at(mine, count)))
                if len(parts) != size * count:
                    raise ValueError(f"allgather returned {len(parts)} bytes, not {size * count}")
                ctypes.memmove(everyone, parts, len(parts))
                return 0
            except BaseException as error:  # pylint: disable=broad-except
                failure.append(error)
                return 1

        handle = ctypes.c_void_p()
        function = _ALLGATHER(call)
        made = _options(**options)
        try:
            _c.rondo_create(
                rank, size, function, None, ctypes.byref(made), ctypes.byref(handle)
            )
        except Error:
            if failure:
                raise failure[0] from None
            raise
        return cls(_handle=handle)

    @classmethod
    def make_threads(cls, ranks, **options):
        """Worlds that are one job, for threads of this process: for tests."""
        if ranks < 1:
            raise ValueError("a World has at least one rank")
        handles = (ctypes.c_void_p * ranks)()
        _c.rondo_make_threads(ranks, ctypes.byref(_options(**options)), handles)
        return [cls(_handle=ctypes.c_void_p(handle)) for handle in handles]

    def close(self):
        """Leaves the job in order, without waiting for peers. May be called again."""
        self._shared.close()

    def __enter__(self):
        return self

    def __exit__(self, *_failure):
        self.close()

    def __del__(self):
        if hasattr(self, "_shared"):
            self._shared.close()

    @property
    def nodes(self):
        """The number of nodes."""
        return _c.rondo_world_nodes(self._shared.get())

    @property
    def route(self):
        """How nodes reach each other, for people; "none" when all ranks are on one."""
        return _c.rondo_world_route(self._shared.get()).decode()

    @property
    def oversubscribed(self):
        """Do the node's ranks outnumber the CPUs that they may use?"""
        return bool(_c.rondo_world_oversubscribed(self._shared.get()))

    @property
    def ranks(self):
        """A RankInfo for each rank."""
        handle = self._shared.get()
        infos = []
        for rank in range(self.size):
            info = _CRankInfo(struct_size=ctypes.sizeof(_CRankInfo))
            _c.rondo_world_rank_info(handle, rank, ctypes.byref(info))
            infos.append(RankInfo(info.pid, info.node, info.host.decode()))
        return infos

    def counters(self):
        """What this rank has moved, and how long it took."""
        counters = _CCounters(struct_size=ctypes.sizeof(_CCounters))
        _c.rondo_world_counters(self._shared.get(), ctypes.byref(counters))
        return Counters(*(getattr(counters, name) for name in _COUNTERS))

    def empty(self, shape, dtype="float32"):
        """An array in memory that all ranks of the node can reach; its values are arbitrary."""
        dtype = numpy.dtype(dtype)
        _type_of(dtype)
        shape = (shape,) if numpy.isscalar(shape) else tuple(shape)
        if any(extent < 0 for extent in shape):
            raise ValueError(f"negative dimensions in {shape}")
        size = dtype.itemsize
        for extent in shape:
            size *= int(extent)
        memory = numpy.asarray(_ArenaMemory(self._shared, size))
        return memory.view(dtype).reshape(shape)

    def zeros(self, shape, dtype="float32"):
        """As empty(), set to zero."""
        array = self.empty(shape, dtype)
        array[...] = 0
        return array

    def adopt(self, array):
        """Puts an array that exists into shared memory, where it lies, until that is released.

            with world.adopt(array):
                world.allreduce(array)      # in one pass

        Returns an Adopted. The memory is copied once, and once more at the release. Whole pages are
        replaced: no other thread may write to what lies on the first and the last one meanwhile.
        """
        return Adopted(self._shared, array)

    def in_arena(self, array):
        """Does all of the array lie in memory of empty(), or in an array that is adopted?"""
        address = _array(array, "array", writable=False)
        return bool(_c.rondo_arena_contains(self._shared.get(), address, array.nbytes))

    @property
    def arena_bytes(self):
        """Bytes of empty() that are in use."""
        return _c.rondo_arena_used_bytes(self._shared.get())

    def progress(self, seconds=None):
        """Advances pending operations as far as they go without waiting, for about so long."""
        handle = self._shared.get()
        if seconds is None:
            _c.rondo_world_progress(handle)
        else:
            _c.rondo_world_progress_for(handle, round(seconds * 1e9))

    def abort(self, reason):
        """Ends the job's communication: every wait of every rank fails with this reason."""
        if self._shared.closed:
            raise ValueError("this World is closed")
        _c.rondo_world_abort(self._shared.handle, str(reason).encode())

    def dump_flight_record(self, path):
        """Writes what this rank has done lately, as JSON."""
        _c.rondo_world_dump_flight_record(self._shared.get(), os.fsencode(path))

    def set_dump_folder(self, folder):
        """Where flight records go when something fails."""
        _c.rondo_world_set_dump_folder(self._shared.get(), os.fsencode(folder))
