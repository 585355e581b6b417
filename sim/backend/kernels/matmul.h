// Finds the scales of a matrix product's operands.
#pragma once

#include <ampscope/formats/scaled_dot.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/matmul.h>

#include <algorithm>

namespace amp::kernels {

/// The scales of one operand of a product: at(i, l) belongs to row i of a, or column i of b, at position l along k.
struct ScaleLines {
    bool k_is_rows = false; ///< whether k runs over the rows of the tensor as it is stored
    BlockGrid grid{};

    ScaleLines() = default;
    ScaleLines(const BlockScaling& s, bool k_is_rows_, std::int64_t k, std::int64_t others)
        : k_is_rows(k_is_rows_), grid(k_is_rows ? s.grid(k, others) : s.grid(others, k)) {}
    [[nodiscard]] constexpr std::int64_t at(std::int64_t i, std::int64_t l) const {
        return k_is_rows ? grid.at(l, i) : grid.at(i, l);
    }
};

/// The upper scales of a product's operands; see op::Matmul.
struct UpperFactors {
    const float *a = nullptr, *b = nullptr; ///< one for each row of a or column of b, one for all, or none
    bool a_lines = false, b_lines = false;
    float inverse = 1; ///< the inverse of both divisors

    UpperFactors() = default;
    /// `data(id)`: where a backend keeps the numbers of a tensor.
    template <class Data>
    UpperFactors(const op::Matmul& op, const Data& data)
        : a(op.a_scale.upper ? data(op.a_scale.upper) : nullptr),
          b(op.b_scale.upper ? data(op.b_scale.upper) : nullptr), a_lines(op.a_scale.scaling.upper.lines()),
          b_lines(op.b_scale.scaling.upper.lines()),
          inverse(1 / (op.a_scale.scaling.upper_divisor() * op.b_scale.scaling.upper_divisor())) {}

    [[nodiscard]] AMPSCOPE_INLINE bool empty() const { return a == nullptr && b == nullptr; }
    /// Row i, column j of the product.
    [[nodiscard]] AMPSCOPE_INLINE float applied(float sum, std::int64_t i, std::int64_t j) const {
        const float x = a == nullptr ? 1 : a[a_lines ? i : 0], y = b == nullptr ? 1 : b[b_lines ? j : 0];
        if (!a_lines && !b_lines) return named(sum * (x * y * inverse));
        const float scaled = sum * inverse;
        return named(a_lines && b_lines ? scaled * x * y : scaled * (x * y));
    }
};

/// How many numbers along k share a pair of scales.
inline std::int64_t scaled_block(const op::Matmul& op) {
    const auto along = [&](std::int64_t extent) { return extent == 0 ? op.k : extent; };
    const BlockScaling &a = op.a_scale.scaling, &b = op.b_scale.scaling;
    return std::min(along(op.transpose_a ? a.rows : a.columns), along(op.transpose_b ? b.columns : b.rows));
}

/// The format of the scales, if those of both operands have the same, or else FP32.
inline FormatSpec scales_of_product(const op::Matmul& op) {
    const FormatSpec a = op.a_scale.scaling.scale_format(), b = op.b_scale.scaling.scale_format();
    return a == b ? a : fp32_format();
}

/// The format in which the product reads an operand that is stored in format `stored`.
inline FormatSpec multiplied(const op::Matmul& op, const FormatSpec& stored) {
    return op.arithmetic.operands == fp32_format() ? stored : op.arithmetic.operands;
}

} // namespace amp::kernels
