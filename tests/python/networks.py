"""Networks, loops of torch and readers of files that tests and benchmarks of the recorder share."""
import json

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import ampscope
import ampscope.torch


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, context, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, context, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """amp-train's gpt, of its default size."""

    def __init__(self, vocabulary=96, width=64, depth=2, heads=4, context=64):
        super().__init__()
        self.embed, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class MLP(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.up, self.down = nn.Linear(4, width), nn.Linear(width, 3)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def batches(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(16, 4, generator=generator), torch.randint(0, 3, (16,), generator=generator))
            for _ in range(n)]


def prepared(seed=0, lr=0.01, **options):
    """A network and its optimizer, the same for the same seed."""
    torch.manual_seed(seed)
    model = MLP(**options)
    return model, torch.optim.AdamW(model.parameters(), lr)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def tensors(path):
    """A safetensors file, by its specification."""
    data = path.read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    metadata = header.pop("__metadata__")
    types = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "BF16": np.uint16}
    return metadata, {name: np.frombuffer(data[8 + n + t["data_offsets"][0]:8 + n + t["data_offsets"][1]],
                                          types[t["dtype"]]).reshape(t["shape"]) for name, t in header.items()}


def raw(tensor):
    """Shape and bytes, to compare with those of tensors()."""
    return tuple(tensor.shape), tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def amp_loop(model, optimizer, scaler, data, clip=None, after_backward=lambda: None):
    for x, y in data:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            out = model(x)
        scaler.scale(F.cross_entropy(out.float(), y)).backward()
        after_backward()
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()


def plain_loop(model, optimizer, data, clip=None):
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()


def recorded(path, model, optimizer, **options):
    """A recorder of every step and of activations."""
    return ampscope.torch.record(path, model, optimizer, **{"every": 1, "activations": True, **options})


def gradient_norm(model):
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return float(torch.cat([torch.view_as_real(g).ravel() if g.is_complex() else g.ravel()
                            for g in gradients]).double().norm())


def histograms(path):
    """By step and tensor."""
    log, faults = ampscope._ampscope.read_histogram_log(str(path / "histograms.jsonl"))
    assert not faults
    return {(line["step"], line["tensor"]): line for line in log}
