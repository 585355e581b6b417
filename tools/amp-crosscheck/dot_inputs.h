// Operands of dot products at which models of matrix hardware part.
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

/// n values of the format; which ones depends on kind, seed and position alone. Cancelling: every second number of
/// `second` operands is that before it, of first ones its negative, so that products cancel in pairs.
std::vector<float> dot_inputs(DotInputs kind, const FormatSpec& format, std::uint32_t seed, std::size_t n,
                              bool second = false);

/// A published vector of tensor cores: sparse operands and the sum so far.
struct DotVector {
    std::string_view id;
    FormatSpec format;
    bool acc16 = false;
    std::vector<float> a, b;
    float c = 0;
};
std::vector<DotVector> published_vectors();

} // namespace amp::crosscheck_tool
