"""Each thing that is wrong with a loop is said once, with the line of the loop; a loop that is right hears nothing."""
import inspect
import json
import warnings

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import ampscope.torch  # noqa: E402
from networks import batches, prepared  # noqa: E402


def amp_loss(model, x, y, dtype=torch.float16):
    with torch.autocast("cpu", dtype):
        out = model(x)
    return F.cross_entropy(out.float(), y)


def steps(n, optimizer, scaler, body):
    for x, y in batches(n):
        optimizer.zero_grad()
        body(x, y)


def right(model, optimizer, scaler):
    def body(x, y):
        scaler.scale(amp_loss(model, x, y)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    steps(3, optimizer, scaler, body)


def clip_first(model, optimizer, scaler):
    def body(x, y):
        scaler.scale(amp_loss(model, x, y)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # here
        scaler.step(optimizer)
        scaler.update()
    steps(3, optimizer, scaler, body)


def clip_first_by_hand(model, optimizer, scaler):
    def body(x, y):
        scaler.scale(amp_loss(model, x, y)).backward()
        for p in model.parameters():
            p.grad.clamp_(-1, 1)
        scaler.unscale_(optimizer)  # here
        scaler.step(optimizer)
        scaler.update()
    steps(3, optimizer, scaler, body)


def clip_all_by_hand_first(model, optimizer, scaler):
    """By one factor for all gradients, which is another in each step."""
    def body(x, y):
        scaler.scale(amp_loss(model, x, y)).backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        for p in model.parameters():
            p.grad *= 1 / norm
        scaler.unscale_(optimizer)  # here
        scaler.step(optimizer)
        scaler.update()
    steps(3, optimizer, scaler, body)


def infinities_removed(model, optimizer, scaler):
    """Which the scaler would have found."""
    def body(x, y):
        scaler.scale(amp_loss(model, x, y)).backward()
        next(model.parameters()).grad[0] = float("inf")  # as backward might have left it
        scaler.scale(0 * amp_loss(model, x, y)).backward()
        for p in model.parameters():
            p.grad.nan_to_num_(0, 0, 0)
        scaler.step(optimizer)  # here
        scaler.update()
    steps(2, optimizer, scaler, body)


def divided(model, optimizer, scaler):
    """By the number of micro-batches, which does not depend on gradients."""
    def body(x, y):
        for part in range(3):
            scaler.scale(amp_loss(model, x[part::3], y[part::3])).backward()
        for p in model.parameters():
            p.grad /= 3
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    steps(4, optimizer, scaler, body)


def nan_loss(model, optimizer, scaler):
    def body(x, y):
        loss = amp_loss(model, x, y)
        scaler.scale(loss / (loss - loss)).backward()  # here
        scaler.step(optimizer)
        scaler.update()
    steps(3, optimizer, scaler, body)


def unscale_twice(model, optimizer, scaler):
    def body(x, y):
        scaler.scale(amp_loss(model, x, y)).backward()
        scaler.unscale_(optimizer)
        with pytest.raises(RuntimeError):
            scaler.unscale_(optimizer)  # here
        scaler.step(optimizer)
        scaler.update()
    steps(2, optimizer, scaler, body)


def scaler_with_bf16(model, optimizer, scaler):
    def body(x, y):
        scaler.scale(amp_loss(model, x, y, torch.bfloat16)).backward()  # here
        scaler.step(optimizer)
        scaler.update()
    steps(2, optimizer, scaler, body)


def scaler_with_fp32(model, optimizer, scaler):
    def body(x, y):
        scaler.scale(F.cross_entropy(model(x), y)).backward()  # here
        scaler.step(optimizer)
        scaler.update()
    steps(2, optimizer, scaler, body)


def no_scaler_with_fp16(model, optimizer, scaler):
    def body(x, y):
        with torch.autocast("cpu", torch.float16):  # here
            out = model(x)
        F.cross_entropy(out.float(), y).backward()
        optimizer.step()
    steps(2, optimizer, scaler, body)


def inverted_enabled(model, optimizer, scaler):
    dtype = torch.float16
    scaler = torch.amp.GradScaler("cpu", enabled=(dtype == torch.bfloat16))  # the much-copied line

    def body(x, y):
        with torch.autocast("cpu", dtype):  # here
            out = model(x)
        scaler.scale(F.cross_entropy(out.float(), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    steps(2, optimizer, scaler, body)


def fp16_loss(model, optimizer, scaler):
    def body(x, y):
        with torch.autocast("cpu", torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()  # here
        scaler.step(optimizer)
        scaler.update()
    steps(1, optimizer, scaler, body)


def backward_under_autocast(model, optimizer, scaler):
    def body(x, y):
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x).float(), y)
            scaler.scale(loss).backward()  # here
        scaler.step(optimizer)
        scaler.update()
    steps(2, optimizer, scaler, body)


def step_while_scaled(model, optimizer, scaler):
    def body(x, y):
        scaler.scale(amp_loss(model, x, y)).backward()
        optimizer.step()  # here
    steps(2, optimizer, scaler, body)


def never_scaled(model, optimizer, scaler):
    scaler.scale(torch.zeros(()))

    def body(x, y):
        amp_loss(model, x, y).backward()
        scaler.step(optimizer)  # here
        scaler.update()
    steps(2, optimizer, scaler, body)


def scaler_with_bf16_parameters(model, optimizer, scaler):
    def body(x, y):
        scaler.scale(F.cross_entropy(model(x.bfloat16()).float(), y)).backward()  # here
        optimizer.zero_grad()
    model.bfloat16()
    steps(2, optimizer, scaler, body)


def scaler_with_fp16_parameters(model, optimizer, scaler):
    scaler = torch.amp.GradScaler("cpu", init_scale=8)  # not the recorder's

    def body(x, y):
        scaler.scale(F.cross_entropy(model(x.half()).float(), y)).backward()  # here
        with pytest.raises(ValueError, match="Attempting to unscale FP16"):
            scaler.step(optimizer)
    model.half()
    steps(1, optimizer, scaler, body)


def backward_after_unscale(model, optimizer, scaler):
    def body(x, y):
        scaler.scale(amp_loss(model, x, y)).backward()
        scaler.unscale_(optimizer)
        scaler.scale(amp_loss(model, x, y)).backward()  # here
        scaler.step(optimizer)
        scaler.update()
    steps(2, optimizer, scaler, body)


def scaled_and_not(model, optimizer, scaler):
    def body(x, y):
        amp_loss(model, x, y).backward()
        scaler.scale(amp_loss(model, x, y)).backward()  # here
        scaler.step(optimizer)
        scaler.update()
    steps(2, optimizer, scaler, body)


def right_beside_others(model, optimizer, scaler):
    """A teacher in BF16, an evaluation in BF16, a second network in FP32, and the total norm logged while scaled."""
    teacher, other = prepared(seed=1)[0], prepared(seed=2)[0]
    theirs = torch.optim.SGD(other.parameters(), 0.1)

    def body(x, y):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            teacher(x)
            model(x)
        F.cross_entropy(other(x), y).backward()
        theirs.step()
        loss = amp_loss(model, x, y)
        scaler.scale(loss).backward()
        if hasattr(torch.nn.utils, "get_total_norm"):
            torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        scaler.step(optimizer)
        scaler.update()
    steps(2, optimizer, scaler, body)


def fp32_beside_others(model, optimizer, scaler):
    """Training in FP32 beside an evaluation in FP16, and a network that is trained with a scaler."""
    other, theirs = prepared(seed=1)

    def body(x, y):
        with torch.no_grad(), torch.autocast("cpu", torch.float16):
            model(x)
        scaler.scale(amp_loss(other, x, y)).backward()
        scaler.step(theirs)
        scaler.update()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    steps(2, optimizer, scaler, body)


LOOPS = {right: None, divided: None, right_beside_others: None, fp32_beside_others: None,
         scaler_with_bf16_parameters: "loss scaler with BF16",
         scaler_with_fp16_parameters: "FP16 parameters with a loss scaler",
         backward_after_unscale: "backward after unscale_", scaled_and_not: "are added to gradients that contain 1",
         clip_first: "clipping before unscale_", clip_first_by_hand: "changed before unscale_",
         clip_all_by_hand_first: "changed before unscale_", infinities_removed: "changed before unscale_",
         nan_loss: "the loss is inf",
         unscale_twice: "unscale_ twice", scaler_with_bf16: "loss scaler with BF16",
         scaler_with_fp32: "FP32 throughout", no_scaler_with_fp16: "autocast to FP16 without a loss scaler",
         inverted_enabled: "autocast to FP16 without a loss scaler", fp16_loss: "a loss in FP16",
         backward_under_autocast: "backward under autocast", step_while_scaled: "still contain the loss scale",
         never_scaled: "backward did not begin at scaler.scale"}


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_loops(tmp_path, loop):
    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu")
    given = None if loop in (scaler_with_fp16_parameters, fp32_beside_others) else scaler
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ampscope.torch.record(tmp_path, model, optimizer, scaler=given, every=1):
            loop(model, optimizer, scaler)
    said = [w for w in caught if w.category is ampscope.torch.PrecisionWarning]
    if LOOPS[loop] is None:
        assert not said
        run = json.loads((tmp_path / "run.json").read_text())
        expected = ("fp32", "none") if loop is fp32_beside_others else ("amp-fp16", "torch")
        assert (run["precision"]["name"], run["loss_scaler"]["name"]) == expected
        return
    source, first = inspect.getsourcelines(loop)
    line = first + next(i for i, text in enumerate(source) if text.rstrip().endswith("# here"))
    assert [(LOOPS[loop] in str(w.message), w.filename, w.lineno) for w in said] == [(True, __file__, line)]
    (written,) = json.loads((tmp_path / "result.json").read_text())["warnings"]
    assert written == f"{__file__}:{line}: {said[0].message}"


def test_scalers_of_ones_own(tmp_path, recwarn):
    class Scaler(torch.amp.GradScaler):  # as FSDP's: it does some of the work itself
        def scale(self, outputs):
            return super().scale(outputs)

        def unscale_(self, optimizer):
            super().unscale_(optimizer)

        def step(self, optimizer):
            return super().step(optimizer)

    model, optimizer = prepared()
    with ampscope.torch.record(tmp_path, model, optimizer, every=1):
        right(model, optimizer, Scaler("cpu"))
    assert not [str(w.message) for w in recwarn.list if w.category is ampscope.torch.PrecisionWarning]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_gradients_without_their_scaler_are_unscaled_all_the_same(tmp_path):
    model, optimizer = prepared()
    with ampscope.torch.record(tmp_path, model, optimizer, every=1):
        right(model, optimizer, torch.amp.GradScaler("cpu"))
    metrics = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [m["scale"] for m in metrics] == [65536] * 3 and all(m["grad_norm"] < 10 for m in metrics)
    assert json.loads((tmp_path / "run.json").read_text())["loss_scaler"]["name"] == "torch"


def test_silence(tmp_path, recwarn):
    model, optimizer = prepared()
    scaler = torch.amp.GradScaler("cpu")
    with ampscope.torch.record(tmp_path, model, optimizer, scaler=scaler, warn=False):
        clip_first(model, optimizer, scaler)
    assert not [w for w in recwarn.list if w.category is ampscope.torch.PrecisionWarning]
