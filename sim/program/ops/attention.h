// Fused attention: softmax of scaled scores times values, tile by tile, without a matrix of all scores, and its
// gradient (T. Dao, "FlashAttention-2", arXiv:2307.08691, algorithms 1 and 2). The bits depend on the sizes of tiles.
#pragma once

#include <ampscope/sim/program/ops/matmul.h>

#include <optional>
#include <string_view>

namespace amp::op {

/// What can be chosen about fused attention.
struct AttentionOptions {
    std::int64_t row_tile = 64, key_tile = 64; ///< queries and keys of a tile
    std::optional<FormatSpec> p{};             ///< P has it in forward; none: that of q
    std::optional<FormatSpec> ds{};            ///< P and dS have it in backward; none: that of q
    FormatSpec scores = format("fp32"), sums = format("fp32"), o = format("fp32"); ///< S, l and O have these
    std::optional<FormatSpec> steps{}; ///< each result of the softmax has it, as in a framework; none: FP32, fused
    std::optional<int> offset{};       ///< P is multiplied by 2^offset; none: 8 in E4M3, else 0
    bool sums_rounded = false;         ///< l adds up P as it is multiplied, rounded to `p`
    double shift = 0;                  ///< factor of maxima that a row has more than once; 0: maxima stay

    constexpr bool operator==(const AttentionOptions&) const = default;
};
/// Reads "plain" (then the result is empty), or "fused[:ROWSxKEYS][,key=value...]" with the keys p, ds, s, l, o,
/// steps (formats), offset (0 to 120), p-sum (exact, rounded) and max (plain, shifted, shifted:FACTOR; the factor is 2
/// unless it is given). Throws std::invalid_argument, listing what is known.
std::optional<AttentionOptions> attention_options(std::string_view text);
/// The same options in one spelling: keys in the order of the members, without those that say what is so anyway.
std::string canonical_attention(std::string_view text);

/// From which m' c on masked attention subtracts before it multiplies: rounding a smaller one changes P by less than
/// 2^-15.
inline constexpr float far_exponent = 1024;

/// What forward and backward have in common.
struct AttentionArithmetic {
    std::int64_t row_tile = 64, key_tile = 64;
    bool causal = false; ///< query i sees keys 0 ... i
    double scale = 1;    ///< scores are multiplied by it
    FormatSpec scores = format("fp32");
    MatmulArithmetic s_product{};
    bool by_steps = false; ///< whether the softmax is computed by steps, as FusedAttention says
    FormatSpec steps = format("fp32");

    /// log2 e and the scale in one factor, as kernels have it: they compute powers of 2.
    [[nodiscard]] constexpr float exponent() const { return static_cast<float>(scale * 0x1.71547652b82fep+0); }
    /// What dQ and dK are multiplied by to be gradients; by steps dS contains the scale.
    [[nodiscard]] constexpr double factor() const { return by_steps ? 1 : scale; }
    /// Whether a causal mask hides all of a tile, whose first key and last row these are.
    [[nodiscard]] constexpr bool hides(std::int64_t last_row, std::int64_t first_key) const {
        return causal && first_key > last_row;
    }
};

/// out = softmax(scale q k^T + mask) v for each head: q is B x H x Q x D, k and v are B x G x K x D, where G divides H,
/// and a head of k and v serves H / G consecutive heads of q. A mask is B x H x Q x K, each extent 1 if it is the same
/// for all. Where the mask is -infinity, the key is hidden from the query, as by a causal mask: it has no part in a
/// maximum and a sum, and its P is 0 whatever its score is.
///
/// Rows of q are taken `row_tile` at a time, and the keys `key_tile` at a time, in their order; the last tiles may be
/// smaller, and tiles that a mask hides as a whole are left out. All numbers are FP32 and every operation is rounded to
/// nearest-even, unless it is said otherwise. A row begins with m = -infinity, l = 0, O = 0. Each tile
///  1. computes S = q k^T by s_product, rounded to `scores`, and the largest visible S of the row, NaNs apart. With
///     a mask S + mask / scale, each an FP32 number, rounded to `scores`, takes the place of S, as FlashAttention-2 has
///     it for ALiBi: a mask of 0 changes nothing. The quotient of a finite number is at most FLT_MAX and at least
///     -FLT_MAX. With a shift, a maximum that several scores reach, or miss by up to
///     0.001 / scale, is multiplied by it if it is positive, and 0 takes its place if it is negative, so that no P is
///     near 1 (arXiv:2510.04212 and its code). P is then e^-|scale max| at most, for a factor of 2: where that is zero
///     in FP32 or in P's format, so is the row;
///  2. m' = max(m, that maximum), c = exponent(), f = 2^((m - m') c), where 0 takes the place of an m' of -infinity;
///  3. P = 2^(fma(S, c, offset - m' c)), and 0 for keys that are masked. With a mask, where m' c is far_exponent or
///     more, or -far_exponent or less, P = 2^(fma(S - m', c, offset)), where S - m' is rounded first: for a mask
///     of -1e10 in place of -infinity the rounding error of m' c alone would make P infinite. Each power is a double
///     that is rounded once, and then, with sums_rounded, to `p`: kernels add up what is not rounded yet, programs of a
///     framework what is;
///  4. l = l f + the sum of P, which begins at +0 and adds in the order of keys: the sum, the product and their sum are
///     then rounded to `sums`;
///  5. O = O f + P v: P is rounded to `p` and multiplied by o_product, the masked ones, too; the product, O f and their
///     sum are then rounded to `o`. Kernels add the product to O f within the matrix instruction's sum; this op adds as
///     algorithm 1 is written.
/// In the end out = O / l, or O where l = 0, in double, rounded once: a row whose scores all are -infinity has zeros,
/// if v is finite, and so has one that sees no key. lse = m scale + ln(l) - offset ln(2), in double, rounded once;
/// +infinity where l = 0. A score that is NaN or +infinity makes its row NaN, if `scores` has NaN. Where roundings are
/// counted, those of P and of each O, though no tensors, count among those of out.
///
/// `by_steps` computes as a program of a framework does whose tensors all have the format `steps`, such as the code of
/// arXiv:2510.04212: every result is an FP32 number that is rounded to `steps`. S times the scale takes the place of S,
/// and that plus the mask if there is one. A maximum is reached from max - 0.001 on, f = e^(m - m'), P = e^(S - m')
/// 2^offset, where the exponents, each result and, once more, lse = m + (ln(l) - offset ln(2)) are rounded.
struct FusedAttention {
    static constexpr std::string_view name = "fused_attention";
    TensorId q, k, v, out;
    TensorId lse;    ///< B x H x Q in FP32
    TensorId mask{}; ///< added to the scaled scores; it has no gradient
    AttentionArithmetic how{};
    FormatSpec p = format("fp32"), sums = format("fp32"), o = format("fp32");
    FormatSpec ds = format("fp32"); ///< for its gradient
    int offset = 0;                 ///< P is multiplied by 2^offset
    bool sums_rounded = false;
    double shift = 0;
    MatmulArithmetic o_product{};

    /// How far below the maximum scores count as equal to it: before they are scaled, or after, by steps.
    [[nodiscard]] constexpr float within() const {
        return static_cast<float>(how.by_steps ? 0.001 : 0.001 / how.scale);
    }
    [[nodiscard]] auto inputs() const { return std::array{q, k, v, mask}; }
    [[nodiscard]] auto outputs() const { return std::array{out, lse}; }
    [[nodiscard]] auto products() const { return std::array{how.s_product, o_product}; }
    /// Whether all is kept in FP32.
    [[nodiscard]] constexpr bool is_fp32() const {
        const FormatSpec fp32 = format("fp32");
        return how.scores == fp32 && how.steps == fp32 && p == fp32 && sums == fp32 && o == fp32;
    }
};
/// A mask cannot be causal, too.
TensorId fused_attention(Graph& g, TensorId q, TensorId k, TensorId v, double scale, bool causal,
                         const AttentionOptions& options = {}, TensorId mask = {});
void backward(Graph& g, const FusedAttention& op);
void run(Cpu& cpu, const FusedAttention& op);
void run(Cuda& cuda, const FusedAttention& op);

/// The gradients of q, k and v; absent ones are not computed. D, for each row, is the chain of fused multiply-adds of
/// grad_out and out over the channels, from +0. For each head, each tile of keys and then each tile of rows:
///  1. S as in forward, with the mask, P = 2^(fma(S, c, -(lse log2 e))), where log2 e is an FP32 number, and 0 for
///     hidden keys. With a mask, where lse log2 e is far_exponent or more, or -far_exponent or less, exponents above 0
///     count as 0: lse of a row that is masked whole by -1e10 has no digits for ln(l), so that P is 0 or 1;
///  2. dP = grad_out v^T, dS = P (dP - D), and 0 for hidden keys;
///  3. P and dS are rounded to `ds`, which counts once among the roundings of counted(); dV += P^T grad_out,
///     dK += dS^T q, dQ += dS k: each product is added to the total in FP32, which begins at +0. Totals of k and v go
///     over the heads that they serve, one after the other.
/// grad_q = scale dQ, grad_k = scale dK, in double, rounded once; grad_v = dV, rounded once.
///
/// By steps every result is rounded to `steps` again: D, the FP32 sum of rounded products from +0; P = e^(S - lse) and
/// its exponent; dP; dS = (P scale) (dP - D), whose factors are rounded; each product that is added to a total, and the
/// total. Then grad_q = dQ and grad_k = dK.
struct FusedAttentionBackward {
    static constexpr std::string_view name = "fused_attention_backward";
    TensorId q, k, v, out, lse, grad_out;
    TensorId grad_q, grad_k, grad_v;
    TensorId mask{};
    AttentionArithmetic how{};
    FormatSpec ds = format("fp32");
    MatmulArithmetic dp_product{}, dv_product{}, dk_product{}, dq_product{};
    /// The gradient among whose roundings those of P and dS count.
    [[nodiscard]] constexpr TensorId counted() const { return grad_k ? grad_k : grad_v ? grad_v : grad_q; }
    [[nodiscard]] auto inputs() const { return std::array{q, k, v, out, lse, grad_out, mask}; }
    [[nodiscard]] auto outputs() const { return std::array{grad_q, grad_k, grad_v}; }
    [[nodiscard]] auto products() const {
        return std::array{how.s_product, dp_product, dv_product, dk_product, dq_product};
    }
    [[nodiscard]] constexpr bool is_fp32() const {
        return how.scores == format("fp32") && how.steps == format("fp32") && ds == format("fp32");
    }
};
void run(Cpu& cpu, const FusedAttentionBackward& op);
void run(Cuda& cuda, const FusedAttentionBackward& op);

} // namespace amp::op
