#include <ampscope/sim/optimizer.h>

#include <ampscope/formats/environment.h>
#include <ampscope/sim/kernels/optimizer.h>
#include <ampscope/sim/optimizer_loops.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace amp {

namespace {

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
    {"lbadam", {.kind = OptimizerKind::adam, .order = OptimizerOrder::ms_amp}, "msamp.optim.LBAdam"},
    {"lbadamw", {.order = OptimizerOrder::ms_amp, .weight_decay = 0.01}, "msamp.optim.LBAdamW"},
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

} // namespace

kernels::Factors kernels::factors_of(const OptimizerOptions& options, std::int64_t t) {
    const bool single = options.order == OptimizerOrder::ms_amp;
    const auto correction = [&](double beta) { return 1 - power(single ? static_cast<float>(beta) : beta, t); };
    return {correction(options.beta1), correction(options.beta2)};
}

UpdateCounts& UpdateCounts::operator+=(const UpdateCounts& other) {
    lost += other.lost;
    changed += other.changed;
    nonfinite += other.nonfinite;
    return *this;
}

void keep_scaled(const FormatSpec& format, std::span<float> x) {
    const FloatEnvironment environment;
    float amax = 0;
    for (const float value : x) amax = std::abs(value) > amax ? std::abs(value) : amax;
    const BlockScale scale = block_scale(ScaleRule::ms_amp, format, amax);
    for (float& value : x) value = kernels::scaled_value(format, value, scale);
}

UpdateCounts update(const OptimizerOptions& options, const UpdateStep& step, const ParameterState& state) {
    const FloatEnvironment environment;
    const ScaledState& scaled = state.scaled;
    std::vector<float> before;
    if (scaled.weight) before.assign(state.weight.begin(), state.weight.end());
    const kernels::Factors factors = kernels::factors_of(options, step.t);
    const detail::BlockArithmetic arithmetic(options.contract);
    UpdateCounts counts;
    for (std::size_t begin = 0; begin < state.weight.size(); begin += detail::block_length) {
        const std::size_t n = std::min<std::size_t>(detail::block_length, state.weight.size() - begin);
        counts += kernels::update_block(options, step, factors, state, arithmetic, begin, n);
    }
    if (scaled.m) keep_scaled(*scaled.m, state.m);
    if (scaled.v) keep_scaled(*scaled.v, state.v);
    if (!scaled.weight) return counts;
    keep_scaled(*scaled.weight, state.weight);
    return kernels::count(before.data(), state.weight.data(), nullptr, nullptr, state.gradient.data(), before.size());
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
