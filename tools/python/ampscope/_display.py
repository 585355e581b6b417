"""How notebooks show what the module defines."""
from ._ampscope import Format, Histogram
from ._tools import table

_FACTS = ("bits", "exponent_bits", "fraction_bits", "bias", "max", "min_normal", "min_subnormal", "epsilon")


def _format_html(self):
    return table(["format", *_FACTS, "infinity", "NaN"], [[self.name, *(getattr(self, fact) for fact in _FACTS),
                                                           self.has_infinity, self.has_nan]])


def _histogram_frame(self, formats=("fp16", "bf16", "e4m3", "e5m2"), log2_scales=(0,)):
    """classify() for several formats and scales as a pandas.DataFrame."""
    import pandas
    return pandas.DataFrame([{"format": str(f), "log2_scale": s, **self.classify(f, s)} for f in formats for s in log2_scales])


Format._repr_html_ = _format_html
Histogram.frame = _histogram_frame
