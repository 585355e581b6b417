// The histogram's classes against rounding every sample one by one with an oracle of exact integers.
#include <ampscope/sim/analysis/histogram.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <boost/multiprecision/cpp_int.hpp>

#include <random>
#include <vector>

using namespace amp;
using boost::multiprecision::cpp_int;

namespace {

/// The definition of the classes with exact integers, all in units of 2^-400.
struct Oracle {
    cpp_int smallest, min_normal, max; // of the format
    int fraction_bits, min_exponent;
    bool even_max; // whether the largest finite value has an even code

    static cpp_int power(int exponent) { return cpp_int(1) << (exponent + 400); }

    Oracle(int exponent_bits, int t, int bias, int max_fraction_gap, bool top_binade_is_finite)
        : fraction_bits(t), min_exponent(1 - bias) {
        const int emax = (1 << exponent_bits) - 1 - bias - (top_binade_is_finite ? 0 : 1);
        smallest = power(min_exponent - t);
        min_normal = power(min_exponent);
        max = power(emax + 1) - power(emax - t) * (1 + max_fraction_gap);
        even_max = max_fraction_gap % 2 == 1;
    }

    /// 0 underflow, 1 subnormal, 2 normal, 3 overflow
    int classify(const cpp_int& x) const {
        int leading = static_cast<int>(msb(x)) - 400;
        if (leading < min_exponent) leading = min_exponent;
        const cpp_int quantum = power(leading - fraction_bits);
        cpp_int code = x / quantum;
        const cpp_int twice = 2 * (x % quantum);
        if (twice > quantum || (twice == quantum && (code & 1) == 1)) ++code;
        const cpp_int rounded = code * quantum;
        return rounded == 0 ? 0 : rounded > max ? 3 : rounded < min_normal ? 1 : 2;
    }
};

std::vector<float> edge_samples(const FormatSpec& f, std::mt19937& random) {
    std::vector<float> samples;
    const auto add = [&](std::uint32_t bits) {
        for (std::int64_t d = -2; d <= 2; ++d) {
            const std::int64_t b = bits + d;
            if (b > 0 && b < 0x7f800000) samples.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(b)));
        }
    };
    for (int e : {f.min_subnormal_exponent() - 1, f.min_subnormal_exponent(), f.min_exponent() - 1, f.min_exponent(),
                  f.max_exponent(), f.max_exponent() + 1}) {
        if (e < -126 || e > 127) continue;
        const std::uint32_t binade = static_cast<std::uint32_t>(e + 127) << 23;
        add(binade);
        for (int ones = 1; ones <= 23; ++ones) {
            add(binade | (0x7fffffu & ~((1u << (23 - ones)) - 1)));
            add(binade | (1u << (23 - ones)));
        }
        add(binade | 0x680000);
        for (int i = 0; i < 20; ++i) add(binade | static_cast<std::uint32_t>(random() & 0x7fffff));
    }
    for (int i = 0; i < 40; ++i) add(static_cast<std::uint32_t>(random() % 0x7f800000));
    for (int i = 0; i < 24; ++i) add(1u << i); // FP32 subnormals
    return samples;
}

void prove(const FormatSpec& f, const Oracle& oracle, std::uint64_t& cases, std::uint64_t& mismatches,
           std::mt19937& random) {
    const std::vector<float> samples = edge_samples(f, random);
    for (const int scale : {0, 1, -3, 24, -24, 100}) {
        MagnitudeHistogram all;
        std::array<std::uint64_t, 4> expected{};
        for (const float x : samples) {
            const Unpacked u = unpack(x);
            MagnitudeHistogram one;
            one.add(u);
            const cpp_int exact = cpp_int(u.significand) << (u.exponent + scale + 400);
            const int c = oracle.classify(exact);
            const ClassCounts got = one.classify(f, scale);
            const std::array<std::uint64_t, 4> counts{got.underflow, got.subnormal, got.normal, got.overflow};
            ++cases;
            if (counts[static_cast<std::size_t>(c)] != 1 && mismatches++ < 5)
                MESSAGE(f.name << " scale 2^" << scale << " x " << fmt::format("{:a}", x) << " expected class " << c);
            ++expected[static_cast<std::size_t>(c)];
            all.merge(one);
        }
        const ClassCounts got = all.classify(f, scale);
        CHECK(got == ClassCounts{expected[0], expected[1], expected[2], expected[3]});
    }
}

} // namespace

TEST_CASE("the classes equal rounding in exact integers, at every edge of every format") {
    std::uint64_t cases = 0, mismatches = 0;
    std::mt19937 random(1);
    for (int x = 2; x <= 8; ++x)
        for (int y = 1; y <= 23; ++y) {
            const int bias = (1 << (x - 1)) - 1;
            prove(format(fmt::format("e{}m{}ieee", x, y)), Oracle(x, y, bias, 0, false), cases, mismatches, random);
        }
    prove(format("e4m3"), Oracle(4, 3, 7, 1, true), cases, mismatches, random);
    prove(format("e4m3fnuz"), Oracle(4, 3, 8, 0, true), cases, mismatches, random);
    prove(format("e5m2fnuz"), Oracle(5, 2, 16, 0, true), cases, mismatches, random);
    prove(format("e4m3b11fnuz"), Oracle(4, 3, 11, 0, true), cases, mismatches, random);
    prove(format("e3m2"), Oracle(3, 2, 3, 0, true), cases, mismatches, random);
    prove(format("e2m3"), Oracle(2, 3, 1, 0, true), cases, mismatches, random);
    prove(format("e2m1"), Oracle(2, 1, 1, 0, true), cases, mismatches, random);
    prove(format("binary8p4se"), Oracle(4, 3, 8, 1, true), cases, mismatches, random);
    prove(format("binary8p3sf"), Oracle(5, 2, 16, 0, true), cases, mismatches, random);
    prove(format("binary6p5sf"), Oracle(1, 4, 1, 0, true), cases, mismatches, random);
    // Integers are spaced like the numbers of one exponent bit; all but zero are normal.
    for (const auto& [name, integers] :
         {std::pair{"e0m3", Oracle(1, 2, -1, 0, true)}, std::pair{"int8sym", Oracle(1, 6, -5, 0, true)}}) {
        Oracle oracle = integers;
        oracle.min_normal = oracle.smallest;
        prove(format(name), oracle, cases, mismatches, random);
    }
    for (const char* name : {"e8m0", "int8", "binary8p3uf"})
        CHECK_THROWS_AS(check_counted(format(name), "format", true), std::invalid_argument);
    CHECK_THROWS_WITH(check_counted(format("binary8p3uf"), "--format", true),
                      doctest::Contains("binary8p3uf has no negative numbers, and a histogram does not tell signs"));
    CHECK_THROWS_WITH(check_counted(format("int8")), doctest::Contains("--recipe general,format=int8 casts blocks"));
    for (const char* name : {"binary8p3se", "binary8p1sf"}) {
        CHECK_THROWS_AS(check_counted(format(name)), std::invalid_argument);
        CHECK_NOTHROW(check_counted(format(name), "format", true));
    }
    fmt::print("proof: histogram classes against exact integers: {} cases, {} mismatches\n", cases, mismatches);
    CHECK(mismatches == 0);
}

TEST_CASE("recommendation") {
    const FormatSpec fp16 = format("fp16");
    MagnitudeHistogram h;
    SUBCASE("1 lies in the window") {
        h.add(unpack(1.0f), 10);
        const Recommendation r = recommend(h, fp16);
        CHECK(r.log2_scale == 0);
        CHECK(r.window == Window{-24, 15});
    }
    SUBCASE("tiny values: the margin keeps two binades from overflow") {
        h.add(unpack(0x1p-30f), 10);
        h.add(unpack(0x1p-20f), 10);
        const Recommendation r = recommend(h, fp16);
        CHECK(r.window == Window{6, 35});
        CHECK(r.log2_scale == 33);
    }
    SUBCASE("a range wider than the format") {
        h.add(unpack(0x1p-40f), 10);
        h.add(unpack(0x1p10f), 10);
        const Recommendation r = recommend(h, fp16);
        CHECK(!r.window);
        CHECK(!r.log2_scale);
        CHECK(r.lowest_enough == 16);
        CHECK(r.highest_safe == 5);
    }
    SUBCASE("nothing to scale") {
        h.add(unpack(0.0f), 3);
        CHECK(!recommend(h, fp16).log2_scale);
    }
}
