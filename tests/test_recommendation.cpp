// Classes and recommendations under every rounding, from histograms alone, against a cast of every element.
#include <ampscope/sim/analysis/cast_count.h>

#include "cases.h"
#include "io_files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <random>

using namespace amp;
using namespace amp::test;

namespace {

/// Values of a format and their neighbours, of both signs, from far below to far above it: every edge and every tie.
std::vector<float> edges_of(const FormatSpec& f) {
    std::vector<float> values;
    const auto add = [&](double x) {
        const auto y = static_cast<float>(x);
        for (const float z : {y, std::nextafter(y, 0.0f), std::nextafter(y, INFINITY)})
            values.insert(values.end(), {z, -z});
    };
    const double unit = std::ldexp(1.0, f.min_subnormal_exponent()), normal = std::ldexp(1.0, f.min_exponent());
    const double max = decode(f, f.max_code()), ulp = std::ldexp(1.0, f.max_exponent() - f.fraction_bits);
    for (const double x : {unit / 4, unit / 2, unit, unit * 1.5, normal - unit, normal - unit / 2, normal, max - ulp,
                           max, max + ulp / 2, max + ulp})
        for (const int k : {-3, -1, 0, 1, 5}) add(std::ldexp(x, k));
    std::mt19937 random(9);
    for (int i = 0; i < 200; ++i)
        add(std::ldexp(1.0 + static_cast<double>(random()) * 0x1p-32,
                       f.min_subnormal_exponent() - 8 + static_cast<int>(random() % 40)));
    std::erase_if(values, [](float x) { return !std::isfinite(x); });
    values.insert(values.end(), {0.0f, -0.0f, INFINITY, NAN});
    return values;
}

/// A tensor, and its histograms under one policy.
struct Subject {
    Scratch scratch;
    std::unique_ptr<TensorFile> file;
    double recorded_scale;
    MagnitudeHistogram all;
    FineHistogram fine;
    Policy policy;

    Subject(const FormatSpec& f, const std::vector<float>& values, const Policy& p, double recorded)
        : recorded_scale(recorded), policy(p) {
        const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
        const FormatSpec formats[] = {f};
        file = open_tensor_file(write_file(scratch / "data.bin", bytes), {.dtype = DType::f32});
        all = measure_divided(*file, 0, recorded, 1).histogram;
        fine = measure_fine(*file, 0, recorded, fine_needs(formats, p.rounding), 2);
    }
    [[nodiscard]] CastRule rule() const { return {policy.rounding, policy.flushes_output()}; }
    [[nodiscard]] ClassCounts derived(const FormatSpec& f, int k) const { return classify(all, fine, f, k, rule()); }
    /// Counts by casting every element; under stochastic rounding with the worst random bits for each class.
    [[nodiscard]] ClassCounts cast(const FormatSpec& f, int k) const {
        const auto count = [&](Rounding rounding) {
            Policy p = policy;
            p.rounding = rounding;
            const Cast one{.format = f, .policy = p, .scale = std::ldexp(1.0, k), .recorded_scale = recorded_scale};
            const CastCounts n = count_casts(*file, 0, std::span(&one, 1), 1)[0];
            const auto whole = [](double x) { return static_cast<std::uint64_t>(x); };
            return ClassCounts{whole(n.underflow), whole(n.subnormal), whole(n.normal), whole(n.overflow)};
        };
        if (policy.rounding != Rounding::stochastic) return count(policy.rounding);
        return count(Rounding::toward_zero); // except for what can overflow, which is tested by itself
    }
};

/// The signed formats of IEEE P3109 of 3, 4, 8 and 16 bits, of FP32's range.
std::vector<std::string> p3109_names() {
    std::vector<std::string> names;
    for (const int bits : {3, 4, 8, 16})
        for (int precision = 1; precision < bits; ++precision)
            for (const char* domain : {"se", "sf"}) {
                const std::string name = fmt::format("binary{}p{}{}", bits, precision, domain);
                try {
                    if (format(name).max_exponent() < 100) names.push_back(name); // scales, too, stay in FP32's range
                } catch (const std::invalid_argument&) {                          // a table of codes
                }
            }
    return names;
}

} // namespace

TEST_CASE("classes from histograms equal a cast of every element: every rounding, flushing, recorded scale") {
    std::uint64_t cases = 0, mismatches = 0;
    std::vector<std::string> names = p3109_names();
    REQUIRE(names.size() == 38);
    names.insert(names.end(),
                 {"fp16", "bf16", "e4m3", "e5m2", "e4m3fnuz", "e2m1", "e3m2", "e5m1ieee", "e0m3", "int8sym"});
    for (const std::string& name : names) {
        const FormatSpec f = format(name);
        const std::vector<float> values = edges_of(f);
        for (const Rounding rounding : roundings)
            for (const Subnormals subnormals : {Subnormals::keep, Subnormals::flush_output})
                for (const double recorded : {1.0, 0.25, 3.0}) {
                    const Subject subject(f, values, {.rounding = rounding, .subnormals = subnormals}, recorded);
                    for (const int k : {-7, -1, 0, 1, 2, 13}) {
                        const ClassCounts got = subject.derived(f, k), want = subject.cast(f, k);
                        const bool equal = rounding == Rounding::stochastic
                                               ? got.underflow == want.underflow && got.subnormal == want.subnormal
                                               : got == want;
                        cases += values.size();
                        mismatches += equal ? 0 : 1;
                        CHECK_MESSAGE(equal, name, " ", name_of(rounding), " 2^", k, " / ", recorded, ": ",
                                      got.underflow, " ", got.subnormal, " ", got.normal, " ", got.overflow, " but ",
                                      want.underflow, " ", want.subnormal, " ", want.normal, " ", want.overflow);
                    }
                }
    }
    fmt::print("proof: classes under every rounding from histograms: {} cases, {} mismatches\n", cases, mismatches);
}

TEST_CASE("under stochastic rounding overflow is what some random bits make overflow") {
    for (const char* name : {"fp16", "e4m3", "e5m2", "e2m1"}) {
        const FormatSpec f = format(name);
        const std::vector<float> values = edges_of(f);
        const Subject subject(f, values, {.rounding = Rounding::stochastic}, 1);
        for (const int k : {-2, 0, 3}) {
            const double max = decode(f, f.max_code());
            const auto beyond = std::ranges::count_if(values, [&](float x) {
                return std::isfinite(x) && std::ldexp(std::fabs(static_cast<double>(x)), k) > max;
            });
            CHECK(subject.derived(f, k).overflow == static_cast<std::uint64_t>(beyond));
        }
    }
}

TEST_CASE("the window is where casts lose less than the limit and overflow nowhere, for every rounding") {
    std::vector<float> values;
    std::mt19937 random(4);
    for (int i = 0; i < 3000; ++i)
        values.push_back(std::ldexp(static_cast<float>(random()) - 0x1p31f, -58 - static_cast<int>(random() % 14)));
    values.push_back(-0x1.ffcp-25f); // FP16's largest value at 2^40
    for (const Rounding rounding : roundings)
        for (const Subnormals subnormals : {Subnormals::keep, Subnormals::flush_output}) {
            const Subject subject(format("fp16"), values, {.rounding = rounding, .subnormals = subnormals}, 1);
            for (const char* name : {"fp16", "e5m2"}) {
                const FormatSpec f = format(name);
                const RecommendationOptions options{.limit = 0.01};
                const Recommendation r = recommend(subject.all, subject.fine, f, subject.rule(), options);
                CAPTURE(name);
                CAPTURE(name_of(rounding));
                const double allowed = options.limit * static_cast<double>(subject.all.nonzero());
                const auto few = [&](int k) { return static_cast<double>(subject.cast(f, k).underflow) < allowed; };
                const auto overflow = [&](int k) { return subject.derived(f, k).overflow; };
                REQUIRE(r.window);
                CHECK(few(r.window->low));
                if (subject.cast(f, -200).underflow > 0) CHECK(!few(r.window->low - 1));
                CHECK(overflow(r.window->high) == 0);
                CHECK(overflow(r.window->high + 1) > 0);
                CHECK(r.log2_scale ==
                      (r.window->low <= 0 ? 0 : r.window->high - 2)); // rounding to odd loses nothing, even unscaled
            }
        }
}

TEST_CASE("flushing loses more: the window begins ten binades later in FP16") {
    MagnitudeHistogram h;
    h.add(unpack(0x1p-20f), 10);
    const Recommendation kept = recommend(h, {}, format("fp16"), {}),
                         flushed = recommend(h, {}, format("fp16"), {.flush = true});
    CHECK(kept.log2_scale == 0);
    CHECK(kept.window == Window{-4, 35});
    CHECK(flushed.window == Window{6, 35});
    CHECK(flushed.log2_scale == 33);
}

TEST_CASE("nothing beyond 2^126 is recommended, and nothing below the window because of that") {
    const auto at = [](double x) {
        MagnitudeHistogram h;
        h.add(unpack(x), 10);
        return recommend(h, format("fp16"));
    };
    const Recommendation beyond = at(0x1p-160);
    CHECK(beyond.window == Window{136, 175});
    CHECK(!beyond.log2_scale);
    const Recommendation capped = at(0x1p-150);
    CHECK(capped.window == Window{126, 165});
    CHECK(capped.log2_scale == 126);
    CHECK(at(0x1p-111).log2_scale == 124);
}
