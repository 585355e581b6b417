"""Lines of metrics.jsonl, of which some numbers may still be on a device."""
import math
import time

from ._folder import WEIGHT_GRADIENT, finite

_SECONDS = 1  # that the file may be behind: writing each step costs more than all else


class Metrics:
    """Written by flush(), which waits for devices."""

    def __init__(self, folder, lint):
        self._folder, self._lint = folder, lint
        self._pending = []
        self._written = time.monotonic()

    def append(self, line, norms, largest, loss, where):
        """norms and largest magnitudes of groups of gradients, with the loss scale, as Shards gives them; there may be
        none, and no loss. where: the line of the script that began backward."""
        self._pending.append((line, norms, largest, loss, where))

    def are_late(self):
        return time.monotonic() - self._written > _SECONDS

    def flush(self):
        for line, norms, largest, loss, where in self._pending:
            largest = max(map(float, largest), key=lambda x: math.inf if math.isnan(x) else x, default=0.0)
            norms = {group: float(norm) for group, norm in norms.items()}
            if norms:
                line["grad_norm"] = finite(math.hypot(*norms.values()) / line["scale"])
            if any(norms):  # a group beside that of ordinary tensors
                line["grad_norms"] = {str(group): finite(norm / line["scale"]) for group, norm in norms.items()}
            if loss is not None:
                loss = float(loss)
                line["loss"] = finite(loss)
                if not math.isfinite(loss):
                    line["loss_class"] = "nan" if math.isnan(loss) else "inf"
                    self._lint(f"the loss is {loss}: in step {line['step']} for the first time. No loss scaler mends "
                               "what forward computes: look for overflow in outputs (what=\"outputs\"), a logarithm "
                               "of 0, or weights that are NaN already.", where)
            if line["found_inf"] is None:
                line["found_inf"] = not math.isfinite(largest)
            if math.isfinite(largest):
                line["amax"][WEIGHT_GRADIENT] = largest / line["scale"]
            self._folder.append_metrics(line)
        self._pending.clear()
        self._written = time.monotonic()
