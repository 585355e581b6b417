"""The bench of emulated steps, in small. Other tests run beside it, so that the time may be twice its aim; memory may
not."""
import pathlib
import sys

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "bench"))
import bench_emulate  # noqa: E402

HOPPER = "fp8-current,accumulate=hopper-wgmma-fp8"


@pytest.fixture
def bench(monkeypatch, capsys):
    threads = torch.get_num_threads()

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bench_emulate.py", "--threads", "1", "--batch", "1", *arguments])
        return bench_emulate.main(), capsys.readouterr().out
    yield run
    torch.set_num_threads(threads)


def test_a_step_takes_no_multiple_of_what_it_should(bench):
    precisions = ("fp32", "amp-bf16", "fp8-current", "mxfp8", HOPPER)
    fails, text = bench("--rounds", "3", "--fail-beyond", "2", *precisions)
    assert not fails, text
    assert text.count("; aim") == len(precisions)


def test_a_step_takes_not_much_more_memory(bench):
    fails, text = bench("--memory", "--fail-beyond", "1", HOPPER)
    assert not fails and text.count("; aim") == 1, text


def test_a_multiple_beyond_its_aim_is_an_error(bench):
    assert bench("--rounds", "1", "--fail-beyond", "0.01", "fp32")[0]
