"""Checks of lab 4: autocast. The oracle is the table of PyTorch's lists, which the tests compare with torch itself."""
from .. import _ampscope
from .._autocast import autocast
from ._exercises import Wrong, entry, exercise, hints

CASES = {
    "matmul of two fp32 tensors": ("matmul", "fp32", "fp32"),
    "relu of an fp16 tensor": ("relu", "fp16"),
    "softmax of an fp16 tensor": ("softmax", "fp16"),
    "layer_norm of an fp16 tensor": ("layer_norm", "fp16"),
    "add of an fp16 and an fp32 tensor": ("add", "fp16", "fp32"),
    "sum of an fp16 tensor": ("sum", "fp16"),
    "mean of an fp16 tensor": ("mean", "fp16"),
    "cross_entropy of fp16 logits": ("cross_entropy", "fp16"),
}
_WHY = {
    "matmul": "products of matrices are on the list that is cast down: that is where speed is",
    "relu": "relu is on no list: it runs in the type of its input",
    "softmax": "softmax sums exponentials, so that its result is FP32 on CUDA",
    "layer_norm": "layer_norm squares and sums: its input is cast to FP32",
    "add": "add is on no list; operands of two types meet in the wider, with autocast or without",
    "sum": "sum is on the FP32 list: its result may be beyond 65504, and would keep only 11 bits",
    "mean": "mean is on no list although sum is: a mean written by hand stays FP16. Losses with it are the trap",
    "cross_entropy": "cross_entropy is log_softmax and nll_loss, both in FP32",
}
BLOCK = (("layer_norm", ("x",)), ("linear", ("layer_norm", "w")), ("gelu", ("linear",)), ("linear2", ("gelu", "w")),
         ("add", ("x", "linear2")))


def _spelled(answer):
    """Also for who writes FP16 or float16."""
    return str(answer).lower().replace("torch.", "").replace("float", "fp")


@exercise("4.1")
def predictions(predicted):
    """products go down, what sums or exponentiates goes up, and everything unlisted stays as it is: also mean."""
    for case, (op, *operands) in CASES.items():
        answer = entry(predicted, case, f"there is no prediction for {case} yet: 'fp16' or 'fp32'")
        if _spelled(answer) != autocast(op, *operands):
            raise Wrong(f"{case} is not {answer!r}: {_WHY[op]}")


@exercise("4.2")
def block(formats):
    """the residual stream stays FP32, although every linear layer in it computes in FP16."""
    known = {"x": "fp32", "w": "fp32"}
    for op, operands in BLOCK:
        known[op] = autocast(op.rstrip("2"), *(known[o] for o in operands))
        answer = entry(formats, op, f"there is no format for {op} yet")
        if _spelled(answer) != known[op]:
            raise Wrong(f"{op}, of {' and '.join(known[o] for o in operands)}, does not give {answer!r}: "
                        f"{_WHY.get(op.rstrip('2'), 'linear is a product of matrices, and gelu is on no list')}")


@exercise("4.3")
def differences(ops):
    """the processor has lists of its own: there softmax and layer_norm of a 16-bit tensor stay 16 bits wide."""
    wanted = set()
    for op in _ampscope.autocast_ops:
        results = []
        for policy in ("cuda", "cpu"):
            try:
                results.append(autocast(op, "bf16", format="bf16", policy=policy))
            except ValueError:
                results.append(None)
        if results[0] != results[1]:
            wanted.add(op)
    got = set(ops)
    if extra := got - wanted:
        raise Wrong(f"{sorted(extra)[0]} gives the same format on both, or is refused by both")
    if missing := wanted - got:
        raise Wrong(f"{len(missing)} are missing, among them {sorted(missing)[0]}: try every op of "
                    "ampscope.autocast_ops, and count a ValueError as a result of its own")


@exercise("4.4")
def backward(activation_gradient, weight_gradient, cached_sum, where_lost):
    """a weight's .grad is FP32, but it was rounded to FP16 before it got there; the scale has to be in it by then."""
    wanted = {
        "activation_gradient": (activation_gradient, "fp16",
                                "the gradient of a tensor has the type of the tensor, and linear gave an FP16 one"),
        "weight_gradient": (weight_gradient, "fp32",
                            "autograd goes back through the cast: a parameter in FP32 has a .grad in FP32"),
        "cached_sum": (cached_sum, "fp16", "autocast casts a weight once a region and keeps the copy; what flows back "
                                           "to the copy is summed there, before the one cast to FP32"),
        "where_lost": (where_lost, "before .grad", "the product of backward is written in FP16, and only then cast to "
                                                   "FP32: what is zero by then stays zero. Unscaling cannot bring it "
                                                   "back"),
    }
    for name, (got, value, why) in wanted.items():
        if got is ... or got is None:
            raise Wrong(f"there is no {name} yet")
        if (got if name == "where_lost" else _spelled(got)) != value:
            raise Wrong(f"{name} is not {got!r}: {why}")


hints.update({
    "4.1": (
        "Ask of each op what it is: a product of matrices, something that exponentiates, sums or squares, a loss, or "
        "none of these? The table of lists in the reading does the rest.",
        'One of the eight is on no list although it sums; ampscope.autocast_rule("mean", "fp16") tells by which rule '
        "an op runs. Of operands of two types, without a list, the wider one decides."),
    "4.2": (
        "Go from the inside to the outside: the input of each op has the format that the op before gave.",
        "A linear layer is a product of matrices. gelu is like tanh. At the end x, in FP32, meets the result of "
        "linear2."),
    "4.3": (
        'ampscope.autocast(op, "bf16", format="bf16", policy="cpu") gives one of the two answers. What is it with '
        'policy="cuda"?',
        "Write a function that returns None where autocast raises ValueError, and collect the ops for which the "
        "results of the two policies differ."),
    "4.4": (
        "Autograd gives a tensor a gradient of the tensor's own type; this holds for y, for the FP16 copy of the "
        "weight, and for the weight.",
        "The four calls share one copy of the weight in FP16, so that their contributions meet at the copy. Only the "
        "sum goes back through the cast, and 2^-30 is below everything that FP16 has."),
})
