"""The reference trainer."""
from . import _ampscope


def train(**options):
    """Trains small networks in emulated precision, as the command amp-train does, and returns what its --json says.

    Options are amp-train's, with underscores: train(model="cnn", precision=["fp32", "amp-fp16"], steps=100, seed=1).
    A list of precisions is trained side by side; True gives a flag. Ctrl-C stops it between steps. Raises ValueError
    for options that mean nothing and OSError for files."""
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            for item in value:
                words += [option, str(item)]
        elif value is not None and value is not False:
            words += [option, str(value)]
    return _ampscope.train(words)
