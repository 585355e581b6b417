// What a few runs say of a mean: Student's t, confidence intervals, and how many runs would decide.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace amp {

/// The probability that Student's t with `degrees` >= 1 degrees of freedom lies in [-t, t], t >= 0: the finite sums of
/// Abramowitz and Stegun, 26.7.3 and 26.7.4.
double student_within(double t, std::size_t degrees);

/// The t >= 0 for which student_within(t, degrees) is `level`, 0 <= level < 1.
double student_bound(double level, std::size_t degrees);

/// A mean with its confidence interval.
struct MeanInterval {
    double mean = 0, low = 0, high = 0;
    double deviation = 0;  ///< standard deviation of the sample, at least the one asked for; 0 for a single value
    std::size_t count = 0; ///< number of samples; with one the interval is infinite
};

/// The mean of finite samples, and the interval that contains the true mean with probability 1 - alpha if they are
/// normally distributed: mean +- t * deviation / sqrt(count). At least one sample; 0 < alpha < 1. Samples that are
/// rounded may agree by chance: `least_deviation` is what the deviation is at least.
MeanInterval mean_interval(std::span<const double> samples, double alpha, double least_deviation = 0);

/// The difference of the means of two independent samples, the first minus the second, with an interval that contains
/// the true difference with probability 1 - alpha or more: t has the degrees of freedom of the smaller sample. `count`
/// is the size of the smaller sample, `deviation` that of the difference of two single values. `least_deviation` is
/// what the deviation of each sample is at least.
MeanInterval difference_interval(std::span<const double> a, std::span<const double> b, double alpha,
                                 double least_deviation = 0);

/// The probability that the interval of `count` samples (see mean_interval) lies on the right side of a limit, if they
/// are normally distributed with this deviation, about a mean at this distance from the limit: that of a noncentral t
/// above the bound of the interval, integrated over the deviation that the samples turn out to have, to 1e-6 for
/// alpha >= 0.001.
/// count >= 2, distance > 0, deviation >= 0.
double decision_power(double distance, double deviation, double alpha, std::size_t count);

/// The least number of samples whose interval lies on the right side of the limit with probability `power` or more, as
/// defined there; the sign of `distance` does not matter. (If it sufficed that an interval of the expected width
/// is shorter than the distance, samples would tell in little more than half of all cases.) None: more than `most`.
std::optional<std::size_t> samples_needed(double distance, double deviation, double alpha, double power,
                                          std::size_t most = 1000);

} // namespace amp
