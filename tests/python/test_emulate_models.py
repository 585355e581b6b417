"""Models that people train, emulated whole: what share of their products runs as asked."""
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import ampscope.torch  # noqa: E402

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
TOKENS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def hugging_face(name):
    transformers = pytest.importorskip("transformers")

    def of(model, config, **options):
        return getattr(transformers, model)(getattr(transformers, config)(**options))
    ids = torch.randint(1, 97, (2, 16))
    text = {"input_ids": ids, "labels": ids}
    if name == "gpt2":
        return of("GPT2LMHeadModel", "GPT2Config", n_embd=64, n_layer=2, n_head=4, vocab_size=97, n_positions=32,
                  **TOKENS), text
    if name == "llama":
        return of("LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, vocab_size=97, **SMALL, **TOKENS), text
    if name == "mixtral":
        return of("MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2, num_local_experts=4, vocab_size=97,
                  **SMALL, **TOKENS), text
    if name == "bert":
        return of("BertForMaskedLM", "BertConfig", vocab_size=97, **SMALL, pad_token_id=0), \
            {**text, "attention_mask": torch.ones(2, 16).tril(8)}
    if name == "whisper":
        return of("WhisperForConditionalGeneration", "WhisperConfig", vocab_size=97, d_model=64, encoder_layers=2,
                  decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
                  decoder_ffn_dim=128, num_mel_bins=8, max_source_positions=16, max_target_positions=32,
                  decoder_start_token_id=1, suppress_tokens=[], begin_suppress_tokens=[], **TOKENS), \
            {"input_features": torch.randn(2, 8, 32), "labels": ids}
    return of("ViTForImageClassification", "ViTConfig", image_size=32, patch_size=8, num_labels=5, **SMALL), \
        {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([1, 2])}


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.embed, self.out = nn.Embedding(97, 32), nn.Linear(64, 97)
        self.core = getattr(nn, kind)(32, 64, 2, batch_first=True)

    def forward(self, ids):
        return {"loss": F.cross_entropy(self.out(self.core(self.embed(ids))[0]).flatten(0, 1), ids.flatten())}


class Transformer(nn.Module):
    """PyTorch's own layers, which have a kernel of their own for evaluation."""

    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(97, 32), nn.Linear(32, 97)
        self.core = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)

    def forward(self, ids):
        return {"loss": F.cross_entropy(self.out(self.core(self.embed(ids))).flatten(0, 1), ids.flatten())}


class Residual(nn.Module):
    """torchvision's BasicBlock."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.short(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.out = nn.Conv2d(3, 16, 7, 2, 3), nn.Linear(32, 5)
        self.layers = nn.Sequential(nn.BatchNorm2d(16), nn.ReLU(), Residual(16, 16, 1), Residual(16, 32, 2))

    def forward(self, x, labels):
        return {"loss": F.cross_entropy(self.out(self.layers(self.stem(x)).mean((2, 3))), labels)}


class UNet(nn.Module):
    """A step down and one up of a diffusion network, with attention between."""

    def __init__(self):
        super().__init__()
        self.time, self.down, self.up = nn.Linear(8, 32), nn.Conv2d(3, 32, 3, 2, 1), nn.ConvTranspose2d(32, 16, 4, 2, 1)
        self.norm1, self.norm2, self.mid = nn.GroupNorm(8, 32), nn.GroupNorm(8, 32), nn.Conv2d(32, 32, 3, 1, 1)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.depth, self.out = nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Conv2d(19, 3, 3, 1, 1)

    def forward(self, x, labels):
        h = self.down(x) + self.time(torch.ones(len(x), 8) * labels[:, None])[:, :, None, None]
        h = h + self.mid(F.silu(self.norm1(h)))
        flat = self.norm2(h).flatten(2).mT
        h = h + self.attention(flat, flat, flat, need_weights=False)[0].mT.unflatten(2, h.shape[2:])
        return {"loss": F.mse_loss(self.out(torch.cat([self.depth(self.up(h)), x], 1)), torch.ones_like(x))}


def model(name):
    torch.manual_seed(0)
    if name in ("LSTM", "GRU", "RNN"):
        return Recurrent(name), {"ids": torch.randint(0, 97, (2, 16))}
    if name in ("ResNet", "UNet"):
        return globals()[name](), {"x": torch.randn(4, 3, 16, 16), "labels": torch.arange(4)}
    if name == "TransformerEncoder":
        return Transformer(), {"ids": torch.randint(0, 97, (2, 16))}
    return hugging_face(name)


def gradients(network, batch, precision=None):
    network.zero_grad()
    torch.manual_seed(1)  # dropout
    if precision is None:
        network(**batch)["loss"].backward()
        coverage = None
    else:
        with ampscope.torch.emulate(network, precision) as machine:
            network(**batch)["loss"].backward()
        coverage = machine.coverage()
    found = {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}
    return found, coverage


def distance(a, b):
    """Of all gradients together, relative."""
    difference, norm = (torch.cat([g.flatten() for g in gs]).norm() for gs in ([a[n] - b[n] for n in b], b.values()))
    return float(difference / norm)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral", "bert", "vit", "whisper", "ResNet", "UNet",
                                  "LSTM", "GRU", "RNN", "TransformerEncoder"])
def test_all_products_of_a_model_run_as_asked(name):
    network, batch = model(name)
    plain, _ = gradients(network, batch)
    limits = {"fp32": 1e-5, "tf32": 0.01, "amp-fp16": 0.02, "amp-bf16": 0.1,
              "fp8-current,accumulate=hopper-wgmma-fp8": 0.5}
    errors = []
    for precision, limit in limits.items():
        limit *= 10 if name == "ResNet" else 1  # normalising four images magnifies errors
        found, coverage = gradients(network, batch, precision)
        assert coverage.share == 1, coverage
        assert found.keys() == plain.keys()
        errors.append(distance(found, plain))
        assert errors[-1] < limit, precision
    assert errors[0] == min(errors) and errors[-1] == max(errors)  # narrower is further away


@pytest.mark.parametrize("name", ["llama", "LSTM", "TransformerEncoder"])
def test_evaluation_computes_what_training_does(name):
    """PyTorch has other kernels for it, which are no products to it."""
    network, batch = model(name)
    counts = []
    for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        network.train(context is torch.enable_grad)
        with ampscope.torch.emulate(network, "fp8-current") as machine, context():
            network(**batch)
        counts.append([(r["module"], r["op"], r["how"], r["multiply_adds"]) for r in machine.coverage()])
    assert counts[0] == counts[1] == counts[2]


@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral", "bert", "vit", "whisper", "ResNet", "LSTM", "GRU"])
def test_no_product_goes_past(name):
    """As many multiply-adds as PyTorch's own counter finds; of what it does not know, as the definition says."""
    network, batch = model(name)
    network.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(**batch)
    wanted = counter.get_total_flops() // 2
    if name == "mixtral":
        wanted += 2 * 3 * (2 * 2 * 16) * 64 * 128  # two layers of three matrices, two experts for each token
    if name in ("LSTM", "GRU"):
        gates = 4 if name == "LSTM" else 3
        wanted = 2 * 16 * (64 * 97 + gates * 64 * (32 + 64 + 64 + 64))
    with ampscope.torch.emulate(network, "fp32", strict=True) as machine, torch.no_grad():
        network(**batch)
    assert machine.coverage().multiply_adds == wanted > 0


def test_experts_are_scaled_as_layers():
    network, batch = model("mixtral")
    with ampscope.torch.emulate(network, "fp8-delayed") as machine:
        network(**batch)["loss"].backward()
    experts = [r for r in machine.coverage() if "experts" in r["module"]]
    assert {r["operands"] for r in experts} == {"e4m3 x e4m3", "e5m2 x e4m3"}
    parts = {part for layer, part in machine._emulation.states if "experts" in layer}
    assert parts == {(name, i) for name in ("gate_up_proj", "down_proj") for i in range(4)}
