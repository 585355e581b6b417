// Operands of dot products for which models of matrix hardware differ.
#pragma once

#include <ampscope/formats/spec.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace amp::crosscheck_tool {

enum class DotInputs : std::uint8_t {
    normal,
    uniform,
    random_bits,
    cancelling,
    subnormal,
    zeros,
    specials,
    signed_zeros,
    tiny,
    unrounded,
    large_sums,
    ties
};
inline constexpr std::array<std::string_view, 12> dot_inputs_names = {
    "normal",       "uniform", "random bits",      "cancelling", "subnormal", "half zeros", "NaN and infinities",
    "signed zeros", "tiny",    "FP32 not rounded", "large sums", "ties"};

/// n values of the format, which depend only on kind, seed and position. Cancelling: in `second` operands every other
/// number equals the one before it, in first operands it is its negative, so that products cancel in pairs. Signed
/// zeros: few numbers but +0 and -0, so that sums are zeros of either sign. Tiny: products about the last place of a
/// sum near zero, and far below it, where it matters what exponent hardware gives to a zero. FP32 not rounded: for
/// TF32, whose operands are FP32 numbers of which hardware reads a part; other formats have normal numbers. Large
/// sums: sums so far that are far above the products, by which the last bit kept of these shows, and an INT32 that is
/// full; integers are then any of their format. Ties: one product is half of the last place of an FP16 sum, which bits
/// about the last place kept break.
std::vector<float> dot_inputs(DotInputs kind, const FormatSpec& format, std::uint32_t seed, std::size_t n,
                              bool second = false);

/// The n sums so far, of the format that is added in, that go with such operands.
std::vector<float> sums_so_far(DotInputs kind, const FormatSpec& format, std::uint32_t seed, std::size_t n);

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
