"""tests/hostile/judge.py: which error lines are too many, and how long a tool may take."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "hostile"))
import judge  # noqa: E402
from case import Box, Case, Outcome  # noqa: E402


def faults(box, args, *lines):
    return dict(judge.messages(Case("amp-report", args), Outcome(code=1, err="".join(lines).encode()), box))


def test_lines_are_as_many_as_files_unless_a_folder_is_not_the_cases(tmp_path):
    box = Box(tmp_path / "box", tmp_path, None)
    box.file("runs/a.json", "")
    (tmp_path / "elsewhere").mkdir()
    lines = [f"amp-report: in/runs/{i}: holds no step\n" for i in range(8)]
    assert "too many error lines" in faults(box, ["in/runs"], *lines)
    assert not faults(box, ["in/runs"], *lines[:2])
    for path in ("/", "../elsewhere", str(tmp_path / "elsewhere")):
        assert not faults(box, [path, "in/runs"], *lines)
        assert "an error line twice" in faults(box, [path, "in/runs"], *lines, lines[3])
    for path in (str(box.path / "in"), "../missing", "in/" + "n" * 300, "a\0b"):  # no folder, or the case's own
        assert "too many error lines" in faults(box, [path, "in/runs"], *lines)


def test_only_what_reads_the_cases_own_folders_must_end_in_time(tmp_path):
    box = Box(tmp_path / "box", tmp_path, None)
    for path, late in (("/", []), ("in", ["time"])):
        case = Case("amp-report", [path])
        assert [kind for kind, _ in judge.ending(case, Outcome(late=True, signal=9), box)] == late
