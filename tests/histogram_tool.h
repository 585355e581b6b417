// Runs the real amp-histogram as users run it.
#pragma once

#include "tool.h"

#include <ampscope/sim/io/write.h>

#include <array>
#include <map>
#include <vector>

namespace amp::test {

/// `before` is put in front of the command: a shell's ulimit, a variable.
inline Outcome run(const std::string& arguments, const std::string& before = "") {
    return run_command(before + " " AMP_HISTOGRAM " " + arguments);
}

inline std::string sample(const std::string& file = "") { return std::string(AMP_SAMPLE) + "/" + file; }
inline const std::array<std::string, 3> sample_files = {
    "deep_tanh/step_000000.safetensors", "deep_tanh/step_000050.safetensors", "digits_cnn/step_000600.safetensors"};

inline void write_floats(const fs::path& path, const std::string& name, const std::vector<float>& values,
                         const std::map<std::string, std::string>& metadata = {}) {
    TensorWriter writer =
        create_tensor_file(path, {{.name = name, .dtype = DType::f32, .shape = {values.size()}}}, metadata);
    writer.append(std::as_bytes(std::span(values)));
    writer.commit();
}

} // namespace amp::test
