#!/usr/bin/env python3
"""The networks of sim/program/models trained by PyTorch in FP32, as golden data for tests/test_training.cpp.

    python3 training.py > training.json
    python3 training.py clipping > clipping.json
    python3 training.py networks > networks.json

100 losses and all gradients of the first step of each; or 100 losses and norms of all gradients under torch.amp's
GradScaler, without clipping and with clip_grad_norm_ after and before unscaling. Initial weights and the order of the
data are made here a second time, from what sim/ says about them: Philox words, the sum of twelve uniform numbers,
sorting by random words. Recorded on one thread, training.json with Debian's python3-torch 1.13.1, the others with the
versions that they name, from PyPI. networks.json has the networks that were added later.
"""
import base64
import json
import os
import re
import sys

import numpy as np
import torch
import torch.nn.functional as F

STEPS, SEED = 100, 7
HERE = os.path.dirname(os.path.abspath(__file__))


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011) of arrays of counters."""
    c, k = [np.asarray(x, np.uint64) for x in counter], [np.uint64(x) for x in key]
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p, q = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(q >> np.uint64(32)) ^ c[1] ^ k[0], q & mask, (p >> np.uint64(32)) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + np.uint64(0x9E3779B9)) & mask, (k[1] + np.uint64(0xBB67AE85)) & mask]
    return np.stack(np.broadcast_arrays(*c), -1)


def words(seed, stream, step, count):
    groups = np.arange((count + 3) // 4, dtype=np.uint64)
    zero = np.zeros_like(groups)
    return philox((groups, zero, zero + np.uint64(step), zero + np.uint64(stream)), (seed, 0)).reshape(-1)[:count]


def uniform(seed, stream, count):
    return (words(seed, stream, 0, count).astype(np.float64) + 0.5) * 2.0**-32


def normal(seed, stream, count):
    u = uniform(seed, stream, 12 * count).reshape(count, 12)
    total = np.full(count, -6.0)
    for i in range(12):
        total = total + u[:, i]
    return total


def permutation(seed, stream, step, count):
    return np.lexsort((np.arange(count), words(seed, stream, step, count)))


def shuffled(count, batch):
    """The examples of STEPS batches."""
    epochs = [permutation(SEED, 0xDA7A0003, e, count) for e in range(STEPS * batch // count + 1)]
    return np.concatenate(epochs)[:STEPS * batch].reshape(STEPS, batch)


def split(count, held_out=False):
    order = permutation(0, 0xDA7A0004, 0, count)
    return order[count - count // 5:] if held_out else order[:count - count // 5]


def digits(held_out=False):
    lines = re.findall('"([A-Q]{64})([0-9])"', open(os.path.join(HERE, "../../../sim/train/data/digits.inc")).read())
    x = np.array([[ord(c) - 65 for c in pixels] for pixels, _ in lines], np.float32) / 16
    order = split(len(lines), held_out)
    return x[order].reshape(-1, 8, 8, 1), np.array([int(d) for _, d in lines])[order]


def modular(p):
    order = split(p * p)
    a, b = order // p, order % p
    x = np.stack([a, np.full_like(a, p), b, np.full_like(a, p + 1)], 1)
    y = np.full_like(x, -1)
    y[:, 3] = (a + b) % p
    return x, y


def regression():
    n = 4096
    x = normal(SEED, 0xDA7A0001, 10 * n).reshape(n, 10).astype(np.float32)
    y = 0.1 * normal(SEED, 0xDA7A0002, n)
    w = normal(SEED, 0xDA7A0000, 10)
    for j in range(10):
        y = y + w[j] * x[:, j].astype(np.float64)
    return x, y.astype(np.float32).reshape(n, 1)


class Parameters:
    """In the order in which the network makes them, which numbers their streams."""

    def __init__(self):
        self.named = {}
        self.buffers = {}  # running statistics
        self.training = True

    def __call__(self, name, shape, kind, value):
        if name not in self.named:
            count, stream = int(np.prod(shape)), 0x17170000 + len(self.named)
            if kind == "uniform":
                v = value * (2 * uniform(SEED, stream, count) - 1)
            elif kind == "normal":
                v = value * normal(SEED, stream, count)
            else:
                v = np.full(count, float(value))
            self.named[name] = torch.nn.Parameter(torch.from_numpy(v.astype(np.float32).reshape(shape)))
        return self.named[name]


def torch_linear(p, name, x, outputs):
    bound = 1 / np.sqrt(x.shape[-1])
    w = p(name + ".weight", (outputs, x.shape[-1]), "uniform", bound)
    return F.linear(x, w, p(name + ".bias", (outputs,), "uniform", bound))


def linear(p, x, y):
    return F.mse_loss(torch_linear(p, "linear", x, 1), y)


def mlp(p, x, y, loss=F.cross_entropy):
    x = x.flatten(1)
    for i in range(2):
        x = F.relu(torch_linear(p, "h.%d" % i, x, 16))
    return loss(torch_linear(p, "head", x, 10), y)


def smoothed(logits, y):
    """Label smoothing and the z-loss of PaLM, over the rows that are not ignored."""
    z = logits[y >= 0].logsumexp(-1)
    return F.cross_entropy(logits, y, ignore_index=-1, label_smoothing=0.1) + 0.01 * (z * z).mean()


def cnn(p, x, y):
    """Ours are batch x height x width x channels, and a filter is kernel x kernel x channels."""
    for i in (1, 2):
        c, out = x.shape[-1], 4 * i
        bound = 1 / np.sqrt(9 * c)
        w = p("c%d.weight" % i, (out, 9 * c), "uniform", bound).reshape(out, 3, 3, c).permute(0, 3, 1, 2)
        b = p("c%d.bias" % i, (out,), "uniform", bound)
        x = F.max_pool2d(F.relu(F.conv2d(x.permute(0, 3, 1, 2), w, b, padding=1)), 2).permute(0, 2, 3, 1)
    return F.cross_entropy(torch_linear(p, "head", x.flatten(1), 10), y)


def resnet(p, x, targets, width=4, depth=3, groups=0):
    def normed(name, x, channels, kernel, stride):
        c = x.shape[1]
        w = p(name + ".weight", (channels, kernel * kernel * c), "normal", np.sqrt(2 / (channels * kernel * kernel)))
        w = w.reshape(channels, kernel, kernel, c).permute(0, 3, 1, 2)
        x = F.conv2d(x, w, stride=stride, padding=kernel // 2)
        norm = ".gn." if groups else ".bn."
        gain, bias = (p(name + norm + n, (channels,), "constant", v) for n, v in (("weight", 1), ("bias", 0)))
        if groups:
            return F.group_norm(x, groups, gain, bias)
        running = p.buffers.setdefault(name, (torch.zeros(channels), torch.ones(channels)))
        return F.batch_norm(x, *running, gain, bias, training=p.training)

    x = F.relu(normed("stem", x.permute(0, 3, 1, 2), width, 3, 1))
    for i in range(depth):
        stride = 2 if i > 0 and x.shape[2] > 2 else 1
        width *= stride
        y = F.relu(normed("b.%d.c1" % i, x, width, 3, stride))
        y = normed("b.%d.c2" % i, y, width, 3, 1)
        x = F.relu(y + (normed("b.%d.shortcut" % i, x, width, 1, stride) if stride > 1 else x))
    return F.cross_entropy(torch_linear(p, "head", x.mean((2, 3)), 10), targets)


def gpt(p, x, y, rms=False, activation="tanh", width=16, heads=2, depth=2, vocabulary=15, loss=None):
    loss = loss or ignoring

    def lin(name, x, outputs, deviation=0.02):
        w = p(name + ".weight", (outputs, x.shape[-1]), "normal", deviation)
        return F.linear(x, w, None if name.endswith(".k") else p(name + ".bias", (outputs,), "constant", 0))

    def norm(name, x):
        w = p(name + ".weight", (width,), "constant", 1)
        if rms:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w
        return F.layer_norm(x, (width,), w, p(name + ".bias", (width,), "constant", 0))

    batch, tokens = x.shape
    table = p("wte.weight", (vocabulary, width), "normal", 0.02)
    positions = p("wpe.weight", (tokens, width), "normal", 0.02)
    h = F.embedding(x, table) + positions
    residual = 0.02 / np.sqrt(2.0 * depth)
    mask = torch.full((tokens, tokens), float("-inf"), device=x.device).triu(1)
    for i in range(depth):
        n = norm("h.%d.ln1" % i, h)
        q, k, v = (lin("h.%d.attn.%s" % (i, c), n, width).view(batch, tokens, heads, -1).transpose(1, 2) for c in "qkv")
        weights = F.softmax((q * (width // heads) ** -0.5) @ k.transpose(2, 3) + mask, -1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, tokens, width)
        h = h + lin("h.%d.attn.o" % i, mixed, width, residual)
        up = lin("h.%d.mlp.up" % i, norm("h.%d.ln2" % i, h), 4 * width)
        h = h + lin("h.%d.mlp.down" % i, F.gelu(up, approximate=activation), width, residual)
    logits = lin("head", norm("ln_f", h), vocabulary).view(-1, vocabulary)
    return loss(logits, y.reshape(-1))


def ignoring(logits, y):
    return F.cross_entropy(logits, y, ignore_index=-1)


def rotated(x, theta):
    """x: batch x heads x tokens x size; pairs and roundings as in Hugging Face's Llama."""
    tokens, size = x.shape[-2:]
    frequencies = 1.0 / (theta ** (torch.arange(0, size, 2).float() / size))
    angles = torch.outer(torch.arange(tokens).float(), frequencies)
    cos, sin = torch.cat([angles, angles], -1).cos(), torch.cat([angles, angles], -1).sin()
    return x * cos + torch.cat([-x[..., size // 2:], x[..., :size // 2]], -1) * sin


def llama(p, x, y, kv_heads=2, tied=False, theta=10000.0, width=24, heads=6, hidden=40, depth=2, vocabulary=15):
    def lin(name, x, outputs, deviation=0.02):
        return F.linear(x, p(name + ".weight", (outputs, x.shape[-1]), "normal", deviation))

    def norm(name, x):
        return F.rms_norm(x, (width,), p(name + ".weight", (width,), "constant", 1), eps=1e-6)

    batch, tokens = x.shape
    size = width // heads
    residual = 0.02 / np.sqrt(2.0 * depth)
    table = p("wte.weight", (vocabulary, width), "normal", 0.02)
    h = F.embedding(x, table)
    for i in range(depth):
        n = norm("h.%d.ln1" % i, h)
        q, k, v = (lin("h.%d.attn.%s" % (i, c), n, size * m).view(batch, tokens, m, size).transpose(1, 2)
                   for c, m in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
        k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (rotated(k, theta), v))
        mixed = F.scaled_dot_product_attention(rotated(q, theta), k, v, is_causal=True)
        h = h + lin("h.%d.attn.o" % i, mixed.transpose(1, 2).reshape(batch, tokens, width), width, residual)
        n = norm("h.%d.ln2" % i, h)
        gated = F.silu(lin("h.%d.mlp.gate" % i, n, hidden)) * lin("h.%d.mlp.up" % i, n, hidden)
        h = h + lin("h.%d.mlp.down" % i, gated, width, residual)
    h = norm("ln_f", h)
    logits = F.linear(h, table) if tied else lin("head", h, vocabulary)
    return F.cross_entropy(logits.view(-1, vocabulary), y.reshape(-1), ignore_index=-1)


def train(name, network, data, learning_rate, batch=16, held_out=None):
    x, y = data
    parameters = Parameters()
    losses, gradients = [], {}
    for examples in shuffled(len(x), batch):
        loss = network(parameters, torch.from_numpy(x[examples]), torch.from_numpy(y[examples]))
        for p in parameters.named.values():
            p.grad = None
        loss.backward()
        if not losses:
            for n, p in parameters.named.items():
                gradients[n] = base64.b64encode(p.grad.numpy().astype("<f4").tobytes()).decode()
        losses.append(float(loss.detach()))
        with torch.no_grad():
            for p in parameters.named.values():
                p -= learning_rate * p.grad
    result = {"name": name, "learning_rate": learning_rate, "batch": batch, "losses": losses, "gradients": gradients}
    if parameters.buffers:  # the network as it is evaluated
        parameters.training = False
        with torch.no_grad():
            result["validation"] = float(network(parameters, *map(torch.from_numpy, held_out)))
        result["running"] = {"%s.bn.running_%s" % (n, what): b.tolist() for n, pair in parameters.buffers.items()
                             for what, b in zip(("mean", "variance"), pair)}
    return result


def clipped(name, network, data, learning_rate, max_norm=None, before=False, batch=16):
    """Clipping scaled gradients makes the norm max_norm / scale: the learning rate makes up for it. The norm of a step
    is that of the unscaled gradients; clip_grad_norm_ returns it before it clips."""
    x, y = data
    parameters = Parameters()
    network(parameters, torch.from_numpy(x[:1]), torch.from_numpy(y[:1]))  # makes them
    everything = list(parameters.named.values())
    optimizer = torch.optim.SGD(everything, lr=learning_rate)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    losses, norms = [], []
    for examples in shuffled(len(x), batch):
        loss = network(parameters, torch.from_numpy(x[examples]), torch.from_numpy(y[examples]))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if before:
            torch.nn.utils.clip_grad_norm_(everything, max_norm)
        scaler.unscale_(optimizer)
        limit = float("inf") if before or max_norm is None else max_norm
        norms.append(torch.nn.utils.clip_grad_norm_(everything, limit).item())
        losses.append(loss.item())
        scaler.step(optimizer)
        scaler.update()
    return {"name": name, "learning_rate": learning_rate, "batch": batch, "max_norm": max_norm, "before": before,
            "losses": [float("%.9g" % v) for v in losses], "norms": [float("%.9g" % v) for v in norms]}


def main():
    torch.set_num_threads(1)
    networks = [("linear", linear, regression(), 0.01),
                ("mlp", mlp, digits(), 0.1),
                ("cnn", cnn, digits(), 0.1),
                ("gpt", gpt, modular(13), 0.1),
                ("gpt rms gelu", lambda *a: gpt(*a, rms=True, activation="none"), modular(13), 0.1)]
    later = [("llama", llama, modular(13), 0.1),
             ("llama tied", lambda *a: llama(*a, kv_heads=6, tied=True, theta=50.0), modular(13), 0.1),
             ("resnet", resnet, digits(), 0.1, 16, digits(held_out=True)),
             ("resnet group norm", lambda *a: resnet(*a, groups=2), digits(), 0.1),
             ("mlp smoothed", lambda *a: mlp(*a, loss=smoothed), digits(), 0.1),
             ("gpt smoothed", lambda *a: gpt(*a, loss=smoothed), modular(13), 0.1)]
    if sys.argv[1:] != ["clipping"]:
        if sys.argv[1:] == ["networks"]:
            networks = later
        cases = [train(*network) for network in networks]
        print(json.dumps({"torch": torch.__version__, "seed": SEED, "cases": cases}, indent=0))
        return
    limits = {"linear": 4.0, "mlp": 0.75, "cnn": 0.6, "gpt": 0.9, "gpt rms gelu": 0.9}
    rows = []
    for name, network, data, rate in networks:
        limit = limits[name]
        for case in (clipped(name, network, data, rate), clipped(name, network, data, rate, limit),
                     clipped(name, network, data, rate * 65536, limit, True)):
            rows.append(json.dumps(case))
    print('{"torch": "%s", "seed": %d, "cases": [\n%s\n]}' % (torch.__version__, SEED, ",\n".join(rows)))


if __name__ == "__main__":
    main()
