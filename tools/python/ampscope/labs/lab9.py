"""Checks of lab 9: a PyTorch run is recorded, and three bugs are found in its loop. The oracle is what the recorder of
ampscope.torch says of a loop and writes of it. PyTorch is imported where it is used: the other labs do without it."""
import contextlib
import io
import linecache
import re
import tempfile
import warnings

from .._runs import Run
from ._exercises import Wrong, exercise, hints, number

STEPS = 60
CLIP = 0.002  # the largest norm that the loop allows its gradients
LEARNING_RATE = 20  # the loss is a mean over 65,536 small errors, so that gradients are small
_INSTALL = ("this lab needs PyTorch 2.4 or later, which is not installed here. In a shell, in the same environment:\n"
            "    pip install torch --index-url https://download.pytorch.org/whl/cpu\n"
            "is the version for processors. Then restart the notebook's kernel.")


def require_torch():
    """Raises ImportError, which says how to get PyTorch, where it is missing or too old."""
    try:
        import torch
    except ImportError:
        raise ImportError(_INSTALL) from None
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4):
        raise ImportError(f"PyTorch {torch.__version__} is too old: {_INSTALL}")


def network():
    """The network of this lab, always with the same weights, and its optimizer."""
    import torch
    torch.manual_seed(9)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(),
                                torch.nn.Linear(64, 512))
    return model, torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9)


def batches():
    """What it learns, always the same: STEPS pairs of inputs and 512 small numbers that depend on them."""
    import torch
    generator = torch.Generator().manual_seed(9)
    directions = torch.randn(16, 512, generator=generator) / 4
    for _ in range(STEPS):
        x = torch.randn(128, 16, generator=generator)
        yield x, 0.03 * torch.sin(x @ directions)


class Recording:
    """A loop's run: its folder, what the recorder said (pairs of a line of the loop and a sentence), and its losses."""

    def __init__(self, kept=None, folder=None, said=(), losses=()):
        self._kept, self.folder, self.said, self.losses = kept, folder, list(said), list(losses)

    def __repr__(self):
        if self.folder is None:
            return "there is no loop yet"
        said = "".join(f"\n\n{line}\n    {sentence}" for line, sentence in self.said)
        return f"{len(self.losses)} steps; the recorder says {'of this line' if said else 'nothing'}{said}"


@contextlib.contextmanager
def _closing():
    """Closes the recorders that a student's loop leaves open. What they print of the disk is not shown: the folder is a
    temporary one. The loop runs on one thread: several make so small a network slower."""
    import torch

    from ..torch import _taps
    before, threads = tuple(_taps._recorders), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        torch.set_num_threads(threads)
        for recorder in [r for r in _taps._recorders if r not in before]:
            recorder.close()


def _call(loop, folder):
    if not callable(loop):
        raise Wrong(f"expected a function that takes the folder to record into, got {loop!r}")
    try:
        loop(folder)
    except Exception as error:
        raise Wrong(f"your function fails with {type(error).__name__}: {error}") from None


def _read(folder):
    try:
        return Run(folder)
    except OSError:
        raise Wrong("nothing was recorded into the folder that your function was given: call "
                    "ampscope.torch.record(folder, model, optimizer ...) before the first step") from None


def run(loop):
    """Runs a loop, a function that takes the folder to record into, and gives its Recording. Of a loop that is not
    written yet (...) there is none."""
    if loop is ...:
        return Recording()
    from ..torch import PrecisionWarning
    kept = tempfile.TemporaryDirectory()
    folder = kept.name + "/run"
    with _closing(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _call(loop, folder)
    said = [(re.sub(r"\s+#", "  #", linecache.getline(w.filename, w.lineno).strip()), str(w.message)) for w in caught
            if issubclass(w.category, PrecisionWarning)]
    return Recording(kept, folder, said, [line["loss"] for line in _read(folder).metrics])


@exercise("9.1")
def recorded(loop):
    """a folder with the losses and scales of all steps, and with the gradients of every 20th: what all tools here
    read."""
    require_torch()
    with tempfile.TemporaryDirectory() as kept, _closing(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = kept + "/run"
        _call(loop, folder)
        seen = _read(folder)
        if seen.result is None:
            raise Wrong("the recorder was not closed, so that the end of the run is missing: call its close(), or use "
                        "it in a `with`")
        if len(seen.metrics) != STEPS:
            raise Wrong(f"{len(seen.metrics)} steps were recorded, not {STEPS}: the recorder has to be there before "
                        "the loop begins, and until it has ended")
        facts = seen.configuration["recording"]
        if facts["every"] != 20:
            raise Wrong(f"the gradients of every {facts['every']}th step were recorded, not of every 20th: every=20")
        if facts["activations"] == "none":
            raise Wrong("the gradients of weights were recorded, but not those of the modules' outputs: "
                        "activations=True")


_LINES = "abcdefghijk"


def _letter(name, answer, right, why):
    """Raises Wrong, in words of `why` for that letter, unless the answer is the right one."""
    if answer is ... or answer is None:
        raise Wrong(f"there is no {name} yet: the letter of a line")
    if not isinstance(answer, str) or len(answer) != 1 or answer.lower() not in _LINES:
        raise Wrong(f"{name}: expected the letter of a line, a to {_LINES[-1]}, got {answer!r}")
    if answer.lower() != right:
        raise Wrong(f"{name} is not {answer!r}: {why.get(answer.lower(), why[''])}")


@exercise("9.2")
def two_lines(scaler_line, backward_line):
    """the recorder points to where the harm is done; the line to change may be another one."""
    _letter("scaler_line", scaler_line, "b", {
        "e": "there the recorder noticed it, since the FP16 region begins there. Which line decides whether there is a "
             "loss scale?",
        "a": "FP16 is what this run is about. Which line decides whether there is a loss scale?",
        "": "the recorder says that there is no loss scaler, although the loop calls one. Which line decides whether "
            "it does anything?"})
    _letter("backward_line", backward_line, "h", {
        "e": "the region is right where it is; which line is in it and should not be?",
        "": "which line within the region of autocast does not belong there?"})


@exercise("9.3")
def hidden(half, third_line, hidden_by):
    """a scaler that is off multiplies by 1, and clipping in the wrong place does no harm then. Mending one bug lets the
    next one do its harm, so that after each a new recording is due."""
    require_torch()
    seen = run(half)
    if others := [(line, sentence) for line, sentence in seen.said if not sentence.startswith("clipping before")]:
        raise Wrong("the recorder says of `{}`: {}".format(*others[0]))
    _letter("third_line", third_line, "i", {
        "j": "scaler.step is the right call. What was done to the gradients before it, while they contained the scale?",
        "": "record `half`, and look at the line of which the recorder speaks"})
    _letter("hidden_by", hidden_by, "b", {
        "h": "where backward is called changes neither the loss scale nor the norm that is clipped",
        "": "while gradients do not contain a loss scale, clipping them early is no mistake. Which line kept it out of "
            "them?"})


@contextlib.contextmanager
def _clipping():
    """The thresholds with which a loop clips."""
    import torch
    original, thresholds = torch.nn.utils.clip_grad_norm_, []

    def clip_grad_norm_(parameters, max_norm, *args, **kwargs):
        thresholds.append(float(max_norm))
        return original(parameters, max_norm, *args, **kwargs)
    torch.nn.utils.clip_grad_norm_ = clip_grad_norm_
    try:
        yield thresholds
    finally:
        torch.nn.utils.clip_grad_norm_ = original


@exercise("9.4")
def mended(loop):
    """the recorder has nothing to say, every step is clipped without the scale, and the loss falls to a fiftieth."""
    require_torch()
    with _clipping() as thresholds:
        seen = run(loop)
    if seen.said:
        raise Wrong("the recorder says of `{}`: {}".format(*seen.said[0]))
    facts = Run(seen.folder).configuration
    if facts["loss_scaler"]["name"] != "torch":  # with one, the recorder says what is not FP16
        raise Wrong(f"this run is {facts['precision']['name']} with the loss scaler {facts['loss_scaler']['name']!r}: "
                    "autocast to FP16 and a GradScaler that is enabled are wanted")
    if len(seen.losses) != STEPS or len(thresholds) != STEPS:
        raise Wrong(f"{len(seen.losses)} steps were recorded and {len(thresholds)} times gradients were clipped, not "
                    f"{STEPS} times: mend the lines, and keep what they are for")
    if any(threshold != CLIP for threshold in thresholds):
        raise Wrong(f"gradients are clipped to {thresholds[0]:g}, not to CLIP = {CLIP:g}: the threshold is right once "
                    "they do not contain the scale")
    first, last = seen.losses[0], sum(seen.losses[-10:]) / 10
    if not last < first / 10:
        raise Wrong(f"the loss goes from {first:.3g} to {last:.3g} only: what does the optimizer's step use?")


def _shares(folder, kinds):
    lines = [line["histogram"] for line in Run(folder).histograms if line["kind"] in kinds]
    return sum(h.zero for h in lines) / sum(h.count for h in lines)


def zeros_by_step(recording):
    """Pairs of a step and the percentage of its gradients of outputs that is exactly zero."""
    steps = {}
    for line in Run(recording.folder).histograms:
        if line["kind"] == "activation_gradient":
            steps.setdefault(line["step"], []).append(line["histogram"])
    return [(step, 100 * sum(h.zero for h in hs) / sum(h.count for h in hs)) for step, hs in steps.items()]


@exercise("9.5")
def lost(zeros, first, last):
    """without a loss scale some percent of the gradients became zero, and no loss curve showed it; with it next to
    none."""
    for name, recording in (("first", first), ("last", last)):
        if not isinstance(recording, Recording) or recording.folder is None:
            raise Wrong(f"{name}: expected the recording of a loop, got {recording!r}")
    if not callable(zeros):
        raise Wrong(f"zeros: expected a function, got {zeros!r}")
    for name, recording in (("first", first), ("last", last)):
        try:
            got = zeros(recording.folder)
        except Exception as error:
            raise Wrong(f"zeros fails with {type(error).__name__}: {error}") from None
        if got is None or got is ...:
            raise Wrong("zeros returns nothing: write its body, and return the share")
        wanted, got = _shares(recording.folder, ["activation_gradient"]), number("zeros", got)
        if abs(got - wanted) > 1e-6:
            everything = _shares(recording.folder, ["activation_gradient", "weight_gradient"])
            raise Wrong(f"of the {name} recording it is {wanted:.6g}, not {got:.6g}" + (
                ": these are the gradients of weights as well; those of outputs have the kind activation_gradient"
                if abs(got - everything) < 1e-6 else
                ": this is a percentage, and a share is asked for" if abs(got - 100 * wanted) < 1e-4 else
                ": all zeros over all elements, of every recorded step and output"))


hints.update({
    "9.1": (
        "ampscope.torch.record(folder, model, optimizer, ...) begins a recording, and close() of what it gives ends "
        "it. help(ampscope.torch.record) has the options.",
        "A `with` whose object is the recorder closes it at the end of its block: call learn in there. The options are "
        "every=20 and activations=True."),
    "9.2": (
        "Read the two sentences of the recorder: each names what is missing or misplaced. One of them also asks a "
        "question; answer it.",
        "enabled=dtype == torch.bfloat16 is False in an FP16 run. And the docstring of torch.autocast says what should "
        "be in its region: forward passes and losses."),
    "9.3": (
        "Copy train, call it half and change lines b and h only: enabled= has to be true for FP16, and backward has to "
        "stand one level further left. Then run(half).",
        "The recorder points to the third line itself. It kept silent before because gradients contained no loss "
        "scale: which line saw to that?"),
    "9.4": (
        "Clipping compares norms with CLIP, which was chosen for gradients without the scale. Which call of the scaler "
        "takes the scale out?",
        "unscale_ takes the scale out, after backward and before clipping; it wants the optimizer, and scaler.step "
        "then does not unscale again."),
    "9.5": (
        'ampscope.Run(folder).histograms is a list of dicts; line["kind"] tells what was recorded, and '
        'line["histogram"] has .zero and .count.',
        'Keep the lines whose kind is "activation_gradient", add up their .zero, and divide by the sum of their '
        ".count."),
})
