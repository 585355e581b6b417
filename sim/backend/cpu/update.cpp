#include <ampscope/formats/batch.h>
#include <ampscope/formats/block.h>
#include <ampscope/formats/environment.h>
#include <ampscope/sim/backend/cpu/cpu.h>
#include <ampscope/sim/backend/cpu/detail/update_loops.h>
#include <ampscope/sim/backend/kernels/update.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace amp {

namespace {

/// base^n for 0 <= base <= 1, in pairs of doubles with a relative error of some n 2^-104, then rounded. Python calls
/// the C library's pow, which returns the same unless the power is very close to a tie; what it returns there depends
/// on the library.
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
    const OrderFacts facts = facts_of(options.order);
    const auto raised = [&](double beta) {
        const double result = power(facts.single_betas ? static_cast<float>(beta) : beta, t);
        return facts.single_powers ? static_cast<float>(result) : result;
    };
    const double power1 = raised(options.beta1), power2 = raised(options.beta2);
    if (!facts.debiases) return {1 - power1, 1 - power2, options.beta1, options.beta2};
    return {1, 1, (power1 - options.beta1) / (power1 - 1), (power2 - options.beta2) / (power2 - 1)};
}

UpdateCounts& UpdateCounts::operator+=(const UpdateCounts& other) {
    lost += other.lost;
    changed += other.changed;
    nonfinite += other.nonfinite;
    return *this;
}

namespace {

void round_and_scale(const FormatSpec& f, const Policy& policy, std::span<float> x, float factor) {
    quantize(f, x, x, {.policy = policy});
    for (float& value : x) value = kernels::named(value * factor);
}

/// The part of keep_scaled() about a block.
void keep_block(const ScaledFormat& f, std::span<const float> numbers, std::span<float> x) {
    const float amax = largest_magnitude(x, kernels::keeps_nan(f) ? Magnitudes::all : Magnitudes::not_nan);
    if (!numbers.empty())
        return dispatch<kernels::TableKernel>(best_instruction_set(), &f, numbers.data(), amax, x.data(), x.size());
    const float scale = kernels::scale_of_block(f, amax); // what value_in_block() does, in passes
    for (float& value : x) value /= scale;
    round_and_scale(f.element, {}, x, scale);
}

} // namespace

void keep_scaled(const ScaledFormat& format, std::span<float> x, bool contract) {
    const FloatEnvironment environment;
    if (format.block > 0) {
        const std::span<const float> numbers = code_numbers(format, contract);
        const auto block = static_cast<std::size_t>(format.block);
        for (std::size_t begin = 0; begin < x.size(); begin += block)
            keep_block(format, numbers, x.subspan(begin, std::min(block, x.size() - begin)));
        return;
    }
    const float amax = largest_magnitude(x, Magnitudes::not_nan);
    const BlockScale scale = block_scale(ScaleRule::ms_amp, format.element, amax);
    for (float& value : x) value *= scale.encode; // what scaled_value() does, in passes
    round_and_scale(format.element, kernels::ms_amp_policy(format.element), x, scale.decode);
}

namespace {

UpdateCounts update_blocks(const OptimizerOptions& options, const UpdateStep& step, const kernels::Factors& factors,
                           const ParameterState& state) {
    const detail::BlockArithmetic arithmetic(options.contract);
    UpdateCounts counts;
    for (std::size_t begin = 0; begin < state.weight.size(); begin += detail::block_length) {
        const std::size_t n = std::min<std::size_t>(detail::block_length, state.weight.size() - begin);
        counts += kernels::update_block(options, step, factors, state, arithmetic, begin, n);
    }
    return counts;
}

/// A step of Adam once its moments are there: with betas of 1 and no gradient it keeps them, and their bias corrections
/// are those of the options.
UpdateCounts update_weights(OptimizerOptions options, const UpdateStep& step, ParameterState state) {
    kernels::Factors factors = kernels::factors_of(options, step.t);
    if (!facts_of(options.kind).decouples) options.weight_decay = 0; // the moments contain it
    options.beta1 = options.beta2 = factors.beta1 = factors.beta2 = 1;
    const std::vector<float> zeros(state.weight.size());
    state.gradient = zeros;
    return update_blocks(options, step, factors, state);
}

} // namespace

UpdateCounts update(const OptimizerOptions& options, const UpdateStep& step, const ParameterState& state) {
    const FloatEnvironment environment;
    if (facts_of(options.kind).factors && (state.weight_norm == nullptr || state.direction_norm == nullptr))
        throw std::invalid_argument("[update] adafactor: expected the norms of the weight and of the direction");
    if (step.has_moments) return update_weights(options, step, state);
    const ScaledState& scaled = state.scaled;
    std::vector<float> before;
    if (scaled.weight) before.assign(state.weight.begin(), state.weight.end());
    UpdateCounts counts = update_blocks(options, step, kernels::factors_of(options, step.t), state);
    if (scaled.m) keep_scaled(*scaled.m, state.m, options.contract);
    if (scaled.v) keep_scaled(*scaled.v, state.v, options.contract);
    if (!scaled.weight) return counts;
    keep_scaled(*scaled.weight, state.weight);
    return detail::BlockArithmetic(false).count(before.data(), state.weight.data(), nullptr, nullptr,
                                                state.gradient.data(), before.size());
}

void op::run(Cpu& cpu, const Update& op) {
    const auto data = [&](TensorId id) { return id ? cpu[id] : std::span<float>{}; };
    const auto format_of = [&](TensorId id) { return id ? cpu.info(id).format : fp32_format(); };
    const StepContext& c = cpu.context;
    const UpdateCounts counts = update(op.options,
                                       {.t = c.update,
                                        .learning_rate = op.options.learning_rate * c.warmup,
                                        .rate_factor = op.rate_factor,
                                        .key = {.seed = c.seed, .stream = op.stream, .step = c.step}},
                                       {.weight_format = format_of(op.weight),
                                        .m_format = format_of(op.m),
                                        .v_format = format_of(op.v),
                                        .weight = cpu[op.weight],
                                        .gradient = cpu[op.gradient],
                                        .m = data(op.m),
                                        .v = data(op.v),
                                        .compensation = data(op.compensation),
                                        .scaled = scaled_state(cpu.program(), op),
                                        .rounding = op.rounding,
                                        .random_bits = op.random_bits,
                                        .weight_norm = data(op.weight_norm).data(),
                                        .direction_norm = data(op.direction_norm).data()});
    cpu.updates += counts;
}

} // namespace amp
