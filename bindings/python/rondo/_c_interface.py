"""rondo.h as ctypes sees it: its types and functions, how its errors become exceptions, and how
librondo.so is found."""

import collections
import ctypes
import enum
import os

__version__ = "0.2.0"


class Status(enum.IntEnum):
    """Why something failed: those of rondo.h."""

    PEER_LOST = 1  # a rank has ended, or left before it took part
    MISMATCH = 2  # ranks posted different operations
    DEADLINE_EXCEEDED = 3  # a peer is alive, but did not take part in time
    ABORTED = 4  # some rank called World.abort()
    BOOTSTRAP_FAILED = 5  # the ranks of the job did not find each other
    OUT_OF_MEMORY = 6
    LINK_UNAVAILABLE = 7  # a link to other nodes could not be loaded or opened
    INVALID_ARGUMENT = 100
    SYSTEM_ERROR = 101
    INTERNAL_ERROR = 102


class Op(enum.IntEnum):
    """How a reduction joins two elements; its name in lower case will do, too."""

    SUM = 0
    MIN = 1
    MAX = 2
    PROD = 3
    AVG = 4
    BIT_AND = 5
    BIT_OR = 6
    BIT_XOR = 7


class Error(RuntimeError):
    """A failure in flight. `status` says what it is; `rank`, the peer at fault or None."""

    def __init__(self, status, text, rank=None):
        super().__init__(text)
        self.status = status
        self.rank = rank


class _Owner:
    """An object that frees something of the library: a copy of it would free the same again."""

    def __reduce_ex__(self, _protocol):
        raise TypeError(f"a rondo.{type(self).__name__} can be neither copied nor pickled")


RankInfo = collections.namedtuple("RankInfo", "pid node host")
RankInfo.__doc__ = "Where a rank runs. Ranks of one node share memory."

_COUNTERS = (
    "operations",
    "loaded_bytes",
    "stored_bytes",
    "sent_messages",
    "sent_bytes",
    "fabric_messages",
    "fabric_bytes",
    "waiting_ns",
    "communicating_ns",
)
Counters = collections.namedtuple("Counters", _COUNTERS)
Counters.__doc__ = "What a rank has moved since its World began: see rondo_counters in rondo.h."


class _COptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("waiting", ctypes.c_int),
        ("deadline_ms", ctypes.c_int64),
        ("stall_warning_ms", ctypes.c_int64),
        ("bootstrap_deadline_ms", ctypes.c_int64),
        ("small_bytes", ctypes.c_size_t),
        ("fabric", ctypes.c_char_p),
        ("interface_pattern", ctypes.c_char_p),
        ("allreduce", ctypes.c_char_p),
        ("dump_folder", ctypes.c_char_p),
        ("fake_nodes", ctypes.c_int),
        ("injected_latency_ns", ctypes.c_int64),
        ("injected_bytes_per_second", ctypes.c_double),
        ("on_stall", ctypes.c_void_p),
        ("on_stall_context", ctypes.c_void_p),
        ("multiple_threads", ctypes.c_int),
    ]


class _CRankInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("pid", ctypes.c_int),
        ("node", ctypes.c_int),
        ("host", ctypes.c_char_p),
    ]


class _CCounters(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in _COUNTERS]


_ALLGATHER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)

# Arguments by a letter each: p a pointer, i an int, n a size, l 64 bits, u 64 bits without a sign,
# s a text.
_LETTERS = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "n": ctypes.c_size_t,
    "l": ctypes.c_int64,
    "u": ctypes.c_uint64,
    "s": ctypes.c_char_p,
}

# Functions of rondo.h that return a status.
_CHECKED = {
    "rondo_attach": "pp",
    "rondo_create": "iipppp",
    "rondo_make_threads": "ipp",
    "rondo_world_rank_info": "pip",
    "rondo_world_counters": "pp",
    "rondo_world_progress": "p",
    "rondo_world_progress_for": "pl",
    "rondo_world_event_descriptor": "plp",
    "rondo_world_arm": "pp",
    "rondo_world_abort": "ps",
    "rondo_world_dump_flight_record": "ps",
    "rondo_world_set_dump_folder": "ps",
    "rondo_allocate": "pnp",
    "rondo_deallocate": "pp",
    "rondo_adopt": "ppnp",
    "rondo_communicator_split": "piip",
    "rondo_communicator_dup": "pp",
    "rondo_allreduce": "pppniip",
    "rondo_allreduce_coalesced": "pppniip",
    "rondo_reduce": "pppniiip",
    "rondo_reduce_scatter": "pppnpiip",
    "rondo_broadcast": "ppniip",
    "rondo_allgather": "ppnppip",
    "rondo_alltoall": "pppnip",
    "rondo_alltoallv": "pppppip",
    "rondo_gather": "ppnppiip",
    "rondo_scatter": "pppnpiip",
    "rondo_scan": "pppniip",
    "rondo_exscan": "pppniip",
    "rondo_barrier": "pp",
    "rondo_send": "ppniiip",
    "rondo_recv": "ppniiip",
    "rondo_put_signal": "piuip",
    "rondo_wait_signal": "pipip",
    "rondo_request_test": "pp",
    "rondo_request_wait": "p",
    "rondo_request_wait_for": "plp",
    "rondo_request_wait_all_for": "pnlp",
    "rondo_request_wait_any": "pnlp",
    "rondo_request_cancel": "p",
    "rondo_plan_allreduce": "ppniip",
    "rondo_plan_broadcast": "ppniip",
    "rondo_plan_start": "pp",
}

# Those that cannot fail here: their result and arguments.
_PLAIN = {
    "rondo_version": "s",
    "rondo_last_error": "s",
    "rondo_last_error_rank": "i",
    "rondo_world_rank": "ip",
    "rondo_world_size": "ip",
    "rondo_world_nodes": "ip",
    "rondo_world_oversubscribed": "ip",
    "rondo_world_route": "sp",
    "rondo_world_communicator": "pp",
    "rondo_arena_contains": "ippn",
    "rondo_arena_used_bytes": "np",
    "rondo_communicator_rank": "ip",
    "rondo_communicator_size": "ip",
    "rondo_request_finished": "ip",
}
_FREE = (
    "rondo_world_free",
    "rondo_communicator_free",
    "rondo_adopted_free",
    "rondo_request_free",
    "rondo_plan_free",
)


def _raise_if_failed(status, _function, _arguments):
    if status == 0:
        return
    text = _c.rondo_last_error().decode(errors="replace")
    if status == Status.INVALID_ARGUMENT:
        raise ValueError(text)
    rank = _c.rondo_last_error_rank()
    known = status in Status.__members__.values()
    raise Error(Status(status) if known else status, text, None if rank < 0 else rank)


def load_transport():
    """Loads the librondo-transport.so that this package was installed with, for what is linked to it.

    A prefix of one's own need not be where the dynamic linker looks. The folder of the library; None
    when the package is not installed, or the library is not there.
    """
    try:
        # pylint: disable=import-outside-toplevel
        from rondo._installed import LIBRARY_FOLDER, TRANSPORT
    except ImportError:
        return None
    transport = os.path.join(LIBRARY_FOLDER, TRANSPORT)
    if not os.path.exists(transport):
        return None
    ctypes.CDLL(transport, mode=ctypes.RTLD_GLOBAL)
    return LIBRARY_FOLDER


def _load():
    """The library that RONDO_LIBRARY names, the one this package was installed with, or any."""
    path = os.environ.get("RONDO_LIBRARY")
    if not path:
        name = "librondo.so." + __version__.split(".", maxsplit=1)[0]
        folder = load_transport()
        path = name if folder is None else os.path.join(folder, name)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"rondo: cannot load {path} ({error}); install Rondo, set RONDO_LIBRARY to its "
            "librondo.so, or use `meson devenv -C BUILD`"
        ) from None
    for functions, checked in ((_CHECKED, True), (_PLAIN, False)):
        for function, letters in functions.items():
            found = getattr(library, function)
            types = [_LETTERS[letter] for letter in letters]
            found.restype = ctypes.c_int if checked else types[0]
            found.argtypes = types if checked else types[1:]
            if checked:
                found.errcheck = _raise_if_failed
    for function in _FREE:
        getattr(library, function).restype = None
        getattr(library, function).argtypes = [ctypes.c_void_p]
    version = library.rondo_version().decode()
    if version != __version__:
        raise ImportError(
            f"rondo: this package is of version {__version__}, but {path} of version {version}; "
            "install the same"
        )
    return library


class _Library:
    """librondo.so, loaded when it is first called: `rondo.torch` does without it."""

    def __getattr__(self, name):
        library = _load()
        for function in (*_CHECKED, *_PLAIN, *_FREE):
            setattr(self, function, getattr(library, function))
        return getattr(library, name)


_c = _Library()
