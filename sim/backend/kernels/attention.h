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

/// How many tiles there are along an axis.
AMPSCOPE_INLINE std::int64_t tiles_of(std::int64_t extent, std::int64_t tile) { return (extent + tile - 1) / tile; }

/// The extents of an attention. Heads of queries are counted over the batch: 0 ... batch * heads - 1.
struct AttentionShape {
    std::int64_t heads = 0, shared = 1; ///< heads of queries, over the batch, and how many of them share a key's head
    std::int64_t in_batch = 1;          ///< heads of queries of one element of the batch
    std::int64_t queries = 0, keys = 0, width = 0;

    AttentionShape(const Shape& q, const Shape& k)
        : heads(q[0] * q[1]), shared(q[1] / k[1]), in_batch(q[1]), queries(q[2]), keys(k[2]), width(q[3]) {}
    /// The first element of a head of queries, and of the head of keys and values that serves it.
    [[nodiscard]] AMPSCOPE_INLINE std::int64_t of_query(std::int64_t head) const { return head * queries * width; }
    [[nodiscard]] AMPSCOPE_INLINE std::int64_t of_key(std::int64_t head) const { return head / shared * keys * width; }
};

/// How many keys of a tile that begins at `first`, `n` of them, query `row` sees.
AMPSCOPE_INLINE std::int64_t visible(bool causal, std::int64_t row, std::int64_t first, std::int64_t n) {
    const std::int64_t seen = row + 1 - first;
    return !causal || seen > n ? n : seen < 0 ? 0 : seen;
}

/// How much is added to scores, and which keys are hidden; without data nothing and none.
struct AttentionMask {
    const float* data = nullptr;
    std::int64_t heads = 1;                                         ///< Heads of queries in an element of the batch.
    std::int64_t of_batch = 0, of_head = 0, of_row = 0, of_key = 0; ///< steps in memory; 0: it is the same for all
    double divisor = 1;                                             ///< the scale, by which the mask is divided
    FormatSpec scores = format("fp32");                             ///< their sums with the mask are rounded to it

    AttentionMask(const float* elements, const Shape& shape, const op::AttentionArithmetic& how,
                  const AttentionShape& of)
        : data(elements), heads(of.in_batch), divisor(how.by_steps ? 1 : how.scale),
          scores(how.by_steps ? how.steps : how.scores) {
        std::int64_t* const steps[] = {&of_batch, &of_head, &of_row, &of_key};
        std::int64_t step = 1;
        for (std::size_t axis = 4; axis-- > 0; step *= shape[axis])
            if (shape[axis] > 1) *steps[axis] = step;
    }
    AttentionMask() = default;

    /// The numbers for a query's keys from `key` on.
    [[nodiscard]] AMPSCOPE_INLINE AttentionMask of(std::int64_t head, std::int64_t row, std::int64_t key) const {
        AttentionMask here = *this;
        if (data != nullptr)
            here.data += head / heads * of_batch + head % heads * of_head + row * of_row + key * of_key;
        return here;
    }
    /// What is added to the score of key i: a finite number of the mask stays finite.
    [[nodiscard]] AMPSCOPE_INLINE float operator[](std::int64_t i) const {
        constexpr double most = std::numeric_limits<float>::max();
        const float x = data[i * of_key];
        const double quotient = x / divisor;
        if (quotient > most) return x <= most ? std::numeric_limits<float>::max() : x;
        if (quotient < -most) return x >= -most ? std::numeric_limits<float>::lowest() : x;
        return static_cast<float>(quotient);
    }
    [[nodiscard]] AMPSCOPE_INLINE bool hides(std::int64_t i) const {
        return data[i * of_key] == -std::numeric_limits<float>::infinity();
    }
    /// Whether it hides all keys of a tile from all its rows.
    [[nodiscard]] AMPSCOPE_INLINE bool hides_tile(std::int64_t head, std::int64_t row, std::int64_t rows,
                                                  std::int64_t key, std::int64_t keys) const {
        if (data == nullptr) return false;
        const std::int64_t end = of_row == 0 ? row + 1 : row + rows; // one row of the mask may stand for all
        for (std::int64_t r = row; r < end; ++r) {
            const AttentionMask here = of(head, r, key);
            for (std::int64_t i = 0; i < keys; ++i)
                if (!here.hides(i)) return false;
        }
        return true;
    }
};

inline constexpr float no_score = -std::numeric_limits<float>::infinity();
/// log2 e, by which a logsumexp becomes a power of 2.
inline constexpr float log2_e = 0x1.715476p+0F;
inline constexpr double ln_2 = 0x1.62e42fefa39efp-1;

/// Whether an exponent, of which FP32 has no more than the first few bits behind the point, is too far from 0 to be
/// subtracted from another after both were multiplied.
AMPSCOPE_INLINE bool is_far(float exponent) { return exponent >= op::far_exponent || exponent <= -op::far_exponent; }

AMPSCOPE_INLINE float power_of_2(float x) { return static_cast<float>(math::exp2(x)); }

AMPSCOPE_CALL inline float rounded_step(const FormatSpec& format, float x) { return quantize(format, x); }

/// Adds the mask to n scores; those of hidden keys become `no_score`.
AMPSCOPE_INLINE void add_mask(const AttentionMask& mask, float* scores, std::int64_t n) {
    if (mask.data == nullptr) return;
    for (std::int64_t i = 0; i < n; ++i)
        scores[i] = mask.hides(i) ? no_score : rounded_step(mask.scores, scores[i] + mask[i]);
}

/// What hidden keys have is 0.
AMPSCOPE_INLINE void hide(const AttentionMask& mask, float* x, std::int64_t n) {
    if (mask.data == nullptr) return;
    for (std::int64_t i = 0; i < n; ++i)
        if (mask.hides(i)) x[i] = 0;
}

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

/// Steps 1 to 3 for one row of a tile: scores of n keys, of which the first `seen` are visible but for those that the
/// mask of the row and the tile hides, become P.
struct AttentionRowKernel {
    AMPSCOPE_KERNEL void run(float* scores, std::int64_t n, std::int64_t seen, const AttentionMask& mask,
                             const AttentionConstants& c, AttentionRow* row) {
        if (c.steps.apart)
            for (std::int64_t i = 0; i < seen; ++i) scores[i] = c.steps(scores[i] * c.steps.scale);
        add_mask(mask, scores, seen);
        float max = no_score;
        for (std::int64_t i = 0; i < seen; ++i) max = scores[i] > max ? scores[i] : max;
        if (c.shift > 0 && max > no_score) max = shifted(scores, seen, c, max);
        const float next = max > row->max ? max : row->max, used = next > no_score ? next : 0;
        if (c.steps.apart) weigh_by_steps(scores, seen, c, row, used);
        else weigh(scores, seen, c, row, used, mask.data != nullptr);
        hide(mask, scores, seen);
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
                               float used, bool masked) {
        row->factor = power_of_2((row->max - used) * c.exponent);
        if (masked && is_far(used * c.exponent)) {
            for (std::int64_t i = 0; i < seen; ++i)
                scores[i] = power_of_2(amp::detail::fma_in_double(scores[i] - used, c.exponent, c.offset));
            return;
        }
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
    AMPSCOPE_KERNEL void run(float* scores, float* dp, std::int64_t n, std::int64_t seen, const AttentionMask& mask,
                             float exponent, const AttentionSteps& steps, float lse, float d) {
        if (steps.apart)
            for (std::int64_t i = 0; i < seen; ++i) scores[i] = steps(scores[i] * steps.scale);
        add_mask(mask, scores, seen);
        if (steps.apart) find_by_steps(scores, dp, seen, steps, lse, d);
        else find(scores, dp, seen, exponent, lse, d, mask.data != nullptr);
        hide(mask, scores, seen);
        hide(mask, dp, seen);
        for (std::int64_t i = seen; i < n; ++i) scores[i] = dp[i] = 0;
    }

  private:
    AMPSCOPE_KERNEL void find(float* scores, float* dp, std::int64_t seen, float exponent, float lse, float d,
                              bool masked) {
        const float add = -(lse * log2_e);
        const bool ends = masked && is_far(add);
        for (std::int64_t i = 0; i < seen; ++i) {
            const float power = amp::detail::fma_in_double(scores[i], exponent, add);
            const float p = power_of_2(ends && power > 0 ? 0 : power);
            scores[i] = p;
            dp[i] = p * (dp[i] - d);
        }
    }

    AMPSCOPE_KERNEL void find_by_steps(float* scores, float* dp, std::int64_t seen, const AttentionSteps& steps,
                                       float lse, float d) {
        for (std::int64_t i = 0; i < seen; ++i) {
            scores[i] = steps.exp(scores[i] - lse);
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
