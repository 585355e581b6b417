// Student's t, and the intervals built on it, against Boost.Math and samples whose true means are known.
#include <ampscope/sim/analysis/student.h>

#include <boost/math/distributions/students_t.hpp>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

using namespace amp;

TEST_CASE("probabilities and bounds of Student's t") {
    std::size_t cases = 0, mismatches = 0;
    const auto check = [&](bool good) {
        ++cases;
        if (!good) ++mismatches;
    };
    for (std::size_t degrees = 1; degrees <= 400; degrees += degrees < 40 ? 1 : 13) {
        const boost::math::students_t_distribution<long double> oracle(static_cast<long double>(degrees));
        for (double t = 0; t < 200; t = 1.3 * t + 0.01) {
            const long double within = 1 - 2 * cdf(complement(oracle, static_cast<long double>(t)));
            check(std::abs(student_within(t, degrees) - static_cast<double>(within)) <= 1e-14);
        }
        for (const double alpha : {0.5, 0.1, 0.05, 0.01, 0.05 / 12, 0.001, 1e-6}) {
            const auto bound = static_cast<double>(quantile(complement(oracle, static_cast<long double>(alpha / 2))));
            check(std::abs(student_bound(1 - alpha, degrees) / bound - 1) < 1e-9);
        }
    }
    CHECK(student_bound(0, 3) < 1e-15);
    fmt::print("proof: Student's t against Boost.Math: {} cases, {} mismatches\n", cases, mismatches);
    CHECK(mismatches == 0);
}

TEST_CASE("an interval of one sample is infinite, of equal ones a point, of others as in textbooks") {
    const MeanInterval one = mean_interval(std::array{3.0}, 0.05);
    CHECK(one.mean == 3);
    CHECK((std::isinf(one.low) && std::isinf(one.high)));
    const MeanInterval same = mean_interval(std::array{0.5, 0.5, 0.5}, 0.05);
    CHECK((same.low == 0.5 && same.high == 0.5 && same.deviation == 0));
    // Student 1908, table of Cushny and Peebles: hours of sleep gained under the second drug over the first.
    const std::array sleep = {1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};
    const MeanInterval s = mean_interval(sleep, 0.05);
    CHECK(s.mean == doctest::Approx(1.58));
    CHECK(s.deviation == doctest::Approx(1.229995).epsilon(1e-6));
    CHECK(s.low == doctest::Approx(0.7001142).epsilon(1e-6)); // R: t.test(extra ~ group, paired)
    CHECK(s.high == doctest::Approx(2.4598858).epsilon(1e-6));
}

TEST_CASE("intervals hold the true mean as often as they say") {
    std::mt19937 random(1);
    std::normal_distribution<double> normal(5, 2), other(3, 0.5);
    for (const std::size_t n : {2UL, 3UL, 8UL}) {
        int held = 0, held_difference = 0;
        constexpr int trials = 20'000;
        for (int i = 0; i < trials; ++i) {
            std::vector<double> a(n), b(n + 1);
            for (double& x : a) x = normal(random);
            for (double& x : b) x = other(random);
            const MeanInterval mean = mean_interval(a, 0.1), difference = difference_interval(a, b, 0.1);
            held += mean.low < 5 && 5 < mean.high ? 1 : 0;
            held_difference += difference.low < 2 && 2 < difference.high ? 1 : 0;
        }
        CAPTURE(n);
        CHECK(held > 0.892 * trials); // 0.9 less four deviations
        CHECK(held < 0.908 * trials);
        CHECK(held_difference > 0.892 * trials); // at least 0.9
    }
}

TEST_CASE("so many samples decide, and one fewer does not") {
    for (const double distance : {0.3, 1.0, 2.0}) {
        const std::optional<std::size_t> n = samples_needed(distance, 1, 0.05);
        REQUIRE(n);
        const auto half = [](std::size_t count) {
            return student_bound(0.95, count - 1) / std::sqrt(static_cast<double>(count));
        };
        CHECK(half(*n) < distance);
        if (*n > 2) CHECK(half(*n - 1) >= distance);
    }
    CHECK(samples_needed(1.0, 1, 0.05) == 7); // 2.447 / sqrt(7) = 0.925, 2.571 / sqrt(6) = 1.05
    CHECK(samples_needed(0.3, 1, 0.05) == 46);
    CHECK(!samples_needed(0, 1, 0.05));
    CHECK(!samples_needed(0.01, 1, 0.05));
    CHECK(samples_needed(0.1, 0, 0.05) == 2);
}
