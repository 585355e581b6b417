#include <ampscope/sim/analysis/series.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace amp {

namespace {

constexpr std::size_t most_values = 1000; // of a series, for its autocorrelations take the square of their number

double mean_of(std::span<const double> values) {
    double sum = 0;
    for (const double x : values) sum += x;
    return sum / static_cast<double>(values.size());
}

/// Means of stretches of equal length, or the values themselves where they are few.
std::vector<double> stretches_of(std::span<const double> series) {
    if (series.size() <= most_values) return {series.begin(), series.end()};
    std::vector<double> means;
    for (std::size_t k = 0; k < most_values; ++k) {
        const std::size_t begin = k * series.size() / most_values, end = (k + 1) * series.size() / most_values;
        means.push_back(mean_of(series.subspan(begin, end - begin)));
    }
    return means;
}

} // namespace

double effective_count(std::span<const double> series) {
    const std::vector<double> values = stretches_of(series);
    const double mean = mean_of(values), n = static_cast<double>(values.size());
    const auto covariance = [&](std::size_t lag) {
        double sum = 0;
        for (std::size_t i = lag; i < values.size(); ++i) sum += (values[i] - mean) * (values[i - lag] - mean);
        return sum;
    };
    const double variance = covariance(0);
    if (!std::isfinite(variance)) return 1; // of values near the largest double
    if (variance == 0) return n;
    double inflation = -1; // the autocorrelation at distance 0, which is 1, counts once
    for (std::size_t lag = 0; lag + 1 < values.size(); lag += 2) {
        const double pair = (covariance(lag) + covariance(lag + 1)) / variance;
        if (pair <= 0) break;
        inflation += 2 * pair;
    }
    return std::clamp(n / std::max(inflation, 1.0), 1.0, n);
}

MeanInterval mean_of_last(std::span<const double> series, std::size_t last, double alpha, double between) {
    MeanInterval of = mean_interval(stretches_of(series), alpha); // for its deviation
    const double independent = effective_count(series);
    const double in_last = independent * static_cast<double>(last) / static_cast<double>(series.size());
    const double others = between * mean_interval(series, alpha).deviation;
    const double variance = of.deviation * of.deviation / std::max(1.0, in_last) + others * others;
    const auto degrees = static_cast<std::size_t>(independent) - 1;
    const double half = degrees == 0 ? std::numeric_limits<double>::infinity()
                                     : student_bound(1 - alpha, degrees) * std::sqrt(variance);
    of.mean = mean_of(series.last(last));
    of.low = of.mean - half;
    of.high = of.mean + half;
    of.count = 1;
    return of;
}

double slope_of(std::span<const double> series) {
    const double center = static_cast<double>(series.size() - 1) / 2, mean = mean_of(series);
    double with = 0, of = 0;
    for (std::size_t i = 0; i < series.size(); ++i) {
        const double distance = static_cast<double>(i) - center;
        with += distance * (series[i] - mean);
        of += distance * distance;
    }
    return with / of;
}

void RunningMedian::add(double x) {
    sorted_.insert(std::ranges::upper_bound(sorted_, x), x);
    if (values_.size() < window_) return values_.push_back(x);
    sorted_.erase(std::ranges::lower_bound(sorted_, values_[oldest_]));
    values_[oldest_] = x;
    oldest_ = (oldest_ + 1) % window_;
}

double RunningMedian::deviation() const {
    constexpr double of_normal = 1.4826; // 1 / the third quartile of the normal distribution
    std::vector<double> distances;
    for (const double x : sorted_) distances.push_back(std::abs(x - median()));
    const auto middle = distances.begin() + static_cast<std::ptrdiff_t>((distances.size() - 1) / 2);
    std::ranges::nth_element(distances, middle);
    return of_normal * *middle;
}

} // namespace amp
