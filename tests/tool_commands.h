// Commands for every tool, small enough to be run many times: for tests of what must not change a byte of what tools
// print and write.
#pragma once

#include "tool.h"

#include <ampscope/sim/io/write.h>

#include <bit>

namespace amp::test {

class ToolCommands {
  public:
    ToolCommands() {
        for (const char* seed : {"0", "1"})
            REQUIRE(run_command(AMP_TRAIN " --model mlp --width 7 --batch 5 --steps 6 --record-every 2 --record-state "
                                          "--precision fp32,amp-fp16 --checkpoint-every 6 --seed " +
                                std::string(seed) + " --record " + path("seed") + seed)
                        .code == 0);
        write_file(scratch_ / "log.csv", "step,loss,amax,found_inf,scale\n0,1.5,1e-40,0,1024\n1,0.1,3.1e-5,1,1024\n"
                                         "2,0.3,1e-310,0,512\n3,1e-3,7e3,0,512\n");
        write_file(scratch_ / "eval", "00000001 3F800001 00400000\n33000001 7F7FFFFF 80000001\n");
        std::vector<float> tiny(4099);
        for (std::size_t i = 0; i < tiny.size(); ++i)
            tiny[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i * 7919 * (i % 3 == 0 ? 1 : 521)));
        TensorWriter writer = create_tensor_file(
            scratch_ / "tiny.safetensors", {{.name = "w.weight", .dtype = DType::f32, .shape = {tiny.size()}}}, {});
        writer.append(std::as_bytes(std::span(tiny)));
        writer.commit();
    }

    /// Commands of tools that take --threads.
    [[nodiscard]] std::vector<std::string> threaded() const {
        const std::string runs = path("seed0") + " " + path("seed1"), tiny = path("tiny.safetensors");
        return {AMP_TRAIN " --model gpt --width 8 --batch 7 --steps 2 --dropout 0.1 --precision "
                          "fp32,amp-fp16,pure-bf16-stochastic,fp8-delayed,mxfp8,nvfp4,accumulate=fp16 --json -",
                AMP_TRAIN " --model cnn --width 8 --steps 1 --json -",
                AMP_TRAIN " --evaluate " + path("seed0") + "/fp32 --activations-as e4m3 --json -",
                AMP_HISTOGRAM " --error --block 32 --json - " + path("seed0") + "/amp-fp16 " + tiny,
                AMP_HISTOGRAM " --rounding stochastic --scale 3 " + tiny,
                AMP_DIFF " --json - " + path("seed0") + "/fp32 " + path("seed0") + "/amp-fp16",
                AMP_ADAM " --json - " + path("seed0") + "/fp32",
                AMP_LOSS_SCALE " --sweep --json - " + path("seed0") + "/amp-fp16 " + path("log.csv"),
                AMP_REPORT " --json - " + path("seed0") + " " + path("seed1")};
    }
    /// Commands of tools that do not take --threads.
    [[nodiscard]] std::vector<std::string> others() const {
        return {AMP_FORMAT,
                AMP_FORMAT " --json e4m3 --values",
                AMP_FORMAT " 1e-40",
                AMP_FORMAT " --json 0.1",
                AMP_FORMAT " convert --to e5m2 --rounding stochastic " + path("tiny.safetensors") + " " +
                    path("out.npy") + " > " + path("out") + " && od -v -t x1 " + path("out.npy"),
                AMP_FORMAT " eval f32_mulAdd < " + path("eval"),
                AMP_FORMAT " vectors fp32 fma --n 500 --out " + path("fma") + " && " AMP_CROSSCHECK " vectors " +
                    path("fma") + " && cat " + path("fma"),
                AMP_FORMAT " vectors fp16 dot --accumulate kahan --k 7 --n 100",
                AMP_TRAIN " --model cnn --explain --memory --precision amp-fp16",
                AMP_LOSS_SCALE " --scaler torch,growth=1.1,backoff=0.7 --format e5m2 " + path("log.csv"),
                AMP_ADAM " --eps 1e-8,1e-40 " + path("tiny.safetensors"),
                AMP_HISTOGRAM " " + path("tiny.safetensors"),
                AMP_REPORT " " + path("seed0") + " " + path("seed1"),
                AMP_CROSSCHECK " devices"};
    }

    /// A command's output and exit code. `environment` is put in front of it.
    [[nodiscard]] static std::string result(const std::string& environment, const std::string& command) {
        Outcome o = run_command(environment + " " + command);
        const std::size_t threads = command.find(" --threads "); // reports contain their command
        for (std::size_t at = 0;
             threads != std::string::npos && (at = o.out.find(command.substr(threads))) != std::string::npos;)
            o.out.erase(at, command.size() - threads);
        return o.out + "standard error:\n" + o.err + "exit code: " + std::to_string(o.code) + "\n";
    }
    [[nodiscard]] std::string path(const std::string& name) const { return (scratch_ / name).string(); }

  private:
    Scratch scratch_;
};

} // namespace amp::test
