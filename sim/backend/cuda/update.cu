#include <ampscope/sim/backend/cuda/wide.cuh>
#include <ampscope/sim/backend/kernels/quantize.h>
#include <ampscope/sim/backend/kernels/update.h>

namespace amp::op {

namespace {

/// The operations of sim/backend/cpu/detail/update_loops.h for one element.
struct SingleArithmetic {
    using Block = float[1];
    bool contract;

    AMPSCOPE_DEVICE void round(const FormatSpec& f, float* x, std::size_t) const { *x = cuda::rounded(f, *x); }
    AMPSCOPE_DEVICE void round_at_random(const FormatSpec& f, float* x, std::size_t, const Policy& policy,
                                         const RandomKey& key, std::uint64_t index) const {
        *x = quantize(f, *x, policy, key.word(index, policy.random_bits));
    }
    AMPSCOPE_DEVICE void add(float* out, const float* a, const float* b, std::size_t) const { *out = *a + *b; }
    AMPSCOPE_DEVICE void subtract(float* out, const float* a, const float* b, std::size_t) const { *out = *a - *b; }
    AMPSCOPE_DEVICE void multiply(float* out, const float* a, float factor, std::size_t) const { *out = *a * factor; }
    AMPSCOPE_DEVICE void divide(float* out, const float* a, float divisor, std::size_t) const { *out = *a / divisor; }
    AMPSCOPE_DEVICE void add_constant(float* out, const float* a, float x, std::size_t) const { *out = *a + x; }
    AMPSCOPE_DEVICE void sign(float* out, const float* a, std::size_t n) const { kernels::SignKernel::run(out, a, n); }
    AMPSCOPE_DEVICE void root(float* out, const float* a, std::size_t) const { *out = std::sqrt(*a); }
    AMPSCOPE_DEVICE void quotient(float* out, const float* a, const float* b, std::size_t) const { *out = *a / *b; }
    AMPSCOPE_DEVICE void add_scaled(float* out, const float* a, const float* b, float factor, std::size_t n) const {
        if (contract) kernels::AddScaledKernel<true, false>::run(out, a, b, factor, n);
        else kernels::AddScaledKernel<false, false>::run(out, a, b, factor, n);
    }
    AMPSCOPE_DEVICE void add_square(float* v, const float* g, float factor, std::size_t n) const {
        if (contract) kernels::AddSquareKernel<true, false>::run(v, g, factor, n);
        else kernels::AddSquareKernel<false, false>::run(v, g, factor, n);
    }
    AMPSCOPE_DEVICE void lerp(float* m, const float* g, float w, std::size_t n) const {
        if (contract) kernels::LerpKernel<true, false>::run(m, g, w, n);
        else kernels::LerpKernel<false, false>::run(m, g, w, n);
    }
    AMPSCOPE_DEVICE void canonical(float* x, std::size_t n) const { kernels::CanonicalKernel::run(x, n); }
    AMPSCOPE_DEVICE UpdateCounts count(const float* before, const float* after, const float* kept_before,
                                       const float* kept_after, const float* gradient, std::size_t n) const {
        UpdateCounts counts;
        kernels::CountKernel::run(before, after, kept_before, kept_after, gradient, n, &counts);
        return counts;
    }
    template <class Kernel>
    AMPSCOPE_DEVICE void fused_adam(const kernels::FusedAdam& f, float* weight, const float* gradient, float* m,
                                    float* v, float* change, std::size_t n) const {
        Kernel::run(&f, weight, gradient, m, v, change, n);
    }
};

/// The part of keep_scaled() about blocks, on the device: a thread has a block.
void keep_blocks(const CudaDevice& device, const ScaledFormat& format, std::span<float> values, bool contract) {
    const std::span<const float> table = code_numbers(format, contract);
    const DeviceArray<float> memory(device, table.size());
    if (!table.empty()) memory.upload(table.data());
    const float* const numbers = memory.data();
    float* const x = values.data();
    const auto block = static_cast<std::size_t>(format.block), count = values.size();
    cuda::each(device, static_cast<std::int64_t>((count + block - 1) / block), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const std::size_t begin = static_cast<std::size_t>(i) * block;
        const std::size_t n = count - begin < block ? count - begin : block;
        const float amax = kernels::amax_of(x + begin, static_cast<std::int64_t>(n), kernels::keeps_nan(format));
        if (format.map != CodeMap::none) return kernels::TableKernel::run(&format, numbers, amax, x + begin, n);
        const float scale = kernels::scale_of_block(format, amax);
        for (std::size_t k = begin; k < begin + n; ++k) x[k] = kernels::value_in_block(format, scale, x[k]);
    });
}

/// Does what keep_scaled() does, on the device.
void keep_scaled(const CudaDevice& device, const ScaledFormat& format, std::span<float> values, bool contract) {
    if (format.block > 0) return keep_blocks(device, format, values, contract);
    const FormatSpec f = format.element;
    const DeviceArray<std::uint32_t> memory(device, 1);
    std::uint32_t* const amax = memory.data(); // its bits are ordered as magnitudes are, with NaN above
    float* const x = values.data();
    const auto count = static_cast<std::int64_t>(values.size());
    cuda::each(device, count, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffff;
        if (magnitude <= 0x7f800000) cuda::atomic_max(*amax, magnitude);
    });
    cuda::each(device, count, [=] AMPSCOPE_DEVICE(std::int64_t i) {
        x[i] = kernels::scaled_value(f, x[i], block_scale(ScaleRule::ms_amp, f, std::bit_cast<float>(*amax)));
    });
}

AMPSCOPE_INLINE void add_counts(UpdateCounts* total, const UpdateCounts& own) {
    if (own.lost != 0) cuda::atomic_add(total->lost, own.lost);
    if (own.changed != 0) cuda::atomic_add(total->changed, own.changed);
    if (own.nonfinite != 0) cuda::atomic_add(total->nonfinite, own.nonfinite);
}

} // namespace

void run(Cuda& cuda, const Update& op) {
    const auto count = static_cast<std::size_t>(cuda.info(op.weight).count());
    const auto data = [&](TensorId id) { return id ? std::span(cuda.out(id), count) : std::span<float>{}; };
    const auto format_of = [&](TensorId id) { return id ? cuda.info(id).format : format("fp32"); };
    const StepContext& c = cuda.context;
    const UpdateStep step{.t = c.update,
                          .learning_rate = op.options.learning_rate * c.warmup,
                          .rate_factor = op.rate_factor,
                          .key = {.seed = c.seed, .stream = op.stream, .step = c.step}};
    const ParameterState state{.weight_format = format_of(op.weight),
                               .m_format = format_of(op.m),
                               .v_format = format_of(op.v),
                               .weight = data(op.weight),
                               .gradient = {cuda.in(op.gradient), count},
                               .m = data(op.m),
                               .v = data(op.v),
                               .compensation = data(op.compensation),
                               .scaled = scaled_state(cuda.program(), op),
                               .rounding = op.rounding,
                               .random_bits = op.random_bits,
                               .weight_norm = op.weight_norm ? cuda.in(op.weight_norm) : nullptr,
                               .direction_norm = op.direction_norm ? cuda.in(op.direction_norm) : nullptr};
    const OptimizerOptions options = op.options;
    const kernels::Factors factors = kernels::factors_of(options, step.t);
    const DeviceArray<UpdateCounts> counts(cuda.device(), 1);
    UpdateCounts* const total = counts.data();
    const bool scales = state.scaled.weight.has_value(); // weights are counted after they were scaled
    const DeviceArray<float> memory(cuda.device(), scales ? count : 0);
    float* const before = memory.data();
    cuda::each(cuda.device(), static_cast<std::int64_t>(count), [=] AMPSCOPE_DEVICE(std::int64_t i) {
        if (scales) before[i] = state.weight.data()[i];
        const UpdateCounts own = kernels::update_block(
            options, step, factors, state, SingleArithmetic{options.contract}, static_cast<std::size_t>(i), 1);
        if (!scales) add_counts(total, own);
    });
    if (state.scaled.m) keep_scaled(cuda.device(), *state.scaled.m, state.m, options.contract);
    if (state.scaled.v) keep_scaled(cuda.device(), *state.scaled.v, state.v, options.contract);
    if (scales) {
        keep_scaled(cuda.device(), *state.scaled.weight, state.weight, options.contract);
        cuda::each(cuda.device(), static_cast<std::int64_t>(count), [=] AMPSCOPE_DEVICE(std::int64_t i) {
            add_counts(total, SingleArithmetic{}.count(before + i, state.weight.data() + i, nullptr, nullptr,
                                                       state.gradient.data() + i, 1));
        });
    }
    cuda.updates += counts.read()[0];
}

} // namespace amp::op
