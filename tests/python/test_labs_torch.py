"""Lab 9: loops that students write, and what the check of each says of them."""
import contextlib

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

import ampscope.torch  # noqa: E402
from ampscope import labs  # noqa: E402
from ampscope.labs import lab9  # noqa: E402


def loop(dtype=torch.float16, enabled=True, inside=False, clip="after", threshold=lab9.CLIP, steps=lab9.STEPS, lr=None):
    """A loop of the lab; its defaults are right."""
    def train(folder):
        model, optimizer = lab9.network()
        optimizer.param_groups[0]["lr"] = lr or lab9.LEARNING_RATE
        scaler = torch.amp.GradScaler("cpu", enabled=enabled)
        with ampscope.torch.record(folder, model, optimizer, scaler=scaler, every=20, activations=True):
            for _, (x, y) in zip(range(steps), lab9.batches()):
                optimizer.zero_grad()
                with torch.autocast("cpu", dtype) if dtype else contextlib.nullcontext():
                    loss = F.mse_loss(model(x).float(), y)
                    if inside:
                        scaler.scale(loss).backward()
                if not inside:
                    scaler.scale(loss).backward()
                if clip == "after":
                    scaler.unscale_(optimizer)
                if clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), threshold)
                scaler.step(optimizer)
                scaler.update()
    return train


def recorded(closed=True, train=True, **options):
    def record(folder):
        model, optimizer = lab9.network()
        recorder = ampscope.torch.record(folder, model, optimizer, **{"every": 20, "activations": True, **options})
        for x, y in lab9.batches() if train else ():
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
        if closed:
            recorder.close()
    return record


half, nothing = loop(clip="before"), lambda folder: None
WRONG = [
    ("9.1", [3], "expected a function"), ("9.1", [nothing], "nothing was recorded"),
    ("9.1", [lambda folder: 1 / 0], "ZeroDivisionError"), ("9.1", [recorded(closed=False)], "was not closed"),
    ("9.1", [recorded(every=1)], "every=20"), ("9.1", [recorded(activations=False)], "activations=True"),
    ("9.1", [recorded(train=False)], "0 steps were recorded"),
    ("9.2", ["e", "h"], "scaler_line is not 'e': there the recorder noticed it"), ("9.2", ["a", "h"], "FP16 is what"),
    ("9.2", ["b", "e"], "the region is right"), ("9.2", ["b", 8], "expected the letter"),
    ("9.2", ["b", ...], "no answer"),
    ("9.3", [loop(enabled=False, inside=True, clip="before"), "i", "b"], "backward under autocast"),
    ("9.3", [half, "j", "b"], "scaler.step is the right call"), ("9.3", [half, "i", "h"], "neither the loss scale"),
    ("9.4", [half], "clipping before unscale_"), ("9.4", [loop(enabled=False)], "without a loss scaler"),
    ("9.4", [loop(clip=None)], "60 steps were recorded and 0 times"),
    ("9.4", [loop(steps=30)], "30 steps were recorded"),
    ("9.4", [loop(dtype=torch.bfloat16, enabled=False)], "this run is amp-bf16 with the loss scaler 'none'"),
    ("9.4", [loop(dtype=None, enabled=False)], "this run is fp32"), ("9.4", [loop(threshold=100.0)], "clipped to 100"),
    ("9.4", [loop(lr=1e-4)], "only: what does the optimizer's step use"), ("9.4", [nothing], "nothing was recorded"),
]


@pytest.mark.parametrize("exercise, answers, says", WRONG, ids=lambda x: x if isinstance(x, str) else "")
def test_wrong_answers(exercise, answers, says):
    verdict = labs.check(exercise, *answers)
    assert not verdict and says in verdict.text, verdict
    assert not ampscope.torch._recorder._taps._recorders  # none was left open


def lines(folder, *kinds):
    return [line["histogram"] for line in ampscope.Run(folder).histograms if line["kind"] in kinds]


def share(*kinds, factor=1):
    def zeros(folder):
        found = lines(folder, *kinds)
        return factor * sum(h.zero for h in found) / sum(h.count for h in found)
    return zeros


@pytest.fixture(scope="module")
def recordings():
    return lab9.run(loop(enabled=False, inside=True, clip="before")), lab9.run(loop())


@pytest.mark.parametrize("zeros, says", [
    (share("activation_gradient", "weight_gradient"), "the gradients of weights as well"),
    (share("activation_gradient", factor=100), "a percentage"), (lambda folder: 0.5, "all zeros over all elements"),
    (lambda folder: None, "returns nothing"), (3, "expected a function"), (lambda folder: {}["x"], "KeyError"),
])
def test_wrong_shares(recordings, zeros, says):
    assert says in labs.check("9.5", zeros, *recordings).text
    assert "expected the recording" in labs.check("9.5", zeros, *recordings[:1], lab9.run(...)).text


def test_what_the_lab_promises(recordings):
    """The first bug hides the third; with it alone mended training stands still; zeros are of some percent, and the
    loss does not show them."""
    first, last = recordings
    assert ["under autocast" in first.said[0][1], "without a loss scaler" in first.said[1][1]] == [True] * 2
    assert len(first.said) == 2 and not last.said and labs.check("9.3", half, "I", "b") and labs.check("9.4", loop())
    assert first.losses[-1] < first.losses[0] / 30 and abs(first.losses[-1] / last.losses[-1] - 1) < 0.1
    second = lab9.run(half)
    assert [sentence.partition(":")[0] for _, sentence in second.said] == ["clipping before unscale_"]
    assert second.losses[-1] > 0.9 * second.losses[0]
    assert labs.check("9.5", share("activation_gradient"), first, last)
    assert share("activation_gradient")(first.folder) > 0.01 > 0.001 > share("activation_gradient")(last.folder)
    assert "stand" not in repr(first) and "torch.autocast" in repr(first) and "says nothing" in repr(last)


def test_how_to_get_torch(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "1.13.1")
    with pytest.raises(ImportError, match="too old: .*\n.*pip install torch"):
        lab9.require_torch()
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ImportError, match="pip install torch"):
        lab9.require_torch()


def test_each_exercise_has_a_wrong_answer():
    assert {name for name, *_ in WRONG} | {"9.5"} == {name for name in labs.exercises if name[0] == "9"}
