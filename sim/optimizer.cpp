#include <ampscope/sim/optimizer.h>

#include <ampscope/formats/batch.h>
#include <ampscope/formats/codec.h>
#include <ampscope/sim/optimizer_loops.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace amp {

namespace {

using detail::Block, detail::BlockArithmetic;

constexpr OptimizerRow rows[] = {
    {"sgd", {.kind = OptimizerKind::sgd}, "torch.optim.SGD"},
    {"adam", {.kind = OptimizerKind::adam}, "torch.optim.Adam, foreach=False"},
    {"adamw", {.weight_decay = 0.01}, "torch.optim.AdamW, foreach=False"},
    {"adam-1", {.kind = OptimizerKind::adam, .order = OptimizerOrder::torch_1}, "torch.optim.Adam of PyTorch 1.x"},
    {"adamw-1", {.order = OptimizerOrder::torch_1, .weight_decay = 0.01}, "torch.optim.AdamW of PyTorch 1.x"},
    {"adam-fused",
     {.kind = OptimizerKind::adam, .order = OptimizerOrder::torch_fused},
     "torch.optim.Adam, fused=True on CUDA"},
    {"adamw-fused",
     {.order = OptimizerOrder::torch_fused, .weight_decay = 0.01},
     "torch.optim.AdamW, fused=True on CUDA"},
    {"apex-adam",
     {.kind = OptimizerKind::adam, .order = OptimizerOrder::apex},
     "apex.optimizers.FusedAdam(adam_w_mode=False), TransformerEngine's"},
    {"apex-adamw", {.order = OptimizerOrder::apex}, "apex.optimizers.FusedAdam, TransformerEngine's"},
};

/// base^n, 0 <= base <= 1, in pairs of doubles: off by some n 2^-104 of itself, then rounded. Python calls the C
/// library's pow, which returns the same unless the power is next to a tie; what it returns there differs by library.
double power(double base, std::int64_t n) {
    struct Pair {
        double high, low;
    };
    const auto times = [](const Pair& a, const Pair& b) {
        const double high = a.high * b.high;
        const double rest = std::fma(a.high, b.high, -high) + (a.high * b.low + a.low * b.high);
        const double sum = high + rest;
        return Pair{sum, rest - (sum - high)};
    };
    Pair result{1, 0};
    for (Pair square{base, 0}; n > 0; n >>= 1, square = times(square, square))
        if ((n & 1) != 0) result = times(result, square);
    return result.high;
}

/// Factors that depend on the step alone, in FP64 as Python has them.
struct Factors {
    double correction1, correction2;

    Factors(const OptimizerOptions& o, std::int64_t t)
        : correction1(1 - power(o.beta1, t)), correction2(1 - power(o.beta2, t)) {}
};

/// One block of one parameter, from `begin`.
struct BlockState {
    const OptimizerOptions& options;
    const UpdateStep& step;
    const ParameterState& state;
    BlockArithmetic arithmetic;
    std::size_t begin, count;

    [[nodiscard]] float* weight() const { return state.weight.data() + begin; }
    [[nodiscard]] const float* gradient() const { return state.gradient.data() + begin; }
    [[nodiscard]] float* m() const { return state.m.data() + begin; }
    [[nodiscard]] float* v() const { return state.v.data() + begin; }
    void round(const FormatSpec& f, float* x) const { detail::round_block(f, x, count); }
    void multiply(const FormatSpec& f, float* x, double factor) const;
    void add_scaled(const FormatSpec& f, float* out, const float* a, const float* b, double factor) const;
    /// What mul and div by a scalar take for it: PyTorch 1.x rounds it to the type of the tensor first.
    [[nodiscard]] float scalar(const FormatSpec& f, double x) const {
        return options.order == OptimizerOrder::torch_1 ? quantize(f, x) : static_cast<float>(x);
    }
};

float single(double x) { return static_cast<float>(x); }

/// x *= factor
void BlockState::multiply(const FormatSpec& f, float* x, double factor) const {
    arithmetic.multiply(x, x, scalar(f, factor), count);
    round(f, x);
}

/// out = a + factor * b as torch.add(a, b, alpha=factor) has it in a type: alpha is rounded to the type, and so is the
/// product, unless it is contracted with the sum.
void BlockState::add_scaled(const FormatSpec& f, float* out, const float* a, const float* b, double factor) const {
    const float alpha = quantize(f, factor);
    if (options.contract) {
        arithmetic.add_scaled(out, a, b, alpha, count);
    } else {
        Block product;
        arithmetic.multiply(product, b, alpha, count);
        round(f, product);
        arithmetic.add(out, a, product, count);
    }
    round(f, out);
}

/// The weights take what is to be added to them, in FP32 so far.
void add_update(const BlockState& b, const float* change) {
    const FormatSpec& f = b.state.weight_format;
    float* const w = b.weight();
    if (b.options.rounding == UpdateRounding::kahan) {
        float* const lost = b.state.compensation.data() + b.begin;
        Block before, kept;
        b.arithmetic.add(lost, lost, change, b.count); // 1. what is to be added, with what was lost before
        b.round(f, lost);
        std::copy_n(w, b.count, before);
        b.arithmetic.add(w, w, lost, b.count); // 2. as much of it as fits
        b.round(f, w);
        b.arithmetic.subtract(kept, before, w, b.count); // 3. the rest
        b.round(f, kept);
        b.arithmetic.add(lost, lost, kept, b.count);
        b.round(f, lost);
        return;
    }
    b.arithmetic.add(w, w, change, b.count);
    if (b.options.rounding == UpdateRounding::nearest) return b.round(f, w);
    const std::span<float> weights(w, b.count);
    quantize(f, weights, weights,
             {.policy = {.rounding = Rounding::stochastic}, .key = b.step.key, .first_index = b.begin});
}

/// torch.optim.SGD, _single_tensor_sgd.
void sgd(const BlockState& b) {
    const OptimizerOptions& o = b.options;
    const FormatSpec& f = b.state.weight_format;
    Block g, change;
    std::copy_n(b.gradient(), b.count, g);
    if (o.weight_decay != 0) {
        b.add_scaled(f, g, g, b.weight(), o.weight_decay);
    }
    if (o.momentum != 0) {
        float* const m = b.m();
        if (b.step.t == 1) {
            std::copy_n(g, b.count, m);
        } else {
            b.multiply(b.state.m_format, m, o.momentum);
            b.add_scaled(b.state.m_format, m, m, g, 1 - o.dampening);
        }
        b.round(b.state.m_format, m);
        if (o.nesterov) {
            b.add_scaled(f, g, g, m, o.momentum);
        } else {
            std::copy_n(m, b.count, g);
        }
    }
    if (o.rounding == UpdateRounding::nearest) return b.add_scaled(f, b.weight(), b.weight(), g, -b.step.learning_rate);
    b.arithmetic.multiply(change, g, single(-b.step.learning_rate), b.count);
    add_update(b, change);
}

/// torch.optim.Adam and AdamW, _single_tensor_adam without capturable.
void torch_adam(const BlockState& b, const Factors& factors) {
    const OptimizerOptions& o = b.options;
    float *const m = b.m(), *const v = b.v();
    Block g, denominator, change;
    std::copy_n(b.gradient(), b.count, g);
    if (o.weight_decay != 0 && o.kind == OptimizerKind::adamw) {
        b.multiply(b.state.weight_format, b.weight(), 1 - b.step.learning_rate * o.weight_decay);
    } else if (o.weight_decay != 0) {
        b.add_scaled(b.state.weight_format, g, g, b.weight(), o.weight_decay);
    }
    if (o.order == OptimizerOrder::torch) {
        b.arithmetic.lerp(m, g, single(1 - o.beta1), b.count);
    } else {
        b.multiply(b.state.m_format, m, o.beta1);
        b.add_scaled(b.state.m_format, m, m, g, 1 - o.beta1);
    }
    b.round(b.state.m_format, m);
    b.multiply(b.state.v_format, v, o.beta2);
    b.arithmetic.add_square(v, g, single(1 - o.beta2), b.count);
    b.round(b.state.v_format, v);
    b.arithmetic.root(denominator, v, b.count);
    b.round(b.state.v_format, denominator);
    b.arithmetic.divide(denominator, denominator, b.scalar(b.state.v_format, std::sqrt(factors.correction2)), b.count);
    b.round(b.state.v_format, denominator);
    b.arithmetic.add_constant(denominator, denominator, quantize(b.state.v_format, o.eps), b.count);
    b.round(b.state.v_format, denominator);
    b.arithmetic.multiply(change, m, single(-(b.step.learning_rate / factors.correction1)), b.count);
    b.arithmetic.quotient(change, change, denominator, b.count);
    add_update(b, change);
}

/// ATen's fused_adam_utils.cuh and Apex's multi_tensor_adam.cu: in FP32 from beginning to end.
void fused_adam(const BlockState& b, const Factors& factors) {
    const OptimizerOptions& o = b.options;
    Block change;
    const detail::FusedAdam f{.is_apex = o.order == OptimizerOrder::apex,
                              .decouples = o.kind == OptimizerKind::adamw,
                              .learning_rate = b.step.learning_rate,
                              .beta1 = o.beta1,
                              .beta2 = o.beta2,
                              .eps = o.eps,
                              .weight_decay = o.weight_decay,
                              .correction1 = factors.correction1,
                              .correction2 = factors.correction2};
    b.arithmetic.fused_adam(f, b.weight(), b.gradient(), b.m(), b.v(), change, b.count);
    b.round(b.state.m_format, b.m());
    b.round(b.state.v_format, b.v());
    add_update(b, change);
}

UpdateCounts count(const float* before, const float* after, const float* kept_before, const float* kept_after,
                   const float* gradient, std::size_t n) {
    UpdateCounts c;
    for (std::size_t i = 0; i < n; ++i) {
        const bool finite = after[i] - after[i] == 0;
        const bool same = after[i] == before[i];
        const bool kept = kept_before != nullptr && kept_before[i] != kept_after[i];
        c.nonfinite += !finite;
        c.changed += finite && !same;
        c.lost += same && !kept && gradient[i] != 0;
    }
    return c;
}

} // namespace

UpdateCounts& UpdateCounts::operator+=(const UpdateCounts& other) {
    lost += other.lost;
    changed += other.changed;
    nonfinite += other.nonfinite;
    return *this;
}

UpdateCounts update(const OptimizerOptions& options, const UpdateStep& step, const ParameterState& state) {
    const Factors factors(options, step.t);
    UpdateCounts counts;
    for (std::size_t begin = 0; begin < state.weight.size(); begin += detail::block_length) {
        const std::size_t n = std::min<std::size_t>(detail::block_length, state.weight.size() - begin);
        const BlockState b{options, step, state, BlockArithmetic(options.contract), begin, n};
        Block before, kept;
        std::copy_n(b.weight(), n, before);
        const bool kahan = options.rounding == UpdateRounding::kahan;
        float* const compensation = kahan ? state.compensation.data() + begin : nullptr;
        if (kahan) std::copy_n(compensation, n, kept);
        if (options.kind == OptimizerKind::sgd) sgd(b);
        else if (options.order == OptimizerOrder::torch || options.order == OptimizerOrder::torch_1)
            torch_adam(b, factors);
        else fused_adam(b, factors);
        counts += count(before, b.weight(), kahan ? kept : nullptr, compensation, b.gradient(), n);
    }
    return counts;
}

void check(const OptimizerOptions& o) {
    const auto expect = [](bool holds, const char* what) {
        if (!holds) throw std::invalid_argument(std::string("[optimizer] expected ") + what);
    };
    expect(o.learning_rate >= 0 && std::isfinite(o.learning_rate), "a learning rate that is not negative");
    expect(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1, "betas in [0, 1)");
    expect(o.eps >= 0 && std::isfinite(o.eps), "an eps that is not negative");
    expect(o.weight_decay >= 0 && std::isfinite(o.weight_decay), "a weight decay that is not negative");
    expect(o.momentum >= 0 && std::isfinite(o.momentum), "a momentum that is not negative");
    expect(!o.nesterov || (o.momentum > 0 && o.dampening == 0), "a momentum and no dampening for Nesterov's");
}

std::span<const OptimizerRow> optimizers() { return rows; }

const OptimizerRow& optimizer(std::string_view name) {
    std::string all;
    for (const OptimizerRow& row : rows) {
        if (row.name == name) return row;
        all += (all.empty() ? "" : ", ") + std::string(row.name);
    }
    throw std::invalid_argument("optimizer: '" + std::string(name) + "' is none of " + all);
}

} // namespace amp
