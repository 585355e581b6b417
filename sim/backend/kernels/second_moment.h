// Means of squares by row and column, and roots of second moments.
#pragma once

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/second_moment.h>

#include <cmath>

namespace amp::kernels {

/// The mean of `count` squares from their sum, in steps that round to the format f.
AMPSCOPE_INLINE float mean_of_squares(const FormatSpec& f, double sum, float count) {
    const float norm = quantize(f, std::sqrt(sum));
    return quantize(f, norm * norm) / count;
}

struct RowMeanSquareKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, std::int64_t columns,
                             FormatSpec f) {
        for (std::int64_t i = 0; i < n; ++i) {
            const float* const row = in + (begin + i) * columns;
            const double sum = lane_sum(columns, [&](std::int64_t j) { return static_cast<double>(row[j]) * row[j]; });
            wide[i] = mean_of_squares(f, sum, static_cast<float>(columns));
        }
    }
};

/// Row by row, since numbers of a column do not lie side by side.
struct ColumnMeanSquareKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, std::int64_t rows,
                             std::int64_t columns, FormatSpec f) {
        for (std::int64_t j = 0; j < n; ++j) wide[j] = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
            const float* const row = in + i * columns + begin;
            for (std::int64_t j = 0; j < n; ++j) wide[j] += static_cast<double>(row[j]) * row[j];
        }
        for (std::int64_t j = 0; j < n; ++j) wide[j] = mean_of_squares(f, wide[j], static_cast<float>(rows));
    }
};

struct InverseRootKernel {
    AMPSCOPE_KERNEL void run(std::int64_t begin, std::int64_t n, double* wide, const float* in, float least) {
        for (std::int64_t i = 0; i < n; ++i) {
            const float x = in[begin + i], bounded = x < least ? least : x; // a NaN stays
            wide[i] = 1 / std::sqrt(bounded);
        }
    }
};

} // namespace amp::kernels

namespace amp::op {

template <class On>
void run(On& on, const MeanSquare& op) {
    const std::int64_t results = on.info(op.out).count();
    if (results == 0) return;
    const std::int64_t others = on.info(op.in).count() / results;
    const FormatSpec f = on.info(op.out).format;
    if (op.of_columns) map(on, kernels::ColumnMeanSquareKernel{}, op.out, on.in(op.in), others, results, f);
    else map(on, kernels::RowMeanSquareKernel{}, op.out, on.in(op.in), others, f);
}

template <class On>
void run(On& on, const InverseRoot& op) {
    map(on, kernels::InverseRootKernel{}, op.out, on.in(op.in), quantize(on.info(op.in).format, op.least));
}

} // namespace amp::op
