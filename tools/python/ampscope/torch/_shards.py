"""Which ranks hold what of a tensor, and the whole that their parts are."""
import contextlib
import math
import typing

import numpy as np

from ._folder import LAYOUT, STATE, WEIGHT_GRADIENT


@contextlib.contextmanager
def naming(place):
    """A ValueError says where it was."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


class Box(typing.NamedTuple):
    """A part of a tensor."""
    offset: tuple
    size: tuple

    def slices(self):
        return tuple(slice(begin, begin + n) for begin, n in zip(self.offset, self.size))


class Whole:
    """A tensor of which each of some ranks holds a box: all elements, and each once but for copies of a box. Where a
    rank's part is no box, the tensor is `unknown`."""

    def __init__(self, facts):
        """facts: by rank, what run.json says of the tensor. Raises ValueError where the boxes are no whole."""
        self.shape = agreed(facts, lambda fact: tuple(fact["shape"]), "its shape is")
        self.unknown = any("unknown" in fact for fact in facts.values())
        self.boxes, self.first = {}, {}  # first: of each rank that holds an element the first that holds the same
        if self.unknown:
            return
        for rank, fact in facts.items():
            box = Box(tuple(fact["offset"]), tuple(fact["size"]))
            if not (len(box.offset) == len(box.size) == len(self.shape) and
                    all(0 <= o <= o + n <= whole for o, n, whole in zip(*box, self.shape))):
                raise ValueError(f"what rank {rank} holds, {_text(box)}, is not within {list(self.shape)}")
            self.boxes[rank] = box
        self.first = _owners({rank: box for rank, box in self.boxes.items() if math.prod(box.size)}, self.shape)

    def join(self, parts):
        """parts: by rank, (type, shape, bytes). Gives the same of the whole."""
        dtype = agreed(parts, lambda part: part[0], "its type is")
        for rank, (_, shape, _) in parts.items():
            box = self.boxes[rank]
            if tuple(shape) != box.size and (math.prod(shape) or math.prod(box.size)):  # torch's empty ones vary
                raise ValueError(f"the file of rank {rank} holds {list(shape)}, run.json says {_text(box)}")
        if not self.first:
            return dtype, list(self.shape), parts[min(parts)][2]
        size = len(parts[min(self.first)][2]) // math.prod(self.boxes[min(self.first)].size)
        joined = np.empty((*self.shape, size), np.uint8)
        for rank, first in self.first.items():
            if rank == first:
                joined[self.boxes[rank].slices()] = parts[rank][2].reshape(*self.boxes[rank].size, size)
            elif not np.array_equal(parts[rank][2], parts[first][2]):
                raise ValueError(copies_differ(first, rank))
        return dtype, list(self.shape), joined.reshape(-1)


def copies_differ(first, rank):
    return f"ranks {first} and {rank} hold copies that differ"


def _text(box):
    return f"{list(box.size)} at {list(box.offset)}"


def agreed(by_rank, value, what):
    """What all ranks say."""
    first, *others = by_rank
    for rank in others:
        if value(by_rank[rank]) != value(by_rank[first]):
            raise ValueError(f"{what} {_plain(value(by_rank[first]))} on rank {first}, "
                             f"{_plain(value(by_rank[rank]))} on rank {rank}")
    return value(by_rank[first])


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


def _owners(boxes, shape):
    """Of each rank the first that holds the same box. Boxes are compared on the grid of all their edges, which is small
    where a mesh of ranks divides a tensor."""
    edges = [sorted({0, n, *(box.offset[d] for box in boxes.values()),
                     *(box.offset[d] + box.size[d] for box in boxes.values())}) for d, n in enumerate(shape)]
    places = [{edge: place for place, edge in enumerate(along)} for along in edges]
    owners, first = np.full([len(along) - 1 for along in edges], -1), {}
    for rank, box in boxes.items():
        cells = owners[(*(slice(p[o], p[o + n]) for p, o, n in zip(places, *box)), ...)]
        owner = int(cells.flat[0])
        if owner >= 0 and boxes[owner] == box:
            first[rank] = owner
            continue
        if cells.max() >= 0:
            owner = int(cells.max())
            raise ValueError(f"what rank {rank} holds, {_text(box)}, overlaps what rank {owner} does, "
                             f"{_text(boxes[owner])}")
        cells[...] = first[rank] = rank
    missing = np.argwhere(owners < 0)
    if len(missing):
        at = [along[place] for along, place in zip(edges, missing[0])]
        raise ValueError(f"none of the ranks that have it, {', '.join(map(str, boxes)) or 'none'}, holds its element "
                         f"{at}")
    return first


class Held:
    """What the ranks of a run hold, as their run.json say it."""

    def __init__(self, runs):
        self._wholes = {}
        self._facts = [_facts(run["ranks"], rank) for rank, run in enumerate(runs)]

    def __bool__(self):
        return any(self._facts)

    def knows(self, tensor, kind):
        """Whether run.json of some rank says which part of it the rank holds."""
        return any(self._fact(facts, tensor, kind) for facts in self._facts)

    def whole(self, tensor, kind, ranks):
        """The Whole that the parts of some ranks are. Raises ValueError."""
        key = tensor, kind, tuple(ranks)
        if key not in self._wholes:
            facts = {rank: self._fact(self._facts[rank], tensor, kind) for rank in ranks}
            silent = [rank for rank, fact in facts.items() if not fact]
            if silent:
                raise ValueError(f"run.json of rank {silent[0]} does not say which part of it the rank holds")
            self._wholes[key] = Whole(facts)
        return self._wholes[key]

    @staticmethod
    def _fact(facts, tensor, kind):
        weight = tensor.removesuffix(".grad") if kind == WEIGHT_GRADIENT else tensor[:-2] if kind == STATE else tensor
        return facts.get(tensor, facts.get(weight))

    def _weight_of(self, name, *suffixes):
        """The weight to which a gradient or a state belongs that run.json places by itself; empty for others."""
        return next((name.removesuffix(s) for s in suffixes if name.endswith(s) and
                     any(name.removesuffix(s) in facts for facts in self._facts)), "")

    def what_is_unknown(self, counts):
        """A sentence on tensors that are no whole, and on norms that cannot be had; empty if there are none. counts:
        those of counts()."""
        unknown = {name: f"{name}, {fact['unknown']} on rank {rank}" for rank, facts in enumerate(self._facts)
                   for name, fact in facts.items() if "unknown" in fact}
        if unknown:
            state = "" if all(self._weight_of(name, ".grad") for name in unknown) else ", and the optimizer's state"
            return ("parts that cannot be joined are left out, and so are the norm and the largest magnitude of all "
                    f"gradients{state} ({len(unknown)}, the first is {unknown[min(unknown)]})")
        mixed = [rank for rank, groups in enumerate(counts) if None in groups.values()]
        return (f"the norm and the largest magnitude of all gradients are left out: rank {mixed[0]} has one norm of "
                "copies and of what no other rank holds") if mixed else ""

    def counts(self):
        """Of each rank by group of tensors whether their norm counts in that of all gradients, as it does not for
        copies of another rank's; None where that is not known."""
        counts = [{} for _ in self._facts]
        for name in sorted(set().union(*self._facts)):
            if self._weight_of(name, ".grad", ".m", ".v"):
                continue
            ranks = [rank for rank, facts in enumerate(self._facts) if name in facts]
            with naming(name):
                whole = self.whole(name + ".grad", WEIGHT_GRADIENT, ranks)
            for rank in ranks if whole.unknown else whole.first:
                group = self._facts[rank].get(name + ".grad", self._facts[rank][name])["group"]
                counted = None if whole.unknown else whole.first[rank] == rank
                counts[rank][group] = counted if counts[rank].get(group, counted) == counted else None
        return counts


def _facts(ranks, rank):
    """By tensor what run.json of a rank says of it. Raises ValueError."""
    place, shards = f"rank_{rank}/{LAYOUT.configuration}: ranks/shards", ranks.get("shards", {})
    if not isinstance(shards, dict):
        raise ValueError(f"{place} is no object")
    found = {}
    for name, fact in shards.items():
        with naming(f"{place}, {name}"):
            found[name] = _fact(fact, ranks)
    return found


def _fact(fact, ranks):
    """Older recordings have only the shape of the whole, of weights of which each rank holds some rows."""
    if isinstance(fact, dict):
        for key in ("shape",) if "unknown" in fact else ("shape", "offset", "size"):
            _check_lengths(fact.get(key, "missing"), key)
        if type(fact.get("group")) is not int:
            raise ValueError(f"group is {fact.get('group', 'missing')}, and no number")
        return fact
    _check_lengths(fact, "the entry")
    if not fact:
        raise ValueError("the entry is a shape without rows")
    size = -(-fact[0] // ranks["of"])
    begin = min(size * ranks["rank"], fact[0])
    rows = min(size, fact[0] - begin)
    return {"shape": fact, "offset": [begin] + [0] * (len(fact) - 1), "size": [rows, *fact[1:]], "group": 1}


def _check_lengths(found, what):
    if not isinstance(found, list) or not all(type(n) is int and n >= 0 for n in found):
        raise ValueError(f"{what} is {found if found is not None else 'null'}, and no list of lengths")
