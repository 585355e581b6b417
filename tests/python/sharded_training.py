"""Networks that two to four processes train in every way in which torch divides them, recorded, and what each tensor
was.

    python sharded_training.py FOLDER

leaves in FOLDER/2, FOLDER/3 and FOLDER/4, for each NAME, the recordings NAME/rank_0 ... and NAME.pt, in which rank 0
has by step the losses of all ranks and all tensors whole, as full_tensor() gives them. make(folder) does it.
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import traceback

import torch
from torch import nn

STEPS = 2


def make(folder):
    done = subprocess.run([sys.executable, __file__, str(folder)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Network(nn.Module):
    """Rows that no number of ranks divides, and a weight of one row."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 12)
        self.up, self.down = nn.Linear(12, 24), nn.Linear(24, 12)
        self.norm = nn.LayerNorm(12)
        self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.norm(x + self.down(torch.relu(self.up(x)))) * self.temperature


class Integers(nn.Module):
    """Computes with small integers, of which FP32 has every sum: in whatever order ranks add up, gradients are those of
    one process. loss() is linear in the output, so that they stay small."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 10), nn.Linear(10, 3)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randint(-2, 3, p.shape, generator=generator))

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))

    @staticmethod
    def data(step, rank, micro_batch):
        generator = torch.Generator().manual_seed(100 * step + 10 * rank + micro_batch)
        return (torch.randint(-2, 3, (4, 6), generator=generator).float(),
                torch.randint(-2, 3, (4, 3), generator=generator).float())

    @staticmethod
    def loss(out, y):
        return (out * y).sum() / len(y)


def full(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def whole_tensors(model, optimizer):
    """By the names that they have in recordings."""
    found = {}
    for name, p in model.named_parameters():
        name = name.removeprefix("module.")
        found |= {name: full(p), name + ".grad": full(p.grad)}
        state = optimizer.state.get(p, {})
        found |= {name + suffix: full(state[key]) for suffix, key in ((".m", "exp_avg"), (".v", "exp_avg_sq"))
                  if key in state}
    return found


def train(name, model, optimizer, backward, micro_batches=1, **options):
    """backward: of a step and a micro-batch; gives the loss, if there is one. Keeps what rank 0 saw."""
    import ampscope.torch
    import torch.distributed as dist
    seen = []
    with ampscope.torch.record(FOLDER / name, model, optimizer, every=1, state=True, warn=False, **options):
        for step in range(STEPS):
            losses = [backward(step, micro_batch) for micro_batch in range(micro_batches)]
            all_losses = [None] * WORLD
            dist.all_gather_object(all_losses, None if losses[0] is None else sum(float(x.detach()) for x in losses))
            seen.append((all_losses, whole_tensors(model, optimizer)))
            optimizer.step()
            optimizer.zero_grad()
    if RANK == 0:
        torch.save(seen, FOLDER / f"{name}.pt")


def backward_of(model, loss_of, micro_batches, wait="set_requires_gradient_sync"):
    """Gradients of all micro-batches but the last stay where they are, as no_sync() or a method of fully_shard asks."""
    def backward(step, micro_batch):
        last = micro_batch == micro_batches - 1
        if hasattr(model, wait):
            getattr(model, wait)(last)
        with contextlib.nullcontext() if last or not hasattr(model, "no_sync") else model.no_sync():
            loss = loss_of(step, micro_batch) / micro_batches
            loss.backward()
        return loss
    return backward


def of_tokens(model, micro_batches=1, group=1):
    """Of Network; ranks of a `group` see the same tokens, as tensor parallelism needs it."""
    def loss_of(step, micro_batch):
        generator = torch.Generator().manual_seed(1000 * step + 10 * (RANK // group) + micro_batch)
        out = model(torch.randint(0, 7, (4, 4), generator=generator)).float()
        return (out - torch.randn(out.shape, generator=generator)).square().mean()
    return backward_of(model, loss_of, micro_batches)


def of_integers(model, micro_batches, **options):
    def loss_of(step, micro_batch):
        x, y = Integers.data(step, RANK, micro_batch)
        return Integers.loss(model(x), y)
    return backward_of(model, loss_of, micro_batches, **options)


def adam(model):
    return torch.optim.AdamW(model.parameters(), 0.01, foreach=False)


def exact_sgd(model):
    return torch.optim.SGD(model.parameters(), 0.5, momentum=0.5)


def prepared(network=Network):
    torch.manual_seed(0)
    return network()


def replicas():
    """DistributedDataParallel."""
    model = nn.parallel.DistributedDataParallel(prepared(Integers))
    train("ddp_exact", model, exact_sgd(model), of_integers(model, 2), 2)
    model = nn.parallel.DistributedDataParallel(prepared())
    train("ddp", model, adam(model), of_tokens(model, 2), 2, weights=True)


def shards():
    """fully_shard, by rows that no number of ranks divides, and by columns."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Shard
    model, policy = prepared(), MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    fully_shard(model.up, mp_policy=policy)
    fully_shard(model, mp_policy=policy,
                shard_placement_fn=lambda p: Shard(1) if p is model.down.weight else None)
    train("fsdp", model, adam(model), of_tokens(model, 3), 3, activations=["up"])
    model = prepared(Integers)
    fully_shard(model)
    train("fsdp_exact", model, exact_sgd(model), of_integers(model, 2), 2)


def meshes():
    """Of two dimensions, for four ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleOutput, RowwiseParallel,
                                                   SequenceParallel, parallelize_module)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = prepared()
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    train("hsdp", model, adam(model), of_tokens(model, 2), 2, weights=True)
    model = prepared(Integers)
    fully_shard(model, mesh=mesh)
    train("hsdp_exact", model, exact_sgd(model), of_integers(model, 2, wait="set_requires_all_reduce"), 2)
    columns_then_rows = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model = parallelize_module(prepared(), mesh["tensor"], columns_then_rows)
    fully_shard(model, mesh=mesh["data"])
    train("fsdp_tp", model, adam(model), of_tokens(model, 2, group=2), 2)
    model = parallelize_module(prepared(), mesh["tensor"], columns_then_rows)
    train("tp", model, adam(model), of_tokens(model, group=4))
    replicated = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Replicate())
    model = parallelize_module(prepared(), mesh["tensor"], columns_then_rows | {
        "embedding": replicated, "norm": SequenceParallel(sequence_dim=1, use_local_output=True)})
    train("summands", model, adam(model), of_tokens(model, group=4))


def placements():
    """Parameters that are placed in all ways, gradients and state with them; `gapped` is no box."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.placement_types import _StridedShard
    mesh = init_device_mesh("cpu", (2, 2))
    ways = {
        "rows": ((7, 5), [Shard(0), Replicate()]), "columns": ((7, 5), [Replicate(), Shard(1)]),
        "both": ((7, 5), [Shard(0), Shard(1)]), "twice": ((7, 5), [Shard(0), Shard(0)]),
        "crossed": ((7, 5), [Shard(1), Shard(0)]), "copies": ((7, 5), [Replicate(), Replicate()]),
        "cube": ((3, 5, 6), [Shard(2), Shard(1)]), "few": ((1, 3), [Shard(0), Shard(0)]),
        "strided": ((8, 3), [_StridedShard(0, split_factor=2), Shard(0)]), "number": ((), [Replicate(), Replicate()]),
    }
    generator, model = torch.Generator().manual_seed(2), nn.Module()

    def random(shape):
        return torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-12, 6, shape, generator=generator)

    for name, (shape, placed) in ways.items():
        model.register_parameter(name, nn.Parameter(distribute_tensor(random(shape), mesh, placed)))

    def backward(step, micro_batch):
        for name, p in model.named_parameters():
            p.grad = distribute_tensor(random(ways[name][0]), mesh, ways[name][1])

    train("placements", model, adam(model), backward)
    model.register_parameter("gapped", nn.Parameter(distribute_tensor(random((8, 2)), mesh,
                                                                      [_StridedShard(0, split_factor=2), Replicate()])))
    ways["gapped"] = (8, 2), [_StridedShard(0, split_factor=2), Replicate()]
    train("gapped", model, adam(model), backward)


def run(rank, world, folder):
    import torch.distributed
    global FOLDER, RANK, WORLD
    FOLDER, RANK, WORLD = folder, rank, world
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    replicas()
    shards()
    if world == 4:
        meshes()
        placements()
    torch.distributed.destroy_process_group()


def fork(rank, world, folder):
    """A process in which what this one has imported need not be imported again, which takes longer than all else."""
    child = os.fork()
    if child:
        return child
    signal.alarm(240)  # others would wait for one that failed
    try:
        run(rank, world, folder)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    import torch._dynamo
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel  # noqa: F401
    import ampscope.torch  # noqa: F401
    for ranks in (2, 3, 4):
        target = pathlib.Path(sys.argv[1]) / str(ranks)
        target.mkdir()
        children = {fork(number, ranks, target) for number in range(ranks)}
        while children:
            ended, status = os.wait()
            children.remove(ended)
            if status:
                for child in children:
                    os.kill(child, signal.SIGKILL)
                sys.exit(1)
