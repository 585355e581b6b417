"""Checksums of the 504 value tables of IEEE P3109 v4.0, which are not part of this project.

    git clone https://github.com/P3109/Public && git -C Public checkout 26df0d048ac240046a821a8116b36618ccfeb79b
    python3 tests/data/p3109/checksums.py "Public/Value Tables/Hexadecimal" > tests/data/p3109/checksums.txt

Each line has a format's name, the number of its codes and the 64-bit FNV-1a hash of one line for each code in order:
"nan", "inf", "-inf", "0" or sign, odd significand and exponent ("-3p-7" is -3 * 2^-7), with "*" behind it where the
table marks a subnormal. Standard library only, and none of ampscope.
"""

import csv
import pathlib
import re
import sys

HEX = re.compile(r"(-?)0x([0-9a-f]+)(?:\.([0-9a-f]*))?p([+-]\d+)")


def canonical(value):
    """The value of a table as text that has only one form."""
    special = {"nan": "nan", "inf": "inf", "-inf": "-inf"}.get(value.lower())
    if special:
        return special
    sign, whole, fraction, exponent = HEX.fullmatch(value).groups()
    n, e = int(whole + (fraction or ""), 16), int(exponent) - 4 * len(fraction or "")
    if n == 0:
        return sign + "0"
    low = (n & -n).bit_length() - 1
    return f"{sign}{n >> low}p{e + low}"


def checksum(path):
    """Number of codes and hash of a table, whose codes must count from 0."""
    state, count = 0xCBF29CE484222325, 0
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            assert int(row["codepoint"], 16) == count, (path, row)
            line = canonical(row["value"]) + row["subnormal"].strip() + "\n"
            for byte in line.encode():
                state = (state ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
            count += 1
    return count, state


tables = sorted(pathlib.Path(sys.argv[1]).rglob("*.csv"))
assert len(tables) == 504, len(tables)
print("# IEEE P3109 v4.0, value tables of github.com/P3109/Public at 26df0d048ac240046a821a8116b36618ccfeb79b")
for table in tables:
    print(table.stem.lower(), "{} {:016x}".format(*checksum(table)))
