// The contents of an exact histogram as JSON, shared by reports, run folders and their readers.
#pragma once

#include <ampscope/sim/analysis/histogram.h>

#include <nlohmann/json.hpp>

namespace amp {

/// {"-12": [counts of the mantissa classes 0, 1, ...], ...} by exponent; each row ends with its last non-zero count.
inline nlohmann::ordered_json rows_of(const MagnitudeHistogram& histogram) {
    auto rows = nlohmann::ordered_json::object();
    for (const auto& [exponent, row] : histogram.rows) {
        std::size_t used = row.size();
        while (used > 0 && row[used - 1] == 0) --used;
        rows[std::to_string(exponent)] =
            std::vector<std::uint64_t>(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(used));
    }
    return rows;
}

/// Adds how well a recommendation is known and what was hidden, if anything was.
inline void add_known(nlohmann::ordered_json& json, const Recommendation& recommendation) {
    if (!recommendation.censoring.hides()) return;
    json["known"] = name_of(recommendation.known);
    json["unknown_below_log2"] = recommendation.censoring.below_log2.value_or(0);
    json["recorded_zeros"] = recommendation.censoring.zeros;
}

} // namespace amp
