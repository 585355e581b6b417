// Operands of dot products for which models of matrix hardware differ.
#pragma once

#include <ampscope/formats/spec.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace amp::crosscheck_tool {

enum class DotInputs : std::uint8_t { normal, uniform, random_bits, cancelling, subnormal, zeros, specials };
inline constexpr std::array<std::string_view, 7> dot_inputs_names = {
    "normal", "uniform", "random bits", "cancelling", "subnormal", "half zeros", "NaN and infinities"};

/// n values of the format, which depend only on kind, seed and position. Cancelling: in `second` operands every other
/// number equals the one before it, in first operands it is its negative, so that products cancel in pairs.
std::vector<float> dot_inputs(DotInputs kind, const FormatSpec& format, std::uint32_t seed, std::size_t n,
                              bool second = false);

/// A published test vector for tensor cores: sparse operands and the sum so far.
struct DotVector {
    std::string_view id;
    FormatSpec format;
    bool acc16 = false;
    std::vector<float> a, b;
    float c = 0;
};
std::vector<DotVector> published_vectors();

} // namespace amp::crosscheck_tool
