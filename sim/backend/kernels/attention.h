// Fused attention: what one row of queries, or a row of a tile, computes besides products.
#pragma once

#include <ampscope/formats/codec.h>
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
inline constexpr double ln_2 = 0x1.62e42fefa39efp-1;

AMPSCOPE_INLINE float power_of_2(float x) { return static_cast<float>(math::exp2(x)); }

AMPSCOPE_CALL inline float rounded_step(const FormatSpec& format, float x) { return quantize(format, x); }

/// An attention that is computed by steps, each of whose results has a format.
struct AttentionSteps {
    bool apart; ///< whether it is
    FormatSpec format;
    float scale;

    explicit AttentionSteps(const op::AttentionArithmetic& how)
        : apart(how.by_steps), format(how.steps), scale(static_cast<float>(how.scale)) {}
    [[nodiscard]] AMPSCOPE_DEVICE float operator()(float x) const { return rounded_step(format, x); }
    [[nodiscard]] AMPSCOPE_DEVICE float exp(float x, double factor = 1) const {
        return (*this)(static_cast<float>(math::exp((*this)(x)) * factor));
    }
};

/// The constants of an op::FusedAttention that its rows read.
struct AttentionConstants {
    float exponent, offset, shift, within;
    AttentionSteps steps;
    bool sums_rounded;
    FormatSpec p;

    explicit AttentionConstants(const op::FusedAttention& op)
        : exponent(op.how.exponent()), offset(static_cast<float>(op.offset)), shift(static_cast<float>(op.shift)),
          within(op.within()), steps(op.how), sums_rounded(op.sums_rounded), p(op.p) {}
};

/// What is known of a row after some tiles.
struct AttentionRow {
    float max = no_score, sum = 0;
    float tile_sum = 0, factor = 1; ///< the last tile's sum of P; what the sum so far is multiplied by
};

/// Steps 1 to 3 for one row of a tile: scores of n keys, of which the first `seen` are visible, become P.
struct AttentionRowKernel {
    AMPSCOPE_KERNEL void run(float* scores, std::int64_t n, std::int64_t seen, const AttentionConstants& c,
                             AttentionRow* row) {
        if (c.steps.apart)
            for (std::int64_t i = 0; i < seen; ++i) scores[i] = c.steps(scores[i] * c.steps.scale);
        float max = no_score;
        for (std::int64_t i = 0; i < seen; ++i) max = scores[i] > max ? scores[i] : max;
        if (c.shift > 0 && max > no_score) max = shifted(scores, seen, c, max);
        const float next = max > row->max ? max : row->max, used = next > no_score ? next : 0;
        if (c.steps.apart) weigh_by_steps(scores, seen, c, row, used);
        else weigh(scores, seen, c, row, used);
        row->max = next;
        float sum = 0;
        if (c.sums_rounded)
            for (std::int64_t i = 0; i < seen; ++i) sum += rounded_step(c.p, scores[i]);
        else
            for (std::int64_t i = 0; i < seen; ++i) sum += scores[i];
        for (std::int64_t i = seen; i < n; ++i) scores[i] = 0;
        row->tile_sum = sum;
    }

  private:
    /// Scores become P.
    AMPSCOPE_KERNEL void weigh(float* scores, std::int64_t seen, const AttentionConstants& c, AttentionRow* row,
                               float used) {
        row->factor = power_of_2((row->max - used) * c.exponent);
        const float add = c.offset - used * c.exponent;
        for (std::int64_t i = 0; i < seen; ++i)
            scores[i] = power_of_2(amp::detail::fma_in_double(scores[i], c.exponent, add));
    }

    AMPSCOPE_KERNEL void weigh_by_steps(float* scores, std::int64_t seen, const AttentionConstants& c,
                                        AttentionRow* row, float used) {
        row->factor = row->max > no_score ? c.steps.exp(row->max - used) : 0; // some formats have no infinity
        const double power = power_of_2(c.offset);
        for (std::int64_t i = 0; i < seen; ++i) scores[i] = c.steps.exp(scores[i] - used, power);
    }

    AMPSCOPE_KERNEL float shifted(const float* scores, std::int64_t seen, const AttentionConstants& c, float max) {
        const float least = c.steps.apart ? c.steps(max - c.within) : max - c.within;
        std::int64_t reached = 0;
        for (std::int64_t i = 0; i < seen; ++i) reached += scores[i] >= least ? 1 : 0;
        if (reached < 2) return max;
        const float moved = max * c.shift;
        return max > 0 ? (c.steps.apart ? c.steps(moved) : moved) : max < 0 ? 0 : max;
    }
};

/// The sum of a row after a tile, from the parts that were rounded.
AMPSCOPE_INLINE double logsumexp(const AttentionRow& row, double scale, int offset, const AttentionSteps& steps) {
    if (row.sum == 0) return std::numeric_limits<double>::infinity();
    const float used = row.max > no_score ? row.max : 0;
    if (steps.apart) return steps(used + steps(static_cast<float>(math::log(row.sum) - offset * ln_2)));
    return used * scale + math::log(row.sum) - offset * ln_2;
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
    AMPSCOPE_KERNEL void run(const float* grad, const float* out, std::int64_t n, const AttentionSteps& steps,
                             float* result) {
        float sum = 0;
        if (steps.apart)
            for (std::int64_t i = 0; i < n; ++i) sum += steps(grad[i] * out[i]);
        else
            for (std::int64_t i = 0; i < n; ++i) sum = amp::detail::fma_in_double(grad[i], out[i], sum);
        *result = steps.apart ? steps(sum) : sum;
    }
};

/// Scores become P, and dP becomes dS, of a row of a tile in backward.
struct AttentionGradientKernel {
    AMPSCOPE_KERNEL void run(float* scores, float* dp, std::int64_t n, std::int64_t seen, float exponent,
                             const AttentionSteps& steps, float lse, float d) {
        if (steps.apart) find_by_steps(scores, dp, seen, steps, lse, d);
        else find(scores, dp, seen, exponent, lse, d);
        for (std::int64_t i = seen; i < n; ++i) scores[i] = dp[i] = 0;
    }

  private:
    AMPSCOPE_KERNEL void find(float* scores, float* dp, std::int64_t seen, float exponent, float lse, float d) {
        const float add = -(lse * log2_e);
        for (std::int64_t i = 0; i < seen; ++i) {
            const float p = power_of_2(amp::detail::fma_in_double(scores[i], exponent, add));
            scores[i] = p;
            dp[i] = p * (dp[i] - d);
        }
    }

    AMPSCOPE_KERNEL void find_by_steps(float* scores, float* dp, std::int64_t seen, const AttentionSteps& steps,
                                       float lse, float d) {
        for (std::int64_t i = 0; i < seen; ++i) {
            scores[i] = steps.exp(steps(scores[i] * steps.scale) - lse);
            dp[i] = steps(steps(scores[i] * steps.scale) * steps(steps(dp[i]) - d));
        }
    }
};

/// total[i] += product[i], in FP32 or by steps.
struct AddTotalKernel {
    AMPSCOPE_KERNEL void run(float* total, const float* product, const AttentionSteps& steps, std::int64_t n) {
        if (steps.apart)
            for (std::int64_t i = 0; i < n; ++i) total[i] = steps(total[i] + steps(product[i]));
        else
            for (std::int64_t i = 0; i < n; ++i) total[i] += product[i];
    }
};

} // namespace amp::kernels
