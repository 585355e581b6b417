"""ampscope.mismatch against the formulas of RL frameworks, written with torch in FP64."""
import math

import numpy as np
import pytest
import torch

import ampscope


def logits(distance, rows=200, vocabulary=50, seed=3):
    generator = torch.Generator().manual_seed(seed)
    training = 4 * torch.randn(rows, vocabulary, generator=generator)
    serving = training + distance * torch.randn(rows, vocabulary, generator=generator)
    return training, serving, torch.randint(vocabulary, (rows,), generator=generator)


def k3(logprobs, reference):
    """Schulman's estimate of KL(logprobs || reference)."""
    r = reference - logprobs
    return torch.exp(r) - r - 1


def formulas(prev, generation):
    mixture = torch.log(0.5 * prev.exp() + 0.5 * generation.exp())
    js = 0.5 * (torch.exp(prev - mixture) - (prev - mixture) - 1) + \
        0.5 * (torch.exp(generation - mixture) - (generation - mixture) - 1)
    return {"token_mult_prob_error": (generation - prev).abs().exp().mean(),
            "gen_kl_error": k3(generation, prev).mean(),
            "policy_kl_error": k3(prev, generation).mean(), "js_divergence_error": js.mean(),
            "sampling_importance_ratio": (prev - generation).exp().mean(),
            "chi2_token": (prev - generation).exp().square().mean() - 1,
            "largest_logp_difference": (generation - prev).abs().max()}


def close(found, expected):
    for name, value in expected.items():
        assert math.isclose(found[name], float(value), rel_tol=1e-9, abs_tol=1e-15), name


@pytest.mark.parametrize("distance", [0.02, 1.0])
def test_formulas(distance):
    training, serving, tokens = logits(distance)
    p, q = (torch.log_softmax(x.double(), -1) for x in (training, serving))
    prev, generation = (x.gather(1, tokens[:, None])[:, 0] for x in (p, q))
    found = ampscope.mismatch(training, serving, tokens)
    assert found["tokens"] == 200
    close(found["token"], formulas(prev, generation))
    m = torch.logaddexp(p, q) - math.log(2)
    kl = torch.nn.functional.kl_div  # kl_div(input, target) is KL(target || input)
    close(found["distribution"], {
        "kl_training_serving": kl(q, p, reduction="batchmean", log_target=True),
        "kl_serving_training": kl(p, q, reduction="batchmean", log_target=True),
        "js_divergence": (kl(m, p, reduction="batchmean", log_target=True) +
                          kl(m, q, reduction="batchmean", log_target=True)) / 2,
        "chi2": ((p.exp() - q.exp()).square() / q.exp()).sum(-1).mean(),
        "largest_probability_difference": (p.exp() - q.exp()).abs().max()})
    assert found["distribution"]["other_choice"] == int((p.argmax(-1) != q.argmax(-1)).sum())
    assert math.isclose(found["training_loss"], -float(prev.mean()), rel_tol=1e-12)
    alone = ampscope.mismatch(prev.numpy(), generation.numpy())
    close(alone["token"], formulas(prev, generation))
    assert alone["distribution"] is None


def test_masks_and_shapes():
    training, serving, tokens = logits(0.1, rows=12)
    whole = ampscope.mismatch(training, serving, tokens)
    assert ampscope.mismatch(training.view(3, 4, 50), serving.view(3, 4, 50), tokens.view(3, 4)) == whole
    masked = torch.cat([tokens, torch.full((12,), -100)])
    assert ampscope.mismatch(torch.cat([training, serving]), torch.cat([serving, training]), masked) == whole
    same = ampscope.mismatch(training.numpy(), training.numpy(), tokens.numpy())
    assert same["token"]["token_mult_prob_error"] == 1
    assert same["token"]["gen_kl_error"] == same["distribution"]["chi2"] == same["distribution"]["js_divergence"] == 0
    wide = ampscope.mismatch(training.double() * (1 + 1e-12), serving, tokens)  # more than FP32 holds
    assert wide["token"] != whole["token"]
    half = ampscope.mismatch(training.bfloat16(), training.bfloat16().float(), tokens)
    assert half["distribution"]["kl_training_serving"] == 0


def test_what_is_no_number():
    training, serving, tokens = logits(0.1, rows=5)
    serving[2, 7] = math.nan
    found = ampscope.mismatch(training, serving, tokens)
    assert (found["tokens"], found["nonfinite"]) == (4, 1)
    assert ampscope.mismatch([-1.0, -math.inf], [-1.5, -2.0])["nonfinite"] == 1
    nothing = ampscope.mismatch([], [])
    assert (nothing["tokens"], nothing["token"]["token_mult_prob_error"], nothing["training_loss"]) == (0, None, None)
    masked = ampscope.mismatch([[0.0, 0.0, -math.inf]], [[0.5, 0.0, -math.inf]], [0])
    assert masked["distribution"] == ampscope.mismatch([[0.0, 0.0]], [[0.5, 0.0]], [0])["distribution"]


def test_wrong_arguments():
    training, serving, tokens = logits(0.1, rows=5)
    for wrong in ((training, serving[:4], tokens), (training, serving, tokens[:4]),
                  (training[:, :0], serving[:, :0], tokens)):
        with pytest.raises(ValueError, match="expected logits of shape"):
            ampscope.mismatch(*wrong)
    with pytest.raises(ValueError, match="one shape"):
        ampscope.mismatch([-1.0], [-1.0, -2.0])
    with pytest.raises(ValueError, match="tokens: 50 is no token of 50"):
        ampscope.mismatch(training, serving, tokens * 0 + 50)
    with pytest.raises(ValueError, match="none above 0; logits need tokens"):
        ampscope.mismatch([-1.0], [0.5])
    with pytest.raises(ValueError, match="is no token of 50"):
        ampscope.mismatch(training, serving, np.full(5, 2**63, np.uint64))
    with pytest.raises(TypeError, match="expected integers"):
        ampscope.mismatch(training, serving, np.full(5, 0.5))
