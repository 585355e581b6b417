// All 2^31 magnitudes of FP32 through the exact histogram, in six formats and at several scales, against the
// processor's double arithmetic: the scaled element is exact, and one nearbyint in units of the format's last place
// rounds it. Neighbouring magnitudes are counted together: classes ascend with magnitude, so equal counts mean equal
// classes.
#include "cases.h"

#include <ampscope/sim/analysis/count.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace amp;
using namespace amp::test;

namespace {

constexpr std::uint64_t group = 1 << 16; // magnitudes counted together

ClassCounts by_double(const Facts& f, int log2_scale, std::span<const float> words) {
    const double scale = std::ldexp(1.0, log2_scale), min_normal = std::ldexp(1.0, 1 - f.bias);
    ClassCounts counts;
    for (const float word : words) {
        if (!std::isfinite(word) || word == 0) continue;
        const double x = std::fabs(double{word}) * scale;
        const auto exponent = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52) - 1023;
        const int last_place = std::max(exponent, 1 - f.bias) - f.fraction_bits;
        const auto power = [](int e) { return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52); };
        const double r = std::nearbyint(x * power(-last_place)) * power(last_place);
        counts.underflow += r == 0;
        counts.subnormal += r != 0 && r < min_normal;
        counts.normal += r >= min_normal && r <= f.max;
        counts.overflow += r > f.max;
    }
    return counts;
}

} // namespace

TEST_CASE("the classes of all FP32 magnitudes") {
    for (const char* name : {"fp32", "tf32", "fp16", "bf16", "e4m3", "e5m2"})
        for (const int log2_scale : {-24, 0, 5, 24}) {
            const FormatSpec f = format(name);
            const Facts facts_of_format = *std::ranges::find(oracle::facts, name, &Facts::name);
            prove(
                fmt::format("histogram classes of FP32 words in {} at 2^{}, by {}", name, log2_scale, group),
                (std::uint64_t{1} << 31) / group,
                [&](std::uint64_t i, Tally& tally) {
                    std::vector<float> words(group);
                    for (std::uint64_t j = 0; j < group; ++j)
                        words[j] = std::bit_cast<float>(static_cast<std::uint32_t>(i * group + j) |
                                                        (i % 2 != 0 ? 0x80000000U : 0));
                    MagnitudeCounter counter(DType::f32);
                    counter.add(std::as_bytes(std::span(words)));
                    const ClassCounts got = counter.statistics().histogram.classify(f, log2_scale),
                                      want = by_double(facts_of_format, log2_scale, words);
                    tally.expect(got == want, true, [&] { return fmt::format("magnitudes from {:#010x}", i * group); });
                },
                shard());
        }
}
