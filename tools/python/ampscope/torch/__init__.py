"""Records a PyTorch run (record), runs one in another arithmetic (emulate), and says which layers that hurts (compare).

To record takes three lines, and the tools of ampscope read what they leave:

    rec = ampscope.torch.record("run/", model, optimizer, scaler=scaler, every=100, activations=True)
    ...                     # train as always
    rec.close()             # or: with ampscope.torch.record(...):

then, from a shell:  amp-report run/ --html report.html
"""
from ._compare import Comparison, Measurement
from ._emulate import Machine
from ._lint import PrecisionWarning
from ._ranks import merge_ranks
from ._recorder import Recorder


def __getattr__(name):
    """ampscope.torch.lightning and ampscope.torch.transformers, imported when they are asked for."""
    if name in ("lightning", "transformers"):
        import importlib
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module 'ampscope.torch' has no attribute {name!r}")


__all__ = ["Comparison", "Machine", "PrecisionWarning", "Recorder", "compare", "emulate", "merge_ranks", "record"]


def record(path, model, optimizer, *, scaler=None, every=100, activations=False, what="gradients", weights=False,
           store="tensors", state=False, name=None, step=0, overwrite=False, warn=True, histograms_only=None):
    """Begins to record training into the folder `path`; gives a Recorder.

    Of every step: loss, loss scale in force, found_inf, skipped, norm of the gradients before clipping, largest
    magnitude of the gradients, learning rate, and what else the optimizer's parameter groups change (betas, eps, weight
    decay). Of every `every`-th step, from the first on, tensors, each with its kind:
    gradients of weights (weight_gradient) and what the options add. Gradients are recorded as backward left them, with
    the loss scale that they contain beside them: tools divide by it. Everything is recorded in the type in which it
    exists: outputs under autocast in half precision. Training itself is the same to the bit.

    model       torch.nn.Module, also compiled, in DistributedDataParallel, or divided among ranks by fully_shard or
                tensor parallelism (a folder per rank; see merge_ranks)
    optimizer   what is stepped; of several, each gets a recorder and a folder of its own
    scaler      torch.amp.GradScaler; only described here: one that is not given is noticed
    activations True: of modules without children; or a pattern of module names ("blocks.*.mlp"), or a list of them
    what        of these modules: "gradients" of their outputs (activation_gradient), the "outputs" themselves
                (activation), or "both". An output counts once for each call of its module through which a gradient
                flows: not under no_grad, not in evaluation, and once where a checkpoint computes it twice. It is taken
                when the module returns it, before anything changes it in place
    weights     True: weights too (weight), before the step
    store       "tensors": with their exact histograms; "histograms": these alone: kilobytes, from which every count of
                amp-histogram follows, for every format and scale
    state       True: weights and Adam's m and v (state) before each recorded step too, always as tensors, from which
                amp-adam answers exactly
    name        of the precision in reports; as it is found otherwise: fp32, amp-fp16, pure-bf16 ...
    step        number of the first step: goes on with a folder, of which that step and later ones are dropped
    overwrite   True: replaces the run that the folder holds; otherwise a second run of a script goes to path-2, path-3
                ... and says so. Where it went: the recorder's `path`
    warn        PrecisionWarning, with the line of the script, for what is wrong with the loop (clipping before
                unscale_ ...)

    A fault while training, as a full disk, ends the recording with a RuntimeWarning, and not the training.

    Raises FileExistsError for files with a run's names that are none's; OSError where the folder
    cannot be written, or another program or recorder writes to it; TypeError for a scaler that is none of torch's;
    ValueError for an option that means nothing."""
    if histograms_only is not None:
        raise TypeError('histograms_only: write store="histograms"')
    return Recorder(path, model, optimizer, scaler, every, activations, what, weights, store, state, name, step,
                    overwrite, warn)


def emulate(model, precision, *, optimizer=None, seed=0, skip=None, layers=None, strict=False, threads=0,
            attention="plain"):
    """Runs `model` in emulated arithmetic on the processor: training and evaluation, by the script as it is. Gives a
    Machine, for a `with` statement or until close():

        with ampscope.torch.emulate(model, "fp8-current,accumulate=hopper-wgmma-fp8") as machine:
            ...                     # train as always
        print(machine.coverage())

    Products of matrices within the model, forward and backward, have the operands, scales and sums of the precision;
    each element is ampscope.dot() of its row and column, rounded once. All else is computed by PyTorch, in the types
    that autocast by CUDA's lists gives it if the precision has autocast. What is outside of the model stays as it is.

    model       torch.nn.Module on the processor, with weights in FP32, FP16 or BF16; also in DistributedDataParallel,
                divided by fully_shard, or compiled (it runs eagerly meanwhile)
    precision   a preset or text of amp-train (amp-train --list). Where it has no autocast and computes in FP16 or BF16
                (master-bf16), each call of the model gets casts of its weights and of its inputs, and gives FP32 if the
                loss is in FP32
    optimizer   torch.optim's SGD, Adam or AdamW, or a list of them: they step as amp-train's do, on weights and state
                in the precision's formats. Needed if these are not FP32 (pure-bf16), or rounded in a way of their own
    seed        of stochastic rounding. Random numbers depend on it, the layer, the step and the call in the step
    layers      what differs in the layers of some modules, and of all modules in them, by name or pattern: "h.*.mlp",
                /regular expression/, "first-N" and "last-N" for the first and last N blocks:
                {"lm_head": "fp32", "h.*.mlp": "fp8-current,accumulate=exact"}. A format, in which operands are read
                without scales, or an FP8 recipe, or any keys of a precision about products, and autocast=off; fp32 is
                outside autocast. Of several later ones win
    skip        names or patterns of modules whose layers, and those of all modules in them, are not cast with scales:
                "head" and "lm_head" if it is not given, none if it is empty. Short for layers={NAME: "scaling=none"},
                before the others. Without a recipe they are in FP32, outside autocast: {NAME: "fp32"}; master weights
                and pure formats have one type for the whole model, which this does not change
    strict      True: a product that is not emulated is an error, not a line of coverage(). "ops": besides, sums,
                activations, norms, softmax, embeddings and losses are computed by amp-train's ops, too, rounded once
                from more bits than PyTorch has: an amp-train network written in PyTorch has its bits
    threads     0: as many as PyTorch has. Results do not depend on it
    attention   "fused", "fused:64x32,o=bf16,max=shifted" and the like, as ampscope.attention takes them:
                F.scaled_dot_product_attention computes in tiles, as FlashAttention-2 does, with a backward of its own.
                Calls with a mask or dropout, and causal ones of more keys than queries or fewer, are computed as ever

    Raises TypeError and ValueError for arguments that mean nothing, such as an unknown precision or module,
    NotImplementedError for what cannot be emulated, and RuntimeError while another model is, or where the script's own
    autocast casts to another format than the precision's."""
    return Machine(model, precision, optimizer, seed, skip, layers, strict, threads, attention=attention)


def compare(model, batch, loss_fn, precisions, *, effects=True, seed=0, skip=None, layers=None, threads=0):
    """One training step of `model` in several precisions beside FP32's, module by module: which layers does it hurt?
    Gives a Comparison, which prints as a table and says which layers to keep in higher precision:

        result = ampscope.torch.compare(model, batch, lambda model, batch: loss(model(batch.x), batch.y),
                                        ["amp-bf16", "fp8-current,accumulate=hopper-wgmma-fp8"])
        print(result)                   # .frame() for pandas, .save("compare.json") for amp-report

    Each step begins with the same weights, buffers and random numbers of torch, without gradients, and nothing of them
    is changed in the end. Errors are |x - x32| / |x32| over all elements of the tensors together, where x32 is what
    PyTorch computes in FP32; elements that are infinite or NaN only in x are counted apart. Of each module that calls
    no other, or multiplies matrices itself:

    in the step         errors of its output, of the gradient of that, and of its weights' gradients, inherited ones
                        included
    by itself ("own")   errors of its output, and of the gradients of its inputs and weights, if it is called alone with
                        the inputs, and with the gradient of the output, that FP32 has; modules that it calls are in
                        FP32. Roundings of inputs to the precision count here
    effect              error of the whole model's gradient in a step in which only this module is in the precision: by
                        these modules are ranked
    casts               elements that become zero or saturate where a recipe casts inputs, weights and gradients with
                        scales; in half precision, those of FP32's outputs and gradients that the format cannot hold

    model       torch.nn.Module on the processor, in FP32; in the mode, training or not, in which it is
    batch       anything; only loss_fn reads it
    loss_fn     loss_fn(model, batch) calls the model and gives the loss, a tensor of one number. For models of Hugging
                Face: lambda model, batch: model(**batch).loss
    precisions  presets or texts of amp-train, as for emulate()
    effects     False: no effects, for which FP32's step is repeated for each module that adds an error; modules are
                then ranked by their own errors
    seed, skip, layers, threads     as for emulate()

    Precisions with a loss scaler multiply the loss by its first scale (65536 for amp-fp16, 2^32 for master-fp16), and
    halve that until no gradient overflows, as the scaler would; gradients are divided by it. Delayed scaling, which
    begins with scales of 1, repeats the step until no scale moves by more than a factor of two. Of layers that stand
    out and are cast with scales the step is measured once more without these casts. Memory is taken for copies of all
    inputs and outputs of modules.

    Raises TypeError and ValueError for arguments that mean nothing, and what emulate() raises."""
    options = {"effects": effects, "seed": seed, "skip": skip, "layers": layers, "threads": threads}
    return Measurement(model, batch, loss_fn, precisions, options).run()
