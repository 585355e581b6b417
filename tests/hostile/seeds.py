"""What the families begin with: valid files of the project, and runs and reports made once by the tools under test."""
import pathlib
import subprocess

from formats import npy, archive, member, floats


class Seeds:
    """Valid inputs: `tensors` by suffix, folders of runs, texts of reports and logs."""

    def __init__(self, source, tools, folder, rng):
        self.folder = pathlib.Path(folder)
        data, corpus = source / "tests/data/io", source / "tests/fuzz/corpus"
        self.tensors = {suffix: [p.read_bytes() for p in sorted(data.glob(f"*.{suffix}"))]
                        for suffix in ("safetensors", "npy", "npz", "pt")}
        self.checkpoints = {folder: {p.name: p.read_bytes() for p in sorted((source / "tests/data/checkpoints" /
                                                                             folder).iterdir())}
                            for folder in ("distributed", "safetensors")}
        self.pickles = [p.read_bytes() for p in sorted((corpus / "pt").glob("*.pkl"))]
        self.refused = sorted(data.glob("*.bad"))
        self.gradients = (source / "notebooks/data/gradients/deep_tanh/step_000050.safetensors").read_bytes()
        self.small = (data / "small.safetensors").read_bytes()
        self.runs, self.longer = self.folder / "runs", self.folder / "longer"
        mlp = ["--model", "mlp", "--width", "4", "--batch", "4", "--threads", "1", "--record-every", "2",
               "--record-state", "--checkpoint-every", "3", "--statistics-every", "2"]
        self.training = [*mlp, "--precision", "fp32,amp-fp16,fp8-current"]
        make(tools / "amp-train", *self.training, "--steps", "6", "--record", self.runs)
        make(tools / "amp-train", *self.training, "--steps", "9", "--record", self.longer)
        gpt = ["--width", "8", "--depth", "1", "--heads", "2", "--batch", "2", "--threads", "1", "--steps", "3"]
        make(tools / "amp-train", *gpt, "--precision", "amp-bf16", "--record", self.folder / "gpt",
             "--checkpoint-every", "3",
             "--record-every", "1")
        self.names = sorted(p.name for p in self.runs.iterdir())
        (self.folder / "gradients").mkdir()
        for i in range(3):
            (self.folder / f"gradients/step_{i:06d}.safetensors").write_bytes(self.small)
        (self.folder / "deep.safetensors").write_bytes(self.gradients)
        self.reports = []
        for options in ([], ["--error", "--block", "32", "--rounding", "up", "--format", "all"], ["--scale", "3.5"]):
            report = self.folder / f"report{len(self.reports)}.json"
            make(tools / "amp-histogram", self.runs / "fp32", *options, "--threads", "1", "--json", report)
            self.reports.append((options, report.read_text()))
        self.logs = {"csv": "step,amax,scale,found_inf,loss\n" + "".join(
            f"{i},{2.0 ** -i},65536,{int(i == 5)},{2.0 / (i + 1)}\n" for i in range(40))}
        self.logs["tsv"] = self.logs["csv"].replace(",", "\t")
        self.logs["jsonl"] = "".join(f'{{"step":{i},"loss":{1 / (i + 1)},"scale":65536.0,"found_inf":false,'
                                     f'"amax":{{"weight":{2.0 ** -i},"activation":0.5}}}}\n' for i in range(40))
        self.data = self.pair(rng, 20, 3)
        rows, column = npy(bytes(4 * 32), (2, 16), "<u4"), npy(bytes(8), (2,), "<u4")
        self.vectors = archive([member("a.npy", rows), member("b.npy", rows), member("c.npy", column),
                                member("d_fp32.npy", column)])

    @staticmethod
    def pair(rng, examples, features):
        """An .npz for --data: x of numbers, y of classes."""
        y = b"".join((i % 3).to_bytes(8, "little") for i in range(examples))
        return archive([member("x.npy", npy(floats(rng, examples * features, 0), (examples, features))),
                        member("y.npy", npy(y, (examples,), "<i8"))])


def make(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          timeout=300,
                          stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(f"hostile: seeds cannot be made: {program.name} {' '.join(map(str, arguments))}: exit code "
                         f"{done.returncode}\n{done.stderr.decode()}")
