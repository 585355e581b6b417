// Student's t, and the intervals built on it, against Boost.Math and samples whose true means are known.
#include <ampscope/sim/analysis/student.h>

#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
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

TEST_CASE("planned numbers of samples decide with the power they are planned for, and one fewer does not") {
    std::size_t cases = 0, mismatches = 0;
    const auto oracle = [](double distance, double alpha, std::size_t n) {
        const double degrees = static_cast<double>(n) - 1;
        const double bound = quantile(complement(boost::math::students_t_distribution<double>(degrees), alpha / 2));
        const boost::math::non_central_t_distribution<double> t(degrees, distance * std::sqrt(static_cast<double>(n)));
        return static_cast<double>(cdf(complement(t, bound)));
    };
    for (const double alpha : {0.2, 0.05, 0.05 / 12, 0.001})
        for (const double distance : {0.05, 0.3, 0.5, 1.0, 2.0, 5.0})
            for (const std::size_t n : {2UL, 3UL, 4UL, 8UL, 35UL, 400UL}) {
                const double power = decision_power(3 * distance, 3, alpha, n), right = oracle(distance, alpha, n);
                ++cases;
                if (!(std::abs(power - right) < 1e-6)) ++mismatches;
                if (std::abs(power - right) >= 1e-6) MESSAGE(alpha, " ", distance, " ", n, ": ", power, ", ", right);
            }
    for (const double alpha : {0.2, 0.05, 0.05 / 12})
        for (const double power : {0.5, 0.8, 0.95})
            for (const double distance : {-0.2, 0.3, 0.5, 1.0, 2.0, 5.0}) {
                const std::optional<std::size_t> n = samples_needed(distance, 1, alpha, power);
                ++cases;
                if (!(n && oracle(std::abs(distance), alpha, *n) >= power &&
                      (*n == 2 || oracle(std::abs(distance), alpha, *n - 1) < power)))
                    ++mismatches;
            }
    fmt::print("proof: planned numbers of samples against Boost.Math's noncentral t: {} cases, {} mismatches\n", cases,
               mismatches);
    CHECK(mismatches == 0);
    // R: power.t.test(delta = ..., sd = 1, power = 0.8, type = "one.sample") has n = 9.94, 14.30, 33.37 and 89.15.
    CHECK(samples_needed(1.0, 1, 0.05, 0.8) == 10);
    CHECK(samples_needed(0.8, 1, 0.05, 0.8) == 15);
    CHECK(samples_needed(0.5, 1, 0.05, 0.8) == 34);
    CHECK(samples_needed(-0.3, 1, 0.05, 0.8) == 90);
    CHECK(!samples_needed(0, 1, 0.05, 0.8));
    CHECK(!samples_needed(0.01, 1, 0.05, 0.8));
    CHECK(samples_needed(0.1, 0, 0.05, 0.8) == 2);
    // And by trying: so many samples, drawn anew again and again.
    std::mt19937 random(3);
    std::normal_distribution<double> normal(0.5, 1);
    constexpr int trials = 20'000;
    int decided = 0;
    for (int i = 0; i < trials; ++i) {
        std::vector<double> x(34);
        for (double& value : x) value = normal(random);
        decided += mean_interval(x, 0.05).low > 0 ? 1 : 0;
    }
    CHECK(decided > 0.796 * trials); // 0.8077 less four deviations
    CHECK(decided < 0.819 * trials);
}
