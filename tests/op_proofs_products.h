// The definitions of matrix products, sums and casts with scales, against the ops. Chains round at every link, and so
// do the definitions here.
#pragma once

#include "op_bench.h"

namespace amp::test {

/// The value nearest to x in FP32.
inline float single(const Real& x) { return rounded("fp32", x); }

/// The sum starts at +0, and each product is added to it with one rounding to the accumulator's format. Then the bias
/// is added in FP32, and the total rounded to the accumulator's format and to the result's. Two matrices, with one row
/// of biases for both, or one for each.
inline void prove_chain(Tally& tally, const char* accumulate, const char* operand, const char* result, Index n,
                        Index biases) {
    static std::size_t number = 0;
    if (!is_due(number++)) return;
    constexpr std::int64_t batch = 2, m = 7, k = 33;
    Bench b;
    const TensorId x = b.tensor({batch, m, k}, operand), w = b.tensor({batch, n, k}, operand),
                   bias = b.tensor({biases * n}, "fp16"), out = b.tensor({batch, m, n}, result);
    b.run(op::Matmul{.a = x,
                     .b = w,
                     .bias = bias,
                     .out = out,
                     .batch = batch,
                     .m = m,
                     .n = n,
                     .k = k,
                     .transpose_b = true,
                     .arithmetic = {.accumulate = accumulator(accumulate)}},
          {x, w, bias});
    const Reals a = b.values(x), c = b.values(w), d = b.values(bias);
    Reals want;
    for (Index i = 0; i < batch * m; ++i)
        for (Index j = 0; j < n; ++j) {
            const Index matrix = i / m;
            float sum = 0;
            for (Index l = 0; l < k; ++l)
                sum =
                    rounded(accumulate, reference::at(a, i * k + l) * reference::at(c, (matrix * n + j) * k + l) + sum);
            const Real bias_of = reference::at(d, biases == 1 ? j : matrix * n + j);
            want.emplace_back(rounded(accumulate, Real(single(Real(sum) + bias_of))));
        }
    b.expect(tally, out, want, "matmul");
}

/// Operands of FP32 that the product reads as TF32.
inline void prove_operand_mode(Tally& tally, Rounding rounding) {
    constexpr std::int64_t m = 4, n = 5, k = 9;
    Bench b;
    const TensorId x = b.tensor({m, k}, "fp32"), w = b.tensor({k, n}, "fp32"), out = b.tensor({m, n}, "fp32");
    b.run(op::Matmul{.a = x,
                     .b = w,
                     .bias = {},
                     .out = out,
                     .m = m,
                     .n = n,
                     .k = k,
                     .arithmetic = {.operands = format("tf32"), .operand_rounding = rounding}},
          {x, w});
    const auto read = [&](const Real& v) { return Real(rounded("tf32", v, {.rounding = rounding})); };
    const Reals a = b.values(x), c = b.values(w);
    Reals want;
    for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < n; ++j) {
            float sum = 0;
            for (Index l = 0; l < k; ++l)
                sum = single(read(reference::at(a, i * k + l)) * read(reference::at(c, l * n + j)) + sum);
            want.emplace_back(sum);
        }
    b.expect(tally, out, want, "matmul of TF32");
}

inline void prove_op(Of<op::Matmul>, Tally& tally) {
    for (const char* accumulate : {"fp32", "fp16", "bf16", "e5m2", "e6m9"})
        for (const char* operand : {"fp32", "fp16", "e4m3"})
            for (const char* result : {"fp32", "fp16", "bf16"})
                for (const Index biases : {1, 2})
                    for (const Index n : {1, 13}) prove_chain(tally, accumulate, operand, result, n, biases);
    for (const Rounding rounding : {Rounding::nearest_away, Rounding::toward_zero}) prove_operand_mode(tally, rounding);
}

inline void prove_op(Of<op::Reduce>, Tally& tally) {
    constexpr Index batch = 3, rows = 61, columns = 20;
    for (const char* result : proved_formats)
        for (const char* accumulate : {"fp32", "fp16", "bf16"})
            for (const op::ReduceKind kind : {op::ReduceKind::sum, op::ReduceKind::mean}) {
                Bench b;
                const TensorId x = b.tensor({batch, rows, columns}, "fp16"), out = b.tensor({batch, columns}, result);
                b.run(op::Reduce{kind, x, out, batch, format(accumulate)}, {x});
                const Reals values = b.values(x);
                Reals want;
                for (Index j = 0; j < batch * columns; ++j) {
                    float sum = 0;
                    for (Index i = j / columns * rows; i < (j / columns + 1) * rows; ++i)
                        sum = rounded(accumulate, Real(sum) + reference::at(values, columns * i + j % columns));
                    want.push_back(kind == op::ReduceKind::mean ? Real(Real(sum) / rows) : Real(sum));
                }
                b.expect(tally, out, want, "reduce");
            }
}

inline void prove_op(Of<op::ReduceBackward>, Tally& tally) {
    for (const char* result : proved_formats) {
        Bench b;
        const TensorId g = b.tensor({5}, "fp16"), to = b.tensor({20, 5}, result);
        b.run(op::ReduceBackward{g, to, 1.0 / 3}, {g});
        Reals want;
        for (Index i = 0; i < 100; ++i) // as the op's definition says, the product is a double before it is rounded
            want.emplace_back(Real(reference::at(b.values(g), i % 5) * Real(1.0 / 3)).convert_to<double>());
        b.expect(tally, to, want, "reduce_backward");
    }
}

/// A scale, every operation of which is rounded to FP32; test_block proves all rules over all magnitudes.
struct ReferenceScale {
    float encode = 1, decode = 1;
    bool divides = false;

    /// What is stored for x.
    [[nodiscard]] float store(const oracle::Facts& element, float x, Rounding rounding, std::uint32_t random) const {
        const float scaled = single(divides ? Real(x) / decode : Real(x) * encode);
        return rounded(element.name, Real(scaled), {.rounding = rounding, .overflow = Overflow::saturate_all}, random);
    }
};

/// One rule of each kind; `tensor_scale` belongs to NVFP4.
inline ReferenceScale reference_scale(ScaleRule rule, const oracle::Facts& element, float amax, float tensor_scale) {
    const Real max = element.max;
    if (rule == ScaleRule::te) {
        const float s = single(max / amax);
        return {.encode = s, .decode = single(1 / Real(s))};
    }
    if (rule == ScaleRule::deepseek) return {.decode = single(Real(std::max(amax, 1e-4F)) / max), .divides = true};
    if (rule == ScaleRule::mx_floor) {
        const int e = std::ilogb(amax) - std::ilogb(element.max);
        return {.encode = std::ldexp(1.0F, -e), .decode = std::ldexp(1.0F, e)};
    }
    REQUIRE(rule == ScaleRule::nvfp4);
    const float wanted = single(Real(amax) * single(Real(tensor_scale) * single(Real(1) / 6)));
    const float d = rounded("e4m3", Real(wanted), {.overflow = Overflow::saturate_all});
    return {.encode = single(1 / Real(single(Real(d) * single(1 / Real(tensor_scale))))), .decode = d};
}

/// The largest magnitude in a block of height x width elements, whose first is at (top, left).
inline float amax_in(std::span<const float> x, Index columns, Index top, Index left, Index height, Index width) {
    const Index rows = static_cast<Index>(x.size()) / columns;
    float most = 0;
    for (Index i = top; i < std::min(top + height, rows); ++i)
        for (Index j = left; j < std::min(left + width, columns); ++j)
            most = std::max(most, std::fabs(x[static_cast<std::size_t>(i * columns + j)]));
    return most;
}

/// Blocks of a tensor of 5 x 130, scaled by themselves. Stochastic rounding takes its words as of the second of two
/// micro-batches, whose numbers begin at 2^40.
inline void prove_blocks(Tally& tally, const BlockScaling& scaling, Rounding rounding) {
    constexpr Index rows = 5, columns = 130;
    constexpr std::uint32_t stream = 3, step = 9;
    const BlockGrid grid = scaling.grid(rows, columns);
    const oracle::Facts& element = oracle::find(scaling.element.name);
    Bench b;
    const TensorId in = b.tensor({rows, columns}, "bf16"), out = b.tensor({rows, columns}, scaling.element.name),
                   scale = b.tensor({grid.down, grid.across}, "fp32"), upper = b.tensor({}, "fp32");
    b.start({in});
    b.fill(in, 1e-3);
    b.cpu().context = {.seed = 77, .step = step, .micro_batch = 1, .micro_batches = 2};
    const bool two_levels = scaling.rule == ScaleRule::nvfp4;
    b.cpu().run(op::Quantize{.in = in,
                             .out = out,
                             .scale = scale,
                             .upper = two_levels ? upper : TensorId{},
                             .delayed = {},
                             .history = {},
                             .scaling = scaling,
                             .rounding = rounding,
                             .stream = stream});
    const std::span<const float> x = b.cpu()[in];
    const float whole = single(Real(448 * 6) / amax_in(x, columns, 0, 0, rows, columns));
    std::vector<float> want, want_scales;
    for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < columns; ++j) {
            const Index top = i / grid.height * grid.height, left = j / grid.width * grid.width;
            const ReferenceScale s =
                reference_scale(scaling.rule, element, amax_in(x, columns, top, left, grid.height, grid.width), whole);
            if (i == top && j == left) want_scales.push_back(s.decode);
            const auto at = static_cast<std::uint32_t>(i * columns + j);
            const auto words = reference::philox({at / 4, 1U << 6, step, stream}, {77, 0}); // 2^40 / 4 = 2^38
            want.push_back(s.store(element, x[at], rounding, words[at % 4]));
        }
    b.expect_bits(tally, out, want, "quantize");
    b.expect_bits(tally, scale, want_scales, "scale of quantize");
    if (two_levels) b.expect_bits(tally, upper, {amax_in(x, columns, 0, 0, rows, columns)}, "upper scale of quantize");
}

inline void prove_op(Of<op::Quantize>, Tally& tally) {
    for (const Rounding rounding : {Rounding::nearest_even, Rounding::stochastic}) {
        for (const char* element : {"e4m3", "e5m2"})
            prove_blocks(tally, {.element = format(element), .rule = ScaleRule::te}, rounding);
        prove_blocks(tally, {format("e4m3"), 1, 128, ScaleRule::deepseek}, rounding);
        prove_blocks(tally, {format("e4m3"), 2, 64, ScaleRule::deepseek}, rounding);
        for (const char* element : {"e4m3", "e2m3", "e2m1"})
            prove_blocks(tally, {format(element), 1, 32, ScaleRule::mx_floor}, rounding);
        prove_blocks(tally, {format("e2m1"), 1, 16, ScaleRule::nvfp4}, rounding);
    }
    // Delayed scaling: the scale of an earlier step, which lets large numbers saturate; the amax is noted.
    Bench b;
    const TensorId in = b.tensor({20, 50}, "bf16"), out = b.tensor({20, 50}, "e4m3"), scale = b.tensor({1, 1}, "fp32"),
                   delayed = b.tensor({}, "fp32"), history = b.tensor({3}, "fp32");
    b.start({in});
    b.write(delayed, {300.5F});
    b.write(history, {0, 7, 5});
    b.cpu().run(op::Quantize{.in = in,
                             .out = out,
                             .scale = scale,
                             .upper = {},
                             .delayed = delayed,
                             .history = history,
                             .scaling = {.element = format("e4m3")}});
    const ReferenceScale s{.encode = 300.5F, .decode = single(1 / Real(300.5F))};
    std::vector<float> want;
    for (const float x : b.cpu()[in]) want.push_back(s.store(oracle::find("e4m3"), x, Rounding::nearest_even, 0));
    b.expect_bits(tally, out, want, "quantize, delayed");
    b.expect_bits(tally, scale, {s.decode}, "scale of quantize, delayed");
    b.expect_bits(tally, history, {amax_in(b.cpu()[in], 50, 0, 0, 20, 50), 7, 5}, "history of quantize");
}

inline void prove_op(Of<op::Dequantize>, Tally& tally) {
    constexpr Index rows = 5, columns = 130;
    for (const char* result : proved_formats)
        for (const BlockScaling& scaling : {BlockScaling{format("e4m3"), 1, 32, ScaleRule::mx_floor},
                                            BlockScaling{format("e2m1"), 2, 64, ScaleRule::deepseek},
                                            BlockScaling{.element = format("e5m2"), .rule = ScaleRule::te}}) {
            const BlockGrid grid = scaling.grid(rows, columns);
            Bench b;
            const TensorId in = b.tensor({rows, columns}, scaling.element.name),
                           scale = b.tensor({grid.down, grid.across}, "fp32"), out = b.tensor({rows, columns}, result);
            b.run(op::Dequantize{in, scale, {}, out, scaling}, {in, scale});
            const Reals x = b.values(in), scales = b.values(scale);
            Reals want;
            for (Index i = 0; i < rows; ++i)
                for (Index j = 0; j < columns; ++j)
                    want.push_back(reference::at(x, i * columns + j) *
                                   reference::at(scales, i / grid.height * grid.across + j / grid.width));
            b.expect(tally, out, want, "dequantize");
        }
}

/// The scale that follows from an amax, which is not zero.
inline float next_scale(const op::DelayedRule& rule, float amax, float old) {
    const Real margin = ldexp(Real(1), -rule.margin);
    if (rule.ms_amp && std::isinf(amax)) return 1 / old;
    if (rule.ms_amp) { // torch's log2 is rounded to FP32
        const auto log2 = static_cast<float>(std::log2(static_cast<double>(rule.max / amax)));
        return std::exp2(std::floor(log2) - static_cast<float>(rule.margin));
    }
    const float s = std::isinf(amax) ? old : single(rule.max * margin / amax);
    return std::isinf(s) ? std::numeric_limits<float>::max() : s;
}

inline void prove_op(Of<op::UpdateScale>, Tally& tally) {
    const op::DelayedRule rules[] = {{448, 0, false}, {57344, 3, false}, {448, 0, true}, {57344, 2, true}};
    for (const op::DelayedRule& rule : rules)
        for (const bool most_recent : {false, true})
            for (const float newest :
                 {0.0F, 1e-30F, 1e-3F, 0.7F, 1.0F, 3.5F, 448.0F, 0x1.c00004p-12F, 1e30F, HUGE_VALF, 1e-38F}) {
                if (rule.ms_amp && newest == 1e-38F) continue; // infinite before its logarithm is taken
                Bench b;
                const TensorId history = b.tensor({4}, "fp32"), scale = b.tensor({}, "fp32");
                b.start({});
                b.write(history, {newest, 0.3F, 2, 1.5F});
                b.write(scale, {8});
                b.cpu().run(op::UpdateScale{history, scale, rule, most_recent});
                const float amax = most_recent ? newest : std::max(newest, 2.0F);
                const bool casts = newest != 0; // in this step
                b.expect_bits(tally, scale, {casts ? next_scale(rule, amax, 8) : 8}, "update_scale");
                b.expect_bits(tally, history,
                              casts ? std::vector<float>{0, 2, 1.5F, newest} : std::vector<float>{0, 0.3F, 2, 1.5F},
                              "history of update_scale");
            }
}

/// Sylvester's matrix: the sign of row i and column j of n.
inline int sylvester(Index i, Index j, Index n) {
    if (n == 1) return 1;
    const Index half = n / 2;
    return sylvester(i % half, j % half, half) * (i >= half && j >= half ? -1 : 1);
}

/// Rows, or the numbers of each, in groups of 16 or 32, with the signs of TransformerEngine's random Hadamard
/// transform; some are left over.
inline void prove_op(Of<op::Hadamard>, Tally& tally) {
    constexpr int signs[] = {1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1}; // and 1 beyond
    const auto prove = [&](const char* result, Shape shape, Index group, bool along_columns) {
        Bench b;
        const Index rows = shape[0], columns = shape[1], size = along_columns ? columns : rows;
        const TensorId in = b.tensor(shape, "bf16"), out = b.tensor(shape, result);
        b.run(op::Hadamard{.in = in, .out = out, .size = static_cast<int>(group), .along_columns = along_columns},
              {in});
        const Reals x = b.values(in);
        const Real factor = group == 16 ? Real(0.25) : Real(0.1767578125); // 1 / sqrt(32) in BF16
        Reals want;
        for (Index r = 0; r < rows; ++r)
            for (Index c = 0; c < columns; ++c) {
                const Index j = along_columns ? c : r, first = j / group * group;
                Real sum = first + group <= size ? Real(0) : reference::at(x, r * columns + c);
                for (Index i = 0; first + group <= size && i < group; ++i) {
                    const Index from = along_columns ? r * columns + first + i : (first + i) * columns + c;
                    sum += (i < 16 ? signs[i] : 1) * sylvester(i, j - first, group) * reference::at(x, from) * factor;
                }
                want.push_back(sum);
            }
        b.expect(tally, out, want, "hadamard");
    };
    for (const char* result : proved_formats)
        for (const Index group : {16, 32})
            for (const Shape& shape : {Shape{40, 6}, {35, 70}, {6, 40}})
                for (const bool along_columns : {false, true}) prove(result, shape, group, along_columns);
}

} // namespace amp::test
