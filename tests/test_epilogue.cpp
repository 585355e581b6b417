// Epilogues of products: each rounding against exact numbers, and torch._scaled_mm as mmaemu computes it, recorded by
// tests/data/mmaemu/record.py.
#include "accumulator_inputs.h"
#include "hardware_inputs.h"
#include "sweep.h"

#include <ampscope/sim/backend/cpu/product.h>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

using namespace amp;
using namespace amp::test;

namespace {

/// x * y + z exactly, rounded once to the format.
float rounded_once(const std::string& name, float x, float y, float z, oracle::Overflow overflow) {
    const oracle::Facts& f = oracle::find(name);
    const oracle::Number a = oracle::read(x), b = oracle::read(y), c = oracle::read(z);
    constexpr int unit = -400;
    const auto units = [](const oracle::Integer& n, int exponent, bool negative) {
        const oracle::Integer shifted = n << (exponent - unit);
        return negative ? oracle::Integer(-shifted) : shifted;
    };
    oracle::Integer sum = 0;
    if (x != 0 && y != 0) sum += units(a.numerator * b.numerator, a.exponent + b.exponent, a.negative != b.negative);
    if (z != 0) sum += units(c.numerator, c.exponent, c.negative);
    const oracle::Number exact{.kind = sum == 0 ? oracle::Class::zero : oracle::Class::finite,
                               .negative = sum < 0,
                               .numerator = abs(sum),
                               .exponent = unit};
    return oracle::to_float(f, oracle::store({f, {.overflow = overflow}}, exact).code);
}

float converted(const std::string& name, float x, oracle::Overflow overflow) {
    const oracle::Facts& f = oracle::find(name);
    return oracle::to_float(f, oracle::convert({f, {.overflow = overflow}}, oracle::read(x)).code);
}

struct Recording {
    std::string profile, a, b, out, order, kind, hash;
    std::int64_t m = 0, n = 0, k = 0;
    int fast = 0, parts = 1;
    std::uint32_t seed = 0;
};

std::vector<Recording> recordings() {
    std::vector<Recording> all;
    for (std::istringstream& words : recorded_lines("mmaemu/recordings.txt")) {
        Recording& r = all.emplace_back();
        words >> r.profile >> r.a >> r.b >> r.out >> r.m >> r.n >> r.k >> r.fast >> r.parts >> r.order >> r.kind >>
            r.seed >> r.hash;
    }
    return all;
}

/// Lines of k numbers, as record.py makes them.
std::vector<float> lines(const Recording& r, const std::string& name, std::uint32_t first, std::int64_t count) {
    const FormatSpec f = format(name);
    const Codes codes(f);
    const CodeKind kind = code_kind(r.kind);
    std::vector<float> x;
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i)
        for (std::uint32_t l = 0; l < static_cast<std::uint32_t>(r.k); ++l)
            x.push_back(decode(f, codes.code(kind, word(r.seed, first + i, l), l % 2 == 1)));
    return x;
}

float scale(const Recording& r, std::uint32_t i) {
    const std::uint32_t w = word(r.seed, i, 0);
    return std::ldexp(1 + static_cast<float>(w & 0x7fffff) * 0x1p-23F, static_cast<int>((w >> 24) % 9) - 8);
}

std::vector<std::uint32_t> torch_scaled_mm(const Recording& r) {
    const std::string name = "torch-scaled-mm-" + r.profile;
    const auto* const call = std::ranges::find(library_calls, name, &LibraryCall::name);
    REQUIRE(call != library_calls.end());
    const FormatSpec a = format(r.a), b = format(r.b);
    const std::string order = r.order == "runs" ? "" : r.order;
    const std::string split = r.parts == 1 ? "" : fmt::format("split{}{}", r.parts, order);
    const std::vector<float> x = lines(r, r.a, 0, r.m), transposed = lines(r, r.b, 1U << 20, r.n);
    std::vector<float> y(transposed.size()), out(static_cast<std::size_t>(r.m * r.n));
    for (std::int64_t j = 0; j < r.n; ++j)
        for (std::int64_t l = 0; l < r.k; ++l)
            y[static_cast<std::size_t>(l * r.n + j)] = transposed[static_cast<std::size_t>(j * r.k + l)];
    const Epilogue epilogue = epilogue_of(*call, scale(r, 1U << 21), scale(r, (1U << 21) + 1), format(r.out));
    cpu::product(accumulator_of(*call, a, b, r.fast != 0, split), a, b, x, y, out, {.m = r.m, .n = r.n, .k = r.k},
                 epilogue, {}, 1);
    std::vector<std::uint32_t> bits;
    for (const float v : out) bits.push_back(std::bit_cast<std::uint32_t>(v));
    return bits;
}

} // namespace

TEST_CASE("every rounding of an epilogue") {
    const char* const outputs[] = {"fp32", "bf16", "fp16", "e4m3", "e5m2"};
    prove("epilogues", 60000, [&](std::uint64_t index, Tally& tally) {
        std::mt19937 random(static_cast<std::uint32_t>(index));
        const std::string out = outputs[index % std::size(outputs)];
        const auto kind = static_cast<Inputs>(index / std::size(outputs) % 5);
        const std::vector<float> x = Operands("fp32", random()).make(index % 7 == 0 ? Inputs::random_bits : kind, 3);
        const float bias = index % 3 == 0 ? 0 : index % 3 == 1 ? -x[0] * x[1] : x[2];
        if (!std::isfinite(bias)) return;
        const bool saturates = index % 2 == 0;
        const Overflow overflow = saturates ? Overflow::saturate_all : Overflow::infinity;
        const auto expect = [&](EpilogueRounding rounding, float want) {
            const Epilogue e{.alpha = x[1], .out = format(out), .rounding = rounding, .overflow = overflow};
            tally.expect(finish(e, x[0], bias), want, [&] {
                return fmt::format("{}, {:a} * {:a} + {:a} to {}, case {}",
                                   epilogue_rounding_names[static_cast<std::size_t>(rounding)], x[0], x[1], bias, out,
                                   index);
            });
        };
        expect(EpilogueRounding::each, converted(out, x[0] * x[1] + bias, overflow));
        expect(EpilogueRounding::fused, converted(out, std::fma(x[0], x[1], bias), overflow));
        const bool signed_zero = x[0] == 0 || x[1] == 0 || std::fma(x[0], x[1], bias) == 0; // the oracle's has no sign
        if (!signed_zero) expect(EpilogueRounding::once, rounded_once(out, x[0], x[1], bias, overflow));
    });
    const float inf = std::numeric_limits<float>::infinity();
    CHECK(finish({.alpha = 2}, inf) == inf);
    CHECK(std::isnan(finish({.alpha = 0, .rounding = EpilogueRounding::fused}, inf)));
    CHECK(finish({.out = format("e4m3"), .overflow = Overflow::saturate_all}, -inf) == -448);
    CHECK_FALSE(std::signbit(finish({.rounding = EpilogueRounding::fused}, -0.0F))); // beta = 0 adds +0
}

TEST_CASE("torch._scaled_mm of an H100 and of an RTX 4060, as mmaemu computes it") {
    const std::vector<Recording> all = recordings();
    REQUIRE(all.size() == 181);
    prove("outputs of torch._scaled_mm, by hashes", all.size(), [&](std::uint64_t index, Tally& tally) {
        if (!is_due(index)) return;
        const Recording& r = all[index];
        const std::vector<std::uint32_t> bits = torch_scaled_mm(r);
        tally.expect(fnv(bits), std::uint64_t{std::stoull(r.hash, nullptr, 16)}, [&] {
            return fmt::format("{} {} x {} to {}, {} x {} x {}, fast {}, split {} {}, {}", r.profile, r.a, r.b, r.out,
                               r.m, r.n, r.k, r.fast, r.parts, r.order, r.kind);
        });
        tally.cases += bits.size() - 1; // one hash stands for so many
    });
}

TEST_CASE("accumulators of library calls") {
    const LibraryCall &hopper = library_calls[0], &ada = library_calls[1];
    const FormatSpec e4m3 = format("e4m3"), e5m2 = format("e5m2");
    CHECK(accumulator_of(hopper, e4m3, e5m2, true) == accumulator("hopper-wgmma-fp8"));
    CHECK(accumulator_of(hopper, e4m3, e4m3, false, "split3") == accumulator("hopper-wgmma-fp8-promote128-split3"));
    CHECK(accumulator_of(ada, e5m2, e5m2, false) == accumulator("ada-e5m2-promote128"));
    CHECK_THROWS_AS((void)accumulator_of(ada, e4m3, e5m2, true), std::invalid_argument);
    CHECK_THROWS_AS((void)accumulator_of(hopper, format("fp16"), format("fp16"), true), std::invalid_argument);
}

TEST_CASE("a bias is added column by column") {
    const float a[] = {1, 2}, b[] = {1, 10, 100, 1000}, bias[] = {0.5F, -0.5F};
    float out[2] = {};
    cpu::product(accumulator("exact"), format("fp32"), format("fp32"), a, b, out, {.m = 1, .n = 2, .k = 2},
                 {.alpha = 2}, bias);
    CHECK(out[0] == 402.5F);
    CHECK(out[1] == 4019.5F);
}
