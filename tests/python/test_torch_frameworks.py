"""The callbacks under the frameworks that call them, where these are installed."""
import json

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from networks import MLP, batches  # noqa: E402


def metrics(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_lightning(tmp_path, precision, clip):
    lightning = pytest.importorskip("lightning.pytorch")
    import ampscope.torch
    Recorder = ampscope.torch.lightning.Recorder
    norms = []

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.mlp = MLP()

        def training_step(self, batch, index):
            return F.cross_entropy(self.mlp(batch[0]).float(), batch[1])

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 0.01)

        def on_after_backward(self):
            norms.append(float(torch.cat([p.grad.ravel() for p in self.parameters()]).double().norm()))

    trainer = lightning.Trainer(max_steps=6, callbacks=[Recorder(tmp_path / "run", every=2, activations=True)],
                                precision=precision, gradient_clip_val=clip, accelerator="cpu", logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Module(), torch.utils.data.DataLoader(batches(6), batch_size=None))
    lines = metrics(tmp_path / "run")
    assert [m["step"] for m in lines] == list(range(6))
    assert [m["grad_norm"] for m in lines] == pytest.approx(norms, rel=1e-12)
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["precision"]["name"] == {"32-true": "fp32", "bf16-mixed": "amp-bf16"}[precision]
    assert len(list((tmp_path / "run/gradients").iterdir())) == 3
    assert json.loads((tmp_path / "run/result.json").read_text())["warnings"] == []


def test_hugging_face(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    import ampscope.torch
    Recorder = ampscope.torch.transformers.Recorder

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = MLP()

        def forward(self, x, labels):
            out = self.mlp(x)
            return {"loss": F.cross_entropy(out, labels), "logits": out}

    x, y = batches(1)[0]
    data = [{"x": a, "labels": b} for a, b in zip(x, y)]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), max_steps=5, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        max_grad_norm=0.1, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=1)
    callback = Recorder(tmp_path / "run", every=2, store="histograms")
    trainer = transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=[callback])
    trainer.train()
    lines = metrics(tmp_path / "run")
    assert [m["step"] for m in lines] == list(range(5)) and {m["micro_batches"] for m in lines} == {2}
    logged = [entry for entry in trainer.state.log_history if "grad_norm" in entry]
    assert [m["grad_norm"] for m in lines] == pytest.approx([e["grad_norm"] for e in logged], rel=1e-5)
    assert [m["loss"] for m in lines] == pytest.approx([e["loss"] for e in logged], rel=1e-3)
    assert json.loads((tmp_path / "run/result.json").read_text())["warnings"] == []

    step, calls = trainer.training_step, []

    def fails(*args, **kwargs):
        calls.append(0)
        if len(calls) == 4:
            raise MemoryError
        return step(*args, **kwargs)

    trainer.training_step = fails
    with pytest.raises(MemoryError):
        trainer.train()
    trainer.training_step = step
    trainer.optimizer = trainer.lr_scheduler = None  # as between the trials of a search
    trainer.train()
    assert [m["step"] for m in metrics(tmp_path / "run")] == list(range(5 + 1 + 5)) and callback.recorder is None


def test_lightning_without_an_optimizer(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    import ampscope.torch

    class Module(lightning.LightningModule):
        def training_step(self, batch, index):
            return None

        def configure_optimizers(self):
            return None

    trainer = lightning.Trainer(max_steps=1, max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False,
                                callbacks=[ampscope.torch.lightning.Recorder(tmp_path / "run")])
    with pytest.warns(RuntimeWarning, match="the module configures no optimizer"):
        trainer.fit(Module(), torch.utils.data.DataLoader(batches(1), batch_size=None))
    assert not (tmp_path / "run").exists()
