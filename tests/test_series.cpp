// Means of correlated values: their effective number against processes whose autocorrelation is known in closed form,
// and how often intervals hold the true mean.
#include <ampscope/sim/analysis/series.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

using namespace amp;

namespace {

/// x[i] = r x[i - 1] + noise, of mean 0 and variance 1: n of them tell as much as n (1 - r) / (1 + r) independent ones.
std::vector<double> autoregressive(double r, std::size_t n, std::mt19937_64& random) {
    std::normal_distribution<double> normal;
    std::vector<double> x = {normal(random)};
    while (x.size() < n) x.push_back(r * x.back() + std::sqrt(1 - r * r) * normal(random));
    return x;
}

} // namespace

TEST_CASE("how many independent values a series is worth") {
    std::mt19937_64 random(1);
    for (const double r : {0.0, 0.5, 0.9}) {
        double sum = 0;
        constexpr int trials = 50;
        for (int i = 0; i < trials; ++i) sum += effective_count(autoregressive(r, 1000, random));
        CAPTURE(r);
        CHECK(sum / trials == doctest::Approx(1000 * (1 - r) / (1 + r)).epsilon(0.2));
    }
    // Stretches of ten equal values are ten times fewer; longer series count by stretches.
    std::vector<double> steps, longer;
    std::normal_distribution<double> normal;
    for (int i = 0; i < 100; ++i) steps.insert(steps.end(), 10, normal(random));
    CHECK(effective_count(steps) == doctest::Approx(100).epsilon(0.5));
    for (int i = 0; i < 50'000; ++i) longer.push_back(normal(random));
    CHECK(effective_count(longer) == doctest::Approx(1000).epsilon(0.1));
    CHECK(effective_count(std::vector{3.0, 3.0, 3.0}) == 3);
    CHECK(effective_count(std::vector{3.0}) == 1);
    const std::vector huge = {1e308, -1e308, 1e308, 1e307};
    CHECK(effective_count(huge) == 1);
    CHECK(std::isinf(mean_of_last(huge, 2, 0.05).high));
    std::vector<double> alternating;
    for (int i = 0; i < 40; ++i) alternating.push_back(i % 2 == 0 ? 1 : -1);
    CHECK(effective_count(alternating) == 40); // never more than there are
    std::vector<double> drift;
    for (int i = 0; i < 200; ++i) drift.push_back(i);
    CHECK(effective_count(drift) < 4);
}

TEST_CASE("intervals of correlated means hold the true one as often as they say") {
    std::mt19937_64 random(2);
    constexpr double alpha = 0.05;
    constexpr int trials = 4000;
    constexpr std::size_t n = 300, last = 60; // the second half of 600 steps, and their last tenth
    for (const double r : {0.0, 0.5, 0.8, 0.9, 0.95}) {
        int held = 0, held_if_independent = 0;
        std::vector<double> widths;
        for (int i = 0; i < trials; ++i) {
            const std::vector<double> x = autoregressive(r, n, random);
            const MeanInterval of = mean_of_last(x, last, alpha);
            held += of.low < 0 && 0 < of.high ? 1 : 0;
            const MeanInterval wrong = mean_interval(std::span(x).last(last), alpha);
            held_if_independent += wrong.low < 0 && 0 < wrong.high ? 1 : 0;
            widths.push_back(of.high - of.mean);
        }
        std::ranges::nth_element(widths, widths.begin() + trials / 2);
        fmt::print("autocorrelation {}: the interval of 95 % holds the true mean in {:.1f} %, taken for independent in "
                   "{:.1f} %; median half width {:.2f} deviations\n",
                   r, 100.0 * held / trials, 100.0 * held_if_independent / trials, widths[trials / 2]);
        CAPTURE(r);
        CHECK(held > 0.93 * trials);
        if (r == 0) CHECK(held < 0.97 * trials); // not because they are wide
        if (r > 0.4) CHECK(held_if_independent < 0.80 * trials);
    }
}

TEST_CASE("where series differ in their means, one of them holds the mean of all if it is told how much they differ") {
    std::mt19937_64 random(4);
    std::normal_distribution<double> normal;
    constexpr int trials = 4000;
    constexpr double between = 0.6; // deviations of the values, which are 1
    int held = 0, held_without = 0;
    for (int i = 0; i < trials; ++i) {
        std::vector<double> x = autoregressive(0.5, 300, random);
        const double of_series = between * normal(random);
        for (double& v : x) v += of_series;
        const MeanInterval of = mean_of_last(x, 60, 0.05, between), without = mean_of_last(x, 60, 0.05);
        held += of.low < 0 && 0 < of.high ? 1 : 0;
        held_without += without.low < 0 && 0 < without.high ? 1 : 0;
    }
    fmt::print(
        "series whose means deviate by 0.6 of their values' deviation: the interval of 95 % holds the mean of all in "
        "{:.1f} %, without that term in {:.1f} %\n",
        100.0 * held / trials, 100.0 * held_without / trials);
    CHECK(held > 0.93 * trials);
    CHECK(held < 0.97 * trials);
    CHECK(held_without < 0.6 * trials);
    // Of independent values, by hand: 400 of deviation 1, 100 of them the last: sqrt(1 / 100 + 0.36).
    std::vector<double> alternating;
    for (int i = 0; i < 400; ++i) alternating.push_back(i % 2 == 0 ? 1 : -1);
    const MeanInterval wide = mean_of_last(alternating, 100, 0.05, between);
    CHECK(wide.high - wide.mean ==
          doctest::Approx(student_bound(0.95, 399) * std::sqrt(400.0 / 399) * std::sqrt(0.01 + 0.36)));
}

TEST_CASE("the mean of the last values is theirs, and a drift is noise") {
    std::vector<double> x(100, 1.0);
    std::fill(x.end() - 20, x.end(), 2.0);
    const MeanInterval of = mean_of_last(x, 20, 0.05);
    CHECK(of.mean == 2);
    CHECK(of.count == 1);
    CHECK(of.high - of.mean > 1); // it was 1 for most of the time
    CHECK(mean_of_last(std::vector(30, 0.5), 10, 0.05).high == 0.5);
    std::vector<double> drift;
    for (int i = 0; i < 40; ++i) drift.push_back(i);
    CHECK(mean_of_last(drift, 8, 0.05).high - 35.5 > 20);
}

TEST_CASE("running medians are those of the last values") {
    std::mt19937_64 random(3);
    for (const std::size_t window : {1UL, 2UL, 7UL, 50UL}) {
        RunningMedian running(window);
        std::vector<double> all;
        for (int i = 0; i < 300; ++i) {
            const double x = static_cast<double>(random() % 40); // with many equal ones
            all.push_back(x);
            running.add(x);
            std::vector<double> last(all.end() - static_cast<std::ptrdiff_t>(std::min(all.size(), window)), all.end());
            std::ranges::sort(last);
            const double median = last[(last.size() - 1) / 2];
            REQUIRE(running.count() == last.size());
            REQUIRE(running.median() == median);
            for (double& y : last) y = std::abs(y - median);
            std::ranges::sort(last);
            REQUIRE(running.deviation() == 1.4826 * last[(last.size() - 1) / 2]);
        }
    }
}

TEST_CASE("the slope of a line is that of least squares, and tells a fall with less noise than two means") {
    CHECK(slope_of(std::array{1.0, 3.0}) == 2);
    CHECK(slope_of(std::array{7.0, 7.0, 7.0}) == 0);
    CHECK(slope_of(std::array{1.0, 2.0, 1.3, 3.75, 2.25}) == doctest::Approx(0.425)); // textbook: (x, y), x = 1 ... 5
    std::mt19937_64 random(6);
    std::normal_distribution<double> normal;
    constexpr std::size_t n = 600;
    constexpr int trials = 4000;
    std::vector<double> by_line, by_means; // what losses fall by in a tenth of their number
    for (int trial = 0; trial < trials; ++trial) {
        std::vector<double> x(n);
        for (std::size_t i = 0; i < n; ++i) x[i] = 3 - 0.001 * static_cast<double>(i) + 0.1 * normal(random);
        const auto mean = [&](std::size_t begin, std::size_t end) {
            double sum = 0;
            for (std::size_t i = begin; i < end; ++i) sum += x[i] / static_cast<double>(end - begin);
            return sum;
        };
        by_line.push_back(-slope_of(std::span(x).last(n / 3)) * n / 10);
        by_means.push_back(mean(n - n / 5, n - n / 10) - mean(n - n / 10, n));
    }
    const MeanInterval line = mean_interval(by_line, 1e-4), means = mean_interval(by_means, 1e-4);
    fmt::print("a fall of 0.06 in a tenth of 600 losses: by a line {:.4f} with deviation {:.4f}, by means {:.4f} with "
               "{:.4f}\n",
               line.mean, line.deviation, means.mean, means.deviation);
    CHECK((line.low < 0.06 && 0.06 < line.high));
    CHECK(means.deviation / line.deviation == doctest::Approx(std::sqrt(20 / 3.24)).epsilon(0.05)); // by hand: 2.48
}
