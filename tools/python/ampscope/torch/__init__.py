"""Records a PyTorch run: three lines, and the tools of ampscope read what it leaves.

    rec = ampscope.torch.record("run/", model, optimizer, scaler=scaler, every=100, activations=True)
    ...                     # train as always
    rec.close()             # or: with ampscope.torch.record(...):

then, from a shell:  amp-report run/ --html report.html
"""
from ._lint import PrecisionWarning
from ._ranks import merge_ranks
from ._recorder import Recorder


def __getattr__(name):
    """ampscope.torch.lightning and ampscope.torch.transformers, imported when they are asked for."""
    if name in ("lightning", "transformers"):
        import importlib
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'ampscope.torch' has no attribute {name!r}")


__all__ = ["PrecisionWarning", "Recorder", "merge_ranks", "record"]


def record(path, model, optimizer, *, scaler=None, every=100, activations=False, histograms_only=False, state=False,
           name=None, step=0, warn=True):
    """Begins to record training into the folder `path`; gives a Recorder.

    Of every step: loss, loss scale in force, found_inf, skipped, norm of the gradients before clipping, learning rate,
    largest magnitude. Of every `every`-th step, from the first on: the gradients of weights, and of module outputs
    where `activations` is True (modules without children) or a list of patterns of module names; as tensors and as
    exact histograms, or with histograms_only as these alone: kilobytes, from which every count of amp-histogram follows
    for every format and scale. Gradients are recorded as backward left them, with the loss scale that they contain
    beside them: tools divide by it. Training itself is the same to the bit.

    model       torch.nn.Module, also compiled or in DistributedDataParallel (a folder per rank; see merge_ranks)
    optimizer   what is stepped; of several, each gets a recorder and a folder of its own
    scaler      torch.amp.GradScaler; only described here: one that is not given is noticed
    state       True: weights and Adam's m and v before each recorded step too, from which amp-adam answers exactly
    name        of the precision in reports; as it is found otherwise: fp32, amp-fp16, pure-bf16 ...
    step        number of the first step: goes on with a folder, of which that step and later ones are dropped
    warn        PrecisionWarning, with the line of the script, for what is wrong with the loop (clipping before
                unscale_ ...)

    A fault while training, as a full disk, ends the recording with a RuntimeWarning, and not the training.

    Raises FileExistsError for a folder that holds a run, or files with a run's names that are none's; OSError where it
    cannot be written, or another program or recorder writes to it; TypeError for a scaler that is none of torch's."""
    return Recorder(path, model, optimizer, scaler, every, activations, histograms_only, state, name, step, warn)
