// The steps of the optimizers, for one block of a parameter at a time. `Arithmetic` has the operations of
// cpu/detail/update_loops.h and the type Block: 512 elements for the processor, one element for a device.
#pragma once

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/kernels/scaled_state.h>
#include <ampscope/sim/backend/kernels/update_loops.h>
#include <ampscope/sim/backend/update.h>

#include <algorithm>
#include <cmath>

namespace amp::kernels {

/// What depends only on the step: 1 - beta^t in FP64, as Python computes them, and the betas themselves, which change
/// with the step in orders that leave the moments no bias.
struct Factors {
    double correction1, correction2, beta1, beta2;
};
Factors factors_of(const OptimizerOptions& options, std::int64_t t);

/// to[i] = from[i], in a loop, since devices have no std::copy_n: formats/bits.h.
constexpr void copy(const float* from, std::size_t n, float* to) {
    for (std::size_t i = 0; i < n; ++i) to[i] = from[i];
}

/// One block of one parameter, beginning at element `begin`.
template <class Arithmetic>
struct BlockState {
    using Block = typename Arithmetic::Block;

    const OptimizerOptions& options;
    const UpdateStep& step;
    const ParameterState& state;
    Arithmetic arithmetic;
    std::size_t begin, count;

    [[nodiscard]] constexpr float* weight() const { return state.weight.data() + begin; }
    [[nodiscard]] constexpr const float* gradient() const { return state.gradient.data() + begin; }
    [[nodiscard]] constexpr float* m() const { return state.m.data() + begin; }
    [[nodiscard]] constexpr float* v() const { return state.v.data() + begin; }
    [[nodiscard]] constexpr float* compensation() const { return state.compensation.data() + begin; }
    /// Rounding to FP32 would only make NaNs canonical, which update_block() does once, in what it stores.
    constexpr void round(const FormatSpec& f, float* x) const {
        if (!(f == fp32_format())) arithmetic.round(f, x, count);
    }
    /// x *= factor
    constexpr void multiply(const FormatSpec& f, float* x, double factor) const {
        arithmetic.multiply(x, x, scalar(f, factor), count);
        round(f, x);
    }
    /// out = a + factor * b as torch.add(a, b, alpha=factor) computes it in the type f: alpha is rounded to the type,
    /// and so is the product, unless product and sum are contracted.
    constexpr void add_scaled(const FormatSpec& f, float* out, const float* a, const float* b, double factor) const {
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
    /// m = beta m + (1 - beta) x as the order has it, m in the format f.
    constexpr void average(const FormatSpec& f, float* m, const float* x, double beta) const {
        if (facts_of(options.order).lerps) {
            arithmetic.lerp(m, x, static_cast<float>(1 - beta), count);
        } else {
            multiply(f, m, beta);
            add_scaled(f, m, m, x, 1 - beta);
        }
        round(f, m);
    }
    /// The scalar by which mul and div multiply or divide: PyTorch 1.x first rounds it to the type of the tensor.
    [[nodiscard]] constexpr float scalar(const FormatSpec& f, double x) const {
        return facts_of(options.order).rounds_scalars ? quantize(f, x) : static_cast<float>(x);
    }
};

constexpr float single(double x) { return static_cast<float>(x); }

/// Adds to the weights as much of the compensation as fits, and keeps the rest in it.
template <class Arithmetic>
constexpr void compensate(const BlockState<Arithmetic>& b) {
    const FormatSpec& f = b.state.weight_format;
    float *const w = b.weight(), *const lost = b.compensation();
    typename Arithmetic::Block before, kept;
    b.round(f, lost);
    copy(w, b.count, before);
    b.arithmetic.add(w, w, lost, b.count);
    b.round(f, w);
    b.arithmetic.subtract(kept, before, w, b.count);
    b.round(f, kept);
    b.arithmetic.add(lost, lost, kept, b.count);
    b.round(f, lost);
}

/// Adds `change`, which is in FP32, to the weights, or to what they lack.
template <class Arithmetic>
constexpr void add_update(const BlockState<Arithmetic>& b, const float* change) {
    float* const to = b.state.rounding == UpdateRounding::kahan ? b.compensation() : b.weight();
    b.arithmetic.add(to, to, change, b.count);
    switch (b.state.rounding) {
    case UpdateRounding::nearest: return b.round(b.state.weight_format, to);
    case UpdateRounding::stochastic:
        return b.arithmetic.round_at_random(b.state.weight_format, to, b.count,
                                            {.rounding = Rounding::stochastic, .random_bits = b.state.random_bits},
                                            b.step.key, b.begin);
    case UpdateRounding::kahan: return compensate(b);
    }
}

/// w -= rate * direction, computed in the format f.
template <class Arithmetic>
constexpr void descend(const BlockState<Arithmetic>& b, const FormatSpec& f, const float* direction, double rate) {
    typename Arithmetic::Block change;
    switch (b.state.rounding) {
    case UpdateRounding::nearest:
        b.add_scaled(f, b.weight(), b.weight(), direction, -rate);
        return b.round(b.state.weight_format, b.weight());
    case UpdateRounding::stochastic:
        b.arithmetic.multiply(change, direction, single(-rate), b.count);
        return add_update(b, change);
    case UpdateRounding::kahan:
        b.add_scaled(f, b.compensation(), b.compensation(), direction, -rate);
        return compensate(b);
    }
}

/// Whether SGD in that order computes in FP32 and rounds what it stores.
constexpr bool is_fused_sgd(OptimizerOrder order) {
    switch (order) {
    case OptimizerOrder::torch_fused_cpu: return true;
    case OptimizerOrder::torch:
    case OptimizerOrder::torch_1:
    case OptimizerOrder::torch_fused: // no row of optimizers() has SGD in this order, nor in those below
    case OptimizerOrder::apex:
    case OptimizerOrder::ms_amp:
    case OptimizerOrder::torchao:
    case OptimizerOrder::bitsandbytes:
    case OptimizerOrder::optimi:
    case OptimizerOrder::lion_pytorch:
    case OptimizerOrder::keller_jordan: break;
    }
    return false;
}

/// Follows torch.optim.SGD, _single_tensor_sgd; or ATen/native/cpu/FusedSGDKernel.cpp.
template <class Arithmetic>
constexpr void sgd(const BlockState<Arithmetic>& b) {
    const OptimizerOptions& o = b.options;
    const bool fused = is_fused_sgd(o.order);
    const FormatSpec f = fused ? fp32_format() : b.state.weight_format;
    const FormatSpec m_format = fused ? fp32_format() : b.state.m_format;
    typename Arithmetic::Block g;
    copy(b.gradient(), b.count, g);
    if (o.weight_decay != 0) {
        b.add_scaled(f, g, g, b.weight(), o.weight_decay);
    }
    if (o.momentum != 0) {
        float* const m = b.m();
        if (b.step.t == 1) {
            copy(g, b.count, m);
        } else {
            b.multiply(m_format, m, o.momentum);
            b.add_scaled(m_format, m, m, g, 1 - o.dampening);
        }
        b.round(m_format, m);
        if (o.nesterov) {
            b.add_scaled(f, g, g, m, o.momentum);
        } else {
            copy(m, b.count, g);
        }
        b.round(b.state.m_format, m);
    }
    descend(b, f, g, b.step.learning_rate);
}

/// Follows lion_pytorch and optimi's _single_param_lion: the direction is computed in a copy of m, which is updated
/// after the weights.
template <class Arithmetic>
constexpr void lion(const BlockState<Arithmetic>& b) {
    const OptimizerOptions& o = b.options;
    float* const m = b.m();
    typename Arithmetic::Block direction;
    copy(m, b.count, direction);
    if (o.weight_decay != 0) b.multiply(b.state.weight_format, b.weight(), 1 - b.step.learning_rate * o.weight_decay);
    b.average(b.state.m_format, direction, b.gradient(), o.beta1);
    b.arithmetic.sign(direction, direction, b.count);
    descend(b, b.state.weight_format, direction, b.step.learning_rate);
    b.average(b.state.m_format, m, b.gradient(), o.beta2);
}

/// Follows torch.optim.Muon, _single_tensor_muon, once the update is orthogonal, and Keller Jordan's, which then has
/// the same operations: it is BF16, and what is computed from it and a weight of another type is FP32.
template <class Arithmetic>
constexpr void muon(const BlockState<Arithmetic>& b) {
    const FormatSpec& f = b.state.weight_format;
    b.multiply(f, b.weight(), 1 - b.step.learning_rate * b.options.weight_decay);
    const bool narrow = f.exponent_bits == 8 && f.fraction_bits == 7;
    descend(b, narrow ? f : fp32_format(), b.gradient(), b.step.learning_rate * b.step.rate_factor);
}

/// Follows torch.optim.Adafactor, _single_tensor_adafactor, once the direction of the step is there. Norms are tensors,
/// and all other scalars FP64; a norm of NaN limits nothing, as Python's max(1.0, nan) is 1.
template <class Arithmetic>
constexpr void adafactor(const BlockState<Arithmetic>& b) {
    const OptimizerOptions& o = b.options;
    const double root_of_count = std::sqrt(static_cast<double>(b.state.weight.size()));
    const double limit = 1 / std::sqrt(static_cast<double>(b.step.t));
    const double size = *b.state.weight_norm / root_of_count;
    const double excess = *b.state.direction_norm / (root_of_count * o.update_clip);
    const double rate = (size > o.eps2 ? size : o.eps2) * (limit < b.step.learning_rate ? limit : b.step.learning_rate);
    if (o.weight_decay != 0) b.multiply(b.state.weight_format, b.weight(), 1 - b.step.learning_rate * o.weight_decay);
    descend(b, b.state.weight_format, b.gradient(), rate / (excess > 1 ? excess : 1));
}

/// Follows torch.optim.Adam and AdamW, _single_tensor_adam without capturable; and optimi's _single_param_adam.
template <class Arithmetic>
constexpr void torch_adam(const BlockState<Arithmetic>& b, const Factors& factors) {
    const OptimizerOptions& o = b.options;
    float *const m = b.m(), *const v = b.v();
    typename Arithmetic::Block g, denominator, change;
    copy(b.gradient(), b.count, g);
    if (o.weight_decay != 0 && facts_of(o.kind).decouples) {
        b.multiply(b.state.weight_format, b.weight(), 1 - b.step.learning_rate * o.weight_decay);
    } else if (o.weight_decay != 0) {
        b.add_scaled(b.state.weight_format, g, g, b.weight(), o.weight_decay);
    }
    b.average(b.state.m_format, m, g, factors.beta1);
    b.multiply(b.state.v_format, v, factors.beta2);
    b.arithmetic.add_square(v, g, single(1 - factors.beta2), b.count);
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

/// Follows a fused kernel of PyTorch, Apex or MS-AMP, or torchao: FP32 from start to end.
template <class Kernel, class Arithmetic>
constexpr void fused_adam(const BlockState<Arithmetic>& b, const Factors& factors) {
    const OptimizerOptions& o = b.options;
    typename Arithmetic::Block change;
    const FusedAdam f{.decouples = facts_of(o.kind).decouples,
                      .contracts = o.contract,
                      .learning_rate = b.step.learning_rate,
                      .beta1 = o.beta1,
                      .beta2 = o.beta2,
                      .eps = o.eps,
                      .weight_decay = o.weight_decay,
                      .correction1 = factors.correction1,
                      .correction2 = factors.correction2};
    b.arithmetic.template fused_adam<Kernel>(f, b.weight(), b.gradient(), b.m(), b.v(), change, b.count);
    b.round(b.state.m_format, b.m());
    b.round(b.state.v_format, b.v());
    add_update(b, change);
}

template <class Arithmetic>
constexpr void adam(const BlockState<Arithmetic>& b, const Factors& factors) {
    switch (b.options.order) {
    case OptimizerOrder::torch:
    case OptimizerOrder::torch_1:
    case OptimizerOrder::optimi:
    case OptimizerOrder::lion_pytorch:
    case OptimizerOrder::keller_jordan: return torch_adam(b, factors);
    case OptimizerOrder::torch_fused: return fused_adam<TorchFusedKernel>(b, factors);
    case OptimizerOrder::torch_fused_cpu: return fused_adam<FusedCpuKernel<true>>(b, factors);
    case OptimizerOrder::apex: return fused_adam<ApexKernel>(b, factors);
    case OptimizerOrder::ms_amp: return fused_adam<MsAmpKernel>(b, factors);
    case OptimizerOrder::torchao: return fused_adam<TorchAoKernel>(b, factors);
    case OptimizerOrder::bitsandbytes: return fused_adam<FusedCpuKernel<false>>(b, factors);
    }
}

/// Makes one step of elements [begin, begin + n) of a parameter; n is at most the length of Arithmetic::Block.
template <class Arithmetic>
constexpr UpdateCounts update_block(const OptimizerOptions& options, const UpdateStep& step, const Factors& factors,
                                    const ParameterState& state, const Arithmetic& arithmetic, std::size_t begin,
                                    std::size_t n) {
    const BlockState<Arithmetic> b{options, step, state, arithmetic, begin, n};
    typename Arithmetic::Block before, kept;
    copy(b.weight(), n, before);
    const bool kahan = state.rounding == UpdateRounding::kahan;
    float* const compensation = kahan ? state.compensation.data() + begin : nullptr;
    if (kahan) copy(compensation, n, kept);
    switch (options.kind) {
    case OptimizerKind::sgd: sgd(b); break;
    case OptimizerKind::adam:
    case OptimizerKind::adamw: adam(b, factors); break;
    case OptimizerKind::lion: lion(b); break;
    case OptimizerKind::muon: muon(b); break;
    case OptimizerKind::adafactor: adafactor(b); break;
    }
    arithmetic.canonical(b.weight(), n);
    if (!state.m.empty()) arithmetic.canonical(b.m(), n);
    if (!state.v.empty()) arithmetic.canonical(b.v(), n);
    if (kahan) arithmetic.canonical(compensation, n);
    return arithmetic.count(before, b.weight(), kahan ? kept : nullptr, compensation, b.gradient(), n);
}

} // namespace amp::kernels
