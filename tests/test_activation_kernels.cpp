// The loops of activations and of softmax, which take quick values where these decide a rounding: whatever the arrays
// hold, and however they are divided, results round as those of the functions do.
#include "sweep.h"

#include <ampscope/formats/codec.h>
#include <ampscope/sim/backend/kernels/activation.h>
#include <ampscope/sim/backend/kernels/softmax.h>

#include <limits>
#include <random>

using namespace amp;
using namespace amp::test;

namespace {

/// Numbers of ordinary size, between stretches of those that have no quick value or that no rounding is decided for.
std::vector<float> operands(std::size_t n, float ordinary, unsigned seed) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const float odd_ones[] = {0,
                              -0.0F,
                              infinity,
                              -infinity,
                              std::numeric_limits<float>::quiet_NaN(),
                              0x1p-149F,
                              -0x1p-60F,
                              5.9F,
                              -7.99F,
                              8,
                              -16,
                              100,
                              -700,
                              0x1.fffffep+127F,
                              -0x1.81429ep-1F,
                              -0x1.474974p+0F};
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, ordinary);
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) {
        const bool stretch = i / 50 % 7 == 6, alone = random() % 40 == 0;
        x[i] = stretch || alone ? odd_ones[random() % std::size(odd_ones)] : normal(random);
    }
    return x;
}

/// Compares results rounded to FP32, BF16, FP16 and E4M3, in each direction.
void compare(const char* what, const std::vector<double>& got, const std::vector<double>& want, Tally& tally) {
    const FormatSpec formats[] = {format("fp32"), format("bf16"), format("fp16"), format("e4m3")};
    const Rounding roundings[] = {Rounding::nearest_even, Rounding::toward_zero, Rounding::up, Rounding::to_odd};
    for (std::size_t i = 0; i < want.size(); ++i)
        for (const FormatSpec& f : formats)
            for (const Rounding rounding : roundings) {
                const Policy policy{.rounding = rounding};
                tally.expect(quantize(f, got[i], policy), quantize(f, want[i], policy),
                             [&] { return fmt::format("{}: {:a} for {:a}", what, got[i], want[i]); });
            }
}

} // namespace

TEST_CASE(
    "activations and their gradients round as their functions do, in parts of any size, by each instruction set") {
    const std::vector<float> in = operands(3000, 2, 1), grad = operands(3000, 1e-3F, 2);
    constexpr std::size_t begin = 13;
    for (std::size_t kind = 0; kind < op::activation_names.size(); ++kind)
        kernels::with_functions(static_cast<op::ActivationKind>(kind), [&]<class F>(F) {
            Tally tally;
            for (const std::size_t n : {1U, 31U, 32U, 33U, 1024U, 2987U})
                for (const InstructionSet set :
                     {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512}) {
                    if (set > best_instruction_set()) continue;
                    std::vector<double> forward(n), backward(n), exact(n), exact_gradient(n);
                    for (std::size_t i = 0; i < n; ++i) {
                        exact[i] = F::value(in[begin + i]);
                        exact_gradient[i] = grad[begin + i] * F::derivative(in[begin + i]);
                    }
                    const auto first = static_cast<std::int64_t>(begin), count = static_cast<std::int64_t>(n);
                    dispatch<kernels::Forward<F>>(set, first, count, forward.data(), in.data());
                    dispatch<kernels::Backward<F>>(set, first, count, backward.data(), in.data(), grad.data());
                    compare("value", forward, exact, tally);
                    compare("gradient", backward, exact_gradient, tally);
                }
            report(fmt::format("{} in loops", op::activation_names[kind]), tally);
        });
}

TEST_CASE("softmax rounds as its definition does, in rows of any length, by each instruction set") {
    using kernels::SoftmaxKernel;
    Tally tally;
    std::int64_t rows = 0, estimates = 0;
    for (const std::int64_t n : {1, 2, 15, 16, 17, 64, 100, 1023, 4096, 4097})
        for (const float ordinary : {1e-3F, 1.0F, 10.0F, 300.0F})
            for (unsigned seed = 0; seed < (n > 1000 ? 6U : 20U); ++seed) {
                const auto count = static_cast<std::size_t>(n);
                std::vector<float> x = operands(count, ordinary, seed);
                if (seed == 3) std::ranges::fill(x, -std::numeric_limits<float>::infinity());
                if (seed >= 4) { // what is not ordinary has no estimate
                    std::mt19937 random(seed);
                    std::normal_distribution<float> normal(0, ordinary);
                    for (float& v : x) v = normal(random);
                }
                std::vector<double> want(count), got(count);
                const float max = kernels::greatest(x.data(), n);
                SoftmaxKernel::exact(x.data(), n, n, max, want.data());
                ++rows;
                estimates += SoftmaxKernel::estimated(x.data(), n, n, max, got.data()) ? 1 : 0;
                for (const InstructionSet set :
                     {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512}) {
                    if (set > best_instruction_set()) continue;
                    dispatch<SoftmaxKernel>(set, std::int64_t{0}, n, got.data(), x.data(), false);
                    compare("softmax", got, want, tally);
                    // The first numbers of a causal row, before others, NaNs or not, that it does not use.
                    const std::int64_t row = n / 2, used = seed % 2 == 0 ? row + 1 : n;
                    std::vector<float> lines(static_cast<std::size_t>((row + 1) * n),
                                             std::numeric_limits<float>::quiet_NaN());
                    std::copy_n(x.begin(), used, lines.end() - n);
                    std::vector<double> known(count);
                    SoftmaxKernel::exact(x.data(), row + 1, row + 1, kernels::greatest(x.data(), row + 1),
                                         known.data());
                    dispatch<SoftmaxKernel>(set, row, n, got.data(), lines.data(), true);
                    compare("causal softmax", got, known, tally);
                }
            }
    report("softmax in loops", tally);
    CHECK((!has_fma() || estimates > rows / 2)); // or they are of no use
}
