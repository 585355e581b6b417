// Values that JSON does not have are written as null.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

namespace amp {

/// A number, or null if it is infinite or NaN.
inline nlohmann::ordered_json finite_or_null(double x) {
    return std::isfinite(x) ? nlohmann::ordered_json(x) : nlohmann::ordered_json(nullptr);
}

/// A value, or null if there is none; numbers as above.
template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
    if (!value) return nullptr;
    if constexpr (std::is_floating_point_v<T>) return finite_or_null(*value);
    else return *value;
}

} // namespace amp
