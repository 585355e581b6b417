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

/// How many numbers along k share a pair of scales.
inline std::int64_t scaled_block(const op::Matmul& op) {
    const auto along = [&](std::int64_t extent) { return extent == 0 ? op.k : extent; };
    const BlockScaling &a = op.a_scale.scaling, &b = op.b_scale.scaling;
    return std::min(along(op.transpose_a ? a.rows : a.columns), along(op.transpose_b ? b.columns : b.rows));
}

/// The format of the scales, if those of both operands have the same, or else FP32.
inline FormatSpec scales_of_product(const op::Matmul& op) {
    const FormatSpec a = scale_format(op.a_scale.scaling.rule), b = scale_format(op.b_scale.scaling.rule);
    return a == b ? a : fp32_format;
}

/// The format in which the product reads an operand that is stored in format `stored`.
inline FormatSpec multiplied(const op::Matmul& op, const FormatSpec& stored) {
    return op.arithmetic.operands == fp32_format ? stored : op.arithmetic.operands;
}

} // namespace amp::kernels
