"""Networks as people train them: what is recorded is what the script itself saw, under the names that it knows."""
import contextlib
import subprocess

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import ampscope.torch  # noqa: E402
from networks import raw, tensors  # noqa: E402

STEPS, MICRO_BATCHES = 3, 2
SIZES = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 48, "max_position_embeddings": 32}


def gpt2():
    """Whose embeddings are the weights of its head, too."""
    transformers = pytest.importorskip("transformers")
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4))


def llama():
    transformers = pytest.importorskip("transformers")
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def mixtral():
    """A mixture of four experts, of which each token goes through two."""
    transformers = pytest.importorskip("transformers")
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**SIZES, num_local_experts=4,
                                                                      output_router_logits=True))


def cnn():
    """With batch normalization, whose statistics no optimizer trains, and activations in place."""
    def block(n, m):
        return nn.Sequential(nn.Conv2d(n, m, 3, padding=1, bias=False), nn.BatchNorm2d(m), nn.ReLU(inplace=True))
    return nn.Sequential(block(1, 6), block(6, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


def loss_of(model):
    if isinstance(model, nn.Sequential):
        return F.cross_entropy(model(torch.randn(8, 1, 12, 12)).float(), torch.randint(0, 10, (8,)))
    tokens = torch.randint(0, 96, (2, 24))
    return model(input_ids=tokens, labels=tokens).loss


def watch(model, seen):
    """Keeps the gradients of the outputs of all modules without children in the last dict of `seen`."""
    def hook(name, output):
        for i, tensor in enumerate(output if isinstance(output, tuple) else [output]):
            key = f"{name}.{i}" if i else name
            if tensor.requires_grad:
                tensor.register_hook(lambda g, key=key: seen[-1].setdefault(key, []).append(g.clone()))

    for name, module in model.named_modules():
        if not any(module.children()):
            module.register_forward_hook(lambda module, args, output, name=name: hook(name, output))


def train(make, dtype, path=None):
    """Warm-up, accumulation, clipping, and a scaler that is enabled where it should be. Gives the gradients of each
    step, those of outputs, and all that the model has become."""
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=dtype == torch.float16)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / STEPS)
    gradients, outputs = [], []
    watch(model, outputs)
    recorder = ampscope.torch.record(path, model, optimizer, scaler=scaler, every=1, activations=True) if path else None
    with recorder or contextlib.nullcontext():
        for _ in range(STEPS):
            outputs.append({})
            for _ in range(MICRO_BATCHES):
                with torch.autocast("cpu", dtype, enabled=dtype is not None):
                    loss = loss_of(model)
                scaler.scale(loss / MICRO_BATCHES).backward()
            gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            optimizer.zero_grad()
    return gradients, outputs, {name: t.clone() for name, t in model.state_dict().items()}


@pytest.mark.parametrize("make, dtype, module", [
    (gpt2, None, "transformer.h.1.attn.c_proj"), (llama, torch.float16, "model.layers.1.self_attn.k_proj"),
    (mixtral, torch.bfloat16, "model.layers.0.mlp.gate.1"), (cnn, torch.bfloat16, "1.1"),
    (cnn, torch.float16, "0.2")])
def test_a_network(tmp_path, recwarn, make, dtype, module):
    gradients, outputs, became = train(make, dtype, tmp_path / "run")
    assert not [w for w in recwarn if issubclass(w.category, (RuntimeWarning, ampscope.torch.PrecisionWarning))]
    for step, (wanted, seen) in enumerate(zip(gradients, outputs, strict=True)):
        _, recorded = tensors(tmp_path / f"run/gradients/step_{step:06}.safetensors")
        wanted = {name + ".grad": gradient for name, gradient in wanted.items()}
        for name, calls in seen.items():
            wanted |= {f"{name}@{i}.out.grad" if i > 1 else f"{name}.out.grad": g for i, g in enumerate(calls, 1)}
        found = {name: (tensor.shape, tensor.tobytes()) for name, tensor in recorded.items()}
        assert found == {name: raw(tensor) for name, tensor in wanted.items()} and module + "@2.out.grad" in found
    _, _, alone = train(make, dtype)
    assert {n: raw(t) for n, t in became.items()} == {n: raw(t) for n, t in alone.items()}
    said = subprocess.run(["amp-report", tmp_path / "run"], check=True, capture_output=True, text=True).stdout
    assert f"{type(make()).__name__}; 1 recorded run" in said
