"""Which module of the emulated model a computation belongs to, also where a backward pass computes forward again."""
import bisect
import threading

import torch

_MOST_EVENTS = 1 << 17  # of which the older half is then forgotten: hundreds of passes of a large model


class Scope:
    """The modules that are being called on this thread, innermost last, as (module, name). What runs in a backward pass
    outside of all modules, such as the backward of a user's own Function or a part that a checkpoint computes again, is
    found by its node in the graph: PyTorch numbers nodes in the order in which forward makes them."""

    def __init__(self):
        self._local = threading.local()

    @property
    def stack(self):
        return self._of_thread[0]

    @property
    def _of_thread(self):
        """The stack; and the places where nodes are made, from which number on: None, outside of the model. Each thread
        numbers its own nodes."""
        if not hasattr(self._local, "lists"):
            self._local.lists = [], [], []
        return self._local.lists

    def enter(self, place):
        self.stack.append(place)
        self._note()

    def leave(self, module):
        """Returns whether that was the outermost module. One whose call failed before it was entered is none."""
        if not self.stack or self.stack[-1][0] is not module:
            return False
        self.stack.pop()
        self._note()
        return not self.stack

    def _note(self):
        _, numbers, places = self._of_thread
        number, place = torch.autograd._get_sequence_nr(), self.stack[-1] if self.stack else None
        if numbers and numbers[-1] == number:
            places[-1] = place
            return
        numbers.append(number)
        places.append(place)
        if len(numbers) > _MOST_EVENTS:
            del numbers[:_MOST_EVENTS // 2], places[:_MOST_EVENTS // 2]

    @property
    def place(self):
        """(module, name), or None outside of the model."""
        if self.stack:
            return self.stack[-1]
        node = torch._C._current_autograd_node() if in_backward() else None
        if node is None:
            return None
        _, numbers, places = self._of_thread
        found = bisect.bisect_right(numbers, node._sequence_nr()) - 1
        return places[found] if found >= 0 else None


class Calls:
    """The number of each call of a layer in a step. What a checkpoint computes again gets the number that it had, so
    that random numbers are the same."""

    def __init__(self):
        self._nodes, self._again = {}, {}  # by layer: the number of the next node at each call; how often again

    def begin(self):
        self._nodes.clear()
        self._again.clear()

    def number(self, layer):
        nodes = self._nodes.setdefault(layer, [])
        node = torch._C._current_autograd_node() if in_backward() else None
        if node is None:
            nodes.append(torch.autograd._get_sequence_nr())
            return len(nodes) - 1
        first = bisect.bisect_right(nodes, node._sequence_nr())
        done = self._again[node, layer] = self._again.get((node, layer), -1) + 1
        return first + done


def in_backward():
    return torch._C._current_graph_task_id() != -1
