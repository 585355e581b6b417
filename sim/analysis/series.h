// What a series of correlated values says: how much of its mean is noise, and what is unusual for its last values.
#pragma once

#include <ampscope/sim/analysis/student.h>

#include <cstddef>
#include <span>
#include <vector>

namespace amp {

/// How many independent values would tell as much of the mean as these, of which neighbours are correlated: their
/// number divided by 1 + 2 * the sum of their autocorrelations. That sum ends where two in a row are negative together
/// (the initial positive sequence of Geyer, Statistical Science 7, 1992). Between 1 and the number of values; series of
/// more than 1,000 values are divided into so many stretches. Equal values are all independent; 1 if their variance is
/// not finite. At least one value.
double effective_count(std::span<const double> series);

/// The mean of the last `last` values of a series, and how much such a mean varies along the whole series: the interval
/// contains the mean that the series has in the long run with probability 1 - alpha or so, if it keeps to it. Infinite
/// if the series tells no more than one independent value would; a drift counts as noise. `deviation` is that of the
/// values (or of the stretches, see above), `count` is 1: it is one series. 1 <= last <= series.size().
///
/// Series of which this is one may have different means in the long run, which a single series cannot show. `between`
/// is the standard deviation of those means, in standard deviations of the series' values; the interval is then that of
/// the mean of all series: its half width is t * sqrt(variance of the mean + (between * deviation)^2).
MeanInterval mean_of_last(std::span<const double> series, std::size_t last, double alpha, double between = 0);

/// The slope, from one value to the next, of the straight line through them that has the least sum of squares. At least
/// two values.
double slope_of(std::span<const double> series);

/// The median of the last values that were added, and their spread about it.
class RunningMedian {
  public:
    explicit RunningMedian(std::size_t window) : window_(window) {}

    void add(double x);
    [[nodiscard]] std::size_t count() const { return sorted_.size(); }
    /// The lower of two in the middle. At least one value was added.
    [[nodiscard]] double median() const { return sorted_[(sorted_.size() - 1) / 2]; }
    /// The median distance from the median, times 1.4826: the standard deviation where values are normally distributed,
    /// and hardly moved by a few that are far off.
    [[nodiscard]] double deviation() const;

  private:
    std::size_t window_, oldest_ = 0;
    std::vector<double> values_, sorted_; ///< the last ones, from oldest_ on in turn; and in ascending order
};

} // namespace amp
