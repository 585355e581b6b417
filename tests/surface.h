// The list of tools, small inputs, and commands that read them: for tests of behaviour that all tools share.
#pragma once

#include "tool.h"

#include <ampscope/sim/io/write.h>

#include <array>
#include <map>

namespace amp::test {

inline std::vector<std::string> tools() {
    std::istringstream names(AMPSCOPE_TOOLS);
    return {std::istream_iterator<std::string>(names), {}};
}

inline std::string path_of(const std::string& tool) { return std::string(AMPSCOPE_BIN) + "/" + tool; }

/// Small inputs, and commands that read them and print to standard output: all kinds of reports, tables, lists.
class Inputs {
  public:
    Inputs() {
        const std::array<float, 4> gradients = {1, 0x1p-25F, 3e-4F, 0x1p17F};
        for (const char* name : {"g_0.npy", "g_1.npy"}) {
            TensorWriter writer =
                create_tensor_file(scratch_ / name, {{.name = "w", .dtype = DType::f32, .shape = {gradients.size()}}});
            writer.append(std::as_bytes(std::span(gradients)));
            writer.commit();
        }
        write_file(scratch_ / "log.csv",
                   "step,loss_scale,grad_max,found_inf\n0,65536,1e-4,0\n1,65536,2,1\n2,32768,1e-4,0\n");
        write_file(scratch_ / "words.txt", "3C00 3C00\n");
    }

    [[nodiscard]] std::string at(const std::string& name) const { return (scratch_ / name).string(); }

    [[nodiscard]] std::vector<std::string> prints(const std::string& tool) const {
        const std::string one = at("g_0.npy"), two = one + " " + at("g_1.npy");
        const std::string run = "--model mlp --steps 1 --batch 2 --width 4 --precision fp32 --threads 1 ";
        const std::map<std::string, std::vector<std::string>> rows = {
            {"amp-format",
             {"", "--json", "e4m3", "0.1", "convert " + one + " " + at("out.npy") + " --to fp32",
              "eval f16_add <" + at("words.txt")}},
            {"amp-histogram", {one, one + " --json -", one + " --csv -", one + " --svg -", one + " --html -"}},
            {"amp-train", {"--list", run + "--memory", run + "--explain", run, run + "--json -"}},
            {"amp-crosscheck", {"devices"}},
            {"amp-loss-scale", {at("log.csv"), at("log.csv") + " --json -", at("log.csv") + " --svg -"}},
            {"amp-diff", {two, two + " --json -", two + " --svg -"}},
            {"amp-adam", {one, one + " --json -", one + " --svg -"}},
            {"amp-report", {one, one + " --json -", one + " --html -", one + " --markdown -"}},
        };
        REQUIRE_MESSAGE(rows.contains(tool), tool);
        std::vector<std::string> commands = rows.at(tool);
        commands.insert(commands.end(), {"--help", "--version"});
        for (std::string& command : commands) command = path_of(tool) + " " + command;
        return commands;
    }

  private:
    Scratch scratch_;
};

} // namespace amp::test
