#include <ampscope/sim/analysis/student.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace amp {

namespace {

/// The arctangent of x >= 0, from +, * and sqrt alone: the same bits with every C library.
double arctangent(double x) {
    constexpr int halvings = 4, terms = 10; // x < tan(pi / 32) < 0.1: the first term left out is below 2^-66
    for (int i = 0; i < halvings; ++i) x /= 1 + std::sqrt(1 + x * x);
    double sum = 0;
    for (int k = terms; k >= 0; --k) sum = 1.0 / (2 * k + 1) - x * x * sum;
    return (1 << halvings) * x * sum;
}

double half_width(double alpha, std::size_t degrees, double deviation_of_mean) {
    return degrees == 0 ? std::numeric_limits<double>::infinity()
                        : student_bound(1 - alpha, degrees) * deviation_of_mean;
}

} // namespace

double student_within(double t, std::size_t degrees) {
    const double x = t / std::sqrt(static_cast<double>(degrees)), cosine = 1 / std::sqrt(1 + x * x), sine = x * cosine;
    const bool odd = degrees % 2 == 1;
    // sine * (1 + 1/2 cos^2 + 1*3/(2*4) cos^4 ...), or with odd degrees sine * (cos + 2/3 cos^3 + 2*4/(3*5) cos^5 ...)
    double term = odd ? sine * cosine : sine, sum = 0;
    for (std::size_t k = odd ? 3 : 2; k <= degrees; k += 2) {
        sum += term;
        term *= cosine * cosine * static_cast<double>(k - 1) / static_cast<double>(k);
    }
    return odd ? 2 / std::numbers::pi * (arctangent(x) + sum) : sum;
}

double student_bound(double level, std::size_t degrees) {
    double low = 0, high = 1;
    while (student_within(high, degrees) < level) high *= 2;
    for (double middle = high / 2; low < middle && middle < high; middle = low + (high - low) / 2)
        (student_within(middle, degrees) < level ? low : high) = middle;
    return high;
}

MeanInterval mean_interval(std::span<const double> samples, double alpha, double least_deviation) {
    MeanInterval of{.count = samples.size()};
    const auto n = static_cast<double>(of.count);
    for (const double x : samples) of.mean += (x - samples.front()) / n; // equal samples have no error
    of.mean += samples.front();
    for (const double x : samples) of.deviation += (x - of.mean) * (x - of.mean);
    of.deviation = of.count < 2 ? 0 : std::max(std::sqrt(of.deviation / (n - 1)), least_deviation);
    const double half = half_width(alpha, of.count - 1, of.deviation / std::sqrt(n));
    of.low = of.mean - half;
    of.high = of.mean + half;
    return of;
}

MeanInterval difference_interval(std::span<const double> a, std::span<const double> b, double alpha,
                                 double least_deviation) {
    const MeanInterval x = mean_interval(a, alpha, least_deviation), y = mean_interval(b, alpha, least_deviation);
    const double variance = x.deviation * x.deviation / static_cast<double>(x.count) +
                            y.deviation * y.deviation / static_cast<double>(y.count);
    MeanInterval of{.mean = x.mean - y.mean,
                    .deviation = std::sqrt(x.deviation * x.deviation + y.deviation * y.deviation),
                    .count = std::min(x.count, y.count)};
    const double half = half_width(alpha, of.count - 1, std::sqrt(variance));
    of.low = of.mean - half;
    of.high = of.mean + half;
    return of;
}

double decision_power(double distance, double deviation, double alpha, std::size_t count) {
    if (deviation == 0) return 1;
    const auto degrees = static_cast<double>(count - 1);
    const double shift = distance / deviation * std::sqrt(degrees + 1), bound = student_bound(1 - alpha, count - 1);
    // Samples whose deviation is s times the true one decide if their mean is off by less than shift - bound * s. The
    // density of s is s^(degrees - 1) exp(-degrees s^2 / 2) but for a factor: its maximum is near 1, and ten deviations
    // are 7 / sqrt(degrees). The sum is that of the middles of small intervals, which are smallest near 0: there
    // few samples decide or not.
    constexpr int intervals = 400;
    const double reach = 7 / std::sqrt(degrees), low = std::max(0.0, 1 - reach);
    double all = 0, decided = 0;
    for (int i = 0; i < intervals; ++i) {
        const double u = (i + 0.5) / intervals, s = low + (1 + reach - low) * u * u * u;
        const double density = u * u * std::exp((degrees - 1) * std::log(s) - degrees * (s * s - 1) / 2);
        all += density;
        decided += density * std::erfc((bound * s - shift) / std::numbers::sqrt2) / 2;
    }
    return decided / all;
}

std::optional<std::size_t> samples_needed(double distance, double deviation, double alpha, double power,
                                          std::size_t most) {
    if (distance == 0) return std::nullopt;
    const auto too_few = [&](std::size_t n) { return decision_power(std::abs(distance), deviation, alpha, n) < power; };
    std::size_t enough = 2; // few samples take least time to judge, and more decide more often
    while (too_few(enough)) {
        if (enough == most) return std::nullopt;
        enough = std::min(2 * enough, most);
    }
    for (std::size_t low = enough / 2 + 1; low < enough;) {
        const std::size_t middle = low + (enough - low) / 2;
        if (too_few(middle)) low = middle + 1;
        else enough = middle;
    }
    return enough;
}

} // namespace amp
