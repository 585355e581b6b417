// Converts tensor files from one number format to another.
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
    std::uint64_t seed = 0; ///< seed of stochastic rounding; its stream is the tensor's number in the file
    bool quantize = false;  ///< store FP32 words that hold values of the format, instead of its codes
};

struct Converted {
    std::uint64_t tensors = 0, elements = 0;
    std::uint64_t lost = 0; ///< finite elements that are NaN or infinite in the format
    DType stored = DType::f32;
    bool codes = false; ///< whether codes of the format were stored, or FP32 words that hold its values
};

/// Converts every tensor of a file, in bounded memory. Codes are stored under the dtype that files have for the format;
/// for formats without one (TF32, eXmY), FP32 words with values of the format are stored. Throws FileError.
Converted convert_file(const ConvertOptions& options, const std::function<void(std::uint64_t bytes)>& progress);

} // namespace amp::format_tool
