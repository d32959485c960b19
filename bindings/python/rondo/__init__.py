"""Rondo's collectives for NumPy arrays: ranks of one job reduce, gather and exchange them.

    import numpy, rondo

    with rondo.World() as world:                      # joins the job that `rondo run` has started
        gradients = world.empty(1_000_000, "float32")    # memory that all ranks of the node reach
        gradients[:] = world.rank
        world.allreduce(gradients)                       # in place
        gradients /= world.size

- Arrays are reduced in place, as mpi4py and torch.distributed do it, or into `out`. They must be
  C-contiguous, and of float16, float32, float64, bfloat16 or integers. Arrays of World.empty(),
  those that NumPy makes within World.arrays(), and those that World.adopt() was given are reduced
  in one pass over shared memory; any other array works, too, and takes longer.
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
import sys
import weakref

import numpy

from rondo._arguments import _array, _int, _options, _path, _type_of
from rondo._arrays import arrays_of
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
    _Owner,
    __version__,
    _c,
)
from rondo._communicator import Communicator, Plan
from rondo._requests import Request, wait_all, wait_any
from rondo._requests import end_request, is_pending_on, nanoseconds, taken_from

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

_public = (Communicator, Counters, Error, Op, Plan, RankInfo, Request, Status, wait_all, wait_any)
for _class in _public:
    _class.__module__ = __name__  # users know them by this name


class _Shared:
    """A C world, which lives until it is closed and the last array of its arena is gone.

    Any thread may append to its lists. With multiple_threads several may empty them at the same
    time, so entries are taken out one by one.
    """

    def __init__(self, handle):
        self.handle = handle
        self.arrays = []  # as many entries as there are arrays: a number could lose a change
        self.closed = False
        self.adoptions = 0  # ever made; while there is none, requests need not be known
        self.posted = weakref.WeakSet()
        self.dropped = []  # memory of arrays that are gone
        self.forgotten = []  # (adopted memory, its array) that nobody has released
        self.abandoned = []  # (request, its arrays) that nobody waits for
        self.reap_at = 1  # so many of them are looked at
        self.discarded = []  # (what frees it, handle) of objects that are gone

    def get(self):
        """The handle, for a call on a thread of the World."""
        if self.closed:
            raise ValueError("this World is closed")
        for memory in taken_from(self.dropped):
            _c.rondo_deallocate(self.handle, memory)
        self.release_forgotten()
        self.free_discarded()
        return self.handle

    def release_forgotten(self):
        for adopted, _kept in taken_from(self.forgotten):
            _c.rondo_adopted_free(adopted)

    def free_discarded(self):
        for free, handle in taken_from(self.discarded):
            free(handle)

    def discard(self, free, handle):
        """Frees a handle on the World's thread: its next call, or close()."""
        if self.closed:
            free(handle)
        else:
            self.discarded.append((free, handle))

    def begin(self):
        """Before an operation is posted: frees what nobody keeps."""
        self.get()
        if len(self.abandoned) >= self.reap_at:
            _c.rondo_world_progress(self.handle)
            self.reap()

    def reap(self):
        """Frees abandoned requests that have completed; a failure shows in the next operation.

        Those that remain are not looked at again before they are twice as many, or the program makes
        progress: each post would take longer the more are pending.
        """
        pending = []
        for request in taken_from(self.abandoned):
            if _c.rondo_request_finished(request[0]):
                _c.rondo_request_free(request[0])
            else:
                pending.append(request)
        self.abandoned.extend(pending)
        self.reap_at = max(1, 2 * len(pending))

    def allocate(self, size):
        """The address of memory in the arena, which lives until drop()."""
        memory = ctypes.c_void_p()
        _c.rondo_allocate(self.get(), size, ctypes.byref(memory))
        self.arrays.append(None)
        return memory.value

    def drop(self, memory):
        self.arrays.pop()
        if self.closed:
            self.free()
        else:
            self.dropped.append(memory)

    def close(self):
        if not self.closed:
            self.closed = True
            for handle, _kept in taken_from(self.abandoned):
                end_request(handle)
            self.release_forgotten()
            self.free_discarded()
            self.free()

    def free(self):
        if self.closed and not self.arrays and self.handle is not None:
            handle, self.handle = self.handle, None
            _c.rondo_world_free(handle)


class _ArenaMemory(_Owner):
    """What numpy.asarray() makes an array of, and keeps as the base of all its views."""

    def __init__(self, shared, size):
        self._address = shared.allocate(size)
        self._shared = shared
        self.__array_interface__ = {
            "data": (self._address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self):
        if hasattr(self, "_shared"):
            self._shared.drop(self._address)


class Adopted(_Owner):
    """An array that World.adopt() has put into shared memory: until release(), or for a `with`."""

    def __init__(self, shared, array):
        self._shared = shared
        self._handle = ctypes.c_void_p()
        self.array = array
        address = _array(array, "array")
        _c.rondo_adopt(shared.get(), address, array.nbytes, ctypes.byref(self._handle))
        shared.adoptions += 1

    def release(self):
        """Makes it ordinary memory again. A RuntimeError while an operation is pending on it."""
        if self._handle and not self._shared.closed and is_pending_on(self._shared, self.array):
            raise RuntimeError("an operation on the adopted array is pending; wait for it first")
        handle, self._handle = self._handle, None
        if handle:
            _c.rondo_adopted_free(handle)
        self.array = None  # after the memory is released: this may be its last reference

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


class World(Communicator):
    """The ranks of a job, as this process sees them; itself the communicator of all.

    World() joins the job that the launcher has started this process for, or is one rank. Options:
    waiting ("automatic", "spin", "yield", "block"), deadline, stall_warning and bootstrap_deadline
    in seconds, fabric, interface_pattern, allreduce, fake_nodes, small_bytes, dump_folder,
    multiple_threads: see rondo_options in rondo.h.

    close(), or the end of a `with`, leaves the job; so it is when the World, and the communicators
    and plans that come from it, are gone. While arrays of empty() exist, their memory stays, and the
    rank leaves when the last of them is gone.
    """

    def __init__(self, *, _handle=None, **options):
        if _handle is None:
            _handle = ctypes.c_void_p()
            _c.rondo_attach(ctypes.byref(_options(**options)), ctypes.byref(_handle))
        shared = _Shared(_handle)
        super().__init__(shared, _c.rondo_world_communicator(_handle))

    @classmethod
    def create(cls, rank, size, allgather, **options):
        """Joins `size` processes that have a bootstrap of their own.

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
        rank, size = _int(rank, "rank"), _int(size, "size")
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
        ranks = _int(ranks, "ranks")
        if ranks < 1:
            raise ValueError("a World has at least one rank")
        handles = (ctypes.c_void_p * ranks)()
        _c.rondo_make_threads(ranks, ctypes.byref(_options(**options)), handles)
        return [cls(_handle=ctypes.c_void_p(handle)) for handle in handles]

    def close(self):
        """Leaves the job in order, without waiting for peers. May be called again.

        Peers see that this rank has left when its last Request is gone, too. Operations that are
        pending and that nobody keeps are waited for; receives are given up.
        """
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
        if size > sys.maxsize:
            raise ValueError(f"an array of shape {shape} and {dtype} is too large")
        memory = numpy.asarray(_ArenaMemory(self._shared, size))
        return memory.view(dtype).reshape(shape)

    def zeros(self, shape, dtype="float32"):
        """As empty(), set to zero."""
        array = self.empty(shape, dtype)
        array[...] = 0
        return array

    def arrays(self):
        """For `with`: arrays of 64 KiB and more that NumPy makes on this thread lie in memory of empty().

            with rondo.World() as world, world.arrays():
                gradients = numpy.zeros(1_000_000)
                world.allreduce(gradients)      # in one pass

        They are ordinary arrays, may outlive the `with` and the World, and lie elsewhere where the
        arena has no room for them. A forked child shares their memory with its parent. NumPy calls
        Python for each array that it makes and frees, which takes some microseconds. From NumPy 1.22
        on.
        """
        return arrays_of(self._shared)

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
            _c.rondo_world_progress_for(handle, nanoseconds(seconds))
        self._shared.reap()

    def event_descriptor(self, check_interval=0.05):
        """A descriptor for select, selectors or asyncio, readable when progress may be possible.

            while not request.test():
                if world.arm():
                    selector.select()   # descriptor, and others of the program

        The World owns it: only poll it. While armed it also becomes readable after `check_interval`
        seconds, so that test() notices lost peers; 0: never. The first call starts a thread.
        """
        if check_interval < 0:
            raise ValueError("check_interval is negative; 0 turns the checks off")
        descriptor = ctypes.c_int()
        _c.rondo_world_event_descriptor(
            self._shared.get(), nanoseconds(check_interval), ctypes.byref(descriptor)
        )
        return descriptor.value

    def arm(self):
        """Makes progress, and arms event_descriptor() if nothing moved.

        True: it becomes readable as soon as progress may be possible, so poll it. False: test the
        requests instead. Holds until the next call of this World or of one of its requests.
        """
        armed = ctypes.c_int()
        _c.rondo_world_arm(self._shared.get(), ctypes.byref(armed))
        return bool(armed.value)

    def abort(self, reason):
        """Ends the job's communication: every wait of every rank fails with this reason."""
        if self._shared.closed:
            raise ValueError("this World is closed")
        _c.rondo_world_abort(self._shared.handle, str(reason).encode())

    def dump_flight_record(self, path):
        """Writes what this rank has done lately, as JSON."""
        _c.rondo_world_dump_flight_record(self._shared.get(), _path(path, "path"))

    def set_dump_folder(self, folder):
        """Where flight records go when something fails."""
        _c.rondo_world_set_dump_folder(self._shared.get(), _path(folder, "folder"))
