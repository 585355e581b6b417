// The state of an exact histogram as JSON: what reports, run folders and their readers share.
#pragma once

#include <ampscope/sim/analysis/histogram.h>

#include <nlohmann/json.hpp>

namespace amp {

/// {"-12": [counts of the mantissa classes 0, 1, ...], ...} by exponent; a row ends with its last count that is not
/// zero.
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

} // namespace amp
