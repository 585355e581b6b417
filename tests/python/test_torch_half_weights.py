"""Parameters of 16 bits: what their format does to eps, to a loss scaler and to updates is said, once."""
import inspect

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import ampscope.torch  # noqa: E402
from networks import batches, prepared  # noqa: E402


@pytest.mark.parametrize("change, message", [
    (lambda model: (model.half(), torch.optim.Adam(model.parameters(), eps=1e-6)),
     "FP16 parameters with a loss scaler"),
    (lambda model: (model.half(), torch.optim.Adam(model.parameters(), eps=1e-8)), "eps = 1e-08 is 0 in FP16"),
])
def test_before_the_first_step(tmp_path, change, message):
    model, _ = prepared()
    model, optimizer = change(model)
    scaler = torch.amp.GradScaler("cpu", enabled="eps" not in message)
    with pytest.warns(ampscope.torch.PrecisionWarning, match=message) as said:
        ampscope.torch.record(tmp_path, model, optimizer, scaler=scaler).close()
    assert [w.filename for w in said] == [__file__]


def test_eps_that_bf16_holds(tmp_path, recwarn):
    model, _ = prepared()
    optimizer = torch.optim.Adam(model.bfloat16().parameters(), eps=1e-8)
    ampscope.torch.record(tmp_path, model, optimizer).close()
    assert not recwarn.list


class WithMasters(torch.optim.SGD):
    """As optimizers of libraries do it: a copy in FP32 is stepped, and rounded to the weight."""

    def __init__(self, parameters, name="master", **settings):
        super().__init__(parameters, lr=0.01)
        self.name = name
        self.param_groups[0].update(settings)

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if self.name:
                state.setdefault(self.name, p.float()).add_(p.grad.float(), alpha=-0.01)
            p.copy_(state[self.name]) if self.name else p.add_(p.grad, alpha=-0.01)


@pytest.mark.parametrize("dtype, make, said", [
    (torch.bfloat16, lambda p: torch.optim.SGD(p, 0.01), "of SGD holds none of up.weight. An update below 2^-9 "),
    (torch.float16, lambda p: torch.optim.SGD(p, 0.01, momentum=0.9), "An update below 2^-12 of a weight"),
    (torch.bfloat16, lambda p: WithMasters(p, name=""), "of WithMasters holds none"),
    (torch.bfloat16, WithMasters, None), (torch.float16, lambda p: WithMasters(p, name="x"), None),
    (torch.bfloat16, lambda p: WithMasters(p, name="", stochastic_rounding=True), None),
    (torch.float32, lambda p: torch.optim.SGD(p, 0.01), None)])
def test_weights_of_16_bits_without_masters(tmp_path, recwarn, dtype, make, said):
    model = prepared()[0].to(dtype)
    optimizer = make(model.parameters())
    with ampscope.torch.record(tmp_path, model, optimizer, every=1):
        for x, y in batches(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x.to(dtype)).float(), y).backward()
            optimizer.step()  # here
    heard = [w for w in recwarn.list if w.category is ampscope.torch.PrecisionWarning]
    assert len(heard) == (said is not None)
    if said:
        source, first = inspect.getsourcelines(test_weights_of_16_bits_without_masters)
        line = first + next(i for i, text in enumerate(source) if text.rstrip().endswith("# here"))
        assert said in str(heard[0].message) and (heard[0].filename, heard[0].lineno) == (__file__, line)


def test_weights_of_16_bits_that_are_not_trained(tmp_path, recwarn):
    model, optimizer = prepared()
    other = prepared(seed=1)[0].bfloat16()
    with ampscope.torch.record(tmp_path, model, optimizer, every=1):
        for x, y in batches(2):
            with torch.no_grad():
                taught = other(x.bfloat16()).float()
            F.mse_loss(model(x), taught).backward()
            optimizer.step()
    assert not recwarn.list
