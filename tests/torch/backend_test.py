"""The backend "rondo" of torch.distributed: what its operations give.

Sums of small integers are exact in every type, so results are compared exactly.
"""

import sys
import threading
import unittest

import torch
import torch.distributed as dist
from torch import nn

import rondo.torch

from backend_ranks import expect, expect_equal, expect_error, RanksTest

Op = dist.ReduceOp
FLOATS = (torch.float, torch.double, torch.half, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def of_rank(rank, dtype, shape=(3, 5)):
    """Small integers that differ from rank to rank and from element to element."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) + rank) % 3 + 1).reshape(shape).to(dtype)


def joined(op, tensors):
    result = tensors[0].clone()
    join = {
        Op.SUM: torch.add,
        Op.PRODUCT: torch.mul,
        Op.MIN: torch.minimum,
        Op.MAX: torch.maximum,
        Op.BAND: torch.bitwise_and,
        Op.BOR: torch.bitwise_or,
        Op.BXOR: torch.bitwise_xor,
    }[op]
    for tensor in tensors[1:]:
        result = join(result, tensor)
    return result


def reductions(rank, ranks):
    ops = (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX)
    for dtype in FLOATS + INTEGERS:
        for op in ops + (() if dtype in FLOATS else (Op.BAND, Op.BOR, Op.BXOR)):
            expected = joined(op, [of_rank(r, dtype) for r in range(ranks)])
            tensor = of_rank(rank, dtype)
            dist.all_reduce(tensor, op)
            expect_equal(tensor, expected, "all_reduce", op, dtype)
            for root in range(ranks):
                tensor = of_rank(rank, dtype)
                dist.reduce(tensor, root, op)
                if rank == root:
                    expect_equal(tensor, expected, "reduce", op, dtype)
    for op, expected in ((Op.BOR, [1, 1, 0]), (Op.BAND, [1, ranks == 1, 0]), (Op.SUM, [1, 1, 0])):
        tensor = torch.tensor([True, rank == 0, False])
        dist.all_reduce(tensor, op)
        expect_equal(tensor, torch.tensor(expected, dtype=torch.bool), "all_reduce of bool", op)
    tensor = torch.full((4,), float(rank))
    dist.all_reduce(tensor, Op.AVG)
    expect_equal(tensor, torch.full((4,), (ranks - 1) / 2), "AVG")
    complex_number = torch.complex(torch.tensor([float(rank)]), torch.tensor([1.0]))
    dist.all_reduce(complex_number)
    expect_equal(complex_number.imag, torch.tensor([float(ranks)]), "a complex sum")


def layouts(rank, ranks):
    total = ranks * (ranks + 1) / 2
    pixels = torch.full((2, 3, 4, 4), rank + 1.0).to(memory_format=torch.channels_last)
    columns = torch.full((6, 4), rank + 1.0).t()
    gaps = torch.full((6, 4), rank + 1.0)[:, ::2]
    for tensor in (pixels, columns, gaps, torch.zeros(0), torch.tensor(rank + 1.0)):
        expected = torch.full_like(tensor, total)
        dist.all_reduce(tensor)
        expect(torch.equal(tensor, expected), "all_reduce of strides", tensor.stride(), tensor)
    rows = torch.arange(6.0).view(2, 3)
    mine = rows.clone() if rank == 0 else rows.t().contiguous().t()
    dist.all_reduce(mine)
    expect_equal(mine, rows * ranks, "all_reduce of strides that differ")
    gaps.fill_(rank)
    dist.broadcast(gaps, ranks - 1)
    expect(bool((gaps == ranks - 1).all()), "broadcast into gaps", gaps)
    outputs = [torch.zeros(4, 6).t() for _ in range(ranks)]
    dist.all_gather(outputs, torch.full((6, 4), float(rank)))
    for r, output in enumerate(outputs):
        expect(bool((output == r).all()), "all_gather into columns", output)


def movements(rank, ranks):
    for dtype in FLOATS + INTEGERS + (torch.bool, torch.complex64):
        mine = of_rank(rank, dtype)
        everyone = [of_rank(r, dtype) for r in range(ranks)]
        for root in range(ranks):
            tensor = mine.clone()
            dist.broadcast(tensor, root)
            expect_equal(tensor, everyone[root], "broadcast", dtype)
            gathered = [torch.empty_like(mine) for _ in range(ranks)] if rank == root else None
            dist.gather(mine, gathered, root)
            if rank == root:
                expect_equal(torch.stack(gathered), torch.stack(everyone), "gather", dtype)
            tensor = torch.empty_like(mine)
            dist.scatter(tensor, everyone if rank == root else None, root)
            expect_equal(tensor, mine, "scatter", dtype)
        gathered = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(gathered, mine)
        expect_equal(torch.stack(gathered), torch.stack(everyone), "all_gather", dtype)
        flat = torch.empty(ranks * mine.numel(), dtype=dtype)
        dist.all_gather_into_tensor(flat, mine.flatten())
        expect_equal(flat, torch.cat(everyone).flatten(), "all_gather_into_tensor", dtype)
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank})
    expect(objects == [{"rank": r} for r in range(ranks)], "all_gather_object", objects)


def scattered_sums(rank, ranks):
    for dtype in FLOATS + (torch.int32, torch.int64):
        parts = [of_rank(rank + part, dtype) for part in range(ranks)]
        expected = joined(Op.SUM, [of_rank(r + rank, dtype) for r in range(ranks)])
        output = torch.empty_like(expected)
        dist.reduce_scatter(output, parts)
        expect_equal(output, expected, "reduce_scatter", dtype)
        output = torch.empty_like(expected)
        dist.reduce_scatter_tensor(output, torch.stack(parts))
        expect_equal(output, expected, "reduce_scatter_tensor", dtype)


def all_to_all(rank, ranks):
    inputs = [torch.tensor([rank * 10 + r]) for r in range(ranks)]
    outputs = [torch.empty(1, dtype=torch.int64) for _ in range(ranks)]
    dist.all_to_all(outputs, inputs)
    expected = torch.tensor([r * 10 + rank for r in range(ranks)])
    expect_equal(torch.cat(outputs), expected, "all_to_all")
    output = torch.empty(ranks, dtype=torch.int64)
    dist.all_to_all_single(output, torch.cat(inputs))
    expect_equal(output, expected, "all_to_all_single")
    # Rank r sends r + 1 rows to each rank.
    output = torch.empty(sum(range(1, ranks + 1)), 2)
    rows = torch.full(((rank + 1) * ranks, 2), float(rank))
    dist.all_to_all_single(output, rows, list(range(1, ranks + 1)), [rank + 1] * ranks)
    expected = torch.cat([torch.full((r + 1, 2), float(r)) for r in range(ranks)])
    expect_equal(output, expected, "all_to_all_single with sizes")


def sizes_that_differ(rank, ranks):
    # Rank 0 says nothing of sizes, rank 1 does.
    sizes = [1] * ranks if rank == 1 else []
    output = torch.zeros(ranks, dtype=torch.int64)
    dist.all_to_all_single(output, torch.arange(ranks) + 10 * rank, sizes, sizes)
    expect_equal(output, torch.arange(ranks) * 10 + rank, "all_to_all_single with sizes and without")
    # An error ends its group. A rank that sends 1 row where 2 are expected:
    group = dist.new_group()
    sent, expected = [2 if r == rank else 1 for r in range(ranks)], [2] * ranks
    rows, output = torch.ones(sum(sent)), torch.zeros(sum(expected))
    exchange = lambda: dist.all_to_all_single(output, rows, expected, sent, group=group)
    expect_error("must expect", exchange)
    rows, output = torch.ones(2 + rank), [torch.zeros(2 + rank) for _ in range(ranks)]
    gathering, scattering = dist.new_group(), dist.new_group()
    root = rank == 0
    expect_error("different", lambda: dist.gather(rows, output if root else None, group=gathering))
    expect_error("different", lambda: dist.scatter(rows, output if root else None, group=scattering))


def exchanged_lists(rank, ranks):
    # Rank r sends r + t + 1 rows to rank t; some tensors are not contiguous.
    inputs = [torch.full((2, rank + t + 1), float(rank)).t() for t in range(ranks)]
    outputs = [torch.zeros(r + rank + 1, 2) for r in range(ranks)]
    outputs[0] = torch.zeros(2, rank + 1).t()
    dist.all_to_all(outputs, inputs)
    for r, output in enumerate(outputs):
        expect_equal(output, torch.full((r + rank + 1, 2), float(r)), "rows of rank", r)
    # Some ranks send nothing.
    inputs = [torch.full((rank,), float(rank)) for _ in range(ranks)]
    outputs = [torch.zeros(r) for r in range(ranks)]
    dist.all_to_all(outputs, inputs)
    expect_equal(torch.cat(outputs), torch.cat([torch.full((r,), float(r)) for r in range(ranks)]))


def messages(rank, ranks):
    right = (rank + 1) % ranks
    left = (rank - 1) % ranks
    for count in (1, 1000, 300_000):
        sent = dist.isend(torch.full((count,), rank), right, tag=7)
        first = torch.empty(count, dtype=torch.int64)
        received = dist.irecv(first, left, tag=7)
        received.wait()
        sent.wait()
        expect(bool((first == left).all()), "a message of", count)
    # Tags tell messages apart, whatever the order.
    for tag in (1, 2):
        dist.isend(torch.tensor([tag]), right, tag=tag)
    for tag in (2, 1):
        tensor = torch.zeros(1, dtype=torch.int64)
        dist.recv(tensor, left, tag=tag)
        expect_equal(tensor, torch.tensor([tag]), "tag", tag)
    expect_error("from any rank", lambda: dist.recv(torch.zeros(1)))


def inference(rank, ranks):
    with torch.inference_mode():
        gathered = [torch.zeros(3) for _ in range(ranks)]
        future = dist.all_gather(gathered, torch.full((3,), float(rank)), async_op=True).get_future()
        future.wait()
        for peer in range(ranks):
            expect_equal(gathered[peer], torch.full((3,), float(peer)), "gathered")


def tensors_with_gradients(rank, ranks):
    # Autograd records none of the copies that the backend makes.
    loss = torch.full((3,), float(rank), requires_grad=True) * 2
    gathered = [torch.zeros(3) for _ in range(ranks)]
    dist.gather(loss, gathered if rank == 0 else None)
    expect(not any(tensor.requires_grad for tensor in gathered), "gathered losses")
    pixels = torch.full((2, 3, 4, 4), float(rank)).to(memory_format=torch.channels_last)
    parameter = nn.Parameter(pixels)
    dist.broadcast(parameter, ranks - 1)
    expect(bool((parameter == ranks - 1).all()), "broadcast of a parameter", parameter)
    expect(parameter.is_leaf and parameter.requires_grad, "a parameter stays one")
    weight = nn.Linear(4, ranks).weight
    output = torch.zeros(4)
    dist.scatter(output, list(weight) if rank == 0 else None)
    expect(not output.requires_grad, "a scattered weight")
    dist.reduce_scatter(output, list(weight))
    expect(not output.requires_grad, "a reduced weight")
    columns = nn.Parameter(torch.full((6, 4), 1.0).t())
    dist.reduce_scatter(columns, [torch.full((4, 6), 2.0) for _ in range(ranks)])
    expect(bool((columns == 2 * ranks).all()), "a sum in a parameter", columns)
    output = torch.zeros(ranks, 4)
    for sizes in ([], [1] * ranks):
        dist.all_to_all_single(output, weight, sizes, sizes)
        expect(not output.requires_grad, "exchanged weights")
    dist.all_to_all(list(output), list(weight))
    expect(not output.requires_grad, "exchanged rows")


def groups(rank, ranks):
    even = dist.new_group(list(range(0, ranks, 2)))
    odd = dist.new_group(list(range(1, ranks, 2)))
    mine = odd if rank % 2 else even
    members = range(rank % 2, ranks, 2)
    for _ in range(3):
        tensor = torch.tensor([rank])
        dist.all_reduce(tensor, group=mine)
        expect_equal(tensor, torch.tensor([sum(members)]), "the sum of a group")
        whole = torch.tensor([1])
        dist.all_reduce(whole)
        expect_equal(whole, torch.tensor([ranks]), "the sum of all")
    # Two threads, each with a group of its own.
    others = [dist.new_group() for _ in range(2)]
    results = [torch.tensor([rank + i]) for i in range(2)]

    def many(i):
        for _ in range(50):
            results[i] = torch.tensor([rank + i])
            dist.all_reduce(results[i], group=others[i])

    threads = [threading.Thread(target=many, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(2):
        expect_equal(results[i], torch.tensor([sum(r + i for r in range(ranks))]), "thread", i)


def arenas(rank, ranks):
    with rondo.torch.arena():
        shared = torch.full((5000,), rank + 1.0)
        small = torch.ones(4)
    ordinary = torch.ones(5000)
    chosen = rondo.torch.arena()
    expect(chosen.contains(shared), "a tensor made in the arena lies there")
    expect(not chosen.contains(ordinary) and not chosen.contains(small), "no other tensor does")
    dist.all_reduce(shared)
    expect(bool((shared == ranks * (ranks + 1) / 2).all()), "a sum in the arena")
    dist.barrier()
    dist.destroy_process_group()
    shared += 1  # a tensor outlives the group
    del shared


def kernels_in_arenas(rank, ranks):
    # oneDNN takes its scratch memory by an interface of its own, and frees it by the address alone.
    images = torch.arange(4 * 3 * 32 * 32).remainder(7).float().view(4, 3, 32, 32)
    ordinary = torch.nn.Conv2d(3, 8, 3)
    expected = ordinary(images)
    expected.sum().backward()
    with rondo.torch.arena():
        convolution = torch.nn.Conv2d(3, 8, 3)
        convolution.load_state_dict(ordinary.state_dict())
        output = convolution(images)
        output.sum().backward()
        blocked = images.to_mkldnn()
    expect(rondo.torch.arena().contains(output), "what a kernel returns lies in the arena")
    expect_equal(output, expected, "a convolution in the arena")
    expect_equal(convolution.weight.grad, ordinary.weight.grad, "its gradient")
    expect_equal(blocked.to_dense(), images, "memory in oneDNN's own order")
    # What lies in the arena is freed by another thread, what does not while the arena is chosen.
    thread = threading.Thread(target=lambda kept: kept.clear(), args=([blocked],))
    del blocked
    thread.start()
    thread.join()
    blocked = images.to_mkldnn()
    with rondo.torch.arena():
        del blocked
    dist.barrier()
    dist.destroy_process_group()
    del output, convolution


def adoption(rank, ranks):
    tensor = torch.full((100_000,), rank + 1.0)
    chosen = rondo.torch.arena()
    with rondo.torch.adopt(tensor) as adopted:
        expect(adopted is tensor or adopted.data_ptr() == tensor.data_ptr(), "the same tensor")
        expect(chosen.contains(tensor), "an adopted tensor lies in the arena")
        dist.all_reduce(tensor)
    expect(not chosen.contains(tensor), "a released tensor does not")
    expect(bool((tensor == ranks * (ranks + 1) / 2).all()), "a sum of adopted memory")
    # The tensor gets other memory; the adopted one must stay until its release.
    for replace in ("half", "data"):
        module = torch.nn.Linear(300, 300)
        held = rondo.torch.adopt(module.weight)
        if replace == "half":
            module.half()
        else:
            module.weight.data = torch.zeros(3, 3)
        expect(not chosen.contains(module.weight), "other memory is not adopted")
        held.release()
    parts = [rondo.torch.adopt(part) for part in (tensor[:40_000], tensor[60_000:])]
    for part in parts:
        # Of an alias: a tensor keeps the size that its storage has refused.
        expect_error("not resizable", lambda: tensor.detach().resize_(1_000_000))
        part.release()
    expect(tensor.resize_(100_001).numel() == 100_001, "a released tensor may grow")
    tensor = tensor.resize_(100_000)
    kept = rondo.torch.adopt(tensor)
    expect_error("adopted already", lambda: rondo.torch.adopt(tensor))
    expect_error("dense tensors", lambda: rondo.torch.adopt(tensor[::2]))
    dist.barrier()
    dist.destroy_process_group()
    kept.release()
    expect(bool((tensor == ranks * (ranks + 1) / 2).all()), "values after the group")


def adoption_beside_operations(rank, ranks):
    # Their memory lies on the pages that move, and the group's own thread frees it.
    ordinary = torch.ones(200)
    for _ in range(300):
        for _ in range(8):
            dist.all_reduce(torch.ones(3, 2).t(), async_op=True)
        for _ in range(4):
            rondo.torch.adopt(ordinary).release()
    dist.barrier()
    expect_equal(ordinary, torch.ones(200), "memory that was adopted and released")


def sparse(rank, ranks):
    """Rows rank and rank + 1, so that ranks share some and not others; rank 0 has none at first."""
    for count in (0, 2):
        many = 2 if rank > 0 else count
        rows = torch.arange(rank, rank + many).view(1, -1)
        tensor = torch.sparse_coo_tensor(rows, torch.full((many, 3), rank + 1.0), (ranks + 1, 3))
        expected = torch.zeros(ranks + 1, 3)
        for peer in range(ranks):
            for row in range(peer, peer + (2 if peer > 0 else count)):
                expected[row] += peer + 1
        dist.all_reduce(tensor)
        expect_equal(tensor.to_dense(), expected, "a sparse sum of", count)
    pair = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), torch.tensor([1, 2]), (2, 2))
    work = dist.all_reduce(pair, async_op=True)
    work.wait()
    expect_equal(pair.to_dense(), torch.tensor([[0, 3 * ranks], [0, 0]]), "one place, twice")
    expect_error("only be summed", lambda: dist.all_reduce(pair, Op.MAX))
    other = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1), (4 + rank,))
    expect_error("of another size", lambda: dist.all_reduce(other))


def ddp(rank, ranks):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))
    images = torch.randn(ranks * 8, 64)
    model(images).square().mean().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for as_view in (False, True):
        parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=as_view)
        mine = images[rank * 8 : rank * 8 + 8]
        for _ in range(3):  # buckets are made anew after the first step
            parallel.zero_grad(set_to_none=True)
            parallel(mine).square().mean().backward()
        with parallel.no_sync():
            parallel(mine).square().mean().backward()
        parallel.zero_grad(set_to_none=True)
        parallel(mine).square().mean().backward()
        for parameter, gradient in zip(model.parameters(), expected):
            torch.testing.assert_close(parameter.grad, gradient)
        if as_view:
            arena = rondo.torch.arena()
            large = [p.grad for p in model.parameters() if p.grad.numel() >= 1024]
            expect(all(arena.contains(grad) for grad in large), "buckets lie in the arena")
        del parallel
        model.zero_grad(set_to_none=True)


class GroupWithoutCpu:
    """As PyTorch 2 has it for NCCL alone."""

    def _get_backend(self, device):
        raise RuntimeError(f"No backend type associated with device type {device}")


def groups_of_other_devices(rank, ranks):
    group = GroupWithoutCpu()
    expect(rondo.torch._backend_of(group) is None, "there is no backend for the CPU")
    expect_error("not of the backend", lambda: rondo.torch.arena(group))
    expect_error("not of the backend", lambda: rondo.torch.adopt(torch.ones(4), group))


def wrong_arguments(rank, ranks):
    indices = torch.tensor([[0, 1]])
    sparse = torch.sparse_coo_tensor(indices, torch.ones(2), (4,))
    expect_error("Sparse", lambda: dist.broadcast(sparse, 0))  # PyTorch 2 refuses it itself
    expect_error("integers", lambda: dist.all_reduce(torch.ones(2), Op.BAND))
    expect_error("floating point", lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), Op.AVG))
    if hasattr(torch, "uint16"):  # since PyTorch 2.3
        wide = torch.zeros(2, dtype=torch.uint16)
        expect_error("no tensors of type UInt16", lambda: dist.all_reduce(wide))
    outputs = [torch.zeros(3) for _ in range(ranks)]
    expect_error("of one type and size", lambda: dist.all_gather(outputs, torch.zeros(4)))
    expect_error("times as large", lambda: dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(4)))
    expect_error(
        "add up", lambda: dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [1] * ranks, [9] * ranks)
    )
    expect_error("tags are", lambda: dist.send(torch.zeros(1), (rank + 1) % ranks, tag=1 << 29))
    # The functions of torch.distributed compare types themselves; these are below them.
    group = dist.distributed_c10d._get_default_group()
    singles, doubles = ([torch.ones(8, dtype=dtype) for _ in range(ranks)] for dtype in FLOATS[:2])
    mixed = singles[:1] + doubles[1:]
    for parts in (doubles, mixed):
        expect_error("of one type", lambda: group.reduce_scatter(torch.zeros(8), parts))
        expect_error("of one type", lambda: group.alltoall(singles, parts))
    # None of them was posted: the group is as it was.
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    expect_equal(tensor, torch.tensor([float(ranks)]), "a sum after errors")


class BackendTest(RanksTest):
    def test_one_rank(self):
        self.over(reductions, 1)


for function, needed in (
    (reductions, 3),
    (layouts, 2),
    (movements, 3),
    (scattered_sums, 3),
    (all_to_all, 3),
    (exchanged_lists, 3),
    (sizes_that_differ, 2),
    (messages, 3),
    (inference, 2),
    (tensors_with_gradients, 2),
    (groups, 4),
    (arenas, 2),
    (kernels_in_arenas, 2),
    (adoption, 2),
    (adoption_beside_operations, 2),
    (sparse, 3),
    (ddp, 2),
    (groups_of_other_devices, 1),
    (wrong_arguments, 2),
):
    run = lambda test, check=function, ranks=needed: test.over(check, ranks)
    setattr(BackendTest, f"test_{function.__name__}", run)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
