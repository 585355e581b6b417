// What replicas send and add, in one source for the processor and for devices.
#pragma once

#include <ampscope/formats/block.h>
#include <ampscope/formats/dot.h>
#include <ampscope/sim/backend/kernels/quantize.h>
#include <ampscope/sim/program/ops/all_reduce.h>

#include <bit>
#include <cmath>

namespace amp::kernels {

/// What replicas make of a gradient before it is added to others, and what becomes of the sum.
struct Transport {
    FormatSpec format;
    AllReduceDivision division = AllReduceDivision::before;
    double number = 1;   ///< of replicas
    bool scaled = false; ///< then x * encode is sent, and the sum is multiplied by decode
    float encode = 1, decode = 1;

    /// The transport of an op; `amax`, the largest magnitude of all replicas, counts if the op is scaled.
    static Transport of(const op::AllReduce& op, float amax) {
        Transport t{.format = op.transport, .division = op.division, .number = static_cast<double>(op.in.size())};
        if (!op.scaled) return t;
        t.scaled = true;
        t.encode = block_scale(ScaleRule::ms_amp, t.format, amax).encode * static_cast<float>(1 / std::sqrt(t.number));
        t.decode = 1 / t.encode / static_cast<float>(t.number);
        return t;
    }
    [[nodiscard]] AMPSCOPE_INLINE Policy policy() const {
        return {.overflow = scaled ? Overflow::saturate_all : Overflow::infinity};
    }
    /// What the gradient is divided by before it is sent.
    [[nodiscard]] AMPSCOPE_INLINE double divisor() const { return division == AllReduceDivision::before ? number : 1; }
    /// NCCL computes 1.0 / N in double, makes a float of it and rounds that to the format.
    [[nodiscard]] AMPSCOPE_INLINE double factor() const { return quantize(format, static_cast<float>(1.0 / number)); }
    [[nodiscard]] AMPSCOPE_INLINE float send(float x) const {
        if (scaled) return quantize(format, x - x == 0 ? x * encode : x - x, policy()); // infinities become NaN, too
        const float sent = quantize(format, x / divisor());
        return division == AllReduceDivision::nccl_avg ? quantize(format, sent * factor()) : sent;
    }
    [[nodiscard]] AMPSCOPE_INLINE float add(float x, float y) const {
        return quantize(format, static_cast<double>(x) + y, policy());
    }
    [[nodiscard]] AMPSCOPE_INLINE bool changes_sums() const { return scaled || division == AllReduceDivision::after; }
    [[nodiscard]] AMPSCOPE_INLINE float receive(float sum) const {
        return scaled ? named(sum * decode) : quantize(format, sum / number);
    }
};

/// A chunk of what the replicas have: `replicas` times `count` numbers, each `stride` after the one before.
struct ReplicaChunk {
    float* numbers;
    std::int64_t stride, replicas, count;
};

/// What a receiver reads of an element of a block.
inline AMPSCOPE_DEVICE float read_element(const BlockScaling& scaling, float q, float factor) {
    return named(static_cast<float>(dequantized(scaling.rule, q, factor)));
}

/// Looks at no part of a message.
struct Unseen {
    AMPSCOPE_DEVICE void upper_scale(float) const {}
    AMPSCOPE_DEVICE void scale(float) const {}
    AMPSCOPE_DEVICE void element(float) const {}
};

/// Replaces numbers by what a receiver reads of them, once they are cast to blocks in one row. `sent` is shown the
/// upper scale, each block's decode scale, and its elements after it.
template <class Sent = Unseen>
inline AMPSCOPE_DEVICE void cast_message(const BlockScaling& scaling, float* x, std::int64_t count, Sent&& sent = {}) {
    const bool keeps_nan = amax_keeps_nan(scaling.rule);
    const float upper = has_upper_scales(scaling.rule) ? scaling.upper_scale(amax_of(x, count, keeps_nan)) : 1;
    sent.upper_scale(upper);
    const std::int64_t width = scaling.columns == 0 ? count : scaling.columns;
    for (std::int64_t begin = 0; begin < count; begin += width) {
        const std::int64_t end = begin + width < count ? begin + width : count;
        const BlockScale scale =
            scaling.scale_of(amax_of(x + begin, end - begin, keeps_nan), scaling.tensor_scale(upper));
        const float factor = scaling.factor(scale.decode, upper);
        sent.scale(scale.decode);
        for (std::int64_t i = begin; i < end; ++i) {
            const float q = round_scaled(scaling.element, scale.scaled(x[i]), scale, {});
            sent.element(q);
            x[i] = read_element(scaling, q, factor);
        }
    }
}

/// The sum of one number of each replica, at once: see ReduceSum.
inline AMPSCOPE_DEVICE float sum_at_once(const Transport& transport, ReduceSum how, const float* x, std::int64_t stride,
                                         std::int64_t replicas) {
    if (replicas == 1) return x[0];
    if (how == ReduceSum::exact) {
        amp::detail::ExactSum sum;
        for (std::int64_t r = 0; r < replicas; ++r) sum.add(unpack(x[r * stride]), unpack(1.0F));
        return sum.rounded(transport.format, transport.policy());
    }
    float sum = x[0];
    for (std::int64_t r = 1; r < replicas; ++r) sum += x[r * stride];
    return quantize(transport.format, sum, transport.policy());
}

/// How a chunk is summed. `casts`: messages are cast to `blocks`; then the chunk must be whole.
struct ChunkReduction {
    Transport transport;
    ReduceSum sum = ReduceSum::pairwise;
    bool casts = false, casts_result = false;
    BlockScaling blocks{};
};

/// Sums a chunk, or if nothing is cast a part of one, where its owner has it.
inline AMPSCOPE_DEVICE void reduce_chunk(const ChunkReduction& how, const ReplicaChunk& chunk,
                                         const Addition* additions, std::int64_t number_of_additions,
                                         std::int64_t owner) {
    const auto of = [&](std::int64_t replica) { return chunk.numbers + replica * chunk.stride; };
    for (std::int64_t a = 0; a < number_of_additions; ++a) {
        float *const from = of(additions[a].from), *const to = of(additions[a].to);
        if (how.casts) cast_message(how.blocks, from, chunk.count);
        for (std::int64_t i = 0; i < chunk.count; ++i) to[i] = how.transport.add(to[i], from[i]);
    }
    if (how.sum != ReduceSum::pairwise) {
        for (std::int64_t r = 0; how.casts && r < chunk.replicas; ++r) cast_message(how.blocks, of(r), chunk.count);
        for (std::int64_t i = 0; i < chunk.count; ++i)
            of(owner)[i] = sum_at_once(how.transport, how.sum, chunk.numbers + i, chunk.stride, chunk.replicas);
    }
    if (how.casts_result) cast_message(how.blocks, of(owner), chunk.count);
}

/// The same of an op with that schedule. One replica alone sends nothing, so nothing is cast.
inline ChunkReduction chunk_reduction(const op::AllReduce& op, const Transport& transport, const Schedule& schedule) {
    ChunkReduction how{.transport = transport, .sum = row_of(op.order).sum};
    if (op.blocks == nullptr || schedule.replicas() == 1) return how;
    how.casts = true;
    how.casts_result = op.gathers && schedule.steps() > schedule.reducing_steps();
    how.blocks = scaling_of(*op.blocks); // a statement of its own: nvcc 13.0.88 crashes where an initializer calls it
    return how;
}

} // namespace amp::kernels
