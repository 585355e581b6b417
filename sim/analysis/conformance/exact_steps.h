// Steps of matrix hardware with exact numbers, for exact_dot.cpp.
#pragma once

#include <ampscope/sim/analysis/conformance/exact_arithmetic.h>

#include <span>

namespace amp::exact {

inline constexpr FormatSpec fp32 = format("fp32");

/// A term of a fused sum: (-1)^negative * n * 2^unit, aligned by `exponent`.
struct Term {
    Class kind = Class::zero;
    bool negative = false;
    Natural n{};
    int unit = 0, exponent = 0;
};

/// x - y as sign and magnitude; of equal numbers the positive zero.
inline Number difference(Natural x, Natural y, int unit) {
    const bool negative = x < y;
    if (negative) std::swap(x, y);
    x -= y;
    return {.kind = x.is_zero() ? Class::zero : Class::finite, .negative = negative, .numerator = x, .exponent = unit};
}

/// One step of AMD's CDNA3: the FP32 code of c and a few products; `addend` is c as a term.
std::uint32_t floored_step(const Accumulator& acc, std::span<const Term> products, const Term& addend, std::uint32_t c);

/// The FP32 code of an operand, a zero if it is subnormal in the format in which it is read.
std::uint32_t flushed_operand(const FormatSpec& of, const FormatSpec& reads, std::uint32_t code);

/// One step of FP32 operations that flush subnormals; x, y and c are FP32 codes.
std::uint32_t flushed_step(const Accumulator& acc, std::span<const std::uint32_t> x, std::span<const std::uint32_t> y,
                           std::uint32_t c);

} // namespace amp::exact
