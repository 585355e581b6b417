"""One rank of a program that saves checkpoints as PyTorch's distributed checkpoint does, and the same tensors whole.

    python sharded_checkpoints.py FOLDER RANK WORLD

leaves in FOLDER, for each NAME, the folder NAME of the checkpoint and NAME.safetensors, which rank 0 writes with all
tensors whole. make(folder, world) runs all ranks.
"""
import pathlib
import subprocess
import sys

import torch


def make(folder, world):
    """Runs the ranks, and waits for them."""
    ranks = [subprocess.Popen([sys.executable, __file__, str(folder), str(rank), str(world)], stderr=subprocess.PIPE)
             for rank in range(world)]
    errors = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * world, b"\n".join(errors).decode()


def flat(state, prefix=""):
    """The tensors of nested dicts and lists, by dotted names."""
    if isinstance(state, torch.Tensor):
        return {prefix[:-1]: state}
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, (list, tuple)) else ()
    return {name: tensor for key, value in items for name, tensor in flat(value, f"{prefix}{key}.").items()}


class Network(torch.nn.Module):
    """Rows that no number of ranks divides, a scalar's worth of rows, and a buffer."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 6)
        self.up, self.down = torch.nn.Linear(6, 8), torch.nn.Linear(8, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.temperature = torch.nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.arange(3))

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.norm(x + self.down(torch.relu(self.up(x)))) * self.temperature


def trained(model, steps=3):
    """AdamW with a learning rate and eps of its own, after some steps of different data on each rank."""
    decays = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decays, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=0.003, betas=(0.8, 0.98), eps=1e-6)
    for _ in range(steps):
        model(torch.randint(0, 5, (4, 3))).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def save(folder, name, state, whole, rank, **options):
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    dcp.save(state, checkpoint_id=None if options else folder / name, **options)
    if rank == 0:
        save_file({n: t.detach().contiguous().clone() for n, t in flat(whole).items()}, folder / f"{name}.safetensors")


def networks(folder, rank, world):
    """FSDP2 over all ranks; where there are four, over two, and tensor parallel over the other two."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    meshes = {"fsdp": init_device_mesh("cpu", (world,))}
    if world == 4:
        meshes["fsdp_tensor_parallel"] = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    for name, mesh in meshes.items():
        torch.manual_seed(0)
        model = Network()
        if mesh.ndim == 2:
            parallelize_module(model, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["data"] if mesh.ndim == 2 else mesh)
        torch.manual_seed(rank if mesh.ndim == 1 else rank // 2)
        optimizer = trained(model)
        whole = get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True))
        sharded = get_state_dict(model, optimizer)
        state = [{"model": weights, "optim": moments} for weights, moments in (sharded, whole)]
        save(folder, name, *state, rank)
        flattened = get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
        save(folder, name + "_flattened", {"model": flattened[0], "optim": flattened[1]}, state[1], rank)


def tensors(folder, rank, world):
    """Tensors cut in every way, of several types, in .distcp and in safetensors."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (2, 2) if world == 4 else (world, 1))
    torch.manual_seed(1)
    cuts = {
        "rows": [Shard(0), Replicate()], "columns": [Replicate(), Shard(1)], "both": [Shard(0), Shard(1)],
        "twice": [Shard(0), Shard(0)], "crossed": [Shard(1), Shard(0)], "copies": [Replicate(), Replicate()],
        "columns_first": [Shard(1), Replicate()],
    }
    whole = {name: torch.randn(7, 5) * 10.0 ** torch.randint(-12, 6, (7, 5)) for name in cuts}
    whole |= {f"{name}.{dtype}": whole[name].to(getattr(torch, dtype))
              for name in ("rows", "both") for dtype in ("bfloat16", "float16", "float64", "int32")}
    whole["cube"] = torch.randn(3, 5, 6)
    cuts["cube"] = [Shard(2), Shard(1)]
    whole["long"] = torch.randn(200, 3001)  # a run of it is shorter than what is read at once, a shard is longer
    cuts["long"] = [Shard(0), Shard(1)]
    whole["few"] = torch.randn(1, 3)  # most ranks hold nothing of it
    cuts["few"] = [Shard(0), Shard(0)]
    state = {name: distribute_tensor(tensor, mesh, cuts[name.split(".")[0]]) for name, tensor in whole.items()}
    whole |= {"plain": torch.randn(4, 3), "scalar": torch.tensor(3.5)}
    state |= {name: whole[name] for name in ("plain", "scalar")}
    writer = dcp.HuggingFaceStorageWriter(path=str(folder / "safetensors"), save_distributed=True)
    save(folder, "safetensors", state, whole, rank, storage_writer=writer)
    whole["transposed"] = torch.randn(9, 12).t()  # each rank's rows are columns in its memory
    local = whole["transposed"].chunk(mesh.size(0))[mesh.get_coordinate()[0]]
    state["transposed"] = DTensor.from_local(local, mesh, cuts["rows"])
    state["note"] = "text, which is no tensor"
    save(folder, "tensors", state, whole, rank)


if __name__ == "__main__":
    import torch.distributed as dist
    torch.set_num_threads(1)
    directory, own, ranks = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=own, world_size=ranks)
    networks(directory, own, ranks)
    tensors(directory, own, ranks)
    dist.destroy_process_group()
