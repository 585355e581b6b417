"""Objects of Python have the fields of the C++ structs they stand for, which are read from the headers of sim/."""
import inspect
import pathlib
import re

from ampscope import _ampscope

SIM = pathlib.Path(__file__).parents[2] / "sim"

#: Fields of C++ that Python has otherwise, or not at all: tools/python/README.md says how.
OTHERWISE = {
    "HistogramEntry": {"kinds": "kind"},
    "KindFindings": {"group": "name"},
    "KindRecord": {"group": "name"},
    "RecipeEffect": {"blocks": None},
    "ScaleCurves": {"rule": "rounding"},
    "ScalerReplay": {"options": "name"},
}


def without(pattern, text, instead=""):
    """The text without matches, from the inside out: brackets within brackets go, too."""
    while re.search(pattern, text):
        text = re.sub(pattern, instead, text)
    return text


def fields_of(body):
    """The names that a struct's body declares, without those of functions and types."""
    body = without(r"\{[^{}]*\}", body, "@")  # bodies of functions, enumerators, initial values
    body = re.sub(r"=[^,;]*", "", without(r"<[^<>;]*>", body))  # other initial values; types may have commas, too
    body = re.sub(r"\([^;@]*@", "();", body)  # a function with its body needs no semicolon
    fields = [d for d in map(str.strip, body.split(";"))
              if d and "(" not in d and not re.search(r"\b(enum|using|static|operator)\b", d)]
    return [re.search(r"(\w+)\s*(\[\w*\])?\s*@?$", name.strip()).group(1) for d in fields for name in d.split(",")]


def structs():
    """The bodies of the structs of sim/, by name."""
    text = "".join(re.sub(r"//.*", "", header.read_text()) for header in sorted(SIM.rglob("*.h")))
    return dict(re.findall(r"^struct (\w+)[^;{}]*\{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL))


def test_fields_of_structs():
    assert fields_of("A a = 1, b{2}; std::map<int, C<D>> c[3]; enum E { x, y }; int f(int z) const { return z; } F f();"
                     "[[nodiscard]] double g() const { return {h, i}; } std::array<int, size()> j{};") == [
        "a", "b", "c", "j"]


def test_objects_have_the_fields_of_their_structs():
    bodies, compared = structs(), 0
    for name, kind in inspect.getmembers(_ampscope, inspect.isclass):
        if name not in bodies:
            continue
        otherwise = OTHERWISE.get(name, {})
        assert {field for field in fields_of(bodies[name]) if field not in dir(kind)} == set(otherwise), name
        assert {ours for ours in otherwise.values() if ours} <= set(dir(kind)), name
        compared += 1
    assert compared > 60 and OTHERWISE.keys() <= bodies.keys()


def test_each_field_is_told_in_a_sentence():
    """What help() says of a field can be read by itself: it has a subject, and points to no field before it."""
    telegrams = [f"{name}.{field}: {value.__doc__}" for name, kind in inspect.getmembers(_ampscope, inspect.isclass)
                 for field, value in vars(kind).items() if not field.startswith("_")
                 and re.match(r"(Of|At|As|In|From|That of|Those|Likewise|The same of)\b", value.__doc__ or "")]
    assert telegrams == []
