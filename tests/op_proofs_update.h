// The optimizers' formulas, operation by operation, against the op that updates a parameter.
#pragma once

#include "op_bench.h"

#include <cmath>
#include <set>
#include <utility>

namespace amp::test {

/// One element of a parameter with its state, updated as its authors' code does it: every operation is done in numbers
/// of 60 digits and then rounded as that code rounds it. All tensors have one format.
struct ReferenceUpdate {
    const OptimizerOptions& o;
    const char* format_name;
    int t;
    float w, g, m, v;
    float weight_norm = 0, direction_norm = 0; ///< Adafactor's, of `count` elements
    std::size_t count = 1;

    [[nodiscard]] static float single(const Real& x) { return rounded("fp32", x); }
    /// An operation's result in FP32, stored in a tensor.
    [[nodiscard]] float store(const Real& x) const { return rounded(format_name, Real(single(x))); }
    [[nodiscard]] float scalar(double x) const {
        return o.order == OptimizerOrder::torch_1 ? rounded(format_name, Real(x)) : single(Real(x));
    }
    /// a + x y in FP32, contracted to one rounding or not.
    [[nodiscard]] float multiply_add(float x, float y, float a) const {
        const Real product = Real(x) * y;
        return single((o.contract ? product : Real(single(product))) + a);
    }
    /// torch.add(a, b, alpha=factor)
    [[nodiscard]] float add_scaled(float a, float b, double factor) const {
        const float alpha = rounded(format_name, Real(factor));
        return o.contract ? store(Real(alpha) * b + a) : store(Real(store(Real(alpha) * b)) + a);
    }
    /// beta^t, as Python computes it in FP64.
    [[nodiscard]] double power(double beta) const { return Real(pow(Real(beta), t)).convert_to<double>(); }
    [[nodiscard]] double correction(double beta) const {
        if (o.order == OptimizerOrder::ms_amp) beta = static_cast<double>(static_cast<float>(beta));
        return 1 - power(beta);
    }
    /// torch.lerp, which computes from the nearer end.
    [[nodiscard]] float lerp(float a, float b, double weight) const {
        const float share = single(Real(weight)), d = single(Real(b) - a);
        return share < 0.5F ? multiply_add(share, d, a) : multiply_add(single(Real(share) - 1), d, b);
    }

    /// FusedSGDKernel.cpp computes in FP32 and rounds what it stores.
    void sgd_fused_cpu() {
        const auto add = [&](float a, float x, double factor) { return multiply_add(single(Real(factor)), x, a); };
        if (o.weight_decay != 0) g = add(g, w, o.weight_decay);
        if (o.momentum != 0) {
            const float wide_m = t == 1 ? g : add(single(Real(m) * single(Real(o.momentum))), g, 1 - o.dampening);
            g = o.nesterov ? add(g, wide_m, o.momentum) : wide_m;
            m = store(Real(wide_m));
        }
        w = store(Real(add(w, g, -o.learning_rate)));
    }

    void sgd() {
        if (o.weight_decay != 0) g = add_scaled(g, w, o.weight_decay);
        if (o.momentum != 0) {
            m = t == 1 ? g : add_scaled(store(Real(m) * scalar(o.momentum)), g, 1 - o.dampening);
            g = o.nesterov ? add_scaled(g, m, o.momentum) : m;
        }
        w = add_scaled(w, g, -o.learning_rate);
    }

    void torch_adam() {
        const bool decouples = o.kind == OptimizerKind::adamw;
        if (o.weight_decay != 0 && decouples) w = store(Real(w) * scalar(1 - o.learning_rate * o.weight_decay));
        if (o.weight_decay != 0 && !decouples) g = add_scaled(g, w, o.weight_decay);
        if (o.order == OptimizerOrder::torch) {
            m = store(lerp(m, g, 1 - o.beta1));
        } else {
            m = add_scaled(store(Real(m) * scalar(o.beta1)), g, 1 - o.beta1);
        }
        v = store(Real(v) * scalar(o.beta2));
        v = store(multiply_add(single(Real(single(Real(1 - o.beta2))) * g), g, v)); // addcmul
        float denominator = store(sqrt(Real(v)));
        denominator = store(Real(denominator) / scalar(std::sqrt(correction(o.beta2))));
        denominator = store(Real(denominator) + rounded(format_name, Real(o.eps)));
        const float step = single(Real(-(o.learning_rate / correction(o.beta1))));
        w = store(Real(single(Real(single(Real(step) * m)) / denominator)) + w); // addcdiv
    }

    /// fused_adam_utils.cuh: scalars are doubles, and so are operations with them, which round to FP64. Ties in FP32
    /// are frequent, as in 0.9 m + 0.1 g, so that these roundings show.
    void torch_fused() {
        const auto wide = [](const Real& x) { return Real(x.convert_to<double>()); };
        const bool decouples = o.kind == OptimizerKind::adamw;
        if (o.weight_decay != 0 && decouples) w = single(wide(w - wide(Real(o.learning_rate * o.weight_decay) * w)));
        if (o.weight_decay != 0 && !decouples) g = single(wide(g + wide(Real(o.weight_decay) * w)));
        m = single(wide(wide(Real(o.beta1) * m) + wide(Real(1 - o.beta1) * g)));
        v = single(wide(wide(Real(o.beta2) * v) + wide(wide(Real(1 - o.beta2) * g) * g)));
        const float root = single(Real(std::sqrt(correction(o.beta2))));
        const float step = single(Real(o.learning_rate / correction(o.beta1)));
        const float quotient = single(Real(single(sqrt(Real(v)))) / root);
        const float denominator = single(wide(Real(quotient) + o.eps));
        w = single(w - Real(single(Real(single(Real(step) * m)) / denominator)));
    }

    /// FusedAdamKernel.cpp: every scalar is a float, and m and v are rounded to their format when they are stored.
    void fused_cpu() {
        const bool decouples = o.kind == OptimizerKind::adamw;
        const auto f = [](double x) { return single(Real(x)); };
        float weight = w;
        if (o.weight_decay != 0 && decouples) weight = single(Real(w) * f(1 - o.learning_rate * o.weight_decay));
        if (o.weight_decay != 0 && !decouples) g = multiply_add(w, f(o.weight_decay), g);
        const float wide_m = o.order == OptimizerOrder::torch_fused_cpu
                                 ? lerp(m, g, 1 - o.beta1)
                                 : multiply_add(f(1 - o.beta1), g, single(Real(m) * f(o.beta1)));
        const float part = single(Real(f(1 - o.beta2)) * g);
        const float wide_v = multiply_add(part, g, single(Real(v) * f(o.beta2)));
        const float root = f(std::sqrt(correction(o.beta2))), step = f(-(o.learning_rate / correction(o.beta1)));
        const float denominator = single(Real(single(Real(single(sqrt(Real(wide_v)))) / root)) + f(o.eps));
        w = store(Real(single(Real(single(Real(step) * wide_m)) / denominator)) + weight);
        m = store(Real(wide_m));
        v = store(Real(wide_v));
    }

    /// multi_tensor_adam.cu and adamw.cu: every scalar is a float.
    void apex_or_ms_amp() {
        const bool apex = o.order == OptimizerOrder::apex, decouples = o.kind == OptimizerKind::adamw;
        const auto f = [](double x) { return single(Real(x)); };
        const float beta1 = f(o.beta1), beta2 = f(o.beta2), eps = f(o.eps), decay = f(o.weight_decay);
        const float rate = f(o.learning_rate), c1 = f(correction(o.beta1)), c2 = f(correction(o.beta2));
        const auto times = [](float x, float y) { return Real(single(Real(x) * y)); };
        if (!decouples) g = single(times(decay, w) + g);
        else if (!apex) w = single(Real(w) * f(1 - o.learning_rate * o.weight_decay));
        const float rest1 = single(1 - Real(beta1)), rest2 = single(1 - Real(beta2));
        m = single(times(beta1, m) + times(rest1, g));
        if (apex) {
            v = single(times(beta2, v) + times(single(times(rest2, g)), g));
            const float root = single(sqrt(Real(single(Real(v) / c2))));
            float direction = single(Real(single(Real(m) / c1)) / single(Real(root) + eps));
            if (decouples) direction = single(direction + times(decay, w));
            w = single(w - times(rate, direction));
        } else {
            v = single(times(beta2, v) + times(rest2, single(times(g, g))));
            const float root = single(Real(single(sqrt(Real(v)))) / single(sqrt(Real(c2))));
            const float direction = single(Real(m) / single(Real(root) + eps));
            w = single(w - times(single(Real(rate) / c1), direction));
        }
    }

    /// optimi: the bias of the moments is taken out of the betas.
    void optimi_adam() {
        const auto unbiased = [&](double beta) { return (power(beta) - beta) / (power(beta) - 1); };
        const double beta1 = unbiased(o.beta1), beta2 = unbiased(o.beta2);
        const bool decouples = o.kind == OptimizerKind::adamw;
        if (o.weight_decay != 0 && decouples) w = store(Real(w) * single(Real(1 - o.learning_rate * o.weight_decay)));
        if (o.weight_decay != 0 && !decouples) g = add_scaled(g, w, o.weight_decay);
        m = store(lerp(m, g, 1 - beta1));
        v = store(Real(v) * single(Real(beta2)));
        v = store(multiply_add(single(Real(single(Real(1 - beta2))) * g), g, v));
        const float denominator = store(Real(store(sqrt(Real(v)))) + rounded(format_name, Real(o.eps)));
        w = store(Real(single(Real(single(Real(single(Real(-o.learning_rate))) * m)) / denominator)) + w);
    }

    /// torchao: every scalar is a float, beta^t, too; m and v are rounded to their format when they are stored.
    void torchao_adam() {
        const auto f = [](double x) { return single(Real(x)); };
        const auto corrected = [&](double beta) { return single(1 - Real(f(power(static_cast<double>(f(beta)))))); };
        const float rate = f(o.learning_rate), decay = f(o.weight_decay);
        if (o.kind == OptimizerKind::adamw) w = single(w - Real(single(Real(single(Real(rate) * decay)) * w)));
        else g = single(Real(single(Real(decay) * w)) + g);
        const float wide_m = lerp(m, g, 1 - o.beta1), wide_v = lerp(v, single(Real(g) * g), 1 - o.beta2);
        const float root = single(Real(single(sqrt(Real(wide_v)))) / single(sqrt(Real(corrected(o.beta2)))));
        const float numerator = single(Real(rate) * single(Real(wide_m) / corrected(o.beta1)));
        w = store(w - Real(single(Real(numerator) / single(Real(root) + f(o.eps)))));
        m = store(Real(wide_m));
        v = store(Real(wide_v));
    }

    /// lion_pytorch multiplies m and adds to it, optimi's Lion has a lerp.
    void lion() {
        const auto average = [&](double beta) {
            if (o.order == OptimizerOrder::optimi) return store(lerp(m, g, 1 - beta));
            return add_scaled(store(Real(m) * single(Real(beta))), g, 1 - beta);
        };
        const float direction = average(o.beta1);
        if (o.weight_decay != 0) w = store(Real(w) * single(Real(1 - o.learning_rate * o.weight_decay)));
        w = add_scaled(w, direction > 0 ? 1.0F : direction < 0 ? -1.0F : 0.0F, -o.learning_rate);
        m = average(o.beta2);
    }

    /// torch.optim.Muon, once its update is orthogonal: the learning rate is adjusted by 1.5 here.
    void muon() {
        w = store(Real(w) * single(Real(1 - o.learning_rate * o.weight_decay)));
        w = add_scaled(w, g, -(o.learning_rate * 1.5));
    }

    /// torch.optim.Adafactor, once its direction is there: g is that.
    void adafactor() {
        const double root = std::sqrt(static_cast<double>(count));
        const double size = std::max(o.eps2, weight_norm / root), excess = direction_norm / (root * o.update_clip);
        const double rate = size * std::min(o.learning_rate, 1 / std::sqrt(static_cast<double>(t)));
        if (o.weight_decay != 0) w = store(Real(w) * single(Real(1 - o.learning_rate * o.weight_decay)));
        w = add_scaled(w, g, -(rate / std::max(1.0, excess)));
    }

    void sgd_step() {
        switch (o.order) {
        case OptimizerOrder::torch:
        case OptimizerOrder::torch_1: return sgd();
        case OptimizerOrder::torch_fused_cpu: return sgd_fused_cpu();
        case OptimizerOrder::torch_fused:
        case OptimizerOrder::apex:
        case OptimizerOrder::ms_amp:
        case OptimizerOrder::torchao:
        case OptimizerOrder::bitsandbytes:
        case OptimizerOrder::optimi:
        case OptimizerOrder::lion_pytorch:
        case OptimizerOrder::keller_jordan: FAIL("there is no SGD in this order");
        }
    }

    void step() {
        if (o.kind == OptimizerKind::sgd) return sgd_step();
        if (o.kind == OptimizerKind::lion) return lion();
        if (o.kind == OptimizerKind::muon) return muon();
        if (o.kind == OptimizerKind::adafactor) return adafactor();
        switch (o.order) {
        case OptimizerOrder::torch:
        case OptimizerOrder::torch_1: return torch_adam();
        case OptimizerOrder::torch_fused: return torch_fused();
        case OptimizerOrder::torch_fused_cpu:
        case OptimizerOrder::bitsandbytes: return fused_cpu();
        case OptimizerOrder::apex:
        case OptimizerOrder::ms_amp: return apex_or_ms_amp();
        case OptimizerOrder::torchao: return torchao_adam();
        case OptimizerOrder::optimi: return optimi_adam();
        case OptimizerOrder::lion_pytorch:
        case OptimizerOrder::keller_jordan: FAIL("there is no Adam in this order");
        }
    }
};

/// Four steps of one optimizer on 30 elements.
inline void prove_update(Tally& tally, const OptimizerOptions& options, const char* name) {
    static std::size_t number = 0;
    if (!is_due(number++)) return;
    constexpr std::size_t count = 30;
    Bench b;
    const TensorId w = b.tensor({count}, name), g = b.tensor({count}, name), m = b.tensor({count}, name),
                   v = b.tensor({count}, name), weight_norm = b.tensor({}, name), direction_norm = b.tensor({}, name);
    const bool has_m = options.has_m(), has_v = options.has_v();
    const op::Update op{.options = options,
                        .weight = w,
                        .gradient = g,
                        .m = has_m ? m : TensorId{},
                        .v = has_v ? v : TensorId{},
                        .compensation = {},
                        .rate_factor = facts_of(options.kind).orthogonalizes ? 1.5 : 1,
                        .weight_norm = weight_norm,
                        .direction_norm = direction_norm};
    b.start({w});
    for (const int t : {1, 2, 3, 400}) {
        b.fill(g, 0.1);
        // Sizes of weights and steps on both sides of where Adafactor bounds them.
        b.write(weight_norm, {quantize(format(name), t % 2 == 0 ? 2.7 : 0.001)});
        b.write(direction_norm, {quantize(format(name), t < 3 ? 17.3 : 1.2)});
        std::vector<float> want_w, want_m, want_v;
        for (std::size_t i = 0; i < count; ++i) {
            ReferenceUpdate element{options,
                                    name,
                                    t,
                                    b.cpu()[w][i],
                                    b.cpu()[g][i],
                                    b.cpu()[m][i],
                                    b.cpu()[v][i],
                                    b.cpu()[weight_norm][0],
                                    b.cpu()[direction_norm][0],
                                    count};
            element.step();
            want_w.push_back(element.w);
            want_m.push_back(element.m);
            want_v.push_back(element.v);
        }
        b.cpu().context.update = t;
        b.cpu().run(op);
        const std::string of = fmt::format("of {} in the order of {}{}, step {}",
                                           optimizer_kind_names[static_cast<std::size_t>(options.kind)],
                                           facts_of(options.order).name, options.contract ? ", contracted" : "", t);
        b.expect_bits(tally, w, want_w, "weight " + of);
        if (has_m) b.expect_bits(tally, m, want_m, "m " + of);
        if (has_v) b.expect_bits(tally, v, want_v, "v " + of);
    }
}

/// Every kind in every order that a row has, with and without weight decay and contraction.
inline void prove_op(Of<op::Update>, Tally& tally) {
    for (const char* name : {"fp32", "bf16"})
        for (const bool contract : {false, true})
            for (const double decay : {0.0, 0.1}) {
                const OptimizerOptions sgd{
                    .kind = OptimizerKind::sgd, .learning_rate = 0.01, .weight_decay = decay, .contract = contract};
                OptimizerOptions momentum = sgd, nesterov = sgd;
                momentum.momentum = nesterov.momentum = 0.9;
                momentum.dampening = 0.3;
                nesterov.nesterov = true;
                for (OptimizerOptions o : {sgd, momentum, nesterov})
                    for (const OptimizerRow& row : optimizers()) {
                        o.order = row.options.order;
                        if (row.options.kind == OptimizerKind::sgd) prove_update(tally, o, name);
                    }
                std::set<std::pair<OptimizerKind, OptimizerOrder>> proved;
                for (const OptimizerRow& row : optimizers()) {
                    const auto [kind, order] = std::pair(row.options.kind, row.options.order);
                    if (kind == OptimizerKind::sgd || !proved.emplace(kind, order).second) continue;
                    const bool fused = order == OptimizerOrder::torch_fused || order == OptimizerOrder::apex ||
                                       order == OptimizerOrder::ms_amp;
                    if (fused && (contract || name != proved_formats[0])) continue; // proved in FP32
                    for (const double beta1 : {0.9, 0.4})                           // both halves of lerp
                        prove_update(tally,
                                     {.kind = kind,
                                      .order = order,
                                      .learning_rate = 0.01,
                                      .beta1 = beta1,
                                      .eps = 1e-3,
                                      .weight_decay = decay,
                                      .contract = contract},
                                     name);
                }
            }
}

} // namespace amp::test
