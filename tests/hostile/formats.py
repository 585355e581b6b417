"""Writers of tensor files whose every field can be a lie: safetensors, .npy, zip archives (.npz) and torch's .pt."""
import json
import struct
import zlib

INTERESTING = [0, 1, 2, 3, 7, 8, 9, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**53 + 1,
               2**62, 2**63 - 1, 2**63, 2**64 - 1]


def floats(rng, count, special=0.05):
    """FP32 words that look like gradients; a share of them is zero, subnormal, infinite, NaN or of the largest size."""
    values = []
    for _ in range(count):
        if rng.random() < special:
            values.append(rng.choice([0, 0x80000000, 1, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f7fffff, 0x00800000]))
        else:
            values.append(struct.unpack("<I", struct.pack("<f", rng.gauss(0, 1) * 2.0 ** rng.randint(-40, 4)))[0])
    return struct.pack(f"<{count}I", *values)


def safetensors(tensors, metadata=None, header=None, length=None):
    """A file of (name, dtype, shape, bytes); `header` and `length` replace what follows from these."""
    if header is None:
        entries, at = ({"__metadata__": metadata} if metadata is not None else {}), 0
        for name, dtype, shape, data in tensors:
            entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
            at += len(data)
        header = json.dumps(entries)
    text = header if isinstance(header, bytes) else header.encode("utf-8", "surrogateescape")
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text) if length is None else length) + text + b"".join(t[3] for t in tensors)


def npy(data, shape, descr="<f4", fortran=False, version=(1, 0), text=None, length=None):
    """An array file; `text` replaces the header's dict, `length` what is said of its size."""
    if text is None:
        axes = "(" + "".join(f"{n}, " for n in shape) + ")"
        text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {axes}, }}"
    body = text.encode("latin-1", "replace") if isinstance(text, str) else text
    wide = version[0] > 1
    body += b" " * (-(len(body) + 1 + (12 if wide else 10)) % 64) + b"\n"
    size = len(body) if length is None else length
    said = struct.pack("<I", size & 0xffffffff) if wide else struct.pack("<H", size & 0xffff)
    return b"\x93NUMPY" + bytes(version) + said + body + data


def member(name, data, method=0, **lies):
    """A member of archive(): `lies` may name crc, size, packed_size, offset, local_name, flags or said_method."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(data) + packer.flush() if method == 8 else data
    raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
    return {"name": raw, "packed": packed, "crc": zlib.crc32(data), "size": len(data), "packed_size": len(packed),
            "method": method, "flags": 0, **lies}


def archive(members, comment=b"", count=None, central_offset=None, central_size=None):
    """A zip archive; a member with "offset" is only listed, and shares the bytes that stand there."""
    out, listed = bytearray(), bytearray()
    for m in members:
        local = m.get("local_name", m["name"])
        offset = m.get("offset", len(out))
        sizes = struct.pack("<HHHHHIII", 20, m["flags"], m.get("said_method", m["method"]), 0, 0x21,
                            m["crc"] & 0xffffffff,
                            m["packed_size"] & 0xffffffff, m["size"] & 0xffffffff)
        if "offset" not in m:
            out += b"PK\3\4" + sizes + struct.pack("<HH", len(local), 0) + local + m["packed"]
        listed += b"PK\1\2" + struct.pack("<H", 20) + sizes
        listed += struct.pack("<HHHHHII", len(m["name"]), 0, 0, 0, 0, 0, offset & 0xffffffff) + m["name"]
    said = len(members) if count is None else count
    end = struct.pack("<HHHHIIH", 0, 0, said & 0xffff, said & 0xffff,
                      (len(listed) if central_size is None else central_size) & 0xffffffff,
                      (len(out) if central_offset is None else central_offset) & 0xffffffff, len(comment))
    return bytes(out + listed) + b"PK\5\6" + end + comment


class Pickle:
    """Opcodes of protocol 2, as torch.save writes them, and others that it never does."""

    def __init__(self):
        self.code = bytearray(b"\x80\x02")

    def text(self, value):
        data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
        self.code += b"X" + struct.pack("<I", len(data)) + data
        return self

    def number(self, value):
        if -2**31 <= value < 2**31:
            self.code += b"J" + struct.pack("<i", value)
        else:
            data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            self.code += b"\x8a" + bytes([len(data)]) + data
        return self

    def numbers(self, values):
        self.code += b"("
        for value in values:
            self.number(value)
        self.code += b"t"
        return self

    def name(self, module, attribute):
        self.code += f"c{module}\n{attribute}\n".encode()
        return self

    def tensor(self, key, kind, elements, offset, shape, stride):
        """torch._utils._rebuild_tensor_v2(storage, offset, shape, stride, False, OrderedDict())"""
        self.name("torch._utils", "_rebuild_tensor_v2").code += b"(("
        self.text("storage").name("torch", kind).text(key).text("cpu").number(elements).code += b"tQ"
        self.number(offset).numbers(shape).numbers(stride).code += b"\x89"
        self.name("collections", "OrderedDict").code += b")RtR"
        return self

    def end(self):
        return bytes(self.code + b".")


def state_dict(tensors):
    """data.pkl of a dict: name -> arguments of Pickle.tensor."""
    pickle = Pickle()
    pickle.code += b"}("
    for name, arguments in tensors:
        pickle.text(name).tensor(*arguments)
    pickle.code += b"u"
    return pickle.end()


def pt(pickle, storages, root="archive", **lies):
    """torch.save's archive: data.pkl, data/KEY of each storage, version, all of them stored."""
    members = [member(f"{root}/data.pkl", pickle)]
    members += [member(f"{root}/data/{key}", data) for key, data in storages.items()]
    members.append(member(f"{root}/version", b"3\n"))
    return archive(members, **lies)
