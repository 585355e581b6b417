"""The recorder as a callback of Hugging Face's Trainer:  Trainer(...,
callbacks=[ampscope.torch.transformers.Recorder("run/")])"""
from transformers import TrainerCallback

from . import record


class Recorder(TrainerCallback):
    """Records what trainer.train() trains; options are those of ampscope.torch.record. A second train() goes on with
    the numbers of steps."""

    def __init__(self, path, **options):
        self._path, self._options = path, options
        self.recorder = None
        self._next = 0

    def on_train_begin(self, args, state, control, **kwargs):
        self._close("interrupted")  # the Trainer tells nobody of an exception

    def on_step_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
        if self.recorder is None:  # earlier the optimizer is not prepared yet
            options = {"step": max(state.global_step, self._next), **self._options}
            self.recorder = record(self._path, model, optimizer, scaler=getattr(optimizer, "scaler", None), **options)

    def on_train_end(self, args, state, control, **kwargs):
        self._close()

    def _close(self, stopped=""):
        if self.recorder is not None:
            self.recorder.close(stopped)
            self._next, self.recorder = self.recorder.next_step, None
