// Fused attention on the memory of a caller that computes the rest of a network itself.
#pragma once

#include <ampscope/sim/base/tensor.h>
#include <ampscope/sim/program/precision.h>

#include <span>
#include <string>

namespace amp {

/// What a call of fused attention has besides its tensors.
struct EagerAttention {
    std::string options = "fused"; ///< as op::attention_options() reads it; not "plain"
    bool causal = false;
    double scale = 1;              ///< scores are multiplied by it: 1e-30 to 1e30
    Shape mask_shape{};            ///< B x H x Q x K, each of which may be 1; empty: there is no mask
    std::span<const float> mask{}; ///< its elements, in C order
    FormatSpec q = format("fp32"), k = format("fp32"), v = format("fp32"); ///< what the operands are values of
    FormatSpec out = format("fp32");
    FormatSpec gradient = format("fp32");    ///< The gradients of result, q, k and v have it.
    std::vector<Accumulator> accumulators{}; ///< each product has the first that takes its operands; none: FP32 chains
};

/// Computes op::FusedAttention: q and out are B x H x Q x D, k and v are B x G x K x D, lse is B x H x Q, in C order.
/// Throws std::invalid_argument for shapes, options, formats and scales that do not fit, and where no accumulator takes
/// the operands of a product. The result does not depend on `threads`; 0: every core.
void eager_attention(const EagerAttention& how, const Shape& queries, const Shape& keys, std::span<const float> q,
                     std::span<const float> k, std::span<const float> v, std::span<float> out, std::span<float> lse,
                     int threads);

struct AttentionGradients {
    std::span<float> q, k, v;
};
/// Computes op::FusedAttentionBackward after forward: the gradients of q, k and v from that of the result, whose
/// numbers are values of how.gradient. Throws as eager_attention().
void eager_attention_gradients(const EagerAttention& how, const Shape& queries, const Shape& keys,
                               std::span<const float> q, std::span<const float> k, std::span<const float> v,
                               std::span<const float> grad, const AttentionGradients& to, int threads);

} // namespace amp
