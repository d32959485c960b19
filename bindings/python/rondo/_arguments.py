"""What callers pass, checked and turned into what rondo.h takes: arrays, operations, options."""

import ctypes
import decimal
import numbers
import operator
import os

import numpy

from rondo._c_interface import Op, _COptions
from rondo._requests import A_CENTURY

_TYPES = {
    ("f", 4): 0,
    ("f", 8): 1,
    ("i", 4): 3,
    ("i", 8): 4,
    ("u", 1): 5,
    ("f", 2): 6,
    ("i", 1): 7,
    ("i", 2): 8,
    ("u", 2): 9,
    ("u", 4): 10,
    ("u", 8): 11,
}
_BF16 = 2  # numpy has no name for it; ml_dtypes and others call it bfloat16


def _type_of(dtype):
    kind = _BF16 if dtype.name == "bfloat16" else _TYPES.get((dtype.kind, dtype.itemsize))
    if kind is None or not dtype.isnative:
        raise TypeError(
            f"rondo takes float16, float32, float64, bfloat16 and integers of 8 to 64 bits in the "
            f"machine's byte order, not {dtype}"
        )
    return kind


def _int(value, name, low=-(2**31), high=2**31 - 1):
    """Checks an integer, by default one of C's int: ctypes would cut off what is too long."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}; it must be at least {low} and at most {high}")
    return number


def _array(array, name, writable=True, like=None):
    """Checks an array; its address."""
    if not isinstance(array, numpy.ndarray):
        raise TypeError(f"{name} must be a numpy.ndarray, not {type(array).__name__}")
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError(f"{name} is masked; pass {name}.filled(...), with a value for what is hidden")
    _type_of(array.dtype)
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} is not C-contiguous; pass numpy.ascontiguousarray({name})")
    if not array.flags.aligned:
        raise ValueError(f"{name} is not aligned to its elements; pass a copy")
    if writable and not array.flags.writeable:
        raise ValueError(f"{name} is read-only, but the result goes there")
    if like is not None and array.dtype != like.dtype:
        raise TypeError(f"{name} is of {array.dtype}, but the input of {like.dtype}")
    return array.ctypes.data


def _same_size(out, array):
    if out.size != array.size:
        raise ValueError(f"out has {out.size} elements, the input {array.size}")


def _expect_size(out, size, what):
    if out.size != size:
        raise ValueError(f"out has {out.size} elements, but {what} {size}")


def _op(op):
    try:
        return Op[op.upper()] if isinstance(op, str) else Op(op)
    except (KeyError, ValueError):
        names = ", ".join(repr(known.name.lower()) for known in Op)
        raise ValueError(f"op {op!r} is none of {names}") from None


def _counts(counts, size):
    """A C array of them, or None."""
    if counts is None:
        return None
    counts = [_int(count, "a count", 0, 2**63 - 1) for count in counts]
    if len(counts) != size:
        raise ValueError(f"counts must be {size} numbers, one for each rank")
    return (ctypes.c_size_t * size)(*counts)


def _path(text, name):
    """A text of C, which would end at a NUL."""
    encoded = os.fsencode(text)
    if b"\0" in encoded:
        raise ValueError(f"{name} is {text!r}; it cannot have a NUL")
    return encoded


def _milliseconds(seconds, name):
    """Of a time; at least 1, for 0 means the default."""
    if not isinstance(seconds, (numbers.Real, decimal.Decimal)):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    seconds = float(seconds)  # integers of NumPy may be short
    if not seconds >= 0:
        raise ValueError(f"{name} is {seconds}; it must be at least 0 seconds")
    return max(1, round(min(seconds, A_CENTURY) * 1000))


def _options(waiting="automatic", deadline=None, stall_warning=None, bootstrap_deadline=None, **rest):
    """Keywords as a C structure; times are in seconds."""
    made = _COptions(struct_size=ctypes.sizeof(_COptions))
    names = ("automatic", "spin", "yield", "block")
    if waiting not in names:
        raise ValueError(f"waiting {waiting!r} is none of {', '.join(names)}")
    made.waiting = names.index(waiting)
    times = {
        "deadline": deadline,
        "stall_warning": stall_warning,
        "bootstrap_deadline": bootstrap_deadline,
    }
    for name, seconds in times.items():
        if seconds is not None:
            setattr(made, name + "_ms", _milliseconds(seconds, name))
    for field in ("fabric", "interface_pattern", "allreduce", "dump_folder"):
        text = rest.pop(field, None)
        setattr(made, field, None if text is None else _path(text, field))
    made.small_bytes = _int(rest.pop("small_bytes", 0), "small_bytes", 0, 2**64 - 1)
    for field in ("fake_nodes", "multiple_threads"):
        setattr(made, field, _int(rest.pop(field, 0), field, 0))
    if rest:
        raise TypeError(f"a World has no option {', '.join(sorted(rest))}")
    return made
