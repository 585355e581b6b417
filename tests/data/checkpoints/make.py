"""Writes the folders beside it: checkpoints that four processes save with PyTorch's distributed checkpoint.

    python make.py

Element i of every weight, in C order, is i. Made with torch 2.15.0 and safetensors 0.8.0 for
test_checkpoints.cpp.
"""
import pathlib
import shutil
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

HERE = pathlib.Path(__file__).parent


def counting(*shape, dtype=torch.float32):
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)


def rank(number, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2))

    def cut(tensor, first, second):
        return distribute_tensor(tensor, mesh, [first, second])

    model = {
        "both": cut(counting(3, 5), Shard(0), Shard(1)),
        "rows": cut(counting(5, 2, dtype=torch.bfloat16), Shard(0), Replicate()),
        "columns": cut(counting(2, 7, dtype=torch.float64), Replicate(), Shard(1)),
    }
    both = counting(3, 5)
    state = {"exp_avg": cut(both / 64, Shard(0), Shard(1)), "exp_avg_sq": cut(2.0 ** -(4 * both), Shard(0), Shard(1)),
             "step": torch.tensor(4.0)}
    groups = [{"lr": 0.25, "betas": (0.5, 0.75), "eps": 2.0 ** -20, "weight_decay": 0.0, "params": ["both"]}]
    dcp.save({"model": model, "optim": {"state": {"both": state}, "param_groups": groups}},
             checkpoint_id=HERE / "distributed")
    dcp.save(model, storage_writer=dcp.HuggingFaceStorageWriter(path=str(HERE / "safetensors"), save_distributed=True))
    dist.destroy_process_group()


if __name__ == "__main__":
    for name in ("distributed", "safetensors"):
        shutil.rmtree(HERE / name, ignore_errors=True)
    store = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "/tmp") / "ampscope-golden-checkpoints"
    store.unlink(missing_ok=True)
    torch.multiprocessing.spawn(rank, (store,), nprocs=4)
    store.unlink(missing_ok=True)
