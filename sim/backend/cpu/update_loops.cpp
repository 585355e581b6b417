#include <ampscope/sim/backend/cpu/detail/update_loops.h>

#include <ampscope/formats/batch.h>

#include <span>

namespace amp::detail {

using namespace kernels;

namespace {

/// Runs Kernel<contract, fused>, where `fused` is true if the instruction set has the instruction.
template <template <bool, bool> class Kernel, class... Args>
void contracted(bool contract, InstructionSet set, Args... args) {
    if (!contract) return dispatch<Kernel<false, false>>(set, args...);
#if defined(__x86_64__)
    if (set == InstructionSet::avx512) return run_avx512<Kernel<true, true>>(args...);
    if (set == InstructionSet::avx2) return run_avx2<Kernel<true, true>>(args...);
#endif
    run_baseline<Kernel<true, false>>(args...);
}

} // namespace

void BlockArithmetic::round(const FormatSpec& format, float* x, std::size_t n) const {
    const std::span<float> values(x, n);
    quantize(format, values, values); // rounding to FP32 only makes NaNs canonical
}
void BlockArithmetic::round_at_random(const FormatSpec& format, float* x, std::size_t n, const Policy& policy,
                                      const RandomKey& key, std::uint64_t first) const {
    const std::span<float> values(x, n);
    quantize(format, values, values, {.policy = policy, .key = key, .first_index = first});
}
void BlockArithmetic::add(float* out, const float* a, const float* b, std::size_t n) const {
    dispatch<AddKernel>(set_, out, a, b, n);
}
void BlockArithmetic::subtract(float* out, const float* a, const float* b, std::size_t n) const {
    dispatch<SubtractKernel>(set_, out, a, b, n);
}
void BlockArithmetic::multiply(float* out, const float* a, float factor, std::size_t n) const {
    dispatch<MultiplyKernel>(set_, out, a, factor, n);
}
void BlockArithmetic::divide(float* out, const float* a, float divisor, std::size_t n) const {
    dispatch<DivideKernel>(set_, out, a, divisor, n);
}
void BlockArithmetic::add_constant(float* out, const float* a, float term, std::size_t n) const {
    dispatch<AddConstantKernel>(set_, out, a, term, n);
}
void BlockArithmetic::sign(float* out, const float* a, std::size_t n) const { dispatch<SignKernel>(set_, out, a, n); }
void BlockArithmetic::root(float* out, const float* a, std::size_t n) const { dispatch<RootKernel>(set_, out, a, n); }
void BlockArithmetic::add_scaled(float* out, const float* a, const float* b, float factor, std::size_t n) const {
    contracted<AddScaledKernel>(contract_, set_, out, a, b, factor, n);
}
void BlockArithmetic::add_square(float* v, const float* g, float factor, std::size_t n) const {
    contracted<AddSquareKernel>(contract_, set_, v, g, factor, n);
}
void BlockArithmetic::lerp(float* m, const float* g, float w, std::size_t n) const {
    contracted<LerpKernel>(contract_, set_, m, g, w, n);
}
void BlockArithmetic::quotient(float* out, const float* a, const float* b, std::size_t n) const {
    dispatch<QuotientKernel>(set_, out, a, b, n);
}
void BlockArithmetic::canonical(float* x, std::size_t n) const { dispatch<CanonicalKernel>(set_, x, n); }
UpdateCounts BlockArithmetic::count(const float* before, const float* after, const float* kept_before,
                                    const float* kept_after, const float* gradient, std::size_t n) const {
    UpdateCounts counts;
    dispatch<CountKernel>(set_, before, after, kept_before, kept_after, gradient, n, &counts);
    return counts;
}

} // namespace amp::detail
