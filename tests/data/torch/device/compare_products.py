"""Which sums give the recorded bits of the products of matmul.py and scaled_mm.py, and the file that this is kept in.

The file is a JSON list. An entry has the item, the numbers of the cases whose bits are the same, and what was found.
"""
import collections
import itertools
import json

from .products import Found, Product
from .sums import Way

DEFAULTS = Way()


def subject_of(case):
    """Cases with the same inputs have the same subject."""
    size = f"{case['m']}x{case['n']} K = {case['k']}"
    if "scales" in case:
        return f"{case['a']} x {case['b']} {size}"
    return f"{case['dtype']} {size}" + (f" spread {case['spread']}" if "spread" in case else "")


def name_of(case):
    if "scales" in case:
        return f"{'fast' if case['fast'] else 'not fast'}, scales {case['scales']}"
    return f"{case['op']}, {case['setting']}" + (f", {case['library']}" if "library" in case else "")


def searched(recording):
    """For each number of a case what is found, and where there is nothing, how far the nearest is."""
    known = {}
    for number, case in enumerate(recording.cases):
        if "error" in case:
            continue
        asked = {key: case[key] for key in ("dtype", "a", "b", "m", "n", "k", "spread", "scales", "fast")
                 if key in case}
        key = json.dumps([asked, case["out"], "bias" in case.get("op", ""), 
                          {"highest": "FP32", "fp16 sums": "FP16"}.get(case.get("setting"))])
        if key not in known:
            known[key] = Product(recording, case).search()
        yield number, *known[key]


def lines(recording, found):
    """A line for all cases of a subject of which the same is found, with the kernels that ran; errors at the end."""
    kernels, errors = recording.facts.get("kernels", []), collections.defaultdict(list)
    numbered = [(case, found.get(number)) for number, case in enumerate(recording.cases)]
    for subject, cases in itertools.groupby(numbered, lambda pair: subject_of(pair[0])):
        groups = collections.defaultdict(list)
        for case, what in cases:
            if "error" in case:
                errors[case["error"]].append(f"{subject} {name_of(case)}")
                continue
            ran = " + ".join(dict.fromkeys(kernels[i][:110] for i in case.get("kernels", [])))
            text = f"NONE: {what}" if isinstance(what, str) else what.text(case["k"])
            groups[f"{case['out']['type']} {text}"].append(name_of(case) + (f" [{ran}]" if ran else ""))
        for text, names in groups.items():
            yield f"{subject}: {text}: {'; '.join(dict.fromkeys(names))}"
    for error, names in errors.items():
        yield f"error: {error}: {len(names)} cases, {names[0]} the first"


def products(recording):
    return lines(recording, {number: found or miss for number, found, miss in searched(recording)})


def compared(recording, found):
    """Of pairs of a case's number and what was found: the case, the latter, how many elements of ours are compared with
    the device's, and how many differ."""
    known, subject, sums = {}, None, {}
    for number, what in sorted(found, key=lambda pair: pair[0]):
        case = recording.cases[number]
        if subject_of(case) != subject:
            subject, known, sums = subject_of(case), {}, {}
        key = json.dumps([what, case["out"], case.get("scales"), "bias" in case.get("op", "")])
        if key not in known:
            product = Product(recording, case)
            if what.operands not in sums:
                sums[what.operands] = product.asked.sums(what.operands)
            known[key] = product.differences(what, sums[what.operands])
        yield case, what, *known[key]


def entries(item, found):
    """Those of the file, of pairs of a case's number and what was found."""
    groups = collections.defaultdict(list)
    for number, what in found:
        groups[what].append(number)
    for what, numbers in groups.items():
        way = {key: value for key, value in what.way._asdict().items() if value != getattr(DEFAULTS, key)}
        yield {"item": item, "way": way, "operands": what.operands, "ending": what.ending, "of": what.of,
               "cases": numbers}


def read(path):
    """Of each entry of the file: the item, what was found, and the numbers of the cases."""
    with open(path, encoding="utf-8") as file:
        for entry in json.load(file):
            way = {key: tuple(value) if isinstance(value, list) else value for key, value in entry["way"].items()}
            yield entry["item"], Found(Way(**way), entry["operands"], entry["ending"], entry["of"]), entry["cases"]


def write(path, all_entries):
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(map(json.dumps, all_entries)) + "\n]\n")
