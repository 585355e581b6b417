"""Checks of lab 5: a dynamic loss scaler. The oracle is torch.amp.GradScaler's state machine, which the tests of the
project replay against torch itself."""
import numpy as np

from .._ampscope import LossScaler
from ._exercises import Wrong, call, entry, exercise, hints, number


def _compare(make, what, found, **options):
    ours = LossScaler("torch", **options)
    theirs = call(make, options["init_scale"], options.get("growth_factor", 2.0), options.get("backoff_factor", 0.5),
                  options["growth_interval"])
    for name in ("scale", "update"):
        if not hasattr(theirs, name):
            raise Wrong(f"your scaler has no {name}: it needs .scale and .update(found_inf)")
    for step, f in enumerate(found):
        before = ours.scale
        ours.update(bool(f))
        try:
            theirs.update(bool(f))
        except Exception as error:
            kind = type(error).__name__
            raise Wrong(f"{what}: update({bool(f)}) in step {step} fails with {kind}: {error}") from None
        if (scale := number("scale", theirs.scale)) != ours.scale:
            raise Wrong(f"{what}: after step {step} (found_inf {bool(f)}) the scale is {scale!r}, not {ours.scale!r}; "
                        f"before it was {before!r}. {_reason(f, before, ours, options['growth_interval'])}")


def _reason(found, before, ours, interval):
    if found:
        return ("an overflow multiplies the scale by backoff in FP64 and rounds the product to FP32, and growth has "
                "to wait a whole interval again")
    if ours.scale == before and before * 2 > float(np.finfo(np.float32).max):
        return "a scale that would become infinite in FP32 stays as it is"
    if ours.scale > before:
        return f"{interval} steps in a row without overflow multiply it by growth, in FP64, rounded to FP32"
    return "it grows only after a whole interval of clean steps: any overflow begins the count anew, and so does growth"


@exercise("5.1")
def scaler(make):
    """the same scale as torch's after each of 2,000 steps, at both ends of FP32 as well."""
    _compare(make, "a short trace", (0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0), init_scale=65536.0, growth_interval=3)
    rng = np.random.default_rng(5)
    _compare(make, "random overflows", rng.random(2000) < 0.1, init_scale=65536.0, growth_interval=5)
    _compare(make, "backoff by 0.7", rng.random(300) < 0.3, init_scale=65536.0, growth_interval=2, backoff_factor=0.7)
    _compare(make, "growth by 1.5", rng.random(300) < 0.1, init_scale=65536.0, growth_interval=2, growth_factor=1.5)
    _compare(make, "no overflow, for ever", np.zeros(300), init_scale=65536.0, growth_interval=2)
    _compare(make, "nothing but overflows", np.ones(170), init_scale=65536.0, growth_interval=2)


_ORDER = ["zero_grad", "forward under autocast", "scale(loss).backward()", "unscale_", "clip", "step", "update"]


@exercise("5.2")
def order(calls):
    """clipping needs gradients without the scale, and unscale_ looks for inf and NaN before clipping can hide them."""
    if sorted(calls, key=str) != sorted(_ORDER):
        raise Wrong(f"expected each of these once: {', '.join(_ORDER)}")
    place = {name: i for i, name in enumerate(calls)}
    rules = (("forward under autocast", "scale(loss).backward()", "backward needs the loss"),
             ("scale(loss).backward()", "unscale_", "there is nothing to unscale before backward"),
             ("unscale_", "clip", "clipped before unscale_, gradients are compared with the threshold while they are "
                                  "65,536 times as large: nearly everything is clipped to nearly nothing"),
             ("clip", "step", "what is clipped after the step changes nothing"),
             ("step", "update", "update() looks at what step() and unscale_() found"))
    if place["scale(loss).backward()"] < place["zero_grad"] < place["step"]:
        raise Wrong("zero_grad between backward and step: that throws the gradients away")
    for first, second, why in rules:
        if place[first] > place[second]:
            raise Wrong(f"{first} after {second}: {why}")


@exercise("5.3")
def threshold(effective):
    """clipping at 1.0 before unscale_ is clipping at 2^-16: the learning rate of a clipped step is cut to nothing."""
    if number("effective", effective) != 2.0**-16:
        raise Wrong(f"not {effective!r}: the scaled gradient has norm 65536 |g|, is cut to norm 1, and is then divided "
                    "by 65536")


@exercise("5.4")
def skips(before_first_step, in_10000):
    """one skip in each interval is how a healthy scaler looks for the edge: about 0.05 % of the steps."""
    machine = LossScaler("torch")
    verdicts = [machine.update(machine.scale > 2.0**12) for _ in range(10_000)]
    wanted = {"before_first_step": (before_first_step, verdicts.index("step"),
                                    "every scale above 2^12 overflows, and each overflow halves it"),
              "in_10000": (in_10000, verdicts.count("skip"), "after these, each 2000 clean steps end with a scale of "
                                                             "2^13, and one skip")}
    for name, (got, value, why) in wanted.items():
        if number(name, got) != value:
            raise Wrong(f"{name} is not {got!r}: {why}")


@exercise("5.5")
def collapse(until_zero, inverse_infinite):
    """from 2^-128 on 1/scale is infinite. unscale_ looks for inf before it multiplies: finite gradients pass, become
    infinite (zeros NaN), and the step is taken."""
    scale, zero, infinite = np.float32(65536), None, None
    for n in range(1, 200):
        scale = np.float32(float(scale) * 0.5)
        if infinite is None and (scale == 0 or np.isinf(np.float32(min(1 / float(scale), 1e39)))):
            infinite = n
        if scale == 0:
            zero = n
            break
    if number("until_zero", until_zero) != zero:
        raise Wrong(f"until_zero is not {until_zero!r}: FP32 has subnormals down to 2^-149, and half of that is a tie "
                    "with zero")
    if number("inverse_infinite", inverse_infinite) != infinite:
        raise Wrong(f"inverse_infinite is not {inverse_infinite!r}: 1/scale is infinite in FP32 once the scale is "
                    "2^-128; from 2^16 on, count")


STATEMENTS = {
    "FP16 overflows when gradients are unscaled": (
        False, "unscaling divides; what overflows are the scaled gradients, in backward"),
    "inf / 65536 is NaN": (False, "it is infinite; NaN comes of 0/0, inf - inf and 0 * inf"),
    "loss.backward() takes the scale out of the gradients": (False, "unscale_ does, or step where it was not called"),
    "torch multiplies gradients by the rounded reciprocal of the scale": (
        True, "float(1 / double(scale)); for a power of two that is the same as a division"),
    "under autocast a parameter's .grad is FP16": (False, "parameters are FP32, and so are their gradients; "
                                                          "activations' are FP16"),
    "autocast to FP16 halves the memory of weights, gradients and optimizer": (
        False, "all of these stay FP32, 16 bytes a parameter with Adam, and the cast copies come on top; activations "
               "are halved"),
    "the largest number of FP16 is 65504": (True, "(2 - 2^-10) * 2^15; \"about 65,500\" misses where rounding to "
                                                  "infinity begins, 65520"),
    "TF32 tensors take 19 bits a number in memory": (False, "TF32 is how products read FP32 tensors; nothing is "
                                                            "stored in it"),
    "BF16 needs a larger eps because 1e-8 is zero in it": (
        False, "BF16 has FP32's exponents, and 1e-8 among its numbers; its trouble is precision (lab 6)"),
    "a skipped step also skips the learning rate scheduler": (
        False, "the scheduler knows nothing of it, unless the loop asks the scaler"),
    "FP8 training always keeps gradients in E5M2": (False, "some recipes do; MX, DeepSeek's blocks and others use "
                                                           "E4M3 for all (lab 7)"),
    "with two optimizers, one may step while the other's step is skipped": (
        True, "each has a found_inf of its own; the scale backs off if either found one"),
    "autocast to FP16 is what torch.autocast('cuda') does unless told otherwise": (
        True, "FP16 is the default on CUDA, and BF16 on the processor"),
    "GradScaler(enabled=dtype == torch.bfloat16) is on where a scaler is needed": (
        False, "it is the wrong way round: FP16 needs the scaler, BF16 has FP32's exponents"),
    "with torch.cuda.amp.autocast(): is how to write it today": (
        False, "that spelling is deprecated since PyTorch 2.4; torch.autocast('cuda') it is"),
    "a matmul in FP16 rounds its sum to FP16 after every product": (
        False, "tensor cores add up in FP32 or nearly so, and the sum is rounded once, when it is written"),
    "where gradients are BF16, Megatron adds them up across ranks in BF16": (
        False, "its default for BF16 is to accumulate and to reduce gradients in FP32"),
}


@exercise("5.6")
def statements(answers):
    """most mistakes in guides are about who holds which format, and where the scale is still in force."""
    for statement, (value, why) in STATEMENTS.items():
        if bool(entry(answers, statement, f"there is no answer to {statement!r} yet")) != value:
            raise Wrong(f"{statement!r} is {value}: {why}")


hints.update({
    "5.1": (
        "Two numbers are the whole state: the scale, and how many steps in a row had no overflow. Which of them change "
        "in which case?",
        "Three details: the count begins anew after an overflow and after a growth; products are computed with Python "
        "floats and rounded with np.float32; a product above np.finfo(np.float32).max leaves the scale as it is."),
    "5.2": (
        "Ask of each call what it needs: gradients, gradients without the scale, or a verdict about infinity and NaN.",
        "Clipping compares the norm of the gradients with a threshold that you chose for gradients without the scale. "
        "update() comes last, and gradients are cleared before backward or after the step."),
    "5.3": (
        "Follow one gradient vector: how long is it before clipping, after clipping, and after unscale_?",
        "After clipping its norm is 1.0; unscale_ then divides by 65536."),
    "5.4": (
        'machine.update(found_inf) returns "step" or "skip", and machine.scale is the scale in force. An overflow '
        "happens where the scale is above 2.0**12.",
        'Collect the 10,000 verdicts in a list: its .index("step") and its .count("skip") are the answers.'),
    "5.5": (
        "Begin with np.float32(65536), halve it, round the product to FP32 and count until the condition holds.",
        "The smallest number of FP32 is 2^-149, and half of it is a tie with zero. 1 / scale is infinite in FP32 if it "
        "is above np.finfo(np.float32).max, just below 2^128."),
    "5.6": (
        "Four are true. For the others ask: who holds which format, and is the scale in the gradients at that moment?",
        "Parameters, their .grad and the optimizer's state stay FP32 under autocast. BF16 has the exponents of FP32. "
        "The check tells about one statement at a time."),
})
