"""NumPy's own arrays in an arena, by an allocator that NumPy is given (its NEP 49).

NumPy keeps one allocator in each context of a thread, as contextvars has them, and each array keeps
the one that it was made by. There is one here for all Worlds: a variable of the same context says
whose arena is chosen, and a table which addresses lie in one.
"""

import contextlib
import contextvars
import ctypes
import threading

import numpy

from rondo._c_interface import Error

SMALLEST = 64 * 1024  # bytes

# A _Shared, and the thread that it belongs to: asyncio.to_thread() takes the context to another one.
_chosen = contextvars.ContextVar("rondo.arrays", default=(None, None))
_blocks = {}  # {address: (the _Shared whose arena it lies in, bytes)}
_libc = ctypes.CDLL(None)
_libc.malloc.restype = _libc.calloc.restype = _libc.realloc.restype = ctypes.c_void_p
_libc.malloc.argtypes = [ctypes.c_size_t]
_libc.calloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]

_Malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Calloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_Realloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class _Handler(ctypes.Structure):
    """PyDataMem_Handler."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", _Malloc),
        ("calloc", _Calloc),
        ("realloc", _Realloc),
        ("free", _Free),
    ]


def _in_arena(size):
    """A block of the chosen arena; None where there is none, or no room in it."""
    shared, thread = _chosen.get()
    if size < SMALLEST or thread != threading.get_ident() or shared.closed:
        return None
    try:
        address = shared.allocate(size)
    except Error:
        return None
    _blocks[address] = (shared, size)
    return address


# NumPy may call these while the interpreter ends, when modules have lost their names: what free()
# needs is bound to it.
def _malloc(_context, size):
    return _in_arena(size) or _libc.malloc(size)


def _calloc(_context, count, size):
    address = _in_arena(count * size)
    if address is None:
        return _libc.calloc(count, size)
    ctypes.memset(address, 0, count * size)
    return address


def _free(_context, address, _size, blocks=_blocks, free=_libc.free):
    block = blocks.pop(address, None)
    if block is None:
        free(address)
    else:
        block[0].drop(address)


def _realloc(context, address, size):
    block = _blocks.get(address)
    if block is None:
        return _libc.realloc(address, size)
    moved = _malloc(context, size)
    if moved:
        ctypes.memmove(moved, address, min(size, block[1]))
        _free(context, address, block[1])
    return moved


def _make_capsule():
    handler = _Handler(
        name=b"rondo",
        version=1,
        malloc=_Malloc(_malloc),
        calloc=_Calloc(_calloc),
        realloc=_Realloc(_realloc),
        free=_Free(_free),
    )
    # Arrays may be freed after all objects of this module.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(handler))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(handler), b"mem_handler", None)


def _find_set_handler():
    """PyDataMem_SetHandler, which stands in this place of NumPy's C interface since 1.22."""
    if tuple(int(part) for part in numpy.__version__.split(".")[:2]) < (1, 22):
        raise RuntimeError(
            f"World.arrays() needs NumPy 1.22 or a later one, and this is {numpy.__version__}; "
            "make arrays by World.empty(), or adopt them"
        )
    core = getattr(numpy, "_core", None) or numpy.core  # of NumPy 2, and of 1
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(
        pointer(core.multiarray._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p)
    )
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[304])


_set_handler = None
_capsule = None


@contextlib.contextmanager
def arrays_of(shared):
    """World.arrays()."""
    global _set_handler, _capsule  # pylint: disable=global-statement
    if _capsule is None:
        _set_handler = _find_set_handler()
        _capsule = _make_capsule()
    token = _chosen.set((shared, threading.get_ident()))
    before = _set_handler(_capsule)
    try:
        yield
    finally:
        _set_handler(before)
        _chosen.reset(token)
