// Values of JSON reports that may come from anywhere. What is not as expected is an std::invalid_argument.
#pragma once

#include <ampscope/sim/base/number.h>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace amp::detail {

/// nlohmann's get() would silently convert -1 and 0.5 to integers.
inline std::uint64_t whole(const nlohmann::ordered_json& json) {
    if (!json.is_number_unsigned())
        throw std::invalid_argument("expected a whole number, got " + json.dump().substr(0, 40));
    return json.get<std::uint64_t>();
}

inline std::uint64_t count_at(const nlohmann::ordered_json& json, const char* key) { return whole(json.at(key)); }

inline std::vector<std::uint64_t> wholes(const nlohmann::ordered_json& json) {
    std::vector<std::uint64_t> numbers;
    for (const nlohmann::ordered_json& item : json) numbers.push_back(whole(item));
    return numbers;
}

/// A key such as "-24".
inline int parse_exponent(const std::string& text) {
    if (const std::optional<int> e = number_of(text, -4000, 4000)) return *e;
    throw std::invalid_argument("it has the exponent '" + text + "'");
}

/// A number; `otherwise` for null.
inline double number_at(const nlohmann::ordered_json& json, const char* key,
                        double otherwise = std::numeric_limits<double>::infinity()) {
    return json.at(key).is_null() ? otherwise : json.at(key).get<double>();
}

} // namespace amp::detail
