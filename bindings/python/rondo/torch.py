"""The backend "rondo" of torch.distributed, for tensors on the CPU.

    import torch.distributed as dist
    import rondo.torch

    dist.init_process_group("rondo")

Everything else stays as it is: collectives, new_group(), and DistributedDataParallel, whose
gradient buckets are put into memory that the ranks of a node share, so that they are reduced in
one pass. Own tensors are put there by `with rondo.torch.arena():`, those that exist already by
`rondo.torch.adopt(tensor)`.
"""

import atexit
import contextlib

import torch
import torch.distributed as dist
import torch.nn.parallel.distributed as ddp

from rondo._c_interface import load_transport

load_transport()

import _rondo_torch  # pylint: disable=wrong-import-position  # linked to it

__all__ = ["adopt", "arena"]


def arena(group=None):
    """For `with`: tensors of 4 KiB and more that this thread makes lie in the group's arena.

    `group` is a process group of this backend; None is the default group. They are ordinary
    tensors, may outlive the group, and are reduced fastest by this very group.
    """
    backend = _backend_of(group or dist.distributed_c10d._get_default_group())
    chosen = None if backend is None else _rondo_torch.Arena(backend)
    if chosen is None or not chosen.usable:
        raise ValueError('rondo.torch.arena: the process group is not of the backend "rondo"')
    return chosen


def adopt(tensor, group=None):
    """Puts the memory of a tensor that exists into the group's arena, where it lies.

    Until release() of what is returned, or the end of `with`, the tensor is reduced in one pass by
    this very group. Its memory is copied once, and once more at the release; other threads must
    not write to it, or to what lies beside it on its first and last page, meanwhile. Until the
    release its storage cannot be resized, and must not be moved by share_memory_(). Where the
    tensor gets other memory, as by half() of its model, that memory is not adopted.
    """
    backend = _backend_of(group or dist.distributed_c10d._get_default_group())
    if backend is None:
        raise ValueError('rondo.torch.adopt: the process group is not of the backend "rondo"')
    return _rondo_torch.Adopted(backend, tensor)


def _backend_of(group):
    # PyTorch 2 wraps a backend for each kind of device in a group. One of NCCL alone has none for the
    # CPU. With TORCH_DISTRIBUTED_DEBUG=DETAIL a wrapper is around it that compares arguments.
    if hasattr(group, "_get_backend"):
        try:
            group = group._get_backend(torch.device("cpu"))
        except RuntimeError:
            return None
    # PyTorch 1 has an object of another type for groups that this rank is no member of.
    elif not isinstance(group, dist.ProcessGroup):
        return None
    return getattr(group, "wrapped_pg", group)


class _Reducer(dist.Reducer):
    """DistributedDataParallel's, which makes its buckets when it is made and once more later."""

    def __init__(self, parameters, bucket_indices, per_bucket_bytes, process_group, *rest, **named):
        backend = _backend_of(process_group)
        self._buckets = contextlib.nullcontext() if backend is None else _rondo_torch.Arena(backend)
        with self._buckets:
            super().__init__(
                parameters, bucket_indices, per_bucket_bytes, process_group, *rest, **named
            )

    def _rebuild_buckets(self):
        with self._buckets:
            return super()._rebuild_buckets()


def _register():
    extra = {"devices": ["cpu"]} if hasattr(dist.Backend, "backend_capability") else {}
    dist.Backend.register_backend("rondo", _rondo_torch.create, **extra)
    dist.Reducer = _Reducer
    assert ddp.dist is dist
    atexit.register(_rondo_torch.close_all)


_register()
