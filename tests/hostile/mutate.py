"""Damage: to bytes, to text that stands for numbers, and to JSON documents."""
import copy
import json
import struct

from formats import INTERESTING

# What programs write, users type and nobody expects. JSON and command lines take them as they are.
NUMBERS = ["", " ", "nan", "NaN", "-nan", "inf", "-inf", "Infinity", "-Infinity", "-1", "-0", "0", "00", "1", "1.",
           ".5",
           "1e", "0x10", "1e400", "-1e400", "1e-400", "1e308", "5e-324", "2147483647", "2147483648", "4294967296",
           "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551615",
           "18446744073709551616", "-9223372036854775809", "1" * 400, "0." + "3" * 400, "2^13", "2^-1", "2^99999",
           "1,5",
           "1e3", "1_000", "+1", "١", "½", "null", "true", "None", "0b1", "1:2", "2:1", ":", "1/0", "1%", "1e400%"]
NAMES = ["", " ", ".", "..", "/", "a/b", "../../up", "\u202egnp.exe", "\u2066x\u2069", "\u200f", "\x1b[31mred\x1b[0m",
         "\x07",
         "a\nb", "a\r\nb", "a\tb", "nul\0nul", "\x7f", "\u0085", "\u2028", "層.重み", "\U0001f600", "e\u0301",
         "\udc80", "\ufeffbom", "\uffff", "<script>alert(1)</script>", "</title></svg>", "a&b<c>\"d'", "=1+1", "+1",
         "-1",
         "@x", "=HYPERLINK(\"x\")", "%s%n%d", "{}", "{0}", "$(id)", "`id`", "'; --", "|x|", "a,b", "a\"b", "n" * 255,
         "w" * 3000, "x" * 100000, "a" * 20 + ".grad", "__metadata__", "h.0.weight.grad", "h.0.weight.grad ", "*", "[",
         "\\"]
RAW = ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "1" * 400, "0x1", "01", "'a'", "nul", "tru", "\"",
       "\\",
       "{", "[", "]", "}", "{\"a\":1,\"a\":2}", "{\"step\":1,\"step\":2}", "\"\\ud800\"", "\"\\u0000\"", "\"\xff\"",
       "-", "+1", ".5", "1.", "/**/1", "1e999999999999", "18446744073709551616", "\"\u202e\""]


def nested(rng, levels):
    """Arrays, objects, or both by turns, `levels` deep; a share of them never ends."""
    opening, closing = rng.choice([("[", "]"), ('{"a":', "}"), ('[{"":', "}]")])
    return opening * levels + "0" + (closing * levels if rng.random() < 0.7 else "")


def value(rng):
    """Something that does not belong where it will stand; a Raw is put into the text unquoted."""
    kind = rng.randrange(8)
    if kind == 0:
        return Raw(rng.choice(RAW))
    if kind == 1:
        return Raw(nested(rng, rng.choice([10, 200, 600, 5000, 100000])))
    if kind == 2:
        return rng.choice([None, True, False, [], {}, "", [[]], [{}], {"": {}}, [None], {"a": None}])
    if kind == 3:
        return rng.choice(NAMES)
    if kind == 4:
        return rng.choice([1, -1]) * rng.choice(INTERESTING)
    if kind == 5:
        return rng.choice([0.5, -0.0, 1e-320, 1e308, -1e300, 2.0**-149, 2.0**127, 3.5])
    if kind == 6:
        return [rng.choice(INTERESTING) for _ in range(rng.choice([1, 2, 28, 300]))]
    return {rng.choice(NAMES): rng.choice(INTERESTING) for _ in range(3)}


class Raw(str):
    """Text that dump() puts where a value belongs, valid or not."""


def dump(document, indent=None):
    """JSON text in which each Raw stands as it is."""
    raws = []

    def mark(item):
        if isinstance(item, Raw):
            raws.append(item)
            return f"@raw{len(raws) - 1}@"
        if isinstance(item, dict):
            return {k: mark(v) for k, v in item.items()}
        return [mark(v) for v in item] if isinstance(item, list) else item

    text = json.dumps(mark(document), indent=indent, ensure_ascii=False)
    for i, raw in enumerate(raws):
        text = text.replace(f'"@raw{i}@"', raw)
    return text


def places(document):
    """Each (container, key) of a document."""
    if isinstance(document, (dict, list)):
        for key in document if isinstance(document, dict) else range(len(document)):
            yield document, key
            yield from places(document[key])


def damage_json(rng, document):
    """A copy with one to three faults: values replaced, members taken out, added or renamed."""
    document = copy.deepcopy(document)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        found = list(places(document))
        if not found:
            return Raw("{}")
        container, key = rng.choice(found)
        what = rng.random()
        if what < 0.65:
            container[key] = value(rng)
        elif what < 0.85:
            del container[key]
        elif isinstance(container, dict):
            container[rng.choice(NAMES)] = container.pop(key) if what < 0.93 else value(rng)
        else:
            container.insert(key, value(rng))
    return document


def encode(text):
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text


def damage(rng, data, others=()):
    """Bytes with one to four faults: flipped, overwritten, cut, repeated, taken out, spliced with others, grown."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(data) + 1) if rng.random() < 0.5 else min(len(data), int(rng.expovariate(1 / 60)))
        length = rng.choice([1, 2, 4, 8, 16, 64, 1000])
        kind = rng.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at + 1] = bytes([rng.choice([0, 0xff, 0x7f, 0x80, ord("9"), ord("-"), ord('"'), ord("{"), 10])])
        elif kind == 2:
            data[at:at + 8] = struct.pack("<Q", rng.choice(INTERESTING))
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            del data[at:at + length]
        elif kind == 5:
            data[at:at] = data[at:at + length] * rng.choice([1, 2, 50])
        elif kind == 6:
            data[at:at] = rng.randbytes(length)
        elif others:
            other = rng.choice(others)
            data[at:] = other[min(at, len(other)):] if rng.random() < 0.5 else other
    return bytes(data)


def damage_lines(rng, text):
    """A log with one to three faults: lines repeated, swapped, taken out, cut, too long, binary; numbers replaced."""
    lines = encode(text).split(b"\n")
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(lines))
        kind = rng.randrange(10)
        if kind == 0:
            lines.insert(at, lines[at])
        elif kind == 1:
            lines[at], lines[-1] = lines[-1], lines[at]
        elif kind == 2:
            del lines[at:at + rng.choice([1, 1, 100])]
            lines = lines or [b""]
        elif kind == 3:
            lines[at] = lines[at][:rng.randrange(len(lines[at]) + 1)]
        elif kind == 4:
            lines[at] += rng.choice([b" ", b",", b"x", b"\xff\xfe", b"\0"]) * rng.choice([1, 1000, 3000000])
        elif kind == 5:
            lines.insert(at, rng.randbytes(rng.choice([1, 30, 5000])).replace(b"\n", b" "))
        elif kind == 6:
            lines[at] = encode(nested(rng, rng.choice([100, 5000, 100000])))
        elif kind == 7:
            lines[at] = lines[at] + b"\r"
        elif kind == 8:
            lines.insert(at, encode(rng.choice(NAMES)))
        else:
            lines[at] = damage(rng, lines[at])
    return b"\n".join(lines)
