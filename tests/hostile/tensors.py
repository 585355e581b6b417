"""Families of tensor files: what every reader of them must bear."""
import math

from case import Case
from formats import INTERESTING, Pickle, archive, floats, member, npy, pt, safetensors, state_dict
from mutate import NAMES, NUMBERS, damage, dump, nested, value

DTYPES = ["F32", "F16", "BF16", "F64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "I8", "U8", "I64", "U64",
          "BOOL", "C64"]
BITS = {"F32": 32, "F16": 16, "BF16": 16, "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6}


def reading(rng, box, path, twin=None, damaged=False, extra=(), raw=(), heavy=False, **fields):
    """A run of a tool that reads this file, with some of its options and outputs. Where the file is damaged for sure,
    the exit code is 1 and a line names it."""
    ways = ["histogram", "diff", "convert"] if raw else ["histogram", "histogram", "histogram", "diff", "adam",
                                                         "loss-scale", "report", "convert"]
    way = "histogram" if heavy else rng.choice(ways)
    common = ["--threads", rng.choice(["1", "2", "2", "3", "0"])]
    if way == "histogram":
        args = [path, *extra, *raw, *common]
        args += rng.choice([[], ["--format", "all"], ["--error"], ["--block", "32"], ["--by", "layer"],
                            ["--rounding", "stochastic"],
                            ["--scale=-4:4"], ["--worst", "0"], ["--scale", "3.5"], ["--rounding", "up", "--error"]])
        for option in ("csv", "svg", "html", "json"):
            if rng.random() < 0.3:
                args += [f"--{option}", f"out/o.{option}"]
    elif way == "diff":
        args = [path, twin or path, *raw, *common] if rng.random() < 0.5 else [twin or path, path, *raw, *common]
        args += rng.choice([[], ["--json", "-"], ["--svg", "out/o.svg"], ["--a-scale", "1024"],
                            ["--gate", "max-ulps<=1"]])
    elif way == "adam":
        args = [path, *extra, *common, "--assume-steps", "5",
                *rng.choice([[], ["--json", "-"], ["--svg", "out/o.svg"]])]
    elif way == "loss-scale":
        args = [path, *extra, *common, *rng.choice([[], ["--sweep"], ["--json", "out/o.json"], ["--svg", "-"]])]
    elif way == "report":
        args = [path, *extra, *common, *rng.choice([["--html", "out/o.html"], ["--json", "-"],
                                                    ["--markdown", "out/o.md"]])]
    else:
        out = rng.choice(["out/o.safetensors", "out/o.npy", "out/o.raw"])
        args = ["convert", path, out, "--to", rng.choice(["e4m3", "bf16", "e6m9", "fp32"]), *raw]
        extra = ()
    tool = "amp-format" if way == "convert" else f"amp-{way}"
    if damaged and "codes" not in fields:
        fields.update(codes=(1,), damaged=(path,))
    return Case(tool, args, **fields)


class Heavy(bytes):
    """A file that stands for so many elements that only a histogram of them takes seconds."""


class Expanded(Heavy):
    """A view whose elements repeat, up to 2^62 of them. What counts elements counts each once; blocks of neighbours are
    as many as the view says, so that --block may take any time, and has only its memory to keep within limits."""


def place(rng, box, data, suffix):
    """The file under a name that may be hostile, alone or in a folder; returns what the command line says."""
    name = rng.choice(["t", "t", "t", "grads-7", "step_000100", "a b", "t\u202e", "-x", "t\n2", "é" * 60, "%s",
                       "t" * 200])
    if rng.random() < 0.15:
        box.file(f"folder/{name}.{suffix}", data)
        return "in/folder"
    return box.file(f"{name}.{suffix}", data)


def family(suffix, build):
    """Half of the cases are damaged seeds; the others are made by `build`, which returns (bytes, surely damaged)."""
    def generate(rng, box):
        seeds = box.seeds.tensors[suffix]
        if rng.random() < 0.45:
            data, bad = damage(rng, rng.choice(seeds), seeds), False
        elif rng.random() < 0.15:
            whole = rng.choice(seeds)
            data, bad = whole[:rng.randrange(len(whole))], True
        else:
            data, bad = build(rng, box)
        path = place(rng, box, data, suffix)
        if bad and path == "in/folder":
            bad = False  # the line names the file below it
        extra = ()
        if rng.random() < 0.15:
            extra = (box.file(f"good.{suffix}", rng.choice(seeds)),)
        case = reading(rng, box, path, box.file("twin.safetensors", box.seeds.small), bad, extra,
                       heavy=isinstance(data, Heavy))
        if isinstance(data, Expanded) and "--block" in case.args:
            case.endless, case.seconds = True, 4
        return case
    return generate


# --- safetensors ---
def build_safetensors(rng, box):
    entries, data, bad = {}, b"", False
    for i in range(rng.choice([0, 1, 1, 2, 3, 40])):
        dtype, shape = rng.choice(DTYPES), [rng.choice([0, 1, 2, 3, 17]) for _ in range(rng.choice([0, 1, 1, 2, 3, 9]))]
        block = rng.randbytes(min(1 << 20, -(-math.prod(shape) * BITS.get(dtype, 8) // 8)))
        entries[rng.choice(NAMES) + f".{i}"] = {"dtype": dtype, "shape": shape,
                                                "data_offsets": [len(data), len(data) + len(block)]}
        data += block
    if rng.random() < 0.3:
        entries["__metadata__"] = rng.choice([{"step": rng.choice(NUMBERS)}, {"loss_scale": rng.choice(NUMBERS)},
                                              {"kinds": nested(rng, 1000)}, {"kinds": '{"a":"weight"}'},
                                              {"x": 1}, [], "x",
                                              {"step": "1", "loss_scale": "65536", "kinds": nested(rng, 100000)}])
    names = [n for n in entries if n != "__metadata__"]
    for _ in range(rng.choice([0, 1, 1, 2]) if names else 0):
        entry = entries[rng.choice(names)]
        kind = rng.randrange(6)
        if kind == 0:
            entry["shape"] = [rng.choice(INTERESTING) for _ in range(rng.choice([1, 2, 3, 65]))]
        elif kind == 1:
            entry["data_offsets"] = [rng.choice(INTERESTING), rng.choice(INTERESTING)]
        elif kind == 2:
            entry["dtype"] = rng.choice([*DTYPES, "F128", "", "f32", None, 4])
        elif kind == 3:
            entry[rng.choice(list(entry))] = value(rng)
        elif kind == 4:
            entry[rng.choice(NAMES)] = value(rng)
        else:
            del entry[rng.choice([key for key in ("dtype", "shape", "data_offsets") if key in entry])]
            bad = True
            break
    header, length = dump(entries), None
    kind = rng.random()
    if kind < 0.08:
        header, bad = rng.choice(["", "[]", "0", "{", "null", "{}x", nested(rng, 100000), "\xff{}", "{" * 1000]), True
    elif kind < 0.15:
        header = rng.choice(["\n" + header, header + "\n", header + "\0", header + header, "\ufeff" + header])
    elif kind < 0.22:
        length, bad = rng.choice([n for n in INTERESTING if n > len(header) + 8 + len(data)]), True
    elif kind < 0.27:
        rows = rng.choice([1000, 20000])
        header = "{" + ",".join(f'"t{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(rows)) + "}"
        data, bad = b"", False
    elif kind < 0.3:
        header, bad = '{"' + "n" * 20000000 + '":' + rng.choice(["0}", "{}}"]), True
    tail = rng.choice([b"", b"", b"", b"x", bytes(100)])
    return safetensors([("", "", (), data + tail)], header=header, length=length), bad


# --- npy ---
def build_npy(rng, box):
    descr = rng.choice(["<f4", "<f2", "<f8", ">f4", "|u1", "<i8", "<c8", "|b1", "<V2", "|V1", "|O", "<U5", "=f4", "",
                        "<f16", "f4", "<f3"])
    shape = [rng.choice([0, 1, 3, 5]) for _ in range(rng.choice([0, 1, 2, 3, 33]))]
    if rng.random() < 0.4:
        shape = [rng.choice(INTERESTING) for _ in range(rng.choice([1, 2, 3, 64, 70]))]
    text = rng.choice([None, None, None,
                       f"{{'descr': {descr!r}, 'fortran_order': True, 'shape': ({rng.choice(NUMBERS)},)}}",
                       "{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (3,), }",
                       "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "{" * 60000,
                       "(" * 60000,
                       "{'descr': '<f4', 'fortran_order': __import__('os').system('touch pwned'), 'shape': (3,)}",
                       "{'shape': (" + "1," * 20000 + "), 'descr': '<f4', 'fortran_order': False}", "", "\0" * 100])
    version = rng.choice([(1, 0), (2, 0), (3, 0), (0, 0), (4, 0), (1, 1), (255, 255)])
    length = rng.choice([None, None, None, None, 0, 1, 65535, 0xffffffff, 0x7fffffff])
    data = npy(rng.randbytes(rng.choice([0, 1, 12, 100])), shape, descr, rng.random() < 0.3, version, text, length)
    if rng.random() < 0.05:
        return Heavy(npy(bytes(rng.choice([1, 20]) << 20), [rng.choice([1, 20]) << 18])), False
    return data, version[0] not in (1, 2, 3) or version[1] != 0


# --- zip archives ---
def build_npz(rng, box):
    array = npy(floats(rng, 12), (3, 4))
    kind = rng.randrange(12)
    name = lambda: rng.choice(["a.npy", "b.npy", "x/y.npy", "../up.npy", "/etc/passwd.npy", "a.txt", ".npy", "a\\b.npy",
                               rng.choice(NAMES)[:60000] + ".npy"])
    method = rng.choice([0, 8])
    if kind == 0:  # lies of one member
        lie = rng.choice(["crc", "size", "packed_size", "said_method", "flags", "local_name"])
        number = rng.choice([0, 1, 3, 14, 99, 2**16 - 1, 2**31, 2**32 - 1])
        lies = {lie: b"other.npy" if lie == "local_name" else number}
        if lie in ("said_method", "flags"):
            lies[lie] &= 0xffff
        return archive([member("a.npy", array, method, **lies)]), lie == "crc"
    if kind == 1:  # bytes that several members share
        first = member("a.npy", array, method)
        again = [member(f"m{i}.npy", array, method, offset=0) for i in range(rng.choice([1, 20, 3000]))]
        return archive([first, *again]), False
    if kind == 2:  # a bomb: a few hundred kilobytes that unpack to hundreds of megabytes
        rows = rng.choice([16, 200]) << 18
        return Heavy(archive([member("a.npy", npy(bytes(rows * 4), (rows,)), 8)])), False
    if kind == 3:  # what is inside is broken
        return archive([member("a.npy", damage(rng, array), method), member("b.npy", array)]), False
    if kind == 4:
        return archive([member(name(), array, method) for _ in range(rng.choice([1, 2, 2000]))]), False
    if kind == 5:
        return archive([member("a.npy", array)], count=rng.choice([0, 2, 65535])), False
    if kind == 6:
        return archive([member("a.npy", array)], central_offset=rng.choice([0, 1, 2**31, 2**32 - 1])), False
    if kind == 7:
        return archive([member("a.npy", array)], central_size=rng.choice([0, 1, 2**31, 2**32 - 1])), False
    if kind == 8:
        return archive([member("a.npy", array, method), member("a.npy", array)]), True
    if kind == 9:
        return archive([], comment=rng.randbytes(rng.choice([0, 100]))), True
    if kind == 10:  # an archive in an archive, and what looks like its end in a comment
        return archive([member("a.npy", archive([member("b.npy", array)]))], comment=b"PK\5\6" + bytes(18)), False
    return archive([member("a.npy", build_npy(rng, box)[0], method)]), False


# --- pt ---
def wrapped(rng, plain):
    """A tensor of TransformerEngine's that is given what does not fit, beside one that is read."""
    pickle = Pickle()
    codes = lambda: pickle.tensor("0", "ByteStorage", 256, rng.choice([0, 0, 255, 2**40]),
                                  rng.choice([[8, 32], [8, 32], [256], [0], [2**40, 2**40], [1] * 64]),
                                  rng.choice([[32, 1], [32, 1], [1], [0], [0, 0], [1] * 64]))
    numbers = lambda: pickle.tensor(*rng.choice([plain, ("0", "FloatStorage", 64, 0, [1], [1]),
                                                 ("0", "FloatStorage", 64, 0, [2**30, 4], [0, 0])]))
    member = lambda: pickle.name("transformer_engine.pytorch.constants", "DType").number(
        rng.choice([7, 7, 8, 10, 6, -1, 2**40])).code.extend(b"\x85R")
    nothing = lambda: pickle.code.extend(rng.choice([b"N", b"\x88", b"\x89", b")", b"}"]))
    kinds = ["float8", "mxfp8", "float8_blockwise", "nvfp4", "hybrid_quantized", "identity"]
    pickle.code += b"}("
    pickle.text("q").name("transformer_engine.x", f"_make_{rng.choice(kinds)}_tensor_in_reduce_ex").code += b"("
    for _ in range(rng.choice([0, 3, 6, 9, 14])):
        rng.choice([codes, codes, numbers, member, nothing])()
    pickle.code += b"tR"
    pickle.text("w").tensor(*plain).code += b"u"
    return pickle.end()


def build_pt(rng, box):
    data = floats(rng, 64)
    kind = rng.randrange(13)
    plain = ("0", "FloatStorage", 64, 0, [8, 8], [8, 1])
    some = lambda: rng.choice([0, 1, 2, 8, 63, 64, 65, -1, *INTERESTING])
    if kind == 0:
        return pt(state_dict([("a", ("0", "FloatStorage", some(), some(), [some()], [some()]))]), {"0": data}), False
    if kind == 1:  # views: strided, overlapping, expanded
        shape, stride = rng.choice([([1 << 20, 64], [0, 1]), ([1 << 30], [0]), ([64] * 5, [0, 0, 0, 0, 1]),
                                    ([63, 2], [1, 1]), ([0], [5]), ([8, 8], [1, 8]), ([2] * 64, [0] * 64),
                                    ([2] * 65, [0] * 65), ([1 << 31, 1 << 31], [0, 0])])
        return Expanded(pt(state_dict([("a", ("0", "FloatStorage", 64, 0, shape, stride))]), {"0": data})), False
    if kind == 2:  # many views of one buffer, which is to be read once
        views, shape = rng.choice([(40, [256, 512]), (3000, [2, 32])])
        stride = [rng.choice([shape[1], 2 * shape[1], 0]), 1]
        return Heavy(pt(state_dict([(f"v{i}", ("0", "FloatStorage", 1 << 20, i, shape, stride)) for i
                                    in range(views)]), {"0": bytes(4 << 20)})), False
    if kind == 3:
        return pt(state_dict([("a", (rng.choice(["1", "../0", "", "0" * 1000]), *plain[1:]))]), {"0": data}), True
    if kind == 4:
        return pt(state_dict([("a", ("0", rng.choice(["ComplexDoubleStorage", "QInt8Storage", "X", "system",
                                                      "HalfStorage"]),
                                     64, 0, [8], [1]))]), {"0": data}), False
    if kind == 5:  # a pickle that would run a program, and others that only nest
        pickle = Pickle()
        pickle.name("os", "system").code += b"("
        pickle.text("touch pwned").code += b"tR"
        return pt(pickle.end(), {}), True
    if kind == 6:
        body = rng.choice([b"]" * 100000 + b"a" * 99999, b"(" * 100000, b"}q\0" + b"h\0" * 1000, b"]q\0h\0a",
                           b"}q\0(X\1\0\0\0ah\0u",
                           b"(" * 10 + b"t" * 10, b"\x85" * 100000, b"N" + b"\x85" * 100000, b"0", b"t", b"u", b"h\0",
                           b"R", b"Q", b""])
        return pt(b"\x80\x02" + body + b".", {"0": data}), False
    if kind == 7:
        return pt(damage(rng, state_dict([("a", plain), ("b", plain)])), {"0": data}), False
    if kind == 8:
        names = [rng.choice(NAMES) for _ in range(4)]
        return pt(state_dict([(n, plain) for n in names]), {"0": data}), False
    if kind == 9:  # a tensor may take 50 KB
        return pt(state_dict([(f"t{i}", plain) for i in range(rng.choice([1000, 12000]))]), {"0": data}), False
    if kind == 10:
        return pt(damage(rng, rng.choice(box.seeds.pickles), box.seeds.pickles), {"0": data, "1": data}), False
    if kind == 11:
        return pt(wrapped(rng, plain), {"0": data}), False
    return rng.choice([b"\x80\x02}q\0.", b"PK\5\6" + bytes(18), state_dict([("a", plain)]), rng.randbytes(500)]), True


# --- raw ---
def raw(rng, box):
    data = rng.randbytes(rng.choice([0, 1, 2, 3, 4, 12, 1000, 4096]))
    path = place(rng, box, data, rng.choice(["bin", "raw", "dat", "txt"]))
    options = [["--dtype", rng.choice(["f32", "bf16", "e4m3", "f4", "u64", "c64", "x", ""])], ["--shape", rng.choice(
        ["3", "2x2", "0", "0x0", "-1", "1x" * 70 + "1", "4294967296x4294967296", "18446744073709551616", "x", "",
         "1e3", "5x", "2x 2"])]]
    if rng.random() < 0.05 and not path.startswith("in/folder"):  # claims terabytes, and holds nothing
        with open(box.path / path, "r+b") as file:
            file.truncate(rng.choice([1 << 30, 15 << 40]))
    chosen = options[0] + (options[1] if rng.random() < 0.4 else [])
    endless = (box.path / path).stat().st_size > 1 << 20
    case = reading(rng, box, path, path, raw=chosen, endless=endless, seconds=4 if endless else 10)
    if case.tool != "amp-histogram":
        case.args = [a for i, a in enumerate(case.args) if a != "--shape" and (i == 0 or case.args[i - 1] != "--shape")]
    return case


# --- files that are no tensor files at all, and many at once ---
def strange(rng, box):
    """Files whose kind or name lies, files refused on purpose, and folders in which good and bad ones lie together."""
    if rng.random() < 0.4:
        sources = [data for files in box.seeds.tensors.values() for data in files]
        suffix = rng.choice(["safetensors", "npy", "npz", "pt", "pth", "json", "csv", "jsonl", "", "PT"])
        return reading(rng, box, box.file(f"t.{suffix}", rng.choice([*sources, b"", b"\n", rng.randbytes(100)])))
    if rng.random() < 0.3:
        refused = rng.choice(box.seeds.refused)
        return reading(rng, box, box.file(refused.name.removesuffix(".bad"), refused.read_bytes()), damaged=True)
    bad = []
    for i in range(rng.choice([2, 5, 12])):
        suffix = rng.choice(["safetensors", "npy", "npz", "pt"])
        whole = rng.choice(box.seeds.tensors[suffix])
        if rng.random() < 0.4:
            bad.append(box.file(f"many/sub{i % 3}/t{i}.{suffix}", whole[:rng.randrange(1, len(whole))]))
        else:
            box.file(f"many/sub{i % 3}/t{i}.{suffix}", whole)
    case = reading(rng, box, "in/many", "in/many")
    if case.tool in ("amp-histogram", "amp-adam", "amp-loss-scale", "amp-report", "amp-diff") and bad:
        case.codes, case.damaged = (1,), tuple(bad)
    return case


FAMILIES = {"safetensors": family("safetensors", build_safetensors), "npy": family("npy", build_npy),
            "npz": family("npz", build_npz),
            "pt": family("pt", build_pt), "raw": raw, "strange": strange}
