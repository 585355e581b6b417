// Fused attention: what one row of queries, or a row of a tile, computes besides products.
#pragma once

#include <ampscope/formats/scalar_math.h>
#include <ampscope/sim/backend/kernels/fma.h>
#include <ampscope/sim/backend/kernels/kernel.h>
#include <ampscope/sim/program/ops/attention.h>

#include <algorithm>
#include <limits>

namespace amp::kernels {

/// The extents of an attention. Heads of queries are counted over the batch: 0 ... batch * heads - 1.
struct AttentionShape {
    std::int64_t heads = 0, shared = 1; ///< heads of queries, over the batch, and how many of them share a key's head
    std::int64_t queries = 0, keys = 0, width = 0;

    AttentionShape(const Shape& q, const Shape& k)
        : heads(q[0] * q[1]), shared(q[1] / k[1]), queries(q[2]), keys(k[2]), width(q[3]) {}
    /// The first element of a head of queries, and of the head of keys and values that serves it.
    [[nodiscard]] AMPSCOPE_INLINE std::int64_t of_query(std::int64_t head) const { return head * queries * width; }
    [[nodiscard]] AMPSCOPE_INLINE std::int64_t of_key(std::int64_t head) const { return head / shared * keys * width; }
};

/// How many keys of a tile that begins at `first`, `n` of them, query `row` sees.
AMPSCOPE_INLINE std::int64_t visible(bool causal, std::int64_t row, std::int64_t first, std::int64_t n) {
    const std::int64_t seen = row + 1 - first;
    return !causal || seen > n ? n : seen < 0 ? 0 : seen;
}

inline constexpr float no_score = -std::numeric_limits<float>::infinity();
/// log2 e, by which a logsumexp becomes a power of 2.
inline constexpr float log2_e = 0x1.715476p+0F;

AMPSCOPE_INLINE float power_of_2(float x) { return static_cast<float>(math::exp2(x)); }

/// The constants of an op::FusedAttention that its rows read.
struct AttentionConstants {
    float exponent, offset, shift, within;

    explicit AttentionConstants(const op::FusedAttention& op)
        : exponent(op.how.exponent()), offset(static_cast<float>(op.offset)), shift(static_cast<float>(op.shift)),
          within(op.within()) {}
};

/// What is known of a row after some tiles.
struct AttentionRow {
    float max = no_score, sum = 0;
    float tile_sum = 0, factor = 1; ///< the last tile's sum of P; what the sum so far is multiplied by
};

/// Steps 1 to 3 for one row of a tile: scores of n keys, of which the first `seen` are visible, become P.
struct AttentionRowKernel {
    AMPSCOPE_KERNEL void run(float* scores, std::int64_t n, std::int64_t seen, AttentionConstants c,
                             AttentionRow* row) {
        float max = no_score;
        for (std::int64_t i = 0; i < seen; ++i) max = scores[i] > max ? scores[i] : max;
        if (c.shift > 0 && max > no_score) max = shifted(scores, seen, c, max);
        const float next = max > row->max ? max : row->max, used = next > no_score ? next : 0;
        row->factor = power_of_2((row->max - used) * c.exponent);
        row->max = next;
        const float add = c.offset - used * c.exponent;
        for (std::int64_t i = 0; i < seen; ++i)
            scores[i] = power_of_2(amp::detail::fma_in_double(scores[i], c.exponent, add));
        float sum = 0;
        for (std::int64_t i = 0; i < seen; ++i) sum += scores[i];
        for (std::int64_t i = seen; i < n; ++i) scores[i] = 0;
        row->tile_sum = sum;
    }

  private:
    AMPSCOPE_KERNEL float shifted(const float* scores, std::int64_t seen, AttentionConstants c, float max) {
        const float least = max - c.within;
        std::int64_t reached = 0;
        for (std::int64_t i = 0; i < seen; ++i) reached += scores[i] >= least ? 1 : 0;
        if (reached < 2) return max;
        return max > 0 ? max * c.shift : max < 0 ? 0 : max;
    }
};

/// The sum of a row after a tile, from the parts that were rounded.
AMPSCOPE_INLINE double logsumexp(const AttentionRow& row, double scale, int offset) {
    if (row.sum == 0) return std::numeric_limits<double>::infinity();
    const double used = row.max > no_score ? row.max : 0;
    return used * scale + math::log(row.sum) - offset * 0x1.62e42fefa39efp-1;
}

/// The row's results: O / l, or O where there is no l.
struct AttentionEndKernel {
    AMPSCOPE_KERNEL void run(const float* o, double sum, double* wide, std::int64_t n) {
        const double divisor = sum == 0 ? 1 : sum;
        for (std::int64_t i = 0; i < n; ++i) wide[i] = o[i] / divisor;
    }
};

/// D of a row: gradient and result of n channels.
struct AttentionDotKernel {
    AMPSCOPE_KERNEL void run(const float* grad, const float* out, std::int64_t n, float* result) {
        float sum = 0;
        for (std::int64_t i = 0; i < n; ++i) sum = amp::detail::fma_in_double(grad[i], out[i], sum);
        *result = sum;
    }
};

/// Scores become P, and dP becomes dS, of a row of a tile in backward.
struct AttentionGradientKernel {
    AMPSCOPE_KERNEL void run(float* scores, float* dp, std::int64_t n, std::int64_t seen, float exponent, float lse,
                             float d) {
        const float add = -(lse * log2_e);
        for (std::int64_t i = 0; i < seen; ++i) {
            const float p = power_of_2(amp::detail::fma_in_double(scores[i], exponent, add));
            scores[i] = p;
            dp[i] = p * (dp[i] - d);
        }
        for (std::int64_t i = seen; i < n; ++i) scores[i] = dp[i] = 0;
    }
};

/// total[i] += product[i], in FP32.
struct AddTotalKernel {
    AMPSCOPE_KERNEL void run(float* total, const float* product, std::int64_t n) {
        for (std::int64_t i = 0; i < n; ++i) total[i] += product[i];
    }
};

} // namespace amp::kernels
