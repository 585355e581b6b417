"""The README's Python examples run, and give what they say."""
import pathlib
import re

README = pathlib.Path(__file__).parents[2] / "README.md"


def test_examples():
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        names = {}
        for line in block.splitlines():
            code, _, said = line.partition("  # ")
            if said and "=" not in code.split("(")[0]:
                assert str(eval(code, names)) == said.strip(), line
            else:
                exec(code, names)
