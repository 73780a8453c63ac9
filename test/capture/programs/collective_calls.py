# SPDX-License-Identifier: Apache-2.0
"""Two iterations whose collectives have values that follow from the rank alone: MODE FILE.

hand: torch.distributed's functions, imported by name. functional, compiled, tp: functional
collectives and DTensor. ddp, static, buffers, fsdp: what the wrappers do by themselves. pipeline:
sends and receives. late: works that are waited for in other ways than by wait(), or not at all.
failing: calls that are refused.
Rank r of N saves its losses as FILE.r.
"""
import datetime
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import (P2POp, ReduceOp, all_gather, all_gather_into_tensor,
                               all_gather_object, all_reduce, all_to_all_single, barrier,
                               batch_isend_irecv, broadcast, gather, irecv, isend, recv, reduce,
                               reduce_scatter_tensor, scatter, send)
from torch.distributed import _functional_collectives as functional

MODE, FILE = sys.argv[1:3]
ITERATIONS = 2


def mine(count, scale=1.0):
    """1, 2, 3... times what is different on each rank."""
    return torch.arange(1.0, count + 1) * (dist.get_rank() + 1) * scale


class Linear(nn.Linear):
    """y = xW^T: each row of W's gradient is the sum of x, times the sums of what comes after."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, bias=False)
        with torch.no_grad():
            self.weight.copy_(torch.arange(1.0, inputs * outputs + 1).view(outputs, inputs) / 8)


class Reductions(nn.Module):
    def __init__(self, group):
        super().__init__()
        self.group = group

    def forward(self, x):
        inside = dist.get_rank() < 2  # the group
        all_reduce(mine(3))
        if inside:
            all_reduce(mine(3), ReduceOp.MAX, group=self.group)
        work = all_reduce(mine(3), ReduceOp.MIN, async_op=True)
        while not work.is_completed():
            pass
        broadcast(mine(2), src=1)
        if inside:
            reduce(mine(2), dst=1, group=self.group)
        return x


class Gathers(nn.Module):
    def forward(self, x):
        rank, size = dist.get_rank(), dist.get_world_size()
        all_gather([torch.empty(2) for _ in range(size)], mine(2))
        all_gather_into_tensor(torch.empty(size * 2), mine(2))
        reduce_scatter_tensor(torch.empty(2), mine(2 * size))
        gather(mine(2), [torch.empty(2) for _ in range(size)] if rank == 0 else None)
        scatter(torch.empty(2), [mine(2, i + 1) for i in range(size)] if rank == 1 else None, src=1)
        all_to_all_single(torch.empty(2 * size), mine(2 * size))
        # Rank r sends 2 rows of 2 to rank 0 and 1 row to each other.
        sent = [2] + [1] * (size - 1)
        got = [sent[rank]] * size
        all_to_all_single(torch.empty(sum(got), 2), mine(2 * sum(sent)).view(-1, 2), got, sent)
        return x


class Pairs(nn.Module):
    def forward(self, x):
        rank, size = dist.get_rank(), dist.get_world_size()
        if rank == 0:
            send(mine(2), dst=1)
            isend(mine(3), dst=1).wait()
        elif rank == 1:
            recv(torch.empty(2), src=0)
            irecv(torch.empty(3), src=0).wait()
        works = batch_isend_irecv([P2POp(isend, mine(4), (rank + 1) % size),
                                   P2POp(irecv, torch.empty(4), (rank - 1) % size)])
        for work in works:
            work.wait()
        all_gather_object([None] * size, {"rank": rank})
        with dist._coalescing_manager():
            all_reduce(mine(2))
            all_reduce(mine(3))
        barrier()
        return x


class Hand(nn.Module):
    def __init__(self):
        super().__init__()
        self.group = dist.new_group([0, 1])
        self.first = Linear(3, 3)
        self.reductions, self.gathers, self.pairs = Reductions(self.group), Gathers(), Pairs()

    def forward(self, x):
        return self.pairs(self.gathers(self.reductions(self.first(x))))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Linear(3, 3)

    def forward(self, x):
        y = self.first(x)
        total = functional.all_reduce(mine(3), "sum", dist.group.WORLD)
        whole = functional.all_gather_tensor(mine(2), 0, dist.group.WORLD)
        part = functional.reduce_scatter_tensor(mine(2 * dist.get_world_size()), "sum", 0,
                                                dist.group.WORLD)
        through = functional.all_reduce_autograd(y, "sum", dist.group.WORLD) if hasattr(
            functional, "all_reduce_autograd") else y
        return through + (total + 0).sum() + (whole + 0).sum() + (part + 0).sum()


class Compiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Linear(3, 3)

    def forward(self, x):
        y = self.first(x)
        total = y.detach().clone()
        all_reduce(total)
        return y + total + functional.all_reduce(x, "max", dist.group.WORLD)


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Linear(3, 3)
        self.kept = None

    def forward(self, x):
        future = all_reduce(mine(3), async_op=True).get_future()
        future.wait()[0].mul_(0)  # after the record
        then = all_reduce(mine(4), async_op=True).get_future().then(
            lambda done: done.value()[0].mul_(0))
        then.wait()
        dropped = mine(5)
        all_reduce(dropped, async_op=True)
        barrier()
        dropped.mul_(0)
        polled = mine(6)
        time.sleep(0.2 * dist.get_rank())
        work = all_reduce(polled, async_op=True)
        try:
            work.wait(datetime.timedelta(milliseconds=20))
        except RuntimeError:  # not yet
            work.wait()
        polled.mul_(0)
        if dist.get_rank() == 0 and self.kept:
            send(mine(6), dst=1)
        if dist.get_rank() == 1:
            if self.kept is not None:
                self.kept.wait()
            self.kept = irecv(torch.empty(6), src=0)  # until the next iteration
        else:
            self.kept = True
        return self.first(x)


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Linear(3, 3)

    def forward(self, x):
        for wrong in (lambda: all_gather_into_tensor(torch.empty(3), torch.ones(2)),
                      lambda: all_reduce(torch.ones(2), ReduceOp.BAND)):
            try:
                wrong()
            except Exception as error:
                if dist.get_rank() == 0:
                    print(type(error).__name__, error, flush=True)
        all_reduce(mine(2))
        all_reduce(mine(2).to_sparse())
        return self.first(x)


class Stages(nn.Module):
    """Each rank a stage of a pipeline: its input is the output of the rank before it."""

    def __init__(self):
        super().__init__()
        self.first = Linear(3, 3)

    def forward(self, x):
        rank, size = dist.get_rank(), dist.get_world_size()
        if rank > 0:
            x = torch.empty_like(x)
            recv(x, src=rank - 1)
        y = self.first(x)
        if rank < size - 1:
            send(y.detach(), dst=rank + 1)
        return y


def make():
    kinds = {"hand": Hand, "functional": Functional, "late": Late, "failing": Failing,
             "pipeline": Stages}
    if MODE in kinds:
        return kinds[MODE]()
    if MODE == "buffers":
        return nn.parallel.DistributedDataParallel(
            nn.Sequential(Linear(3, 3), nn.BatchNorm1d(3, affine=False)))
    if MODE == "compiled":
        torch._dynamo.config.cache_size_limit = 2  # it is compiled once, or this fails
        return torch.compile(Compiled(), backend="aot_eager", fullgraph=True)
    model = nn.Sequential(Linear(4, 4), Linear(4, 4))
    if MODE in ("ddp", "static"):
        return nn.parallel.DistributedDataParallel(
            model, gradient_as_bucket_view=True, static_graph=MODE == "static")
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("x",))
    if MODE == "fsdp":
        from torch.distributed.fsdp import fully_shard
        return fully_shard(model, mesh=mesh)
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    all_reduce(torch.ones(1))  # before the first iteration: counted, not recorded
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.125)
    losses = []
    width = 4 if MODE in ("ddp", "static", "fsdp", "tp") else 3
    for iteration in range(ITERATIONS):
        scale = 1 if MODE == "tp" else rank + 1
        x = (torch.arange(1.0, 2 * width + 1).view(2, width) + iteration) * scale
        loss = model(x).sum()
        loss.backward()
        for parameter in model.parameters():  # at once: what was recorded must not change with it
            parameter.grad.mul_(0.5)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        losses.append(loss.detach())
    torch.save(torch.stack(losses), f"{FILE}.{rank}")
    if MODE == "late":
        send(mine(6), dst=1) if rank == 0 else model.kept.wait()
    time.sleep(0.2)  # gloo deadlocks with a DDP that goes while it ends its last collective
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
