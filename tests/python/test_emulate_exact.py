"""amp-train's networks written in PyTorch: in emulated arithmetic, with strict="ops", they train to the same bits."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402

STEPS = 20


class Mlp(nn.Module):
    OPTIONS = {"model": "mlp", "width": 32}

    def __init__(self, inputs, classes):
        super().__init__()
        self.h = nn.ModuleList([nn.Linear(inputs[0].size, 32), nn.Linear(32, 32)])
        self.head = nn.Linear(32, classes)

    def forward(self, x, target):
        x = x.flatten(1)
        for layer in self.h:
            x = F.relu(layer(x))
        return F.cross_entropy(self.head(x), target)


class Convolution(nn.Linear):
    """Its weights are a matrix, of patches as rows x columns x channels."""

    def forward(self, x, kernel=3, stride=1):
        weight = self.weight.view(len(self.weight), kernel, kernel, -1).permute(0, 3, 1, 2)
        return F.conv2d(x, weight, self.bias, stride, padding=kernel // 2)


class Cnn(nn.Module):
    OPTIONS = {"model": "cnn", "width": 8, "depth": 2}

    def __init__(self, inputs, classes):
        super().__init__()
        _, rows, columns, channels = inputs.shape
        self.c1, self.c2 = Convolution(9 * channels, 8), Convolution(9 * 8, 16)
        self.head = nn.Linear(rows // 4 * (columns // 4) * 16, classes)

    def forward(self, x, target):
        x = x.permute(0, 3, 1, 2)
        for layer in (self.c1, self.c2):
            x = F.max_pool2d(F.relu(layer(x)), 2)
        return F.cross_entropy(self.head(x.permute(0, 2, 3, 1).flatten(1)), target)


class Normed(Convolution):
    def __init__(self, inputs, outputs, kernel, stride=1):
        super().__init__(inputs * kernel**2, outputs, False)
        self.gn, self.how = nn.GroupNorm(2, outputs), (kernel, stride)

    def forward(self, x):
        return self.gn(super().forward(x, *self.how))


class Residual(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        stride = outputs // inputs
        self.c1, self.c2 = Normed(inputs, outputs, 3, stride), Normed(outputs, outputs, 3)
        if stride > 1:
            self.shortcut = Normed(inputs, outputs, 1, stride)

    def forward(self, x):
        y = self.c2(F.relu(self.c1(x)))
        return F.relu(y + (self.shortcut(x) if hasattr(self, "shortcut") else x))


class Resnet(nn.Module):
    """The mean of 2 x 2 pixels is summed in FP64, as amp-train has it."""
    OPTIONS = {"model": "resnet", "width": 4, "depth": 3, "norm_groups": 2}

    def __init__(self, inputs, classes):
        super().__init__()
        self.stem = Normed(inputs.shape[-1], 4, 3)
        self.b = nn.Sequential(Residual(4, 4), Residual(4, 8), Residual(8, 16))
        self.head = nn.Linear(16, classes)

    def forward(self, x, target):
        x = self.b(F.relu(self.stem(x.permute(0, 3, 1, 2))))
        return F.cross_entropy(self.head(x.double().mean((2, 3)).to(x.dtype)), target)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k = nn.Linear(width, width), nn.Linear(width, width, False)
        self.v, self.o = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (layer(x).unflatten(2, (2, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        scores = q * (1 / q.shape[-1] ** 0.5) @ k.mT
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return self.o((scores.masked_fill(later, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2))


class Feed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(width), Attention(width)
        self.ln2, self.mlp = nn.LayerNorm(width), Feed(width)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Gpt(nn.Module):
    OPTIONS = {"model": "gpt", "width": 32, "depth": 2, "heads": 2, "batch": 8, "activation": "gelu"}

    def __init__(self, inputs, classes):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(classes, 32), nn.Embedding(inputs.shape[1], 32)
        self.h = nn.ModuleList([Block(32), Block(32)])
        self.ln_f, self.head = nn.LayerNorm(32), nn.Linear(32, classes)

    def forward(self, x, target):
        x = self.wte(x) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return F.cross_entropy(self.head(self.ln_f(x)).flatten(0, 1), target.flatten())


def bits(x):
    """NaN is NaN, whatever its sign."""
    x = np.asarray(x, np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), x).view(np.uint32)


def check(network, precision, folder, layers=None):
    """Trains both, and compares losses, gradients and weights. layers: policies."""
    options = {"steps": STEPS, "seed": 3, "precision": precision, **network.OPTIONS}
    policies = {"layer": [f"{modules}:{text}" for modules, text in layers.items()]} if layers else {}
    ampscope.train(**options, **policies, record=str(folder), record_every=1, record_state=True)
    run = ampscope.Run(next(p.parent for p in folder.rglob("run.json")))
    batches = ampscope.batches(**options)
    weights = [ampscope.read_tensors(run.path / f"state/step_{step:06}.safetensors")[0] for step in range(STEPS)]
    tokens = network is Gpt
    model = network(batches[0][0], len(weights[0]["head.bias"]))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(np.array(weights[0][name])))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    with ampscope.torch.emulate(model, precision, optimizer=optimizer, seed=3, strict="ops", layers=layers) as machine:
        for step, (metrics, was) in enumerate(zip(run.metrics, weights)):
            for name, p in model.named_parameters():
                assert np.array_equal(bits(p.detach().float()), bits(was[name])), f"step {step}: {name}"
            x, target = (torch.from_numpy(np.array(t)) for t in batches[step])
            optimizer.zero_grad()
            loss = model(x.long() if tokens else x, torch.where(target < 0, -100, target).long())
            assert bits(loss.detach().float()) == bits(metrics["loss"]), f"step {step}: loss"
            (loss * metrics["scale"]).backward()
            gradients, _ = ampscope.read_tensors(run.gradients[step])
            for name, p in model.named_parameters():
                same = np.array_equal(bits(p.grad.float()), bits(gradients[name + ".grad"]))
                assert same, f"step {step}: {name}.grad"
            assert metrics["found_inf"] == any(not p.grad.isfinite().all() for p in model.parameters())
            if not metrics["skipped"]:
                for p in model.parameters():
                    p.grad.mul_(1 / metrics["scale"])
                optimizer.step()
    return machine.coverage()


@pytest.mark.parametrize("network", [Mlp, Cnn, Gpt])
@pytest.mark.parametrize("precision", ampscope.precisions)
def test_presets(network, precision, tmp_path):
    check(network, precision, tmp_path)


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16", "amp-bf16", "pure-bf16", "fp8-current"])
def test_group_norm(precision, tmp_path):
    check(Resnet, precision, tmp_path)


@pytest.mark.parametrize("recipe", ["ocp-mxfp8", "torchao-tensorwise", "torchao-rowwise", "torchao-rowwise-gw-hp"])
def test_recipes_without_a_preset(recipe, tmp_path):
    check(Gpt, f"amp-bf16,scaling={recipe}", tmp_path)


@pytest.mark.parametrize("precision, layers", [
    ("fp8-current", {"h.0.mlp": "bf16", "h.1.attn.q": "mxfp8,accumulate=exact",
                     "*.down": "accumulate=hopper-wgmma-fp8"}),
    ("amp-bf16", {"h.1": "nvfp4", "head": "fp32", "h.0.attn.*": "fp8-delayed,scaling-history=3"}),
    ("fp32", {"*.up": "tf32", "h.1.attn": "accumulate=kahan"}),
])
def test_layers(precision, layers, tmp_path):
    assert check(Gpt, precision, tmp_path, layers).share == 1


@pytest.mark.parametrize("precision, layers", [
    *((f"master-bf16,scaling={recipe}", None) for recipe in ("te-current", "te-mxfp8", "te-nvfp4", "te-block")),
    ("master-fp16,scaling=te-current", None), ("master-bf16", {"h.0": "fp8-current"}),
    ("master-bf16", {"h.1": "mxfp8"})])
def test_master_weights_are_scaled_before_they_are_rounded(precision, layers, tmp_path):
    check(Mlp, precision, tmp_path, layers)


@pytest.mark.parametrize("network", [Cnn, Gpt])
def test_master_weights_of_other_networks_are_scaled_before_they_are_rounded(network, tmp_path):
    check(network, "master-bf16,scaling=te-current", tmp_path)


def precision_for(accumulator):
    """One whose products have operands that it takes, forward or backward."""
    for text in ("amp-bf16,accumulate={0}", "amp-fp16,accumulate={0}", "tf32,accumulate={0}",
                 "fp8-current,accumulate={0}", "fp8-current,accumulate={0},accumulate-backward=fp32",
                 "int8,accumulate-forward={0}", "int8,scaling-format=int4sym,accumulate-forward={0}",
                 "mxfp8-e5m2,accumulate={0}", "nvfp4,accumulate={0}",
                 "fp32,operands=e5m2,accumulate={0}"):
        try:
            ampscope.train(model="mlp", precision=text.format(accumulator), steps=1)
        except ValueError:
            continue
        return text.format(accumulator)
    raise ValueError(accumulator)


@pytest.mark.parametrize("accumulator", [row["name"] for row in ampscope.accumulators()])
def test_accumulators(accumulator, tmp_path):
    check(Mlp, precision_for(accumulator), tmp_path)
