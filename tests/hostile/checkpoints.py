"""Families of checkpoints of many files: what every reader of them must bear."""
import json

from formats import INTERESTING, Pickle, floats, safetensors
from mutate import NAMES, damage, damage_json
from tensors import reading


def write(box, name, files):
    """The files of a checkpoint; returns its folder as the command line says it."""
    for file, data in files.items():
        box.file(f"{name}/{file}", data)
    return f"in/{name}"


def command():
    """A pickle that would run a program, if somebody ran pickles."""
    pickle = Pickle()
    pickle.name("os", "system").code += b"("
    pickle.text("touch pwned").code += b"tR"
    return pickle.end()


def distributed(rng, box):
    """PyTorch's: .metadata or a .distcp file damaged, cut, absent, or saying something else of the same length."""
    files = dict(box.seeds.checkpoints["distributed"])
    shards = sorted(name for name in files if name.endswith(".distcp"))
    kind, bad = rng.randrange(8), ()
    chosen = rng.choice(shards)
    if kind < 3:
        files[".metadata"] = damage(rng, files[".metadata"])
    elif kind == 3:
        files[chosen] = damage(rng, files[chosen])
    elif kind == 4:
        files[chosen], bad = files[chosen][:rng.randrange(100)], (chosen,)
    elif kind == 5:
        del files[chosen]
        bad = (".metadata",)
    elif kind == 6:
        said, lie = rng.choice([(b"float32", b"float64"), (b"__0_0.distcp", b"../../x.dist"), (b"offsets", b"offsetz"),
                                (b"__0_0.distcp", b"__1_0.distcp"), (b"bfloat16", b"complex3"), (b"fqn", b"nqf"),
                                (b"TensorStorageMetadata", b"TensorStorageMetadatA"), (b"model.rows", b"model.both"),
                                (b"\x85\x94R", b"\x85\x94\x81"), (b"K\x02", b"K\x03"), (b"K\x01", b"K\x00")])
        files[".metadata"] = files[".metadata"].replace(said, lie, rng.choice([1, 1, 2, 100]))
    else:
        files[".metadata"], bad = rng.choice([command(), b"", b"\x80\x02N.", rng.randbytes(300)]), (".metadata",)
    path = write(box, rng.choice(["step-7", "c", "t\n2", "-x"]) if not bad else "step-7", files)
    return box.file("twin.safetensors", box.seeds.small), path, tuple(f"{path}/{name}" for name in bad)


def sharded(rng, box):
    """PyTorch's in safetensors: a rank's file damaged, absent, twice, or at offsets that are not its own."""
    files = dict(box.seeds.checkpoints["safetensors"])
    chosen, other = rng.sample(sorted(files), 2)
    kind = rng.randrange(5)
    if kind == 0:
        files[chosen] = damage(rng, files[chosen])
    elif kind == 1:
        del files[chosen]
    elif kind == 2:
        files[other] = files[chosen]
    elif kind == 3:
        at = [rng.choice(INTERESTING) for _ in range(rng.choice([0, 1, 2, 2, 2, 65]))]
        shape = [rng.choice([0, 1, 2, 3]) for _ in range(2)]
        information = {"w": {"saved_offsets": at}}
        if rng.random() < 0.3:
            information = damage_json(rng, information)
        size = 4 * shape[0] * shape[1]
        header = json.dumps({"__metadata__": {"DCP_SHARDING_INFO": json.dumps(information, default=str)},
                             "w": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}})
        files[chosen] = safetensors([("", "", (), floats(rng, shape[0] * shape[1]))], header=header)
    path = write(box, "c", files)
    return box.file("twin.safetensors", box.seeds.small), path, ()


def indexed(rng, box):
    """Hugging Face's: an index that names what is not there, or is no index."""
    names = {f"model-0000{i}-of-00002.safetensors" for i in (1, 2)}
    tensors = [rng.choice(NAMES) + f".{i}" for i in range(4)]
    weight_map = {tensor: rng.choice(sorted(names)) for tensor in tensors}
    files = {}
    for name in names:
        own = [tensor for tensor in tensors if weight_map[tensor] == name]
        files[name] = safetensors([(tensor, "F32", (3,), floats(rng, 3)) for tensor in own])
    index, bad = {"metadata": {"total_size": 48}, "weight_map": weight_map}, ()
    kind = rng.randrange(6)
    if kind == 0:
        index = damage_json(rng, index)
    elif kind == 1:
        weight_map[rng.choice(NAMES)] = rng.choice(["absent.safetensors", "../x.safetensors", "/dev/zero", "", "."])
        bad = ("model.safetensors.index.json",)
    elif kind == 2:
        chosen = rng.choice(sorted(names))
        files[chosen] = damage(rng, files[chosen])
    elif kind == 4:  # no element, of a type that may be smaller than a byte, under two indices
        files = {"e.safetensors": safetensors([("e", rng.choice(["F4", "F6_E2M3", "F32"]), (0,), b"")])}
        index["weight_map"] = {"e": "e.safetensors"}
        files["another.safetensors.index.json"] = json.dumps(index)
    text = json.dumps(index, default=str, ensure_ascii=True)
    files["model.safetensors.index.json"] = damage(rng, text.encode()) if kind == 3 else text
    path = write(box, "c", files)
    return box.file("twin.safetensors", box.seeds.small), path, tuple(f"{path}/{name}" for name in bad)


def checkpoint(rng, box):
    twin, path, bad = rng.choice([distributed, distributed, sharded, indexed])(rng, box)
    case = reading(rng, box, path, twin)
    if case.tool == "amp-histogram":
        case.args += rng.choice([["--kind", "weight"], ["--kind", "all"]])
        if bad:
            case.codes, case.damaged = (1,), bad
    return case


FAMILIES = {"checkpoint": checkpoint}
