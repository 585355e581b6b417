// Tensor files from one number format to another.
#pragma once

#include <ampscope/formats/policy.h>
#include <ampscope/formats/spec.h>
#include <ampscope/sim/io/tensor_file.h>

#include <functional>

namespace amp::format_tool {

struct ConvertOptions {
    std::filesystem::path in, out;
    OpenOptions open{};
    FormatSpec to{};
    Policy policy{};
    std::uint64_t seed = 0; ///< of stochastic rounding; the stream is the tensor's number in the file
    bool quantize = false;  ///< store FP32 words with values of the format instead of its codes
};

struct Converted {
    std::uint64_t tensors = 0, elements = 0;
    DType stored = DType::f32;
    bool codes = false; ///< of the format; else FP32 words with values of it
};

/// Converts every tensor of a file, in bounded memory. Codes are stored under the dtype that files have for the format;
/// formats without one (TF32, eXmY) are stored as FP32 words with values of the format. Throws FileError.
Converted convert_file(const ConvertOptions& options, const std::function<void(std::uint64_t bytes)>& progress);

} // namespace amp::format_tool
