// What a cast with scales does to a matrix, element by element from the definitions: blocks by the coordinates of each
// element, elements rounded in double, squares summed in long double. It shares no code with sim/analysis and none with
// the casts of formats/; the scale of a block, given its amax, is formats/block.h's, which test_block.cpp proves.
#pragma once

#include "oracle.h"

#include <ampscope/formats/block.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace amp::test {

struct Matrix {
    std::vector<std::uint64_t> shape;
    std::vector<float> values;

    [[nodiscard]] std::int64_t columns() const {
        return shape.empty() ? 1 : std::max<std::int64_t>(static_cast<std::int64_t>(shape.back()), 1);
    }
};

/// Numbers over some 40 binades, with runs of zeros, and every 997th NaN or infinite if `nonfinite`.
inline Matrix matrix_of(std::vector<std::uint64_t> shape, std::uint32_t seed, bool nonfinite) {
    std::uint64_t count = 1;
    for (const std::uint64_t n : shape) count *= n;
    std::vector<float> values;
    std::uint32_t x = seed;
    const auto next = [&] { return x = x * 1664525 + 1013904223; };
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint32_t word = next(),
                            exponent = 100 + (next() >> 16) % 12 + static_cast<std::uint32_t>(i / 50 % 31);
        float value = std::bit_cast<float>((word & 0x807fffff) | exponent << 23);
        if (i / 160 % 5 == 2 || word % 11 == 0) value = 0;
        if (nonfinite && i % 997 == 5) value = i % 2 == 0 ? std::nanf("") : i % 3 == 0 ? HUGE_VALF : -HUGE_VALF;
        if (i % 4001 == 7) value = std::bit_cast<float>(word & 0x7fffff); // a subnormal
        values.push_back(value);
    }
    return {std::move(shape), std::move(values)};
}

/// A block as the definitions have it. Sums are long double.
struct OracleBlock {
    std::uint64_t elements = 0, nonzero = 0, nonfinite = 0, underflow = 0, saturated = 0, lost = 0;
    float rule_amax = 0, amax = 0, least = 0, scale = 1;
    BlockScale cast{};
    long double signal = 0, noise = 0;
};

/// The number of the element format nearest to y, ties to even, without a limit to its magnitude.
inline double rounded_to(const oracle::Facts& f, double y) {
    if (y == 0 || !std::isfinite(y)) return y;
    const double unit = std::ldexp(1.0, std::max(std::ilogb(y), 1 - f.bias) - f.fraction_bits);
    return std::nearbyint(y / unit) * unit;
}

struct OracleCast {
    const oracle::Facts& element;
    std::int64_t rows, columns; ///< extents of a block; 0: those of the matrix
    ScaleRule rule;
    std::optional<BlockScale> given{};

    /// All blocks by row and column, and the tensor's scale.
    [[nodiscard]] std::pair<std::map<std::pair<std::int64_t, std::int64_t>, OracleBlock>, float>
    blocks_of(const std::vector<float>& matrix, std::int64_t matrix_columns) const {
        std::map<std::pair<std::int64_t, std::int64_t>, OracleBlock> all;
        const auto block_at = [&](std::size_t i) -> OracleBlock& {
            const auto row = static_cast<std::int64_t>(i) / matrix_columns,
                       column = static_cast<std::int64_t>(i) % matrix_columns;
            return all[{rows == 0 ? 0 : row / rows, columns == 0 ? 0 : column / columns}];
        };
        const auto larger = [&](float most, float x) { // torch's amax hands on NaN, fmaxf leaves it out
            const bool keeps = rule == ScaleRule::torchao || rule == ScaleRule::torchao_pow2 ||
                               rule == ScaleRule::deepgemm || rule == ScaleRule::deepgemm_pow2 ||
                               rule == ScaleRule::mx_floor || rule == ScaleRule::mx_even ||
                               rule == ScaleRule::mx_ceil || rule == ScaleRule::mx_rceil;
            if (std::isnan(most) || (std::isnan(x) && !keeps)) return most;
            return std::isnan(x) ? std::nanf("") : std::max(most, std::fabs(x));
        };
        float tensor_amax = 0;
        for (std::size_t i = 0; i < matrix.size(); ++i) {
            OracleBlock& block = block_at(i);
            block.rule_amax = larger(block.rule_amax, matrix[i]);
            tensor_amax = larger(tensor_amax, matrix[i]);
        }
        float tensor_scale = 1, upper = 0;
        if (rule == ScaleRule::nvfp4) {
            const float s = 2688 / tensor_amax;
            upper = tensor_amax;
            tensor_scale = tensor_amax == 0 || s == 0 || std::isnan(s) ? 1 : std::isinf(s) ? 0x1.fffffep127F : s;
        }
        if (rule == ScaleRule::quartet) tensor_scale = upper = tensor_amax == 0 ? 1 : tensor_amax / 448 / 6;
        if (rule == ScaleRule::amax) { // with scales in FP32
            const float u = tensor_amax / static_cast<float>(element.max);
            tensor_scale = upper = tensor_amax == 0 || std::isinf(tensor_amax) ? 1 : std::max(u, 0x1p-100F);
        }
        for (auto& [at, block] : all)
            block.cast = given ? *given : block_scale(rule, format(element.name), block.rule_amax, tensor_scale);
        for (std::size_t i = 0; i < matrix.size(); ++i) add(block_at(i), matrix[i], upper);
        return {all, tensor_scale};
    }

  private:
    void add(OracleBlock& block, float x, float upper) const {
        const BlockScale& scale = block.cast;
        block.scale = scale.decode;
        ++block.elements;
        if (!std::isfinite(x)) {
            ++block.nonfinite;
            return;
        }
        const float magnitude = std::fabs(x);
        if (x != 0) {
            ++block.nonzero;
            block.amax = std::max(block.amax, magnitude);
            block.least = block.least == 0 ? magnitude : std::min(block.least, magnitude);
        }
        const volatile float scaled = scale.divisor != 0 ? x / scale.divisor : x * scale.encode;
        double nearest = rounded_to(element, scaled);
        if (std::isnan(nearest) && !element.has_nan()) nearest = element.max; // what has no NaN stores its largest
        const double stored = std::min(std::max(nearest, -element.max), element.max);
        volatile float factor = scale.decode; // and FP32(FP32(d * amax) * FP32(1 / 2688)), as TE dequantizes
        if (has_upper_scales(rule)) factor = factor * upper;
        if (rule == ScaleRule::nvfp4) factor = factor * (1.0F / 2688);
        const long double back = std::isnan(nearest) ? std::nanl("") : static_cast<long double>(stored) * factor;
        if (!std::isfinite(back)) {
            ++block.lost;
            return;
        }
        block.underflow += x != 0 && back == 0 ? 1 : 0;
        block.saturated += scale.decode != 0 && std::fabs(nearest) > element.max ? 1 : 0;
        block.signal += static_cast<long double>(x) * x;
        block.noise += (x - back) * (x - back);
    }
};

} // namespace amp::test
