// Which runs of two rows are compared: those of the same seed.
#pragma once

#include <ampscope/sim/findings/detail/comparison.h>

#include <functional>

namespace amp::detail {

/// A quantity of a run.
using Quantity = std::function<std::optional<double>(const RecordedRun&)>;

/// The runs of one seed. Those that differ all the same (on other machines, say) count once, by their mean. A run that
/// does not state its seed counts as a seed of its own.
struct Seed {
    std::optional<double> seed;
    std::vector<const RecordedRun*> runs;

    [[nodiscard]] bool diverged() const; ///< whether the final loss of a run is infinite or NaN
    /// The mean over the runs; none if one of them diverged or does not have the quantity.
    [[nodiscard]] std::optional<double> mean(const Quantity& of) const;
};
std::vector<Seed> seeds_of(const ComparisonRow& row);

/// Pairs of a seed of each row: the same, or the only one of each if one of them does not say which.
std::vector<std::pair<Seed, Seed>> pairs_of(const ComparisonRow& row, const ComparisonRow& other);

} // namespace amp::detail
