// The pass over the data for casts that the histogram does not cover, the block scales and the cast errors, against the
// exact oracle.
#include <ampscope/sim/analysis/block_scales.h>
#include <ampscope/sim/analysis/cast_error.h>
#include <ampscope/sim/analysis/measure.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "io_files.h"
#include "oracle.h"

#include <cmath>
#include <cstring>
#include <random>

using namespace amp;
using namespace amp::test;

namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// Magnitudes from far below to far above every format, with zeros, subnormals, infinities and NaN.
std::vector<float> floats(std::size_t n) {
    std::mt19937 random(5);
    std::vector<float> values(n);
    for (float& x : values)
        x = std::bit_cast<float>(static_cast<std::uint32_t>(
            random() % 16 == 0 ? random() : (random() & 0x807fffff) | (90 + random() % 60) << 23));
    return values;
}

/// numerator * scale / recorded_scale, exactly.
oracle::Number exact_cast(oracle::Number x, const Cast& cast) {
    const oracle::Number s = oracle::exactly(cast.scale), r = oracle::exactly(cast.recorded_scale);
    x.numerator *= s.numerator;
    x.denominator *= r.numerator;
    x.exponent += s.exponent - r.exponent;
    return x;
}

/// The class as a number: 0 underflow, 1 subnormal, 2 normal, 3 overflow.
int oracle_class(const Cast& cast, const oracle::Number& x, std::uint32_t random = 0) {
    const oracle::Facts& facts = oracle::find(cast.format.name);
    const oracle::Outcome outcome = oracle::convert({facts, cast.policy, random}, exact_cast(x, cast));
    if ((outcome.flags & Flags::overflow) != 0) return 3;
    const oracle::Number stored = oracle::read(facts, outcome.code);
    return stored.kind == oracle::Class::zero ? 0 : stored.subnormal ? 1 : 2;
}

std::vector<Cast> deterministic_casts() {
    std::vector<Cast> casts;
    for (const char* name : {"fp16", "bf16", "e4m3", "e5m2", "e2m1", "e4m3fnuz"})
        for (const Rounding rounding : {Rounding::nearest_even, Rounding::nearest_away, Rounding::toward_zero,
                                        Rounding::down, Rounding::up, Rounding::to_odd})
            for (const double scale : {1.0, 3.5, 65535.0, 0x1p-20})
                casts.push_back({.format = format(name),
                                 .policy = {.rounding = rounding},
                                 .scale = scale,
                                 .recorded_scale = scale == 3.5 ? 3.0 : 1.0});
    casts.push_back({.format = format("fp16"), .policy = {.subnormals = Subnormals::flush}});
    casts.push_back({.format = format("bf16"), .policy = {.subnormals = Subnormals::flush_input}});
    return casts;
}

} // namespace

TEST_CASE("counts of casts equal the exact oracle, for floats, doubles and integers") {
    const Scratch scratch;
    const std::vector<float> f32 = floats(3001);
    std::vector<double> f64;
    for (const float x : f32) f64.push_back(static_cast<double>(x) * (1 + 0x1p-40));
    std::vector<std::int32_t> i32;
    for (const float x : f32) i32.push_back(static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(x)));
    std::vector<std::uint16_t> f16;
    for (const std::int32_t x : i32) f16.push_back(static_cast<std::uint16_t>(x));
    const std::vector<Cast> casts = deterministic_casts();
    std::uint64_t cases = 0, mismatches = 0;
    const auto prove = [&](DType dtype, const std::string& bytes, const auto& number, std::size_t n) {
        const auto file = open_tensor_file(write_file(scratch / "data.bin", bytes), {.dtype = dtype});
        const std::vector<CastCounts> got = count_casts(*file, 0, casts, 2);
        for (std::size_t k = 0; k < casts.size(); ++k) {
            std::array<double, 4> expected{};
            for (std::size_t i = 0; i < n; ++i) {
                const oracle::Number x = number(i);
                if (x.kind == oracle::Class::finite) ++expected[static_cast<std::size_t>(oracle_class(casts[k], x))];
            }
            cases += n;
            const bool equal = got[k].underflow == expected[0] && got[k].subnormal == expected[1] &&
                               got[k].normal == expected[2] && got[k].overflow == expected[3];
            if (!equal) ++mismatches;
            CHECK_MESSAGE(equal, casts[k].format.name, " rounding ", static_cast<int>(casts[k].policy.rounding),
                          " scale ", casts[k].scale);
        }
    };
    prove(
        DType::f32, bytes_of(f32), [&](std::size_t i) { return oracle::read(f32[i]); }, f32.size());
    prove(
        DType::f64, bytes_of(f64), [&](std::size_t i) { return oracle::read(f64[i]); }, f64.size());
    prove(
        DType::i32, bytes_of(i32), [&](std::size_t i) { return oracle::exactly(i32[i]); }, i32.size());
    prove(
        DType::f16, bytes_of(f16), [&](std::size_t i) { return oracle::read(oracle::find("fp16"), f16[i]); },
        f16.size());
    fmt::print("proof: counts of casts against the exact oracle: {} cases, {} mismatches\n", cases, mismatches);
}

TEST_CASE("stochastic rounding: expected counts are the exact probabilities") {
    const Scratch scratch;
    const std::vector<float> values = floats(40);
    const auto file = open_tensor_file(write_file(scratch / "data.bin", bytes_of(values)), {.dtype = DType::f32});
    for (const char* name : {"e4m3", "e5m2", "fp16"}) {
        const Cast cast{
            .format = format(name), .policy = {.rounding = Rounding::stochastic, .random_bits = 16}, .scale = 0.75};
        std::array<std::uint64_t, 4> ways{};
        for (const float x : values) {
            const oracle::Number number = oracle::read(x);
            if (number.kind != oracle::Class::finite) continue;
            for (std::uint32_t random = 0; random < 65536; ++random) {
                if (random == 1 &&
                    // all random words agree
                    oracle_class(cast, number, 0) == oracle_class(cast, number, 65535)) {
                    ways[static_cast<std::size_t>(oracle_class(cast, number, 0))] += 65535;
                    break;
                }
                ++ways[static_cast<std::size_t>(oracle_class(cast, number, random))];
            }
        }
        const CastCounts got = count_casts(*file, 0, {&cast, 1}, 1)[0];
        CHECK(got.expected);
        CHECK(got.underflow == std::ldexp(static_cast<double>(ways[0]), -16));
        CHECK(got.subnormal == std::ldexp(static_cast<double>(ways[1]), -16));
        CHECK(got.normal == std::ldexp(static_cast<double>(ways[2]), -16));
        CHECK(got.overflow == std::ldexp(static_cast<double>(ways[3]), -16));
    }
}

TEST_CASE("block scales, one by one") {
    const Scratch scratch;
    std::vector<float> values = floats(1000);
    for (std::size_t i = 64; i < 96; ++i) values[i] = 0;
    for (std::size_t i = 96; i < 128; ++i) values[i] = std::ldexp(values[i], -100); // below E8M0's smallest scale
    for (float& x : values)
        if (!std::isfinite(x)) x = 1;
    const auto file = open_tensor_file(write_file(scratch / "data.bin", bytes_of(values)), {.dtype = DType::f32});
    double tensor_amax = 0;
    for (const float x : values) tensor_amax = std::max(tensor_amax, std::fabs(static_cast<double>(x)));
    const BlockStatistics got = measure_blocks(*file, 0, 32, tensor_amax, 2);
    CHECK(got.blocks == 32);
    CHECK(got.zero_blocks == 1);
    for (const BlockCounts& f : got.formats) {
        const double max = decode(f.format, f.format.max_code());
        std::array<std::array<std::uint64_t, 4>, 3> expected{};
        for (std::size_t begin = 0; begin < values.size(); begin += 32) {
            const std::size_t end = std::min(begin + 32, values.size());
            double amax = 0;
            for (std::size_t i = begin; i < end; ++i) amax = std::max(amax, std::fabs(static_cast<double>(values[i])));
            if (amax == 0) continue;
            const int exponent = std::max(-127, std::ilogb(amax) - f.format.max_exponent());
            const std::array<Cast, 3> casts = {Cast{.format = f.format, .recorded_scale = std::ldexp(1.0, exponent)},
                                               Cast{.format = f.format, .scale = max, .recorded_scale = amax},
                                               Cast{.format = f.format, .scale = max, .recorded_scale = tensor_amax}};
            for (std::size_t i = begin; i < end; ++i)
                for (std::size_t k = 0; k < 3; ++k)
                    if (values[i] != 0)
                        ++expected[k][static_cast<std::size_t>(oracle_class(casts[k], oracle::read(values[i])))];
        }
        CAPTURE(f.format.name);
        const auto counts = [](const std::array<std::uint64_t, 4>& n) { return ClassCounts{n[0], n[1], n[2], n[3]}; };
        CHECK(f.mx == counts(expected[0]));
        CHECK(f.amax == counts(expected[1]));
        CHECK(f.tensor == counts(expected[2]));
    }
}

TEST_CASE("cast errors by definition") {
    const Scratch scratch;
    const std::vector<float> values{1.0f, 1.0f + 0x1p-12f, -3.0f, 0.0f, 0x1p-30f, 70000.0f, INFINITY, NAN};
    const auto file = open_tensor_file(write_file(scratch / "data.bin", bytes_of(values)), {.dtype = DType::f32});
    const Cast cast{.format = format("fp16")};
    const CastError e = measure_errors(*file, 0, {&cast, 1}, 1)[0];
    CHECK(e.compared == 5);
    CHECK(e.excluded == 1); // 70000 overflows; infinity and NaN are not compared
    CHECK(e.nonzero == 4);
    CHECK(e.max_relative == 1.0); // 2^-30 becomes zero
    CHECK(e.noise.value() == 0x1p-24 + 0x1p-60);
    CHECK(e.sum_relative == 0x1p-12 / (1 + 0x1p-12) + 1);
    CHECK(e.sqnr() == doctest::Approx(10 * std::log10(11.0 / 0x1p-24)).epsilon(1e-4));
}

TEST_CASE("powers of two are told from other scales") {
    for (int k = -1074; k <= 1023; ++k) CHECK(exact_log2(std::ldexp(1.0, k)) == k);
    for (const double x : {0.0, -2.0, 3.0, std::nextafter(4.0, 5.0), double{INFINITY}, std::nan("")})
        CHECK(!exact_log2(x));
}

TEST_CASE("any recorded scale: exponents of the exact quotient") {
    const Scratch scratch;
    const std::vector<float> values{3.0f, 3.0f * (1 - 0x1p-24f), 6.0f, 0.0f, -1.0f};
    const auto file = open_tensor_file(write_file(scratch / "data.bin", bytes_of(values)), {.dtype = DType::f32});
    const std::map<int, std::uint64_t> expected{{-2, 1}, {-1, 1}, {0, 1}, {1, 1}};
    const MagnitudeStatistics thirds = measure_divided(*file, 0, 3.0, 1);
    std::map<int, std::uint64_t> exponents;
    for (const auto& [exponent, row] : thirds.histogram.rows)
        for (const std::uint64_t n : row) exponents[exponent] += n;
    CHECK(exponents == expected);
    CHECK(thirds.histogram.zero == 1);
    CHECK(thirds.max == 2);
    CHECK(thirds.min_nonzero == 1.0 / 3);
}

TEST_CASE("a divided histogram answers as the own pass does, whatever the recorded scale and the threads") {
    const Scratch scratch;
    const auto file =
        open_tensor_file(write_file(scratch / "data.bin", bytes_of(floats(200'000))), {.dtype = DType::f32});
    for (const double recorded : {1.0, 1024.0, 3.0, 1000.0, 0.1}) {
        CAPTURE(recorded);
        const MagnitudeStatistics divided = measure_divided(*file, 0, recorded, 1),
                                  threaded = measure_divided(*file, 0, recorded, 3);
        CHECK(divided.histogram == threaded.histogram);
        CHECK(divided.sums.squares == threaded.sums.squares);
        CHECK(divided.max == threaded.max);
        for (const char* name : {"fp16", "e4m3", "e5m2", "bf16"})
            for (const int k : {-8, 0, 13}) {
                const Cast cast{.format = format(name), .scale = std::ldexp(1.0, k), .recorded_scale = recorded};
                const CastCounts own = count_casts(*file, 0, std::span(&cast, 1), 1)[0];
                const ClassCounts counts = divided.histogram.classify(cast.format, k);
                CHECK(own.underflow == static_cast<double>(counts.underflow));
                CHECK(own.subnormal == static_cast<double>(counts.subnormal));
                CHECK(own.normal == static_cast<double>(counts.normal));
                CHECK(own.overflow == static_cast<double>(counts.overflow));
            }
    }
    const MagnitudeStatistics stored = measure(*file, 0, 1), halved = measure_divided(*file, 0, 2, 1);
    CHECK(halved.max == stored.max / 2);
    CHECK(halved.sums.absolute == stored.sums.absolute / 2);
    CHECK(halved.histogram == stored.histogram.scaled(-1));
}
