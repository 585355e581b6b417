"""The recorder as a callback of Hugging Face's Trainer:  Trainer(...,
callbacks=[ampscope.torch.transformers.Recorder("run/")])"""
from transformers import TrainerCallback

from . import record


class Recorder(TrainerCallback):
    """Records what trainer.train() trains; options are those of ampscope.torch.record."""

    def __init__(self, path, **options):
        self._path, self._options = path, options
        self.recorder = None

    def on_step_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        if self.recorder is None:  # earlier the optimizer is not prepared yet
            options = {"step": state.global_step, **self._options}
            self.recorder = record(self._path, model, optimizer, scaler=getattr(optimizer, "scaler", None), **options)

    def on_train_end(self, args, state, control, **kwargs):
        if self.recorder is not None:
            self.recorder.close()
