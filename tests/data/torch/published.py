#!/usr/bin/env python3
"""Small networks with random weights as Hugging Face's transformers saves them, and their logits, as golden data for
tests/test_published.cpp.

    python3 published.py        # writes published/NAME/config.json and model.safetensors, published/logits.json

In FP32 on one thread, with the versions that logits.json names, from PyPI. Nothing is downloaded.
"""
import json
import os

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "published")
TOKENS = [[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]]


def llama(**options):
    return LlamaForCausalLM(LlamaConfig(vocab_size=19, hidden_size=24, intermediate_size=40, num_hidden_layers=2,
                                        num_attention_heads=6, max_position_embeddings=16, bos_token_id=0,
                                        eos_token_id=1, **options))


NETWORKS = {
    "llama": lambda: llama(num_key_value_heads=2, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default",
                                                                                       "rope_theta": 500000.0}),
    "llama_tied": lambda: llama(num_key_value_heads=6, tie_word_embeddings=True),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=19, n_positions=16, n_embd=24, n_layer=2, n_head=3,
                                               bos_token_id=0, eos_token_id=1)),
}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    logits = {}
    for name, make in NETWORKS.items():
        network = make().eval()
        with torch.no_grad():  # initial weights are too small, and initial biases zero
            for p in network.parameters():
                p.copy_(torch.randn(p.shape) * 0.3)
            logits[name] = network(torch.tensor(TOKENS)).logits.flatten().tolist()
        network.save_pretrained(os.path.join(HERE, name))
        os.remove(os.path.join(HERE, name, "generation_config.json"))
        os.chmod(os.path.join(HERE, name, "model.safetensors"), 0o644)
    with open(os.path.join(HERE, "logits.json"), "w") as file:
        json.dump({"torch": torch.__version__, "transformers": transformers.__version__, "tokens": TOKENS,
                   "logits": {n: [float("%.9g" % x) for x in v] for n, v in logits.items()}}, file, indent=0)
        file.write("\n")


main()
