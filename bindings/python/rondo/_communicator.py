"""The collectives and messages of a group of ranks, and plans of them."""

import ctypes

import numpy

from rondo._arguments import _array, _counts, _expect_size, _int, _op, _same_size, _type_of
from rondo._c_interface import _c, _Owner
from rondo._requests import Request


class _PlanHandle(_Owner):
    """A C plan, which lives until its Plan and the Requests of it are gone.

    A Request has this and not the Plan: one that nobody keeps is in a list of the World, which must
    not keep the World alive.
    """

    def __init__(self, shared):
        self._shared = shared
        self.value = ctypes.c_void_p()

    def __del__(self):
        if self.value:
            self._shared.discard(_c.rondo_plan_free, self.value)


class Plan(_Owner):
    """An operation whose arrays are given once and that is started many times."""

    def __init__(self, communicator, array):
        self._communicator = communicator  # keeps its World open
        self._shared = communicator._shared
        self._array = array
        self._handle = _PlanHandle(self._shared)

    def start(self, wait=True):
        """Posts the operation: its array, or a Request with wait=False."""
        self._shared.begin()
        request = Request(self._shared, (self._array, self._handle), self._array)
        _c.rondo_plan_start(self._handle.value, ctypes.byref(request._handle))
        return request.wait() if wait else request


class Communicator(_Owner):
    """A group of ranks. Every operation returns its result, or a Request with wait=False."""

    def __init__(self, shared, handle, parent=None):
        self._shared = shared
        self._communicator = handle
        self._parent = parent  # keeps its World open; a World has none

    def __del__(self):
        if getattr(self, "_parent", None) is not None:
            self._shared.discard(_c.rondo_communicator_free, self._communicator)

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
        number = -1 if color is None else _int(color, "color", 0)
        order = _int(key, "key")
        _c.rondo_communicator_split(self._communicator, number, order, ctypes.byref(part))
        return Communicator(self._shared, part, parent=self) if part else None

    def dup(self):
        """The same ranks in the same order, and an order of operations of its own. Collective."""
        self._shared.get()
        copy = ctypes.c_void_p()
        _c.rondo_communicator_dup(self._communicator, ctypes.byref(copy))
        return Communicator(self._shared, copy, parent=self)

    def _post(self, wait, function, *arguments, arrays=(), result=None):
        self._shared.begin()
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

    def allreduce_coalesced(self, arrays, op="sum", wait=True):
        """Replaces each of several arrays of one type by its reduction: as one operation."""
        arrays = list(arrays)
        addresses = (ctypes.c_void_p * len(arrays))(*(_array(a, "array") for a in arrays))
        if len({array.dtype for array in arrays}) > 1:
            raise TypeError("arrays of one operation must have one type")
        counts = (ctypes.c_size_t * len(arrays))(*(array.size for array in arrays))
        kind = _type_of(arrays[0].dtype if arrays else numpy.dtype("uint8"))
        arguments = (addresses, counts, len(arrays), kind, _op(op))
        kept = (*arrays, addresses, counts)
        function = _c.rondo_allreduce_coalesced
        return self._post(wait, function, *arguments, arrays=kept, result=arrays)

    def reduce(self, array, root=0, op="sum", out=None, wait=True):
        """As allreduce(), on the root alone; the result is None elsewhere."""
        root = _int(root, "root")
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
        root = _int(root, "root")
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

    def scan(self, array, op="sum", out=None, wait=True):
        """The running reduction: that of the arrays of ranks 0 to this one, in place or into `out`."""
        return self._scan(_c.rondo_scan, array, op, out, wait)

    def exscan(self, array, op="sum", out=None, wait=True):
        """The same without this rank's own array; that of rank 0 is left as it is."""
        return self._scan(_c.rondo_exscan, array, op, out, wait)

    def _scan(self, function, array, op, out, wait):
        out = array if out is None else out
        source = _array(array, "array", writable=out is array)
        target = _array(out, "out", like=array)
        _same_size(out, array)
        arguments = (source, target, array.size, _type_of(array.dtype), _op(op))
        return self._post(wait, function, *arguments, arrays=(array, out), result=out)

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
        root = _int(root, "root")
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
        root = _int(root, "root")
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
        ends = (_int(peer, "peer"), _int(tag, "tag"))
        arguments = (data, array.size, _type_of(array.dtype), *ends)
        return self._post(wait, _c.rondo_send, *arguments, arrays=(array,))

    def recv(self, array, peer, tag=0, wait=True):
        """Fills the array, or the beginning of it when the message is shorter."""
        data = _array(array, "array")
        ends = (_int(peer, "peer"), _int(tag, "tag"))
        arguments = (data, array.size, _type_of(array.dtype), *ends)
        return self._post(wait, _c.rondo_recv, *arguments, arrays=(array,), result=array)

    def put_signal(self, peer, value, tag=0, wait=True):
        """Sends a number of 0 to 2**64 - 1."""
        number = _int(value, "a signal's value", 0, 2**64 - 1)
        arguments = (_int(peer, "peer"), number, _int(tag, "tag"))
        return self._post(wait, _c.rondo_put_signal, *arguments)

    def wait_signal(self, peer, tag=0, wait=True):
        """The number that the peer has put."""
        value = ctypes.c_uint64()
        arguments = (_int(peer, "peer"), ctypes.addressof(value), _int(tag, "tag"))
        return self._post(
            wait, _c.rondo_wait_signal, *arguments, arrays=(value,), result=lambda: value.value
        )

    def plan_allreduce(self, array, op="sum"):
        """allreduce() of this array, to be started many times."""
        data = _array(array, "array")
        plan = Plan(self, array)
        arguments = (data, array.size, _type_of(array.dtype), _op(op))
        self._shared.get()
        _c.rondo_plan_allreduce(self._communicator, *arguments, ctypes.byref(plan._handle.value))
        return plan

    def plan_broadcast(self, array, root=0):
        """broadcast() of this array, to be started many times."""
        data = _array(array, "array")
        plan = Plan(self, array)
        arguments = (data, array.size, _type_of(array.dtype), _int(root, "root"))
        self._shared.get()
        _c.rondo_plan_broadcast(self._communicator, *arguments, ctypes.byref(plan._handle.value))
        return plan
