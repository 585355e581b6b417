// Dot products of scaled operands against exact integers: scales within the sums, and behind those of blocks.
#include "accumulator_inputs.h"
#include "oracle_accumulator.h"
#include "sweep.h"

#include <ampscope/formats/scaled_dot.h>

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

using namespace amp;
using namespace amp::test;

namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

struct ScaledCase {
    const char *row, *scales;
    std::size_t block;
};
constexpr ScaledCase scaled_cases[] = {{"blackwell-fp8", "e8m0", 32},
                                       {"blackwell-mxf4nvf4", "e4m3", 16},
                                       {"blackwell-mxf4nvf4", "e8m0", 16},
                                       {"blackwell-mxf4nvf4", "e8m0", 32}};

} // namespace

TEST_CASE("scales are part of Blackwell's sums") {
    const std::vector<oracle::Matrix> matrices = oracle::matrices();
    prove("dot products of blocks with scales", 40000, [&](std::uint64_t index, Tally& tally) {
        std::mt19937 random(static_cast<std::uint32_t>(index));
        const ScaledCase& of = scaled_cases[index % std::size(scaled_cases)];
        const oracle::Matrix* m = nullptr;
        while (m == nullptr || !m->name.starts_with(of.row)) m = &matrices[random() % matrices.size()];
        const auto kind = static_cast<Inputs>(index / std::size(scaled_cases) % inputs_names.size());
        const std::size_t k = 1 + random() % 200, blocks = (k + of.block - 1) / of.block;
        const std::vector<float> a = Operands(m->a, random()).make(kind, k), b = Operands(m->b, random()).make(kind, k);
        RandomScales scales(of.scales, of.block, blocks, random);
        const float any = std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 80) - 70),
                    c = index % 3 == 0 ? 0 : quantize(accumulator(m->name).total(), index % 2 == 0 ? any : -any);
        const auto ours = [&] {
            return bits(scaled_dot(accumulator(m->name), format(m->a), format(m->b), {a, scales.a}, {b, scales.b},
                                   of.block, format(of.scales), index % 6 == 0 ? no_addend : c));
        };
        tally.expect(ours(), oracle::dot(*m, a, b, c, scales.products), [&] {
            return fmt::format("{}, {} scales for {}, k {}, case {}", m->name, of.scales, of.block, k, index);
        });
        (index % 2 == 0 ? scales.a : scales.b).back() = std::numeric_limits<float>::quiet_NaN();
        tally.expect(ours(), oracle::nan_bits, [] { return "a NaN scale"; });
    });
    const auto applies = [](const char* row, const char* scale, std::int64_t block) {
        return applies_scales(accumulator(row), format(scale), block);
    };
    CHECK_FALSE(applies("blackwell-fp8", "e8m0", 16));
    CHECK_FALSE(applies("blackwell-fp8", "e8m0", 64));
    CHECK_FALSE(applies("blackwell-fp8", "e4m3", 32));
    CHECK(applies("blackwell-mxf4nvf4", "e4m3", 32)); // MMA-Sim lists m16n8k64.block32 with ue4m3
    CHECK_FALSE(applies("blackwell-mxf4nvf4", "e4m3", 64));
    CHECK_FALSE(applies("blackwell-mxf4nvf4", "fp32", 16));
    CHECK_FALSE(applies("hopper-wgmma-fp8", "e8m0", 32));
}

TEST_CASE("other scales multiply the sums of blocks, which are added by fused multiply-adds") {
    const std::vector<float> a = Operands("e4m3", 1).make(Inputs::normal, 300),
                             b = Operands("e4m3", 2).make(Inputs::normal, 300);
    const float a_scales[] = {0.3F, 7, 0x1p-20F}, b_scales[] = {1.1F, 0.01F, 0x1p10F};
    const Accumulator acc = accumulator("hopper-wgmma-fp8");
    float want = 0;
    for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t n = i < 2 ? 128 : 44;
        const float sum = dot(acc, format("e4m3"), format("e4m3"), std::span(a).subspan(128 * i, n),
                              std::span(b).subspan(128 * i, n));
        want = std::fma(sum, a_scales[i] * b_scales[i], want);
    }
    const auto ours = [&](float c) {
        return scaled_dot(acc, format("e4m3"), format("e4m3"), {a, a_scales}, {b, b_scales}, 128, format("fp32"), c);
    };
    CHECK(ours(0) == want);
    CHECK(ours(no_addend) == want);
    float with_c = 0x1.8p30F;
    for (std::size_t i = 0; i < 3; ++i) {
        const std::size_t n = i < 2 ? 128 : 44;
        const float sum = dot(acc, format("e4m3"), format("e4m3"), std::span(a).subspan(128 * i, n),
                              std::span(b).subspan(128 * i, n));
        with_c = std::fma(sum, a_scales[i] * b_scales[i], with_c);
    }
    CHECK(ours(0x1.8p30F) == with_c);
    // Without an addend a sum that underflows keeps its sign; an empty one is +0.
    const float one[] = {1}, least[] = {-0x1p-100F};
    const auto tiny = [&](float c) {
        return bits(scaled_dot({}, format("fp32"), format("fp32"), {least, one}, {least, least}, 1, format("fp32"), c));
    };
    CHECK(tiny(no_addend) == 0x80000000);
    CHECK(tiny(0) == 0);
    CHECK(bits(scaled_dot({}, format("fp32"), format("fp32"), {}, {}, 1, format("fp32"))) == 0);
}
