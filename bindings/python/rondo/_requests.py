"""Operations that have been posted, and waiting for one or several of them.

Users see all of it as `rondo.Request`, `rondo.wait_all()` and `rondo.wait_any()`. A request keeps the
arrays of its operation alive; one that nobody keeps is handed to its world, which frees it when it
has completed.
"""

import ctypes
import math
import sys

import numpy

from rondo._c_interface import _c, _Owner

A_CENTURY = 100 * 365 * 24 * 3600  # more would overflow, so inf is this long, too


def nanoseconds(timeout):
    if math.isnan(timeout):
        raise ValueError("a timeout is a number of seconds, not NaN")
    return round(min(max(timeout, 0), A_CENTURY) * 1e9)


def end_request(handle):
    """Gives up a receive, and waits for anything else, before its memory is freed."""
    _c.rondo_request_cancel(handle)
    _c.rondo_request_free(handle)


def taken_from(entries):
    """Takes the entries out of a list one by one; other threads may do the same meanwhile."""
    while True:
        try:
            entry = entries.pop()
        except IndexError:
            return
        yield entry


class Request(_Owner):
    """A posted operation. It keeps the arrays alive that it reads and writes."""

    def __init__(self, shared, arrays, result):
        self._shared = shared
        self._arrays = arrays
        self._result = result
        self._handle = ctypes.c_void_p()
        if shared.adoptions:
            shared.posted.add(self)

    def test(self):
        """True once the operation has completed. Does not wait."""
        if self._handle:
            complete = ctypes.c_int()
            _c.rondo_request_test(self._handle, ctypes.byref(complete))
            if not complete.value:
                return False
            self._finish()
        return True

    def wait(self, timeout=None):
        """The result of the operation, when it has completed.

        With a timeout in seconds it may be a TimeoutError, after which nothing has changed.
        """
        if self._handle and timeout is None:
            _c.rondo_request_wait(self._handle)
        elif self._handle:
            complete = ctypes.c_int()
            limit = nanoseconds(timeout)
            _c.rondo_request_wait_for(self._handle, limit, ctypes.byref(complete))
            if not complete.value:
                raise TimeoutError(f"the operation has not completed within {timeout} s")
        self._finish()
        return self._result() if callable(self._result) else self._result

    def cancel(self):
        """Gives up a recv() or wait_signal() that is pending; anything else is left as it is."""
        if self._handle:
            _c.rondo_request_cancel(self._handle)

    def _finish(self):
        handle, self._handle = self._handle, None
        self._arrays = ()
        if handle:
            _c.rondo_request_free(handle)

    def __del__(self):
        if not getattr(self, "_handle", None) or sys.is_finalizing():
            return
        if self._shared.closed:  # Nobody would free it later, and its rank would never leave.
            end_request(self._handle)
        else:  # Freeing a pending request would wait, and its arrays are still in use.
            self._shared.abandoned.append((self._handle, self._arrays))


def is_pending_on(shared, array):
    """Is an operation on memory of `array` pending that was posted since an array was adopted?"""
    posted = [(request._handle, request._arrays) for request in tuple(shared.posted)]
    return any(
        isinstance(used, numpy.ndarray) and numpy.may_share_memory(used, array)
        for handle, arrays in posted + list(shared.abandoned)
        if handle and not _c.rondo_request_finished(handle)
        for used in arrays
    )


def _check_requests(requests):
    for request in requests:
        if not isinstance(request, Request):
            raise TypeError(f"only a rondo.Request can be waited for, not {type(request).__name__}")


def _handles_of(requests):
    return (ctypes.c_void_p * len(requests))(*[request._handle or None for request in requests])


def wait_all(requests, timeout=None):
    """The results of all requests, in their order, when all have completed.

    With a timeout in seconds it may be a TimeoutError, after which those that are pending may be
    waited for again.
    """
    requests = list(requests)
    _check_requests(requests)
    if timeout is not None:
        complete = ctypes.c_int()
        limit = nanoseconds(timeout)
        handles = _handles_of(requests)
        _c.rondo_request_wait_all_for(handles, len(requests), limit, ctypes.byref(complete))
        if not complete.value:
            many = len(requests)
            raise TimeoutError(f"not all of {many} operations have completed within {timeout} s")
    return [request.wait() for request in requests]


def wait_any(requests, timeout=None):
    """The index of a request that has completed since it was posted or last returned from here.

    None when all have been, or when the timeout, in seconds, was too short; 0 does not wait. The
    request's own wait() gives its result.
    """
    requests = list(requests)
    _check_requests(requests)
    handles = _handles_of(requests)
    limit = -1 if timeout is None else nanoseconds(timeout)
    index = ctypes.c_size_t()
    _c.rondo_request_wait_any(handles, len(requests), limit, ctypes.byref(index))
    if index.value == len(requests):
        return None
    requests[index.value]._finish()
    return index.value
