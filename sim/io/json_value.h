// What JSON has no value for is null.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

namespace amp {

/// A number, or null for an infinity and a NaN.
inline nlohmann::ordered_json finite_or_null(double x) {
    return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr);
}

/// A value, or null for none; a number as above.
template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
    if (!value) return nullptr;
    if constexpr (std::is_floating_point_v<T>) return finite_or_null(*value);
    else return *value;
}

} // namespace amp
