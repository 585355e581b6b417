"""The recorder as a callback of Lightning:  Trainer(callbacks=[ampscope.torch.lightning.Recorder("run/")])"""
import warnings

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from . import record


class Recorder(Callback):
    """Records what trainer.fit() trains; options are those of ampscope.torch.record. Of several optimizers the
    first."""

    def __init__(self, path, **options):
        self._path, self._options = path, options
        self.recorder = None

    def on_train_start(self, trainer, pl_module):
        if not any(optimizer.param_groups for optimizer in trainer.optimizers):
            warnings.warn("nothing is recorded: the module configures no optimizer", RuntimeWarning)
            return
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        options = {"step": trainer.global_step, **self._options}
        self.recorder = record(self._path, trainer.model, trainer.optimizers[0], scaler=scaler, **options)

    def on_train_end(self, trainer, pl_module):
        self._close()

    def on_exception(self, trainer, pl_module, exception):
        self._close(f"step {trainer.global_step}: {type(exception).__name__}: {exception}")

    def _close(self, stopped=""):
        if self.recorder is not None:
            self.recorder.close(stopped)
