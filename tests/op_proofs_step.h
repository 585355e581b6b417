// The definitions of the ops between backward and the optimizer, against the ops: what gradients begin with, how those
// of micro-batches and replicas are added, the search for infinities and NaNs, unscaling, norms and clipping.
#pragma once

#include "op_bench.h"

#include <cfloat>
#include <cmath>

namespace amp::test {

inline void prove_op(Of<op::LossGradient>, Tally& tally) {
    for (const char* result : proved_formats)
        for (const double scale : {1.0, 65536.0, 0x1p-30, 1e5, 3.3, 1.0 / 3, 0x1p120})
            for (const int micro_batches : {1, 2, 3, 7}) {
                Bench b;
                const TensorId out = b.tensor({}, result);
                b.start({});
                b.cpu().context.loss_scale = scale;
                b.cpu().context.micro_batches = micro_batches;
                b.cpu().run(op::LossGradient{out});
                const float stored = rounded(result, Real(scale)); // infinite, or NaN in E4M3, if it is too large
                if (std::isfinite(stored)) b.expect(tally, out, {Real(stored) / micro_batches}, "loss_gradient");
                else b.expect_bits(tally, out, {stored}, "loss_gradient");
            }
}

/// Three micro-batches of each of two replicas: the first is stored, and the others are added one by one.
inline void prove_op(Of<op::AccumulateGradient>, Tally& tally) {
    for (const char* result : proved_formats)
        for (const char* operand : {"fp32", "fp16"}) {
            Bench b;
            const TensorId in = b.tensor({100}, operand);
            const std::vector<TensorId> totals = {b.tensor({100}, result), b.tensor({100}, result)};
            b.start({});
            for (std::size_t replica = 0; replica < totals.size(); ++replica) {
                b.cpu().context.replica = static_cast<int>(replica);
                std::vector<float> want;
                for (const int micro_batch : {0, 1, 2}) {
                    b.fill(in, 1);
                    b.cpu().context.micro_batch = micro_batch;
                    b.cpu().run(op::AccumulateGradient{in, totals});
                    const Reals x = b.values(in);
                    want.resize(x.size());
                    for (std::size_t i = 0; i < x.size(); ++i)
                        want[i] = rounded(result, micro_batch == 0 ? x[i] : Real(x[i] + want[i]));
                }
                b.expect_bits(tally, totals[replica], want, "accumulate_gradient");
            }
        }
}

/// Three replicas of ten elements: what is sent is rounded, and so is every sum. test_collective.cpp has the rest.
inline void prove_op(Of<op::AllReduce>, Tally& tally) {
    constexpr std::size_t replicas = 3, count = 10;
    for (const char* transport : {"fp32", "bf16", "fp16"})
        for (const AllReduceOrder order : {AllReduceOrder::ring, AllReduceOrder::tree})
            for (const AllReduceDivision division : {AllReduceDivision::before, AllReduceDivision::after}) {
                Bench b;
                const TensorId x = b.tensor({count}, "fp32"), y = b.tensor({count}, "fp32"),
                               z = b.tensor({count}, "fp32"), out = b.tensor({count}, "fp32");
                b.run(op::AllReduce{{x, y, z}, out, order, division, format(transport)}, {x, y, z});
                Reals want;
                for (std::size_t i = 0; i < count; ++i) {
                    Real sent[replicas];
                    std::size_t r = 0;
                    for (const TensorId id : {x, y, z}) {
                        const Real v = b.values(id)[i];
                        sent[r++] = rounded(transport, division == AllReduceDivision::before ? Real(v / 3) : v);
                    }
                    // Chunks of 4, 3 and 3 elements: chunk c is summed from replica c + 1 on.
                    const std::size_t chunk = i < 4 ? 0 : (i - 1) / 3,
                                      first = order == AllReduceOrder::ring ? (chunk + 1) % 3 : 0;
                    float sum = rounded(transport, sent[first] + sent[(first + 1) % 3]);
                    sum = rounded(transport, Real(sum) + sent[(first + 2) % 3]);
                    want.emplace_back(division == AllReduceDivision::after ? rounded(transport, Real(sum) / 3) : sum);
                }
                b.expect(tally, out, want, "all_reduce");
            }
}

/// An infinity or a NaN at each place of three gradients, and the largest and smallest numbers in their place. What was
/// found stays found.
inline void prove_op(Of<op::CheckFinite>, Tally& tally) {
    Bench b;
    const std::vector<TensorId> gradients = {b.tensor({1}, "fp32"), b.tensor({70}, "fp32"), b.tensor({13, 3}, "fp32")};
    b.start({});
    for (const TensorId id : gradients) b.fill(id, 1);
    const auto expect = [&](bool before, bool found, TensorId at, std::size_t i) {
        b.cpu().found_inf = before;
        b.cpu().run(op::CheckFinite{gradients});
        tally.expect(b.cpu().found_inf, found,
                     [&] { return fmt::format("check_finite, tensor {} [{}]", at.index, i); });
    };
    for (const TensorId id : gradients)
        for (std::size_t i = 0; i < b.cpu()[id].size(); ++i) {
            const float kept = b.cpu()[id][i];
            for (const float x : {HUGE_VALF, -HUGE_VALF, std::nanf(""), FLT_MAX, -FLT_MAX, 0x1p-149F, 0.0F}) {
                b.cpu()[id][i] = x;
                expect(false, !std::isfinite(x), id, i);
            }
            b.cpu()[id][i] = kept;
            expect(true, true, id, i);
        }
}

inline void prove_op(Of<op::Unscale>, Tally& tally) {
    for (const char* name : proved_formats)
        for (const UnscaleRule rule : {UnscaleRule::reciprocal, UnscaleRule::divide})
            for (const double scale : {1.0, 2.0, 65536.0, 0x1p-20, 3.0, 1e5, 7.3}) {
                Bench b;
                const TensorId gradient = b.tensor({100}, name);
                b.start({gradient});
                if (scale > 1) b.fill(gradient, 60); // at most 360, which E4M3 holds
                Reals want = b.values(gradient);
                const Real divisor = rounded("fp32", Real(scale)), factor = rounded("fp32", 1 / Real(scale));
                for (Real& x : want) x = rule == UnscaleRule::divide ? Real(x / divisor) : Real(x * factor);
                b.cpu().context.unscale_by = scale;
                b.cpu().run(op::Unscale{gradient, rule});
                b.expect(tally, gradient, want, "unscale");
            }
}

/// The norm of each gradient is rounded to that gradient's format, the norm of these norms to the result's.
inline void prove_op(Of<op::GlobalNorm>, Tally& tally) {
    for (const char* result : proved_formats)
        for (const char* name : {"fp32", "fp16", "bf16"})
            for (const double deviation : {1e-4, 1e-3, 1e-2, 0.1, 1.0, 5.0, 30.0}) {
                Bench b;
                const std::vector<TensorId> gradients = {b.tensor({50}, name), b.tensor({1}, name),
                                                         b.tensor({7, 9}, "fp32")};
                const TensorId norm = b.tensor({}, result);
                b.start({});
                Real total = 0;
                for (const TensorId id : gradients) {
                    b.fill(id, deviation);
                    Real squares = 0;
                    for (const Real& x : b.values(id)) squares += x * x;
                    const Real own = rounded(b.cpu().info(id).format.name, sqrt(squares));
                    total += own * own;
                }
                b.cpu().run(op::GlobalNorm{gradients, norm});
                b.expect(tally, norm, {sqrt(total)}, "global_norm");
            }
}

/// torch divides by taking the reciprocal of a tensor, and then multiplies by the number. Every operation is done in
/// FP32 and rounded to the type of the norm.
inline float reference_clip_factor(const char* name, const Real& norm, double max_norm) {
    const auto store = [&](const Real& x) { // the reciprocal of a small norm overflows FP16
        return isinf(x) ? x : Real(rounded(name, Real(rounded("fp32", x))));
    };
    const Real sum = store(norm + rounded("fp32", Real(1e-6))), factor = store(store(1 / sum) * Real(max_norm));
    return factor > 1 ? 1.0F : factor.convert_to<float>();
}

inline void prove_op(Of<op::Clip>, Tally& tally) {
    for (const char* name : {"fp32", "fp16", "bf16"})
        for (const char* gradient_format : proved_formats)
            for (const double max_norm : {0.25, 1.0, 3.0}) // values of FP32
                for (const double norm_size : {1e-3, 0.1, 1.0, 40.0}) {
                    Bench b;
                    const TensorId norm = b.tensor({}, name), gradient = b.tensor({30}, gradient_format);
                    b.start({norm, gradient});
                    b.fill(norm, norm_size);
                    b.cpu()[norm][0] = std::fabs(b.cpu()[norm][0]);
                    Reals want = b.values(gradient);
                    const Real factor = reference_clip_factor(name, b.values(norm)[0], max_norm);
                    for (Real& x : want) x *= factor;
                    b.cpu().run(op::Clip{norm, gradient, max_norm});
                    b.expect(tally, gradient, want, "clip");
                }
    // An infinite norm clips to zero and leaves NaN of infinities; a NaN makes everything NaN.
    Bench b;
    const TensorId norm = b.tensor({}, "fp32"), gradient = b.tensor({3}, "fp32");
    const float nan = std::bit_cast<float>(0x7fc00000);
    b.start({});
    for (const float x : {HUGE_VALF, nan}) {
        b.write(norm, {x});
        b.write(gradient, {1, HUGE_VALF, -2});
        b.cpu().run(op::Clip{norm, gradient, 1});
        const float others = std::isnan(x) ? nan : 0;
        b.expect_bits(tally, gradient, {others, nan, others}, "clip");
    }
}

/// torch.lerp: from the nearer end, every operation in FP32.
inline void prove_op(Of<op::Lerp>, Tally& tally) {
    const auto single = [](const Real& x) { return Real(rounded("fp32", x)); };
    for (const double weight : {0.05, 0.5, 0.95})
        for (const bool contract : {false, true})
            prove_map(
                tally, "lerp", 2,
                [&](const std::vector<TensorId>& in, TensorId out) {
                    return op::Lerp{in[0], in[1], out, weight, contract};
                },
                [&](const Real& a, const Real& b) {
                    const Real w = single(Real(weight)), difference = single(b - a);
                    const Real product = (w < 0.5 ? w : single(w - 1)) * difference;
                    return single((contract ? product : single(product)) + (w < 0.5 ? a : b));
                });
    Bench b;
    const TensorId x = b.tensor({300}, "bf16"), y = b.tensor({300}, "bf16"), out = b.tensor({300}, "fp32");
    b.start({x, y});
    for (const int t : {1, 2, 3, 1000}) {
        b.cpu().context.update = t;
        b.cpu().run(op::Lerp{x, y, out, 0.9, false, -0.8});
        const Real w = single(Real(0.9) * pow(Real(t), Real(-0.8)));
        Reals want;
        const Reals from = b.values(x), to = b.values(y);
        for (std::size_t i = 0; i < from.size(); ++i) {
            const Real difference = single(to[i] - from[i]);
            want.push_back(w < 0.5 ? single(w * difference) + from[i] : single(single(w - 1) * difference) + to[i]);
        }
        b.expect(tally, out, want, fmt::format("lerp by 0.9 * {}^-0.8", t));
    }
}

inline void prove_op(Of<op::Normalize>, Tally& tally) {
    for (const char* name : {"fp32", "bf16"})
        for (const char* result : proved_formats)
            for (const auto& [least, overflows] : {std::pair{1e-7, false}, {1e3, false}, {1e-7, true}}) {
                Bench b;
                const TensorId in = b.tensor({200}, "bf16"), norm = b.tensor({}, name), out = b.tensor({200}, result);
                b.start({in, norm});
                b.cpu()[norm][0] = std::fabs(b.cpu()[norm][0]);
                const Real divisor = std::max(b.values(norm)[0], Real(rounded(name, Real(least))));
                Reals want;
                for (const Real& x : b.values(in)) want.emplace_back(rounded("fp32", Real(x / divisor)));
                b.cpu().run(op::Normalize{in, norm, out, least, overflows});
                b.expect(tally, out, want, "normalize");
                for (const float large : {0x1.fep63F, 0x1p64F, 0x1p100F}) {
                    b.cpu()[norm][0] = large;
                    Reals scaled;
                    for (const Real& x : b.values(in))
                        scaled.emplace_back(overflows && large >= 0x1p64F ? Real(0) : Real(x / Real(large)));
                    b.cpu().run(op::Normalize{in, norm, out, least, overflows});
                    b.expect(tally, out, scaled, "normalize by a large norm");
                }
            }
    for (const char* name : {"fp32", "bf16"})
        for (const double least : {1e-7, 0.1, 1e3}) {
            Bench b;
            const TensorId in = b.tensor({200}, "bf16"), norm = b.tensor({}, name), out = b.tensor({200}, "bf16");
            b.start({in, norm});
            const Real sum = b.values(norm)[0] + Real(rounded("fp32", Real(least)));
            const Real divisor = rounded(name, Real(rounded("fp32", sum)));
            Reals want;
            for (const Real& x : b.values(in)) want.emplace_back(rounded("fp32", Real(x / divisor)));
            b.cpu().run(op::Normalize{in, norm, out, least, false, true});
            b.expect(tally, out, want, "normalize by a sum");
        }
}

/// A mean is the square of a norm, divided.
inline void prove_op(Of<op::MeanSquare>, Tally& tally) {
    for (const char* result : proved_formats)
        for (const bool of_columns : {false, true})
            for (const auto& [rows, columns] : {std::pair{1, 1}, {3, 50}, {50, 3}, {17, 33}, {2, 1100}, {1100, 2}}) {
                Bench b;
                const TensorId in = b.tensor({rows, columns}, "fp16"),
                               out = b.tensor({of_columns ? columns : rows}, result);
                b.start({});
                b.fill(in, 0.25); // so that 1,100 squares add up to what E4M3 holds
                b.cpu().run(op::MeanSquare{in, out, of_columns});
                Reals sums(static_cast<std::size_t>(of_columns ? columns : rows)), want;
                const Reals x = b.values(in);
                for (int i = 0; i < rows; ++i)
                    for (int j = 0; j < columns; ++j) {
                        const Real& value = x[static_cast<std::size_t>(i * columns + j)];
                        sums[static_cast<std::size_t>(of_columns ? j : i)] += value * value;
                    }
                for (const Real& sum : sums) {
                    const Real norm = rounded(result, Real(sqrt(sum))), square = rounded("fp32", Real(norm * norm));
                    const Real stored = rounded(result, square), mean = stored / Real(of_columns ? rows : columns);
                    want.emplace_back(rounded("fp32", mean));
                }
                b.expect(tally, out, want, "mean_square");
            }
}

inline void prove_op(Of<op::InverseRoot>, Tally& tally) {
    for (const char* name : {"fp32", "bf16", "fp16"})
        for (const double least : {0x1p-20, 0.3}) { // 0.3 is no number of these formats
            Bench b;
            const TensorId in = b.tensor({300}, name), out = b.tensor({300}, name);
            b.start({in});
            for (float& x : b.cpu()[in]) x = std::fabs(x);
            b.cpu()[in][7] = 0;
            const Real bound = rounded(name, Real(least));
            Reals want;
            for (const Real& x : b.values(in)) {
                const Real root = rounded("fp32", Real(sqrt(std::max(x, bound))));
                want.emplace_back(rounded("fp32", Real(1 / root)));
            }
            b.cpu().run(op::InverseRoot{in, out, least});
            b.expect(tally, out, want, "inverse_root");
        }
}

inline void prove_op(Of<op::AddScaled>, Tally& tally) {
    const auto single = [](const Real& x) { return Real(rounded("fp32", x)); };
    prove_map(
        tally, "add_scaled", 2,
        [](const std::vector<TensorId>& in, TensorId out) {
            return op::AddScaled{in[0], in[1], out, 2.0315, -4.775};
        },
        [&](const Real& product, const Real& addend) {
            return single(single(single(Real(2.0315)) * product) + single(single(Real(-4.775)) * addend));
        });
}

} // namespace amp::test
