// The definitions of element-wise ops, activations, softmax, norms and losses, with their gradients, against the ops.
#pragma once

#include "op_bench.h"

namespace amp::test {

inline void prove_op(Of<op::Add>, Tally& tally) {
    prove_map(
        tally, "add", 2,
        [](const auto& in, TensorId out) {
            return op::Add{in[0], in[1], out};
        },
        [](const Real& x, const Real& y) { return Real(x + y); });
}

inline void prove_op(Of<op::Mul>, Tally& tally) {
    prove_map(
        tally, "mul", 2,
        [](const auto& in, TensorId out) {
            return op::Mul{in[0], in[1], out};
        },
        [](const Real& x, const Real& y) { return Real(x * y); });
}

inline void prove_op(Of<op::Scale>, Tally& tally) {
    prove_map(
        tally, "scale", 1,
        [](const auto& in, TensorId out) {
            return op::Scale{in[0], out, 0x1.8p-9};
        },
        [](const Real& x, const Real&) { return Real(x * 3 / 1024); });
    prove_map(
        tally, "scale in FP32", 1,
        [](const auto& in, TensorId out) {
            return op::Scale{in[0], out, -4.775, true};
        },
        [](const Real& x, const Real&) { return Real(rounded("fp32", Real(x * rounded("fp32", Real(-4.775))))); });
}

inline void prove_op(Of<op::Cast>, Tally& tally) {
    prove_map(
        tally, "cast", 1,
        [](const auto& in, TensorId out) {
            return op::Cast{in[0], out};
        },
        [](const Real& x, const Real&) { return x; });
}

/// In training and outside it, in the second of two replicas and the third of three micro-batches.
inline void prove_op(Of<op::Dropout>, Tally& tally) {
    constexpr std::uint64_t count = 500;
    constexpr std::uint32_t stream = 5, step = 7;
    for (const char* result : proved_formats)
        for (const double probability : {0.1, 0.25, 0.5})
            for (const bool training : {true, false}) {
                Bench b;
                const TensorId in = b.tensor({count}, "fp16"), out = b.tensor({count}, result);
                b.start({in});
                b.cpu().context = {.seed = 0x0123456789abcdef,
                                   .step = step,
                                   .replica = 1,
                                   .replicas = 2,
                                   .micro_batch = 2,
                                   .micro_batches = 3,
                                   .training = training};
                b.cpu().run(op::Dropout{in, out, probability, stream});
                // Ties are frequent, as in 9 / 0.9, so that the roundings to double show.
                const double kept_share = Real(1 - Real(probability)).convert_to<double>();
                const double factor = Real(1 / Real(kept_share)).convert_to<double>();
                Reals want = b.values(in);
                for (std::uint64_t i = 0; i < count && training; ++i) {
                    const std::uint64_t at = 5 * count + i; // five parts come before this one
                    const auto words = reference::philox({static_cast<std::uint32_t>(at / 4), 0, step, stream},
                                                         {0x89abcdef, 0x01234567});
                    const bool kept = Real(words[at % 4]) >= Real(probability) * Real(0x1p32);
                    want[i] = kept ? Real(Real(want[i] * factor).convert_to<double>()) : Real(0);
                }
                b.expect(tally, out, want, "dropout");
            }
}

/// All activations: each row of reference::activations.
inline void prove_op(Of<op::Activation>, Tally& tally) {
    for (const reference::ActivationRow& row : reference::activations) {
        REQUIRE_MESSAGE((row.f != nullptr), "reference_ops.h lacks the last rows of activations");
        prove_map(
            tally, op::activation_names[static_cast<std::size_t>(row.kind)].data(), 1,
            [&](const auto& in, TensorId out) {
                return op::Activation{row.kind, in[0], out};
            },
            [&](const Real& x, const Real&) { return row.f(x); });
    }
}

inline Real derivative(Real (*f)(const Real&), const Real& x) {
    const Real h = 1e-15; // gives an error of h^2
    return (f(x + h) - f(x - h)) / (2 * h);
}

inline void prove_op(Of<op::ActivationBackward>, Tally& tally) {
    for (const reference::ActivationRow& row : reference::activations)
        prove_map(
            tally, op::activation_names[static_cast<std::size_t>(row.kind)].data(), 2,
            [&](const auto& in, TensorId out) {
                return op::ActivationBackward{row.kind, in[0], in[1], out};
            },
            [&](const Real& x, const Real& g) {
                if (row.kind == op::ActivationKind::relu) return x > 0 ? g : Real(0);
                // x is the op's result here
                if (row.kind == op::ActivationKind::tanh) return Real(g * (1 - x * x));
                if (row.kind == op::ActivationKind::sigmoid) return Real(g * x * (1 - x));
                return Real(g * derivative(row.f, x));
            });
}

inline void prove_op(Of<op::Softmax>, Tally& tally) {
    for (const bool causal : {false, true})
        for (const char* result : proved_formats) {
            Bench b;
            const TensorId in = b.tensor({3, 37, 37}, "bf16"), out = b.tensor({3, 37, 37}, result);
            b.run(op::Softmax{in, out, causal}, {in});
            b.expect(tally, out, reference::softmax(b.values(in), 37, causal), "softmax");
        }
}

inline void prove_op(Of<op::SoftmaxBackward>, Tally& tally) {
    for (const bool causal : {false, true})
        for (const char* result : proved_formats) {
            Bench b;
            const TensorId y = b.tensor({3, 37, 37}, "fp16"), g = b.tensor({3, 37, 37}, "fp16"),
                           to = b.tensor({3, 37, 37}, result);
            b.run(op::SoftmaxBackward{y, g, to, causal}, {y, g});
            Reals want = b.values(y);
            const Reals grad = b.values(g);
            for (std::size_t row = 0; row < want.size() / 37; ++row) {
                const std::size_t known = causal ? row % 37 + 1 : 37;
                Real sum = 0;
                for (std::size_t j = 0; j < known; ++j) sum += want[row * 37 + j] * grad[row * 37 + j];
                for (std::size_t j = 0; j < 37; ++j)
                    want[row * 37 + j] *= j < known ? Real(grad[row * 37 + j] - sum) : Real(0);
            }
            b.expect(tally, to, want, "softmax_backward");
        }
}

/// Both directions, at positions up to 4,000.
inline void prove_op(Of<op::Rope>, Tally& tally) {
    std::size_t number = 0;
    for (const auto& [tokens, width, theta] :
         {std::tuple<Index, Index, double>{4001, 2, 10000}, {300, 10, 10000}, {40, 64, 500000}, {7, 6, 1}}) {
        const std::vector<reference::Rotation> rotations = reference::rotations(tokens, width, Real(theta));
        for (const bool inverse : {false, true})
            for (const char* result : proved_formats) {
                if (!is_due(number++)) continue;
                Bench b;
                const Shape shape{2, tokens, width};
                const TensorId in = b.tensor(shape, "fp16"), out = b.tensor(shape, result);
                b.run(op::Rope{in, out, theta, inverse}, {in});
                b.expect(tally, out, reference::rope(b.values(in), rotations, width, inverse), "rope");
            }
    }
}

/// Samples of groups of channels, more than the 32 rows that backward adds up at once.
struct GroupedRows {
    std::int64_t samples, groups, channels, positions;
    [[nodiscard]] Shape shape() const { return {samples * groups, channels / groups * positions}; }
};
inline constexpr GroupedRows grouped_rows[] = {{15, 3, 6, 7}, {9, 4, 4, 21}, {35, 1, 5, 3}, {20, 2, 10, 1}};

inline void prove_op(Of<op::Norm>, Tally& tally) {
    constexpr std::int64_t rows = 70, n = 19;
    for (const op::NormKind kind : {op::NormKind::layer, op::NormKind::rms})
        for (const char* result : proved_formats) {
            const bool centers = kind == op::NormKind::layer;
            Bench b;
            const TensorId in = b.tensor({rows, n}, "fp16"), w = b.tensor({n}, "fp32"),
                           bias = centers ? b.tensor({n}, "fp32") : TensorId{}, out = b.tensor({rows, n}, result);
            if (centers) b.run(op::Norm{kind, in, w, bias, out, 1e-5}, {in, w, bias});
            else b.run(op::Norm{kind, in, w, bias, out, 1e-5}, {in, w});
            b.expect(tally, out,
                     reference::norm(b.values(in), b.values(w), centers ? b.values(bias) : Reals{}, 1e-5, centers),
                     "norm");
        }
    for (const GroupedRows& c : grouped_rows)
        for (const char* result : proved_formats) {
            Bench b;
            const TensorId in = b.tensor(c.shape(), "fp16"), w = b.tensor({c.channels}, "fp32"),
                           bias = b.tensor({c.channels}, "fp32"), out = b.tensor(c.shape(), result);
            b.run(op::Norm{op::NormKind::layer, in, w, bias, out, 1e-5, {c.groups, c.positions}}, {in, w, bias});
            b.expect(
                tally, out,
                reference::group_norm(b.values(in), b.values(w), b.values(bias), c.groups, c.positions, Real(1e-5)),
                "group norm");
        }
}

/// The gradients of a norm: of the operand, by the textbook's formula; of weight, the sum of g y, where y is the norm
/// without weight; of bias, the sum of g.
struct NormGradients {
    Reals x, weight, bias;
};
inline NormGradients norm_gradients(const Reals& x, const Reals& weight, const Reals& grad, const Real& eps,
                                    bool centers) {
    const std::size_t n = weight.size();
    const Reals y = reference::norm(x, Reals(n, Real(1)), {}, eps, centers);
    NormGradients want{.x = {}, .weight = Reals(n, Real(0)), .bias = Reals(n, Real(0))};
    for (std::size_t r = 0; r < x.size() / n; ++r) {
        Real mean = 0, along = 0, moment = 0, center = 0;
        for (std::size_t j = 0; j < n; ++j) {
            const Real d = grad[r * n + j] * weight[j];
            mean += d / n;
            along += d * y[r * n + j] / n;
            center += x[r * n + j] / n;
            want.weight[j] += grad[r * n + j] * y[r * n + j];
            want.bias[j] += grad[r * n + j];
        }
        for (std::size_t j = 0; j < n; ++j) {
            const Real d = x[r * n + j] - (centers ? center : Real(0));
            moment += d * d / n;
        }
        for (std::size_t j = 0; j < n; ++j)
            want.x.push_back((grad[r * n + j] * weight[j] - (centers ? mean : Real(0)) - y[r * n + j] * along) /
                             sqrt(moment + eps));
    }
    return want;
}

/// Of each group as of a row with a weight for each number; those of a channel are added up.
inline NormGradients group_norm_gradients(const Reals& x, const Reals& weight, const Reals& grad,
                                          const GroupedRows& c) {
    NormGradients want{.x = {}, .weight = Reals(weight.size(), Real(0)), .bias = Reals(weight.size(), Real(0))};
    for (Index r = 0; r < c.samples * c.groups; ++r) {
        const reference::GroupRow row = reference::group_row(x, weight, {}, r, c.groups, c.positions);
        const Reals g = reference::group_row(grad, weight, {}, r, c.groups, c.positions).x;
        const NormGradients of = norm_gradients(row.x, row.weight, g, Real(1e-5), true);
        want.x.insert(want.x.end(), of.x.begin(), of.x.end());
        for (std::size_t i = 0; i < g.size(); ++i) {
            const Index channel = r % c.groups * (c.channels / c.groups) + static_cast<Index>(i) / c.positions;
            want.weight[static_cast<std::size_t>(channel)] += of.weight[i];
            want.bias[static_cast<std::size_t>(channel)] += of.bias[i];
        }
    }
    return want;
}

inline void prove_op(Of<op::NormBackward>, Tally& tally) {
    constexpr std::int64_t rows = 70, n = 19;
    for (const op::NormKind kind : {op::NormKind::layer, op::NormKind::rms})
        for (const char* result : proved_formats) {
            const bool centers = kind == op::NormKind::layer;
            Bench b;
            const TensorId x = b.tensor({rows, n}, "fp16"), w = b.tensor({n}, "fp32"), g = b.tensor({rows, n}, "fp16");
            const TensorId to_x = b.tensor({rows, n}, result), to_w = b.tensor({n}, result),
                           to_b = centers ? b.tensor({n}, result) : TensorId{};
            b.run(op::NormBackward{kind, x, w, g, to_x, to_w, to_b, 1e-5}, {x, w, g});
            const NormGradients want = norm_gradients(b.values(x), b.values(w), b.values(g), 1e-5, centers);
            b.expect(tally, to_x, want.x, "norm_backward x");
            b.expect(tally, to_w, want.weight, "norm_backward weight");
            if (centers) b.expect(tally, to_b, want.bias, "norm_backward bias");
        }
    for (const GroupedRows& c : grouped_rows)
        for (const char* result : proved_formats) {
            Bench b;
            const TensorId x = b.tensor(c.shape(), "fp16"), w = b.tensor({c.channels}, "fp32"),
                           g = b.tensor(c.shape(), "fp16");
            const TensorId to_x = b.tensor(c.shape(), result), to_w = b.tensor({c.channels}, result),
                           to_b = b.tensor({c.channels}, result);
            b.run(op::NormBackward{op::NormKind::layer, x, w, g, to_x, to_w, to_b, 1e-5, {c.groups, c.positions}},
                  {x, w, g});
            const NormGradients want = group_norm_gradients(b.values(x), b.values(w), b.values(g), c);
            b.expect(tally, to_x, want.x, "group norm's gradient of x");
            b.expect(tally, to_w, want.weight, "group norm's gradient of weight");
            b.expect(tally, to_b, want.bias, "group norm's gradient of bias");
        }
}

/// Rows of 11 classes, of which two are ignored.
inline const std::vector<int> loss_targets = {3, 0, -1, 10, 7, -1, 2};

inline const op::LossTerms loss_terms[] = {{}, {0.1, 0}, {0, 1e-4}, {0.3, 0.25}, {1, 2}};

inline void prove_op(Of<op::CrossEntropy>, Tally& tally) {
    for (const char* result : proved_formats)
        for (int sample = 0; sample < 20; ++sample) {
            const op::LossTerms& terms = loss_terms[sample % 5];
            Bench b;
            const TensorId x = b.tensor({7, 11}, "fp16"), t = b.tensor({7}, "fp32"), out = b.tensor({}, result);
            b.start({x});
            std::ranges::copy(loss_targets, b.cpu()[t].begin());
            b.cpu().run(op::CrossEntropy{x, t, out, terms});
            b.expect(tally, out,
                     {reference::cross_entropy(b.values(x), loss_targets, terms.label_smoothing, terms.z_loss)},
                     "cross_entropy");
            b.cpu().context.training = false; // then only those that say so
            b.cpu().run(op::CrossEntropy{x, t, out, terms});
            b.expect(tally, out, {reference::cross_entropy(b.values(x), loss_targets)}, "cross_entropy, evaluated");
        }
}

inline void prove_op(Of<op::CrossEntropyBackward>, Tally& tally) {
    for (const char* result : proved_formats)
        for (const op::LossTerms& terms : loss_terms) {
            Bench b;
            const TensorId x = b.tensor({7, 11}, "fp16"), t = b.tensor({7}, "fp32"), g = b.tensor({}, "fp32"),
                           to = b.tensor({7, 11}, result);
            b.start({x, g});
            std::ranges::copy(loss_targets, b.cpu()[t].begin());
            b.cpu().run(op::CrossEntropyBackward{x, t, g, to, terms});
            const Reals logits = b.values(x);
            Reals want = reference::softmax(logits, 11, false);
            for (std::size_t i = 0; i < want.size(); ++i) {
                const int target = loss_targets[i / 11];
                Real total = 0;
                for (std::size_t j = i / 11 * 11; j < i / 11 * 11 + 11; ++j) total += exp(logits[j]);
                want[i] += 2 * Real(terms.z_loss) * log(total) * want[i] - Real(terms.label_smoothing) / 11;
                if (target == static_cast<int>(i % 11)) want[i] -= 1 - Real(terms.label_smoothing);
                want[i] *= target < 0 ? Real(0) : Real(b.values(g)[0] / 5);
            }
            b.expect(tally, to, want, "cross_entropy_backward");
        }
}

inline void prove_op(Of<op::MseLoss>, Tally& tally) {
    for (const char* result : proved_formats)
        for (int sample = 0; sample < 20; ++sample) {
            Bench b;
            const TensorId x = b.tensor({50}, "fp16"), y = b.tensor({50}, "fp16"), out = b.tensor({}, result);
            b.run(op::MseLoss{x, y, out}, {x, y});
            const Reals u = b.values(x), v = b.values(y);
            Real sum = 0;
            for (std::size_t i = 0; i < 50; ++i) sum += (u[i] - v[i]) * (u[i] - v[i]) / 50;
            b.expect(tally, out, {sum}, "mse_loss");
        }
}

inline void prove_op(Of<op::MseLossBackward>, Tally& tally) {
    for (const char* result : proved_formats) {
        Bench b;
        const TensorId x = b.tensor({50}, "fp16"), y = b.tensor({50}, "fp16"), g = b.tensor({}, "fp32"),
                       to = b.tensor({50}, result);
        b.run(op::MseLossBackward{x, y, g, to}, {x, y, g});
        const Reals u = b.values(x), v = b.values(y);
        Reals want;
        const Real factor = Real(2 * b.values(g)[0] / 50).convert_to<double>();
        for (std::size_t i = 0; i < 50; ++i) want.emplace_back(Real((u[i] - v[i]) * factor).convert_to<double>());
        b.expect(tally, to, want, "mse_loss_backward");
    }
}

} // namespace amp::test
