"""Steps of torch.optim.Adafactor in the formats of a precision."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import ampscope  # noqa: E402
import ampscope.torch  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Adafactor"), reason="this PyTorch has no Adafactor")

OPTIONS = [{"lr": 0.05}, {"lr": 0.02, "weight_decay": 0.1, "beta2_decay": -0.5, "d": 2.0, "eps": (1e-4, 0.1)}]


def of_state(state):
    """An optimizer's second moment as ampscope.Optimizer has it."""
    return torch.cat([state[key].flatten() for key in ("row_var", "col_var", "variance") if key in state]).float()


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("precision", ["fp32", "pure-bf16", "pure-bf16-kahan", "pure-fp16", "fp32,v=bf16"])
def test_steps_of_adafactor(precision, options):
    """Oracles: ampscope.Optimizer, whose steps tests/test_adafactor.cpp compares with recorded ones, bit for bit; and
    PyTorch's own steps, whose sums have another order."""
    asked = ampscope._ampscope.AskedPrecision(precision)
    torch.manual_seed(0)
    model, theirs = (nn.Linear(12, 20) for _ in range(2))
    theirs.load_state_dict(model.state_dict())
    theirs.to({"pure-bf16": torch.bfloat16, "pure-fp16": torch.float16}.get(precision, torch.float32))
    steps = [torch.optim.Adafactor(of.parameters(), **options) for of in (model, theirs)]
    first = theirs.weight.detach().clone()
    same_as_twin = options is OPTIONS[0]  # ampscope.Optimizer has the numbers of its row
    twins = [ampscope.Optimizer(p.detach().numpy(), "adafactor", lr=options["lr"], rounding=asked.update,
                                weight_format=asked.formats["master"], state_format=asked.formats["v"])
             for p in model.parameters()]
    with ampscope.torch.emulate(model, precision, optimizer=steps[0]):
        for step in range(5):
            random = torch.Generator().manual_seed(step)
            for p, other, twin in zip(model.parameters(), theirs.parameters(), twins):
                gradient = torch.randn(p.shape, generator=random)
                p.grad, other.grad = gradient.to(p.dtype), gradient.to(other.dtype)
                twin.step(gradient)
            for optimizer in steps:
                optimizer.step()
            for p, twin in zip(model.parameters(), twins):
                if same_as_twin:
                    assert torch.equal(p.detach().float(), torch.from_numpy(twin.weight))
                    assert torch.equal(of_state(steps[0].state[p]), torch.from_numpy(twin.v))
        moved, apart = ((theirs.weight - w).norm() for w in (first, model.weight.detach().float()))
    assert apart < {"fp32": 1e-5, "pure-bf16": 0.05, "pure-fp16": 0.01}.get(precision, 0.3) * moved
    assert steps[0].state[model.weight]["row_var"].dtype == torch.float32
    assert steps[0].state[model.weight]["row_var"].shape == (20, 1)
    assert int(steps[0].state[model.bias]["step"]) == 5


def test_what_of_adafactor_is_refused():
    images = nn.Conv2d(2, 3, 3)
    with pytest.raises(NotImplementedError, match="more than two axes"):
        ampscope.torch.emulate(images, "pure-bf16", optimizer=torch.optim.Adafactor(images.parameters()))
    model = nn.Linear(12, 20)
    with pytest.raises(NotImplementedError, match="first eps of 0"):
        ampscope.torch.emulate(model, "pure-bf16", optimizer=torch.optim.Adafactor(model.parameters(), eps=(0.0, 1e-3)))
    with pytest.raises(NotImplementedError, match="Adafactor with weights or state under a scale"):
        ampscope.torch.emulate(model, "ms-amp", optimizer=torch.optim.Adafactor(model.parameters()))
    with pytest.raises(ValueError, match="expected a matrix or a vector, got 3 axes"):
        ampscope.Optimizer(np.ones((2, 2, 2)), "adafactor")


def test_second_moments_of_rows_and_columns():
    """Of the first step: the mean squares themselves."""
    gradient = np.arange(6, dtype=np.float32).reshape(2, 3)
    optimizer = ampscope.Optimizer(np.ones((2, 3)), "adafactor")
    assert optimizer.step(gradient)["changed"] == 5  # and none where the gradient is 0
    squares = np.square(gradient.astype(float))
    assert np.allclose(optimizer.v, np.concatenate([squares.mean(1), squares.mean(0)]), rtol=1e-6)
    assert optimizer.m.size == 0
