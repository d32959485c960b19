"""What programs use beside plain collectives, with the backend "rondo" and with gloo.

Each feature is one function, which runs once with each backend, so a difference shows in the list
of tests. `feature()` says which version of PyTorch has it (of those tested); with an older one the test is
skipped.
"""

import datetime
import json
import os
import pathlib
import sys
import unittest

import torch
import torch.distributed as dist
from torch import nn

import rondo.torch

from backend_ranks import expect, expect_equal, expect_error, RanksTest, touch_file, wait_for_file

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
FEATURES = {}  # functions, in order, by name: (function, ranks, version of PyTorch for each backend)


def feature(ranks=2, rondo=(1, 13), gloo=None):
    def add(function):
        FEATURES[function.__name__] = (function, ranks, {"rondo": rondo, "gloo": gloo or rondo})
        return function

    return add


class Model(nn.Sequential):
    def forward(self, x):  # torch.compile leaves PyTorch's own alone
        return super().forward(x)


def make_model():
    torch.manual_seed(1)
    return Model(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))


def batch(rank):
    return torch.randn(4, 16, generator=torch.Generator().manual_seed(rank))


def trained(model, inputs, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()


def trained_alone(ranks):
    """The model that ranks must have after trained(), each with its own batch()."""
    model = make_model()
    trained(model, torch.cat([batch(rank) for rank in range(ranks)]))
    return dict(model.named_parameters())


def expect_trained(parameters, ranks):
    parameters = dict(parameters)
    for name, value in trained_alone(ranks).items():
        torch.testing.assert_close(parameters[name], value)


@feature()
def gradient_as_bucket_view(rank, ranks):
    model = make_model()
    parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    trained(parallel, batch(rank))
    expect_trained(model.named_parameters(), ranks)
    storages = {parameter.grad.storage().data_ptr() for parameter in model.parameters()}
    expect(len(storages) == 1, "gradients lie in one bucket, not in", len(storages))


@feature(rondo=(2, 0))
def compiled_ddp(rank, ranks):
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.environ["RONDO_TEST_FOLDER"]
    model = make_model()
    parallel = torch.compile(nn.parallel.DistributedDataParallel(model))
    trained(parallel, batch(rank))
    expect(torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0, "graphs were compiled")
    expect_trained(model.named_parameters(), ranks)


@feature()
def uneven_inputs(rank, ranks):
    parallel = nn.parallel.DistributedDataParallel(make_model())
    with parallel.join():
        for _ in range(2 + rank):
            parallel(batch(rank)).sum().backward()
    total = torch.tensor([1.0])
    dist.all_reduce(total)
    expect_equal(total, torch.tensor([float(ranks)]), "a sum after uneven inputs")


@feature(rondo=(2, 1))
def coalesced(rank, ranks):
    with dist._coalescing_manager(async_ops=True) as pending:
        sums = [torch.full((n,), rank + 1.0) for n in (3, 1000)]
        for tensor in sums:
            dist.all_reduce(tensor)
    pending.wait()
    for tensor in sums:
        expect_equal(tensor, torch.full_like(tensor, ranks * (ranks + 1) / 2), "a coalesced sum")
    parts = [torch.full((n,), float(rank)) for n in (3, 1000)]
    wholes = [torch.empty(ranks * part.numel()) for part in parts]
    with dist._coalescing_manager():
        for whole, part in zip(wholes, parts):
            dist.all_gather_into_tensor(whole, part)
    for whole, part in zip(wholes, parts):
        expected = torch.arange(float(ranks)).repeat_interleave(part.numel())
        expect_equal(whole, expected, "gathered with others")
    with dist._coalescing_manager():
        for whole, part in zip(wholes, parts):
            dist.reduce_scatter_tensor(part, whole)
    for part in parts:
        expect_equal(part, torch.full_like(part, float(ranks * rank)), "scattered with others")
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    received = torch.zeros(1)
    exchange = [
        dist.P2POp(dist.isend, torch.tensor([float(rank)]), right),
        dist.P2POp(dist.irecv, received, left),
    ]
    for work in dist.batch_isend_irecv(exchange):
        work.wait()
    expect_equal(received, torch.tensor([float(left)]), "a message of a batch")


@feature(ranks=3, rondo=(2, 1))
def functional_collectives(rank, ranks):
    import torch.distributed._functional_collectives as functional

    group = dist.group.WORLD
    mine = torch.full((ranks, 2), rank + 1.0)
    total = ranks * (ranks + 1) / 2
    everyone = torch.cat([torch.full((ranks, 2), r + 1.0) for r in range(ranks)])
    rows = torch.arange(1.0, ranks + 1).view(-1, 1).expand(-1, 2)
    for name, actual, expected in (
        ("all_reduce", functional.all_reduce(mine, "sum", group), torch.full_like(mine, total)),
        ("all_gather", functional.all_gather_tensor(mine, 0, group), everyone),
        (
            "reduce_scatter",
            functional.reduce_scatter_tensor(mine, "sum", 0, group),
            torch.full((1, 2), total),
        ),
        ("all_to_all", functional.all_to_all_single(mine, None, None, group), rows),
        ("broadcast", functional.broadcast(mine, 1, group), torch.full_like(mine, 2.0)),
    ):
        expect(torch.equal(functional.wait_tensor(actual), expected), name, actual, expected)
    many = functional.all_gather_into_tensor_coalesced([mine, mine + 1], group)
    expect(all(torch.equal(one, everyone + i) for i, one in enumerate(many)), "coalesced", many)
    many = functional.reduce_scatter_tensor_coalesced([mine, 2 * mine], "sum", [0, 0], group)
    expect(all(bool((one == total * (i + 1)).all()) for i, one in enumerate(many)), "sums", many)


@feature(ranks=4, rondo=(2, 6))
def mesh_and_distributed_tensors(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
    row = torch.tensor([1.0])
    dist.all_reduce(row, group=mesh["shard"].get_group())
    expect_equal(row, torch.tensor([2.0]), "the sum of a row of the mesh")
    whole = torch.arange(48.0).view(8, 6)
    weight = torch.arange(24.0).view(6, 4)
    sharded = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
    expect(sharded.to_local().shape == (4, 3), "a shard of", sharded.to_local().shape)
    product = sharded @ distribute_tensor(weight, mesh, [Replicate(), Shard(0)])
    expect(product.placements == (Shard(0), Partial()), "placements", product.placements)
    expect_equal(product.full_tensor(), whole @ weight, "a distributed product")
    for placements in ([Replicate(), Shard(0)], [Shard(1), Replicate()], [Shard(1), Shard(1)]):
        moved = sharded.redistribute(placements=placements)
        expect_equal(moved.full_tensor(), whole, "redistributed as", placements)


@feature(rondo=(2, 14))
def fully_sharded(rank, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = make_model()
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=init_device_mesh("cpu", (ranks,)))
    trained(model, batch(rank))
    expect_trained({name: one.full_tensor() for name, one in model.named_parameters()}, ranks)


@feature(rondo=(2, 6))
def checkpoints(rank, ranks):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (ranks,))
    whole = torch.arange(40.0).view(8, 5)
    state = {"rows": distribute_tensor(whole, mesh, [Shard(0)]), "step": torch.tensor(7)}
    folder = pathlib.Path(os.environ["RONDO_TEST_FOLDER"])
    checkpoint.save(state, checkpoint_id=folder / "now")
    checkpoint.async_save(state, checkpoint_id=folder / "later").result()
    for name in ("now", "later"):
        state = {"rows": distribute_tensor(0 * whole, mesh, [Shard(1)]), "step": torch.tensor(0)}
        checkpoint.load(state, checkpoint_id=folder / name)
        expect_equal(state["rows"].full_tensor(), whole, "what was saved", name)
        expect_equal(state["step"], torch.tensor(7), "the step")


@feature(ranks=3, rondo=(2, 14), gloo=(1, 13))
def monitored_barrier(rank, ranks):
    dist.monitored_barrier()
    soon = datetime.timedelta(seconds=2)
    if rank == 1:
        return wait_for_file("timed-out")
    expect_error("1", lambda: dist.monitored_barrier(timeout=soon))
    touch_file(f"timed-out-{rank}", "timed-out", ranks - 1)


@feature(rondo=(2, 14))
def flight_recorder(rank, ranks):
    from torch._C import _distributed_c10d as c10d

    hook = c10d.FlightRecorderHook.attach(dist.group.WORLD)
    dist.all_reduce(torch.ones(4))
    dist.broadcast(torch.ones(2, 3), 0)
    entries = json.loads(c10d._dump_fr_trace_json())["entries"]
    hook.remove()
    # gloo records each operation once more by itself, as "gloo:...".
    sizes = [one["input_sizes"] for one in entries if one["profiling_name"].startswith("c10d:")]
    expect(sizes == [[[4]], [[2, 3]]], "the recorder has", entries)


@feature(ranks=4, rondo=(2, 14))
def split_groups(rank, ranks):
    # dist.split_group() needs an accelerator; below it is the group's own function.
    ranks_of_half = [0, 2] if rank % 2 == 0 else [1, 3]
    half = dist.group.WORLD.split_group(ranks_of_half, datetime.timedelta(seconds=60))
    expect(half.size() == 2 and half.rank() == rank // 2, half.rank(), "of", half.size())
    tensor = torch.tensor([rank])
    half.allreduce([tensor]).wait()
    expect_equal(tensor, torch.tensor([sum(ranks_of_half)]), "the sum of a half")


@feature(rondo=(2, 14))
def timeout_that_is_set(rank, ranks):
    dist.set_timeout(datetime.timedelta(seconds=2))
    if rank == 1:
        return wait_for_file("timed-out")
    expect_error("2000", lambda: dist.all_reduce(torch.ones(4)))
    touch_file("timed-out-0", "timed-out", 1)


@feature(rondo=(2, 14))
def aborted_and_made_again(rank, ranks):
    backend = dist.get_backend()
    pending = dist.irecv(torch.ones(1), 1 - rank)
    dist.distributed_c10d._abort_process_group()
    expect(not dist.is_initialized(), "a group that was aborted is gone")
    store = f"file://{os.environ['RONDO_TEST_FOLDER']}/again"
    dist.init_process_group(backend, init_method=store, rank=rank, world_size=ranks)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    expect_equal(tensor, torch.tensor([float(ranks)]), "the sum of the second group")
    del pending


@feature(rondo=(1, 13))
def debug_wrapper(rank, ranks):
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group()
    tensor = torch.ones(4)
    dist.all_reduce(tensor, group=group)
    expect_equal(tensor, torch.full((4,), float(ranks)), "a sum through PyTorch's wrapper")
    if dist.get_backend(group) == "rondo":
        with rondo.torch.arena(group):
            inside = torch.ones(5000)
        expect(rondo.torch.arena(group).contains(inside), "the wrapped group has an arena")


class FeaturesTest(RanksTest):
    def run_feature(self, name, backend):
        function, ranks, since = FEATURES[name]
        if VERSION < since[backend]:
            least = ".".join(map(str, since[backend]))
            self.skipTest(f"{backend} has it since PyTorch {least}, and this is {torch.__version__}")
        self.over(function, ranks, backend=backend)


for feature_name, (_, _, versions) in FEATURES.items():
    for backend_name in versions:
        run = lambda test, name=feature_name, backend=backend_name: test.run_feature(name, backend)
        setattr(FeaturesTest, f"test_{feature_name}_with_{backend_name}", run)

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
