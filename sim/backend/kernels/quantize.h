// The scales of casts: those of blocks, and those of delayed scaling.
#pragma once

#include <ampscope/formats/bits.h>
#include <ampscope/formats/block.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/quantize.h>

#include <cmath>
#include <vector>

namespace amp::kernels {

AMPSCOPE_INLINE bool is_infinite(float x) { return x == x && !is_finite(x); }

/// The largest magnitude of n numbers; NaN if one is and `keeps_nan`, else those are left out.
AMPSCOPE_INLINE float amax_of(const float* x, std::int64_t n, bool keeps_nan) {
    std::uint32_t most = 0; // bits of magnitudes are ordered as magnitudes are
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffff;
        if (magnitude <= 0x7f800000 || keeps_nan) most = magnitude > most ? magnitude : most;
    }
    return std::bit_cast<float>(most);
}

/// The encode scale that follows from the history's amax; see DelayedRule.
AMPSCOPE_INLINE float next_scale(const op::DelayedRule& rule, float amax, float old) {
    if (amax == 0 || amax != amax) return old;
    if (rule.ms_amp) {
        if (is_infinite(amax)) return 1 / old;
        return ldexpf(ms_amp_encode(rule.max, amax), -rule.margin);
    }
    if (is_infinite(amax)) return old;
    const float wanted = ldexpf(rule.max, -rule.margin) / amax;
    return is_infinite(wanted) ? largest_float : wanted;
}

/// The index of this replica's scale (and row of the history), and the length of a history.
struct DelayedState {
    std::int64_t row, length;
};
template <class Backend>
DelayedState delayed_state(const Backend& backend, const op::Quantize& op) {
    const std::int64_t rows = backend.info(op.delayed).count();
    return {.row = rows > 1 ? backend.context.replica : 0, .length = backend.info(op.history).count() / rows};
}

/// The encode scale of a cast with delayed scaling. Records the amax of this step in the history.
AMPSCOPE_INLINE BlockScale delayed_scale(const op::DelayedRule& rule, float amax, bool training, float* history,
                                         std::int64_t length, float& scale) {
    bool first = rule.ms_amp && scale == 1;
    for (std::int64_t i = 0; first && i < length; ++i) first = history[i] == 0;
    if (first) scale = next_scale(rule, amax, scale);
    if (training && amax > history[0]) history[0] = amax;
    return {.encode = scale, .decode = 1 / scale};
}

/// Ends a step of delayed scaling; see UpdateScale.
AMPSCOPE_INLINE void update_scale(const op::DelayedRule& rule, bool most_recent, float* history, std::int64_t length,
                                  float& scale) {
    const float newest = history[0];
    if (newest == 0) return;
    float amax = newest;
    for (std::int64_t i = 1; !most_recent && i < length; ++i) amax = history[i] > amax ? history[i] : amax;
    scale = next_scale(rule, amax, scale);
    for (std::int64_t i = 1; i < length; ++i) history[i - 1] = history[i];
    history[length - 1] = newest;
    history[0] = 0;
}

/// A number q as it is read, before it is rounded to the format of its tensor; see Dequantize.
AMPSCOPE_INLINE double dequantized(ScaleRule rule, float q, float factor) {
    return has_upper_scales(rule) ? static_cast<double>(q * factor) : static_cast<double>(q) * factor;
}

/// Rows and columns of a tensor, and its numbers.
struct MatrixOf {
    const float* numbers;
    std::int64_t rows, columns;
};

/// The range of a block, as block_ranges() in formats/block.h has it: for one block, as a device computes it.
AMPSCOPE_INLINE BlockRange range_of(const MatrixOf& x, const BlockGrid& grid, std::int64_t block) {
    const std::int64_t top = block / grid.across * grid.height, left = block % grid.across * grid.width;
    BlockRange range;
    for (std::int64_t i = top; i < top + grid.height && i < x.rows; ++i)
        for (std::int64_t j = left; j < left + grid.width && j < x.columns; ++j)
            range.add(x.numbers[i * x.columns + j]);
    return range;
}

/// The scale of a block of MS-EDEN once it is corrected, as block_scales() in formats/block.h has it: for one block, as
/// a device computes it. `scales`: those of all blocks, not corrected.
AMPSCOPE_INLINE float corrected_scale(const BlockScaling& scaling, const MatrixOf& x, const BlockGrid& grid,
                                      std::int64_t block, const BlockScale* scales, std::uint32_t random) {
    const std::int64_t step = scaling.blocks_in(EdenSums::group), down = scaling.stands() ? step : 1,
                       across = scaling.stands() ? 1 : step;
    const std::int64_t top = block / grid.across / down * down, left = block % grid.across / across * across;
    const auto end = [](std::int64_t blocks, std::int64_t extent, std::int64_t most) {
        return blocks * extent < most ? blocks * extent : most;
    };
    EdenSums sums;
    for (std::int64_t i = top * grid.height; i < end(top + down, grid.height, x.rows); ++i)
        for (std::int64_t j = left * grid.width; j < end(left + across, grid.width, x.columns); ++j) {
            const BlockScale& scale = scales[grid.at(i, j)];
            const float number = x.numbers[i * x.columns + j];
            sums.add(scale.scaled(number), quantize_scaled(scaling.element, number, scale, Rounding::nearest_away));
        }
    return sums.corrected(scales[block].decode, random);
}

/// The scale that a block chooses, as block_scales() in formats/block.h has it: for one block, as a device computes it.
AMPSCOPE_INLINE BlockScale chosen_scale(const BlockScaling& scaling, const MatrixOf& x, const BlockGrid& grid,
                                        std::int64_t block, float amax, float upper) {
    constexpr int most_lines = 16;
    const ScalePair pair = four_over_six_scales(scaling.rule, amax, scaling.tensor_scale(upper));
    const RoundingError rounding = scaling.rounding_error();
    const bool stands = scaling.stands();
    const std::int64_t top = block / grid.across * grid.height, left = block % grid.across * grid.width;
    const std::int64_t height = grid.height < x.rows - top ? grid.height : x.rows - top,
                       width = grid.width < x.columns - left ? grid.width : x.columns - left;
    const auto error = [&](const BlockScale& scale) {
        float lines[most_lines] = {};
        for (std::int64_t i = 0; i < height; ++i)
            for (std::int64_t j = 0; j < width; ++j) {
                const float number = x.numbers[(top + i) * x.columns + left + j];
                lines[stands ? j : i] +=
                    rounding.of(quantize_scaled(scaling.element, number, scale), scale.decode, upper, number);
            }
        for (int half = most_lines / 2; half > 0; half /= 2)
            for (int i = 0; i < half; ++i) lines[i] += lines[i + half];
        return lines[0];
    };
    return error(pair.four) < error(pair.six) ? pair.four : pair.six;
}

/// A random Hadamard transform; see op::Hadamard.
struct Rotation {
    std::int64_t size = 16;
    double factor = 0.25;
    std::uint32_t signs = op::Hadamard::te_signs;

    /// What number i of a group has in number j of its transform.
    [[nodiscard]] AMPSCOPE_INLINE double at(std::int64_t i, std::int64_t j) const {
        const auto negative = static_cast<unsigned>(count_of_ones(static_cast<std::uint64_t>(i & j))) + (signs >> i);
        return (negative & 1) != 0 ? -factor : factor;
    }
    /// The factor of a transform of numbers in that format.
    static double factor_of(const FormatSpec& format, int size) {
        return quantize(format, 1 / std::sqrt(static_cast<double>(size)));
    }
};

template <class Backend>
Rotation rotation(const Backend& backend, const op::Hadamard& op) {
    const auto& c = backend.context;
    const RandomKey key{.seed = c.seed, .stream = op.stream, .step = c.step};
    return {.size = op.size,
            .factor = Rotation::factor_of(backend.info(op.in).format, op.size),
            .signs = op.draws_signs ? key.word(c.part() << 40) : op::Hadamard::te_signs};
}

/// Number `at` of `count`, which are so far apart, transformed in groups. What is in no group loses the sign of a zero,
/// as sums do.
AMPSCOPE_INLINE double rotated(const Rotation& rotation, const float* numbers, std::int64_t count, std::int64_t stride,
                               std::int64_t at) {
    const std::int64_t first = at / rotation.size * rotation.size;
    if (first + rotation.size > count) return 0.0 + numbers[at * stride];
    double sum = 0;
    for (std::int64_t i = 0; i < rotation.size; ++i) sum += rotation.at(i, at - first) * numbers[(first + i) * stride];
    return sum;
}

/// Rotation::at(i, j) at i * size + j.
inline std::vector<double> factors_of(const Rotation& rotation) {
    std::vector<double> factors(static_cast<std::size_t>(rotation.size * rotation.size));
    for (std::int64_t i = 0; i < rotation.size; ++i) {
        double* const row = factors.data() + i * rotation.size;
        row[0] = rotation.at(i, 0);
        for (std::int64_t j = 1; j < rotation.size; ++j) { // as without its last bit, which i has or not
            const std::int64_t rest = j & (j - 1);
            row[j] = (i & (j - rest)) != 0 ? -row[rest] : row[rest];
        }
    }
    return factors;
}

/// rotated() for rows [begin, end) of a matrix, whose rows or, along columns, numbers are in groups; many at once.
struct RotateKernel {
    AMPSCOPE_KERNEL void run(const double* factors, std::int64_t size, MatrixOf in, std::int64_t begin,
                             std::int64_t end, bool along_columns, double* out) {
        if (size == 16) rows<16>(factors, in, begin, end, along_columns, out);
        else rows<32>(factors, in, begin, end, along_columns, out);
    }

  private:
    template <int size>
    AMPSCOPE_KERNEL void rows(const double* factors, const MatrixOf& in, std::int64_t begin, std::int64_t end,
                              bool along_columns, double* out) {
        for (std::int64_t row = begin; row < end; ++row, out += in.columns) {
            const float* const own = in.numbers + row * in.columns;
            const std::int64_t first = row / size * size;
            if (along_columns) within<size>(factors, own, in.columns, out);
            else if (first + size > in.rows) keep(own, in.columns, out);
            else between<size>(factors + (row - first), in.numbers + first * in.columns, in.columns, out);
        }
    }
    AMPSCOPE_KERNEL void keep(const float* numbers, std::int64_t count, double* out) {
        for (std::int64_t c = 0; c < count; ++c) out[c] = 0.0 + numbers[c];
    }
    /// A row's groups.
    template <int size>
    AMPSCOPE_KERNEL void within(const double* factors, const float* numbers, std::int64_t count, double* out) {
        const std::int64_t whole = count / size * size;
        for (std::int64_t first = 0; first < whole; first += size) {
            double sums[size] = {};
            for (int i = 0; i < size; ++i)
                for (int j = 0; j < size; ++j) sums[j] += factors[i * size + j] * numbers[first + i];
            for (int j = 0; j < size; ++j) out[first + j] = sums[j];
        }
        keep(numbers + whole, count - whole, out + whole);
    }
    /// One row of a group of rows; `factors`: of that row, `size` apart.
    template <int size>
    AMPSCOPE_KERNEL void between(const double* factors, const float* group, std::int64_t columns, double* out) {
        std::int64_t c = 0;
        for (; c + 32 <= columns; c += 32) sum<size, 32>(factors, group + c, columns, out + c);
        for (; c < columns; ++c) sum<size, 1>(factors, group + c, columns, out + c);
    }
    template <int size, int lanes>
    AMPSCOPE_KERNEL void sum(const double* factors, const float* group, std::int64_t columns, double* out) {
        double sums[lanes] = {};
        for (int i = 0; i < size; ++i)
            for (int l = 0; l < lanes; ++l) sums[l] += factors[i * size] * group[i * columns + l];
        for (int l = 0; l < lanes; ++l) out[l] = sums[l];
    }
};

} // namespace amp::kernels
